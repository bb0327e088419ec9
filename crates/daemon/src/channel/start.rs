//! A channel's position before it starts, and the check that it may begin there.

use std::sync::Arc;

use csa_applier::{ChannelRecord, SharedTables, StartFrom, StartPosition, TargetFacts};
use csa_provider::binlog::GtidSet;
use csa_provider::source::{Known, SourceFacts};
use csa_relaystore::opening::{RelaySurvey, survey};

use super::overlap::overlap;
use super::reception::Reception;
use crate::config::{ChannelSettings, read_rules};
use crate::host::blocking;

/// A channel's progress, before any part of it is opened.
#[derive(Debug, Default)]
pub(super) struct StartKnowledge {
    /// `None` where the source decides.
    pub(super) known: Option<Known>,
    /// Everything received into the relay store, including what has been purged from it.
    relayed: RelaySurvey,
    /// See [`is_behind`].
    pub(super) is_behind: bool,
}

impl StartKnowledge {
    /// Returns everything received into the relay store.
    pub(super) const fn relayed(&self) -> &GtidSet {
        &self.relayed.received
    }

    /// Includes the relay store: what it holds, the source may have purged.
    pub(super) async fn of(
        settings: &Arc<ChannelSettings>,
        start: &StartFrom,
        target: &TargetFacts,
        reception: &Reception,
    ) -> Self {
        let executed = start_set(settings, start, target);
        let from = executed.clone().unwrap_or_default();
        let found = relayed(settings, reception, &from).await;
        let foreign = target.foreign(&settings.name);
        let mut known = executed.map(|received| Known { received, foreign });
        let is_behind = known.as_ref().is_some_and(|known| is_behind(&found, known));
        // Only a store that is kept spares the source: one that does not follow is emptied when
        // it is opened.
        if let Some(known) = known.as_mut().filter(|_| found.follows) {
            known.received.union(&found.received);
        }
        Self { known, relayed: found, is_behind }
    }
}

/// Returns true if a store has nothing for a target with `applied`, and lacks a part of that. Reception from it passes over
/// that part, unless the source says what of it an archive can still get.
fn is_behind(relayed: &RelaySurvey, applied: &Known) -> bool {
    let has_nothing = relayed.received.is_subset_of(&applied.received);
    !relayed.follows || (has_nothing && !applied.lacking(&relayed.received).is_empty())
}

/// Looks at what the relay store has for somebody who continues after `from`.
pub(super) async fn relayed(
    settings: &Arc<ChannelSettings>,
    reception: &Reception,
    from: &GtidSet,
) -> RelaySurvey {
    if let Some(received) = reception.received(settings, from).await {
        return RelaySurvey { received, follows: true };
    }
    let (options, from) = (settings.relay.clone(), from.clone());
    // A store that can't be read is reported when it is opened.
    let looked = blocking(move || survey(&options, &from)).await;
    looked.ok().and_then(Result::ok).flatten().unwrap_or_default()
}

/// Everything the target has executed of this channel; `None` where the source decides.
fn start_set(
    settings: &ChannelSettings,
    start: &StartFrom,
    facts: &TargetFacts,
) -> Option<GtidSet> {
    facts.executed(settings.target.gtids).or_else(|| match start {
        StartFrom::Target => Some(facts.gtid_executed.clone()),
        StartFrom::Executed(set) => Some(set.clone()),
        StartFrom::Source => None,
    })
}

/// Checks that the channel may start; returns warnings.
///
/// # Errors
/// The reason why not, and how to proceed.
pub(super) fn check(
    settings: &ChannelSettings,
    start: &StartFrom,
    target: &TargetFacts,
    source: Option<&SourceFacts>,
    standing: &StartKnowledge,
) -> Result<Vec<String>, String> {
    let none = GtidSet::new();
    let position = StartPosition {
        channel: &settings.name,
        address: &settings.target.address(),
        start,
        is_copy_unsaid: settings.is_start_unsaid
            && source.is_none_or(|source| !source.is_without_tables),
        gtids: settings.target.gtids,
        source: source.map(|facts| &facts.gtid_executed),
        source_uuid: source.and_then(|facts| facts.server_uuid.parse().ok()),
        target: &target.gtid_executed,
        target_uuids: &target.own_uuids,
        channels: &target.channels,
        // A copy begins after what its source has, and empties the store.
        relayed: if settings.copies_first { &none } else { standing.relayed() },
        is_relay_kept: standing.relayed.follows,
    };
    position.check(|other| shared(settings, target, other))
}

fn shared(settings: &ChannelSettings, target: &TargetFacts, other: &ChannelRecord) -> SharedTables {
    let written = other.identity.as_ref().and_then(|identity| read_rules(&identity.filters));
    let Some(written) = written else { return SharedTables::Unknown };
    let both = overlap(&settings.filters, &written, target.folds_case, &target.tables);
    both.map_or(SharedTables::Nothing, SharedTables::Table)
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::Uuid;
    use csa_provider::source::Foreign;

    use super::*;

    #[test]
    fn a_store_is_behind_a_target_that_has_more_of_the_source() {
        let set = |source: &str, other: &str| -> GtidSet {
            let of = |server: u8, intervals: &str| match intervals {
                "" => String::new(),
                of => format!("0707070{server}-0707-0707-0707-070707070707:{of}"),
            };
            [of(1, source), of(2, other)].join(",").trim_matches(',').parse().expect("a set")
        };
        let other: Uuid = "07070702-0707-0707-0707-070707070707".parse().expect("a UUID");
        let decide = |relayed: GtidSet, applied: GtidSet| {
            let foreign = Foreign { servers: [other].into(), ..Foreign::default() };
            let relayed = RelaySurvey { received: relayed, follows: true };
            is_behind(&relayed, &Known { received: applied, foreign })
        };
        assert!(!decide(set("1-20", ""), set("1-20", "")));
        assert!(!decide(set("1-30", ""), set("1-20", "")), "it has something for the target");
        assert!(decide(set("1-15", ""), set("1-20", "")), "a crash has taken its end");
        assert!(!decide(set("1-20", "1-3"), set("1-20", "1-9")), "the source never had these");
        assert!(!decide(set("1-15:17-25", ""), set("1-16", "")), "first what it has");
        let none = RelaySurvey::default();
        assert!(is_behind(&none, &Known { received: set("1-20", ""), ..Known::default() }));
    }
}
