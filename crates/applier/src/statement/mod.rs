//! Transactions of one statement, executed alone on the session that holds the channel's lock.

mod context;
mod execution;
pub(crate) mod executor;
mod failure;
mod mariadb;
mod not_transactional;
mod parts;
mod progress;
mod source_statement;
mod text;
