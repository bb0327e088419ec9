//! Statements that an operator is to run by hand on a server whose replicas must not run them.

/// The beginning of a statement that the server's binary log is to leave out.
pub const UNLOGGED: &str = "SET sql_log_bin=0; ";

/// Returns a statement about an account of the daemon. Accounts are often made without the binary log
/// (config/grants-source.sql), and a replica that lacks one stops at a logged statement about it (1410, 1396).
#[must_use]
pub fn of_account(statement: &str) -> String {
    format!(
        "{UNLOGGED}{statement} -- without the SET in a group, or where replicas have the account"
    )
}
