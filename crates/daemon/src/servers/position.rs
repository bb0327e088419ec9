//! The channel's start position: whether the source still has it, and how much is pending.

use csa_applier::{StartFrom, same_server};
use csa_provider::binlog::{GtidSet, Uuid};
use csa_provider::source::{Foreign, Known};

use csa_provider::server::{Finding, Place};

use crate::host::counted;

/// Longer sets are shortened in a finding.
const SHOWN: usize = 200;

/// Both servers' GTID sets.
#[derive(Debug, Default)]
pub(super) struct Position<'a> {
    pub(super) source_uuid: &'a str,
    /// The UUIDs of the GTIDs that the target makes.
    pub(super) target_uuids: Vec<&'a str>,
    pub(super) executed: GtidSet,
    pub(super) purged: GtidSet,
    pub(super) target_executed: GtidSet,
    /// The union of the channel's rows in `csa.checkpoint`.
    pub(super) checkpoint: Option<GtidSet>,
    /// At least one replicated table exists on the target.
    pub(super) target_has_tables: bool,
    /// The target can add transactions to its `gtid_purged`, as no MySQL 5.7 can, and no MariaDB.
    pub(super) target_adds_gtids: bool,
    /// A channel without a checkpoint begins with a copy.
    pub(super) copies_first: bool,
    /// The target's own `gtid_executed` is the checkpoint.
    pub(super) as_source: bool,
}

impl Position<'_> {
    /// Returns the set that counts as applied, and its origin.
    fn start(&self, start_from: &StartFrom) -> (GtidSet, &'static str) {
        match (&self.checkpoint, start_from) {
            (Some(_), _) if self.as_source => {
                (self.target_executed.clone(), "the target's gtid_executed")
            }
            (Some(checkpoint), _) => (checkpoint.clone(), "the checkpoint"),
            (None, StartFrom::Target) => {
                (self.target_executed.clone(), "the target's gtid_executed")
            }
            (None, StartFrom::Source) => (self.executed.clone(), "what the source has executed"),
            (None, StartFrom::Executed(set)) => (set.clone(), "start_from"),
        }
    }

    /// Returns the set that is still to be applied.
    pub(super) fn pending(&self, start_from: &StartFrom) -> GtidSet {
        self.executed.difference(&self.start(start_from).0)
    }

    pub(super) fn findings(&self, start_from: &StartFrom) -> Vec<Finding> {
        let (start, by) = self.start(start_from);
        vec![
            self.servers(),
            self.purged(&start),
            self.same_history(&start),
            self.begins(&start, by, start_from),
        ]
    }

    fn servers(&self) -> Finding {
        const CHECK: &str = "position.servers";
        // MariaDB has no UUID.
        if self.source_uuid.is_empty() || !self.target_uuids.contains(&self.source_uuid) {
            return Finding::ok(CHECK, "source and target are two servers");
        }
        let [text, fix] = same_server(self.source_uuid);
        Finding::error(CHECK, text).fix(Place::Operator, fix)
    }

    fn purged(&self, start: &GtidSet) -> Finding {
        const CHECK: &str = "position.purged";
        let lacking = self.purged.difference(start);
        if lacking.is_empty() {
            return Finding::ok(CHECK, "the source has all that the target lacks");
        }
        Finding::error(
            CHECK,
            format!(
                "the source has purged {} that the target lacks: {}",
                counted(lacking.count(), "transaction"),
                shown(&lacking)
            ),
        )
        .fix(
            Place::Operator,
            "copy the source to the target again (docs/provisioning.md#copy-again)",
        )
    }

    /// Returns a source that was reset or restored uses the same GTIDs a second time.
    fn same_history(&self, start: &GtidSet) -> Finding {
        const CHECK: &str = "position.history";
        let foreign = Foreign { is_undecided: true, ..Foreign::default() };
        let known = Known { received: start.clone(), foreign };
        let lacking = known.lacking(&self.executed);
        // No source has to have what the target committed itself.
        let is_own = |uuid: &Uuid| self.target_uuids.contains(&uuid.to_string().as_str());
        let mut ahead = lacking.of_servers(|uuid| !is_own(uuid));
        ahead.union(&start.of_server(self.source_uuid).difference(&self.executed));
        if ahead.is_empty() {
            return Finding::ok(
                CHECK,
                "the target has nothing of the source that the source lacks",
            );
        }
        Finding::error(
            CHECK,
            format!(
                "the target has {} of this source's history that the source lacks (was it reset \
                 or restored from a backup, or is it another server or a replica that lags?): {}",
                counted(ahead.count(), "transaction"),
                shown(&ahead)
            ),
        )
        .fix(
            Place::Operator,
            "copy the source to the target again (docs/provisioning.md#copy-again)",
        )
    }

    fn begins_with_copy(&self) -> Finding {
        const CHECK: &str = "position.start";
        if self.target_has_tables {
            let text = "begins with a copy of the source, which makes only tables that are missing; some are there";
            let fix = "[channel.applier] start_from = \"…\" # the GTID set of the copy that the tables are";
            return Finding::error(CHECK, text).fix(Place::Configuration, fix);
        }
        Finding::ok(CHECK, "begins with a copy of the source")
    }

    fn begins(&self, start: &GtidSet, by: &str, start_from: &StartFrom) -> Finding {
        const CHECK: &str = "position.start";
        if self.copies_first && self.checkpoint.is_none() {
            return self.begins_with_copy();
        }
        let pending = self.executed.difference(start);
        let text = match pending.count() {
            0 => format!("begins after {by}; nothing is pending"),
            count => format!("begins after {by}; {} pending", counted(count, "transaction")),
        };
        let is_first = self.checkpoint.is_none() && *start_from == StartFrom::Target;
        let from_nothing = !self.executed.is_empty() && !start.intersects(&self.executed);
        if is_first && from_nothing && self.target_has_tables {
            let found = Finding::error(
                CHECK,
                format!(
                    "{text}: the target has tables, and none of the source's GTIDs; if they are a \
                     copy, everything would be applied a second time, and if not, they are in the way"
                ),
            )
            .fix(
                Place::Configuration,
                "[channel.applier] start_from = \"…\" # the source's gtid_executed at the time of the copy",
            );
            return match self.target_adds_gtids {
                true => found.fix(Place::Target, "SET GLOBAL gtid_purged='+…'; -- the same"),
                false => found,
            };
        }
        Finding::ok(CHECK, text)
    }
}

