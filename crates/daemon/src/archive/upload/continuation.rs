//! The decision whether a history continues or another one begins. Pure.

use csa_provider::binlog::GtidSet;

/// The facts when the archive of a channel is opened.
#[derive(Debug)]
pub(super) struct ArchiveFacts<'a> {
    /// Everything up to the end of the archive's last history.
    pub(super) archived: &'a GtidSet,
    /// Transactions that the relay store does not have, before its first one and between others.
    pub(super) before: &'a GtidSet,
    /// Everything that was received, and everything that the target had before.
    pub(super) received: &'a GtidSet,
    /// `gtid_executed` of the source; `None` while it has not answered.
    pub(super) source: Option<&'a GtidSet>,
}

/// The way in which the archive continues.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Continuation {
    /// The history continues. These transactions were purged before they were archived.
    Same { missing: GtidSet },
    /// The source has another history, for the reason in words.
    Other(String),
    /// The source has to answer first.
    AskSource,
}

/// Decides how the archive continues.
pub(super) fn continuation(standing: &ArchiveFacts<'_>) -> Continuation {
    let ArchiveFacts { archived, before, received, source } = standing;
    let missing = before.difference(archived);
    let foreign = archived.difference(received);
    if missing.is_empty() && foreign.is_empty() {
        return Continuation::Same { missing };
    }
    let Some(source) = source else { return Continuation::AskSource };
    let foreign = foreign.difference(source);
    if !foreign.is_empty() {
        return Continuation::Other(format!(
            "the source lacks transactions that the archive has: {}",
            foreign.brief()
        ));
    }
    // A target has transactions of its own, and those of other channels, which this archive never gets.
    Continuation::Same { missing: missing.intersection(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(intervals: &str) -> GtidSet {
        match intervals {
            "" => GtidSet::new(),
            of => format!("07070707-0707-0707-0707-070707070707:{of}").parse().expect("a set"),
        }
    }

    fn decide(archived: &str, before: &str, received: &str, source: Option<&str>) -> Continuation {
        let source = source.map(set);
        continuation(&ArchiveFacts {
            archived: &set(archived),
            before: &set(before),
            received: &set(received),
            source: source.as_ref(),
        })
    }

    fn same(missing: &str) -> Continuation {
        Continuation::Same { missing: set(missing) }
    }

    #[test]
    fn a_history_continues_where_the_relay_store_follows_it() {
        assert_eq!(decide("1-10", "1-10", "1-12", None), same(""));
        assert_eq!(decide("1-10", "1-4", "1-12", None), same(""), "some of it is archived");
    }

    #[test]
    fn what_was_purged_before_is_missing() {
        assert_eq!(decide("1-10", "1-14", "1-20", None), Continuation::AskSource);
        assert_eq!(decide("1-10", "1-14", "1-20", Some("1-20")), same("11-14"));
        assert_eq!(
            decide("1-10", "1-14", "1-20", Some("1-12")),
            same("11-12"),
            "others are not ours"
        );
    }

    #[test]
    fn a_relay_store_behind_the_archive_catches_up_with_it() {
        assert_eq!(decide("1-10", "1-4", "1-6", None), Continuation::AskSource);
        assert_eq!(decide("1-10", "1-4", "1-6", Some("1-20")), same(""));
    }

    #[test]
    fn a_source_without_the_archived_transactions_has_another_history() {
        let other = decide("1-10", "1-4", "1-6", Some("1-7"));
        assert!(matches!(&other, Continuation::Other(why) if why.contains(":8-10")), "{other:?}");
    }
}
