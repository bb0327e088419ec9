//! The proof that transactions sent under their source's GTIDs have used them.
//!
//! A BINLOG statement without BEGIN is a transaction of its own, which spares two statements. Its rows may
//! change nothing, because they undo each other or the target has their values. Then a server with a binary log
//! does not use the GTID, and the session still owns it (MySQL 8.0.15, 8.0.31 and 9.7.4). Its next
//! `SET gtid_next` then fails. An error ends the packet, so nothing after the transaction is executed before
//! it. Each packet ends with such a statement: one that succeeds has used all of its GTIDs.
//!
//! With the error the session gives the GTID up, though its text says that COMMIT does. The unit is sent again with
//! BEGIN and COMMIT around each transaction: a COMMIT uses the GTID whatever came before it, and transactions that
//! are executed are passed over. If the daemon dies in between, the GTID is not executed and neither is anything
//! after it. If the target dies in between, InnoDB may have written the GTID to `mysql.gtid_executed` (MySQL 9.7.4).
//! After the restart it counts as executed, but the target's binary log lacks it, and replicas of the target stop
//! with error 1236. So a transaction that is known to undo its own changes gets its BEGIN and COMMIT at once. If the
//! target has its values for another reason, it can't be known.

use csa_provider::seams::planted::{Bug, is_planted};

use crate::error::Error;
use crate::server::as_source;

/// `ER_CANT_SET_GTID_NEXT_WHEN_OWNING_GTID`.
const OWNS_GTID: u16 = 1790;

/// The way in which a transaction of one statement under its source's GTID is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Committed {
    /// The statement of the transaction uses the GTID, or may leave it unused.
    ByStatement,
    /// COMMIT uses the GTID.
    Explicitly,
}

impl Committed {
    /// Returns true if the transaction commits with its one statement; `is_undone` if its rows are known to end as
    /// they began.
    pub(super) fn is_by_statement(self, is_undone: bool) -> bool {
        self == Self::ByStatement && (!is_undone || is_planted(Bug::GtidUseUnproven))
    }
}

/// The statement that ends a packet, and fails if the transaction before it has not used its GTID.
pub(super) fn proof() -> &'static str {
    match is_planted(Bug::GtidUseUnproven) {
        true => "DO 1",
        false => as_source::AUTOMATIC,
    }
}

/// Returns true if a transaction has not used its GTID.
pub(super) fn is_unused(error: &Error) -> bool {
    error.code() == Some(OWNS_GTID)
}