fn shown(set: &GtidSet) -> String {
    let text = set.to_string().replace('\n', "");
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use csa_provider::server::Level;

    const A: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
    const B: &str = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb";

    fn set(text: &str) -> GtidSet {
        text.replace("A:", &format!("{A}:")).replace("B:", &format!("{B}:")).parse().expect("a set")
    }

    fn position(purged: &str, target: &str) -> Position<'static> {
        Position {
            source_uuid: A,
            executed: set("A:1-100"),
            purged: set(purged),
            target_executed: set(target),
            ..Position::default()
        }
    }

    fn found(position: &Position<'_>, start_from: &StartFrom) -> Vec<(&'static str, Level)> {
        let findings = position.findings(start_from).into_iter();
        findings.filter(|f| f.level != Level::Ok).map(|f| (f.check, f.level)).collect()
    }

    #[test]
    fn the_source_must_have_what_the_target_lacks() {
        let from = StartFrom::Target;
        assert_eq!(found(&position("A:1-50", "A:1-50,B:1-3"), &from), []);
        let purged = position("A:1-50", "A:1-49");
        assert_eq!(found(&purged, &from), [("position.purged", Level::Error)]);
        let text = purged.purged(&set("A:1-49")).text;
        assert!(text.contains(&format!("1 transaction that the target lacks: {A}:50")), "{text}");
        assert_eq!(found(&purged, &StartFrom::Source), []);
        assert_eq!(found(&purged, &StartFrom::Executed(set("A:1-60"))), []);
        // The checkpoint is the truth.
        let checkpoint = Some(set("A:1-80"));
        let resumed = Position { checkpoint, ..position("A:1-50", "") };
        assert_eq!(found(&resumed, &from), []);
        assert_eq!(resumed.pending(&from).count(), 20);
        let mirrored = Position { as_source: true, ..resumed };
        assert_eq!(found(&mirrored, &from), [("position.purged", Level::Error)]);
    }

    #[test]
    fn a_source_that_was_reset_is_another_one() {
        let position = position("", "A:1-101,B:1-7");
        assert_eq!(found(&position, &StartFrom::Target), [("position.history", Level::Error)]);
    }

    #[test]
    fn source_and_target_must_be_two_servers() {
        let twin = Position { target_uuids: vec![A], ..position("", "A:1-60") };
        assert_eq!(found(&twin, &StartFrom::Target), [("position.servers", Level::Error)]);
        let of_mariadb = Position { target_uuids: vec!["", ""], ..position("", "A:1-60") };
        assert_eq!(found(&of_mariadb, &StartFrom::Target), []);
    }

    #[test]
    fn a_source_must_have_all_of_its_history() {
        let executed = set("A:1-100,B:1-5");
        let source = |target| Position { executed: executed.clone(), ..position("", target) };
        let from = StartFrom::Target;
        assert_eq!(found(&source("A:1-100,B:1-6"), &from), [("position.history", Level::Error)]);
        // The target's own, and those that came from elsewhere.
        assert_eq!(
            found(&Position { target_uuids: vec![B], ..source("A:1-100,B:1-6") }, &from),
            []
        );
        let other = "cccccccc-cccc-cccc-cccc-cccccccccccc:1-3";
        assert_eq!(found(&source(&format!("A:1-100,{other}")), &from), []);
    }

    #[test]
    fn a_copy_without_gtids_would_be_applied_twice() {
        let empty = position("", "B:1-3");
        assert_eq!(found(&empty, &StartFrom::Target), []);
        let copy = Position { target_has_tables: true, ..empty };
        assert_eq!(found(&copy, &StartFrom::Target), [("position.start", Level::Error)]);
        assert_eq!(found(&copy, &StartFrom::Source), []);
        let known = Position { target_has_tables: true, ..position("", "A:1-20") };
        assert_eq!(found(&known, &StartFrom::Target), []);
    }

    #[test]
    fn long_sets_are_cut_off() {
        let many: Vec<String> = (0..100).map(|n| (n * 2 + 1).to_string()).collect();
        let text = shown(&set(&format!("A:{}", many.join(":"))));
        assert_eq!(text.chars().count(), SHOWN + 1);
        assert!(text.ends_with('…'));
    }
}
