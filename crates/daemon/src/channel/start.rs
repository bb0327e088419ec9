//! What a channel has, and whether it may begin where it is about to.

use std::sync::Arc;

use csa_applier::{ChannelRecord, Shared, StartFrom, StartPosition, TargetFacts, TargetGtids};
use csa_provider::{GtidSet, Known, SourceFacts};
use csa_relaystore::{RelaySurvey, survey};
use tokio::task::spawn_blocking;

use super::overlap::{overlap, read_rules};
use super::reception::Reception;
use crate::config::ChannelSettings;

/// Where a channel stands, before anything of it is opened.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// `None` where it is for the source to say.
    pub(super) known: Option<Known>,
    /// All that is in the relay store, and was before.
    relayed: GtidSet,
}

impl Standing {
    /// The relay store is looked at too: what it holds the source need not have any more.
    pub(super) async fn of(
        settings: &Arc<ChannelSettings>,
        start: &StartFrom,
        target: &TargetFacts,
        reception: &Reception,
    ) -> Self {
        let executed = start_set(settings, start, target);
        let directory = settings.relay.directory.clone();
        let from = executed.clone().unwrap_or_default();
        let found = match reception.received(settings, &from).await {
            Some(received) => RelaySurvey { received, follows: true },
            // What can't be read, opening it will say.
            None => {
                let looked = spawn_blocking(move || survey(&directory, &from)).await;
                looked.ok().and_then(Result::ok).flatten().unwrap_or_default()
            }
        };
        let known = executed.map(|mut received| {
            if found.follows {
                received.union(&found.received);
            }
            Known { received, foreign: target.foreign(&settings.name) }
        });
        Self { known, relayed: found.received }
    }
}

/// What the target has executed of this channel; unknown when it is for the source to say.
fn start_set(
    settings: &ChannelSettings,
    start: &StartFrom,
    facts: &TargetFacts,
) -> Option<GtidSet> {
    match (&facts.checkpoint, start) {
        (Some(checkpoint), _) => {
            let mut executed = checkpoint.executed.clone();
            // There the target's own is the truth, and the row a little before it.
            if settings.target.gtids == TargetGtids::Source {
                executed.union(&facts.gtid_executed);
            }
            Some(executed)
        }
        (None, StartFrom::Target) => Some(facts.gtid_executed.clone()),
        (None, StartFrom::Executed(set)) => Some(set.clone()),
        (None, StartFrom::Source) => None,
    }
}

/// Whether the channel may start. Things worth a warning.
///
/// # Errors
/// Why not, and how to proceed.
pub(super) fn check(
    settings: &ChannelSettings,
    start: &StartFrom,
    target: &TargetFacts,
    source: Option<&SourceFacts>,
    standing: &Standing,
) -> Result<Vec<String>, String> {
    let position = StartPosition {
        channel: &settings.name,
        address: &settings.target.address(),
        start,
        gtids: settings.target.gtids,
        source: source.map(|facts| &facts.gtid_executed),
        target: &target.gtid_executed,
        target_uuid: target.server_uuid,
        channels: &target.channels,
        relayed: &standing.relayed,
    };
    position.check(|other| shared(settings, target, other))
}

fn shared(settings: &ChannelSettings, target: &TargetFacts, other: &ChannelRecord) -> Shared {
    let written = other.identity.as_ref().and_then(|identity| read_rules(&identity.filters));
    let Some(written) = written else { return Shared::Unknown };
    let both = overlap(&settings.filters, &written, target.folds_case, &target.tables);
    both.map_or(Shared::Nothing, Shared::Table)
}
