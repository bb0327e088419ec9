//! The record of the workers: what each does at this moment, and how long the steps take.

pub(crate) mod durations;
pub(crate) mod sessions;
