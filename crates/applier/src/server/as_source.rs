//! Session variables that are set on the target before a transaction of the source, as
//! `mysqlbinlog` prints them. The server forgets all of them with the COMMIT.

use std::fmt::Write as _;

use csa_provider::binlog::TransactionHeader;

/// An assignment for SET SESSION: from the source's version the target learns which hidden columns row
/// images have
/// (<https://dev.mysql.com/doc/refman/en/replication-options-source.html#sysvar_immediate_server_version>).
/// `None` if the source did not log it.
pub(crate) fn version(header: &TransactionHeader) -> Option<String> {
    let version = header.immediate_server_version;
    (version != TransactionHeader::UNKNOWN_VERSION)
        .then(|| format!("immediate_server_version={version}"))
}

/// Gives the session's next transaction a GTID of the target's own.
pub(crate) const AUTOMATIC: &str = "SET SESSION gtid_next=_utf8mb4'AUTOMATIC'";

/// Returns an assignment for SET SESSION. Without an introducer the server would read the text in the character
/// set of `collation_connection`, which may be the source's and no superset of ASCII (error 1774).
pub(crate) fn gtid_next(gtid: &impl std::fmt::Display) -> String {
    format!("gtid_next=_utf8mb4'{gtid}'")
}

/// Returns the assignments for SET SESSION that make the next transaction the source's own.
pub(crate) fn identity(header: &TransactionHeader) -> String {
    let mut set = gtid_next(&header.gtid);
    // Writing to a String can't fail.
    let _ = write!(set, ",original_commit_timestamp={}", header.original_commit_timestamp);
    // Without it the target logs its own version.
    if header.original_server_version != TransactionHeader::UNKNOWN_VERSION {
        let _ = write!(set, ",original_server_version={}", header.original_server_version);
    }
    if let Some(version) = version(header) {
        let _ = write!(set, ",{version}");
    }
    set
}
