//! Groups of row transactions: the workers that apply them, and the order in which they commit.

mod attempt;
pub(crate) mod commit_turn;
mod late_tables;
pub(crate) mod lock_inversion;
mod lost_answer;
pub(crate) mod session;
pub(crate) mod throttle;
mod unit;
pub(crate) mod worker;
pub(crate) mod workers;
