//! Transactions below others that the target has: a start fills such holes only where they may be legitimate.

use csa_applier::{HolesBelow, Received, StartFrom, TargetFacts, TargetGtids};
use csa_provider::binlog::GtidSet;
use csa_provider::source::SourceFacts;
use csa_relaystore::disk::RelayStoreOptions;
use csa_relaystore::read::RelayInspector;

use super::start::StartKnowledge;
use crate::config::ChannelSettings;
use crate::host::blocking;

/// Returns a warning if the channel will fill holes that were not to be expected.
///
/// # Errors
/// The reason why it must not, and how to proceed.
pub(super) async fn check(
    settings: &ChannelSettings,
    start: &StartFrom,
    target: &TargetFacts,
    source: Option<&SourceFacts>,
    standing: &StartKnowledge,
) -> Result<Option<String>, String> {
    if settings.target.gtids != TargetGtids::Source {
        return Ok(None);
    }
    let below = HolesBelow {
        channel: &settings.name,
        address: &settings.target.address(),
        start,
        record: target.channels.iter().find(|record| record.channel == settings.name),
        target: &target.gtid_executed,
        source: source.map_or(standing.relayed(), |facts| &facts.gtid_executed),
        in_order: settings.applier.preserve_commit_order,
    };
    let holes = below.holes();
    if holes.is_empty() {
        return Ok(None);
    }
    let (options, wanted, executed) = (settings.relay.clone(), holes.clone(), below.executed());
    // A store that can't be read is reported when it is opened.
    let received = blocking(move || look(&options, &wanted, &executed)).await;
    below.judge(&holes, &received.ok().and_then(Result::ok).unwrap_or_default())
}

/// Looks for `holes` in the relay store, and for transactions of the same servers after them that were executed.
/// Blocks on the disk until all are found to be passed, or to the end of the store.
fn look(
    options: &RelayStoreOptions,
    holes: &GtidSet,
    executed: &GtidSet,
) -> csa_relaystore::disk::Result<Received> {
    let mut received = Received::default();
    for transaction in RelayInspector::open(options)? {
        let gtid = transaction?.header.gtid;
        if holes.contains(&gtid) {
            received.found.add(&gtid);
        } else if executed.contains(&gtid) {
            let passed = received.found.of_servers(|uuid| *uuid == gtid.uuid);
            if !passed.is_empty() {
                let (all, last) =
                    received.passed.get_or_insert_with(|| (GtidSet::new(), gtid.clone()));
                all.union(&passed);
                *last = gtid;
                if all == holes {
                    break;
                }
            }
        }
    }
    Ok(received)
}
