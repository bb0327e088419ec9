//! Groups of row transactions: the workers that apply them, and the order in which they commit.

pub(crate) mod commit_turn;
mod late_tables;
pub(crate) mod lock_inversion;
pub(crate) mod throttle;
pub(crate) mod worker;
