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
        let known = executed.map(|mut received| {
            // Only a store that is kept spares the source: one that does not follow is emptied when
            // it is opened.
            if found.follows {
                received.union(&found.received);
            }
            Known { received, foreign: target.foreign(&settings.name) }
        });
        Self { known, relayed: found }
    }
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
