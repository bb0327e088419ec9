//! Errors that leave a statement to the operator, with the next steps.

use crate::error::Error;

/// The key for collations that the target lacks.
pub(super) const MAP_IT: &str = "applier.collation_map can name one that the target has in its place, \
     then: csa-daemon reload; csa-daemon restart";

/// Returns the error for a statement that the operator has to decide about. One that the target has executed is
/// passed over, so executing it there by hand is how to proceed.
pub(super) fn refused(gtid: &str, why: &str) -> Error {
    Error::Unsupported {
        gtid: gtid.to_owned(),
        what: format!(
            "{why}; on the target run SET gtid_next='{gtid}', then what it should do there (or BEGIN; \
             COMMIT to leave it out), then SET gtid_next='AUTOMATIC', and start the channel again"
        ),
    }
}

/// Returns the same where the target does not record executed statements.
pub(super) fn by_hand(gtid: &str, why: &str) -> Error {
    Error::Unsupported { gtid: gtid.to_owned(), what: format!("{why}; {}", steps_by_hand(gtid)) }
}

/// Returns the error for a statement that ended with an error on the source, and without one here.
pub(super) fn ended_otherwise(gtid: &str, code: u16) -> Error {
    Error::Unsupported {
        gtid: gtid.to_owned(),
        what: format!(
            "the statement ended with error {code} on the source, after it had changed something there, and \
             without an error on the target: their contents may differ. It is recorded as executed; compare \
             (csa-daemon verify), correct what differs, then start the channel again"
        ),
    }
}

pub(super) fn steps_by_hand(gtid: &str) -> String {
    format!(
        "for this one run on the target what it should do there, if anything, then: csa-daemon skip \
         {gtid}"
    )
}
