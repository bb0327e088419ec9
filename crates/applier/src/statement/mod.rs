//! Transactions of one statement, executed alone on the session that holds the channel's lock.

mod attempts;
mod context;
mod differences;
mod execution;
pub(crate) mod executor;
mod failure;
mod half_written;
mod mariadb;
mod mysql57;
mod next_steps;
mod not_transactional;
mod parts;
mod progress;
mod source_statement;
mod text;
