//! Errors that leave a statement to the operator, with the next steps.

use crate::error::Error;
use crate::ownership::bookkeeping::RELOAD_AND_RESTART;

/// Names the key for collations that the target lacks.
pub(super) fn map_it() -> String {
    format!(
        "applier.collation_map can name one that the target has in its place, then: {RELOAD_AND_RESTART}"
    )
}

/// Returns the error for a statement that the operator has to decide about.
pub(super) fn by_hand(gtid: &str, under_gtid: bool, why: &str) -> Error {
    Error::Unsupported {
        gtid: gtid.to_owned(),
        what: format!("{why}; {}", steps_by_hand(gtid, under_gtid)),
    }
}

/// Returns the error for a statement that ended with an error on the source, and without one here.
pub(super) fn ended_otherwise(gtid: &str, code: u16) -> Error {
    Error::Unsupported {
        gtid: gtid.to_owned(),
        what: format!(
            "the statement ended with error {code} on the source, after it had changed something there, and \
             without an error on the target: their contents may differ. It is recorded as executed: run \
             csa-daemon restart, then compare (csa-daemon verify) and correct what differs"
        ),
    }
}

/// Returns the steps by which an operator executes a statement in place of the channel. With `under_gtid` the target records
/// statements under their source's GTID, and the channel passes over one that it has executed. Under a GTID of the
/// target's own another channel would bring it to the source, and the target would have one transaction more than the source.
pub(super) fn steps_by_hand(gtid: &str, under_gtid: bool) -> String {
    match under_gtid {
        true => format!(
            "on the target run SET gtid_next='{gtid}', then what it should do there (or BEGIN; COMMIT to \
             leave it out), then SET gtid_next='AUTOMATIC', and start the channel again"
        ),
        false => format!(
            "for this one run on the target what it should do there, if anything, then: csa-daemon skip \
             {gtid}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_by_hand_has_the_gtid_that_the_channel_looks_for() {
        let gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:5";
        let recorded = by_hand(gtid, true, "why").to_string();
        let (next, automatic) = (format!("SET gtid_next='{gtid}'"), "SET gtid_next='AUTOMATIC'");
        assert!(recorded.contains(&next) && recorded.contains(automatic), "{recorded}");
        assert!(!recorded.contains("csa-daemon skip"), "{recorded}");
        let unknown = by_hand(gtid, false, "why").to_string();
        assert!(unknown.contains(&format!("csa-daemon skip {gtid}")), "{unknown}");
        assert!(!unknown.contains("gtid_next"), "{unknown}");
    }
}
