//! Transactions of one statement, executed alone on the session that holds the channel's lock.

mod context;
pub(crate) mod executor;
mod mariadb;
mod progress;
mod text;
