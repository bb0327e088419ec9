//! The view of a channel, from everything known of it at one moment. Pure, except for
//! [`super::watch`], which collects what is known.

mod archive_only;
pub(super) mod bottleneck;
mod build;
mod elsewhere;
mod facts;
pub(super) mod failure;
mod parts;
pub(super) mod state;

pub(super) use facts::{Facts, Rewinds, snapshot};
