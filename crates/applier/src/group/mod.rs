//! Applies groups of row transactions: the workers, and the order in which they commit. Which
//! transactions go into a group is decided in crates/scheduler/src/scheduler/forming.rs.

mod attempt;
mod commit;
mod commit_chain;
pub(crate) mod commit_turn;
mod gtid_owner;
mod gtid_use;
mod late_tables;
pub(crate) mod lock_inversion;
mod lost_answer;
pub(crate) mod series;
pub(crate) mod throttle;
mod unit;
pub(crate) mod worker;
pub(crate) mod worker_session;
pub(crate) mod workers;
