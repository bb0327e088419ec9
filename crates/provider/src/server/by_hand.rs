//! Statements that an operator is to run by hand on a server whose replicas must not run them.

/// The beginning of a statement that the server's binary log is to leave out.
pub const UNLOGGED: &str = "SET sql_log_bin=0; ";

/// Returns a statement about an account of the daemon. Accounts are often made without the binary log
/// (config/grants-source.sql), and a replica that lacks one stops at a logged statement about it (1410, 1396).
#[must_use]
pub fn of_account(statement: &str) -> String {
    let unless = "/* not in a group, nor where replicas have the account */";
    format!("SET sql_log_bin=0 {unless}; {statement}")
}

/// Returns true if one of the statements is about an account.
pub(super) fn is_of_account(statements: &str) -> bool {
    let mut each = statements.split(';').map(str::trim_start);
    each.any(|one| ["GRANT ", "REVOKE ", "ALTER USER "].iter().any(|begin| one.starts_with(begin)))
}
