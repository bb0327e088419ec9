//! The lock of others for which a channel waits.

use serde::{Deserialize, Serialize};

/// Absent while the channel waits for none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LockWaitView {
    /// The transaction that waits, or its statement.
    pub(crate) what: String,
    /// The table, or a lock of the whole server.
    pub(crate) lock: String,
    pub(crate) since: String,
    pub(crate) seconds: u64,
    /// The target's number of our connection.
    pub(crate) thread_id: u32,
    /// Empty where the account may not see them.
    pub(crate) holders: Vec<LockHolderView>,
    /// A statement to run on the target where the account may not see who holds the lock.
    pub(crate) unseen: Option<String>,
    /// A query that shows them.
    pub(crate) look: String,
    /// All of it in a sentence.
    #[serde(skip)]
    pub(crate) sentence: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LockHolderView {
    /// Absent for a distributed transaction that was prepared and has no session.
    pub(crate) connection: Option<u64>,
    pub(crate) user: String,
    pub(crate) host: String,
    pub(crate) command: String,
    /// The time since its last statement began; MariaDB counts that of `Sleep` from the statement's end.
    pub(crate) seconds: i64,
    /// The statement that it executes, or has executed last, without values.
    pub(crate) statement: String,
}
