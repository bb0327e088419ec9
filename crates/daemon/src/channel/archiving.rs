//! A channel without a target. What it receives goes through its relay store into the archive, whose last index is
//! its checkpoint: no other state says how far it is. One daemon at a time adds files, because each index is created
//! once; the daemon that finds its number taken leaves the archive to the other one.

use std::time::Duration;

use csa_applier::StartFrom;
use csa_provider::binlog::GtidSet;
use csa_provider::source::{Foreign, Known, PreflightError, SourceFacts, preflight};
use csa_relaystore::disk;
use csa_relaystore::opening::{RelayContents, RelayStore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::error::{ChannelError, OVERCOME, Pauses, failed};
use super::identity;
use super::lifetime::{Channel, ON_REQUEST};
use super::reception::Received;
use super::start::relayed;
use super::start_steps::StartStep;
use crate::archive::store::ArchiveError;
use crate::archive::upload::{ArchiveEnd, ArchiveOptions, Uploader, archive_end};
use crate::host::state_dir;

/// Time between two looks at what is left to archive after the end of reception.
const LOOK: Duration = Duration::from_millis(250);

impl Channel {
    /// Checks what a start needs of the source; writes nothing. Returns the reason why it does not answer.
    ///
    /// # Errors
    /// Returns the change that is needed, on one line.
    pub(super) async fn preflight_archive(&self) -> Result<Option<String>, String> {
        state_dir::check(&self.settings.relay.directory)?;
        match preflight(&self.settings.source, None).await {
            Ok(_) => Ok(None),
            Err(PreflightError::Unreachable(why)) => Ok(Some(why)),
            Err(refused) => Err(refused.to_string()),
        }
    }

    /// Receives and archives until stopped; returns why the channel stopped.
    ///
    /// # Errors
    /// The cause of the stop; everything before it is archived, or waits in the relay store.
    pub(super) async fn run_archive(
        &self,
        options: &ArchiveOptions,
        stop: &CancellationToken,
    ) -> Result<&'static str, ChannelError> {
        // Kept to the end: the state directory has one user.
        let Some(_identity) = self.claimed(stop).await else { return Ok(ON_REQUEST) };
        let mut failures = failed();
        loop {
            let Some(received) = self.attached(options, stop).await else { return Ok(ON_REQUEST) };
            let begun = Instant::now();
            let ended = self.fill(options, received, stop).await;
            self.watch.detach();
            let error = match ended {
                Ok(()) => return Ok(ON_REQUEST),
                Err(ChannelError::Archive(ArchiveError::Relay(error))) => {
                    let disk::Error::Damaged { transaction, .. } = error else {
                        return Err(error.into());
                    };
                    error!(%error, "cutting the relay store there and fetching the rest from the source again");
                    self.reception.discard(&self.settings, transaction).await?;
                    continue;
                }
                Err(error) if error.may_pass() => error,
                Err(error) => return Err(error),
            };
            if begun.elapsed() >= OVERCOME {
                failures.restart();
            }
            if !self.waits_to_try_again(&error, &mut failures, stop).await {
                return Ok(ON_REQUEST);
            }
        }
    }

    /// Finds the place where the archive ends and receives from there, until that succeeds; `None` when stopped.
    async fn attached(
        &self,
        options: &ArchiveOptions,
        stop: &CancellationToken,
    ) -> Option<Received> {
        let mut pauses = Pauses::new(&self.settings);
        loop {
            self.watch.opening();
            let attach = async {
                let place = self.place(options).await?;
                self.watch.done(StartStep::Source);
                let attach =
                    self.reception.attach(&self.settings, &place, None, Foreign::default());
                let received = attach.await?;
                self.watch.done(StartStep::RelayStore);
                Ok(received)
            };
            let error = tokio::select! {
                // May be dropped anywhere: `attach` can be repeated.
                attached = attach => match attached {
                    Ok(received) => {
                        pauses.over();
                        return Some(received);
                    }
                    Err(error) => error,
                },
                () = stop.cancelled() => return None,
            };
            if !self.is_worth_another_try(&error, &mut pauses, stop).await {
                return None;
            }
        }
    }

    /// Returns everything that need not be received: what is archived, or what lies before the archive.
    async fn place(&self, options: &ArchiveOptions) -> Result<GtidSet, ChannelError> {
        let settings = &self.settings;
        let end = archive_end(options, &settings.name, settings.directory(), &self.watch.archive())
            .await?;
        self.watch.done(StartStep::Position);
        let ask = async |known: &GtidSet| {
            let known = Known { received: known.clone(), foreign: Foreign::default() };
            preflight(&settings.source, Some(&known)).await
        };
        let (place, received) = match &end.archived {
            Some(archived) if end.is_known_here => {
                let relayed = relayed(settings, &self.reception, archived).await;
                let mut received = archived.clone();
                if relayed.follows {
                    received.union(&relayed.received);
                }
                (archived.clone(), received)
            }
            _ => {
                let contents = self.reception.contents(settings).await?;
                let source = preflight(&settings.source, None).await?;
                match place_elsewhere(&end, &settings.start_from, &source, contents) {
                    Elsewhere::Source(place) if end.archived.is_none() => {
                        // Transactions after a GTID set may be purged.
                        ask(&place).await?;
                        return Ok(place);
                    }
                    Elsewhere::Source(place) => return Ok(place),
                    Elsewhere::RelayStore { place, received } => (place, received),
                }
            }
        };
        match ask(&received).await {
            Ok(_) => Ok(place),
            // The relay store may have something for the archive, and reception waits for the source on its own.
            Err(PreflightError::Unreachable(_)) => Ok(place),
            // What was received before the gap is archived first.
            Err(PreflightError::Purged(why)) if received == place => {
                warn!(why, "the archive gets a gap: the source has purged what is missing");
                let mut after = place;
                after.union(&preflight(&settings.source, None).await?.gtid_purged);
                Ok(after)
            }
            Err(PreflightError::Purged(_)) => Ok(place),
            Err(error) => Err(error.into()),
        }
    }

    /// Fills the archive from the relay store until stopped.
    async fn fill(
        &self,
        options: &ArchiveOptions,
        received: Received,
        stop: &CancellationToken,
    ) -> Result<(), ChannelError> {
        let settings = &self.settings;
        let (Received { store, mut end, .. }, source) = (received, self.watch.source());
        let writer = (settings.name.as_str(), identity::writer(settings.directory())?);
        let directory = settings.directory();
        let status = self.watch.archive();
        let uploader =
            Uploader::new(options, writer, directory, store.clone(), source, status.clone())?;
        self.watch.archiving();
        info!(took = self.watch.start_text(), "channel started, which only archives");
        let over = async {
            // The sender lives as long as the reception, which ends at a stop of the process, too.
            let ended = end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
            while !status.archived().is_some_and(|archived| has_all(&store, &archived)) {
                tokio::time::sleep(LOOK).await;
            }
            match ended {
                Some(end) => end,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            outcome = uploader.run(stop.clone()) => Ok(outcome?),
            end = over => Err(end.into()),
        }
    }
}

/// Nothing is left in the relay store that is not archived.
fn has_all(store: &RelayStore, archived: &GtidSet) -> bool {
    store.received_so_far().difference(&store.before()).is_subset_of(archived)
}

/// The place where a host begins in an archive to which it has never written.
#[derive(Debug, PartialEq, Eq)]
enum Elsewhere {
    /// After this set: the source sends everything that follows.
    Source(GtidSet),
    /// After this set, because the relay store has something for the archive that the source would not send.
    RelayStore { place: GtidSet, received: GtidSet },
}

/// Decides where a host begins that has never written to the archive, or whose state was removed.
fn place_elsewhere(
    end: &ArchiveEnd,
    start: &StartFrom,
    source: &SourceFacts,
    contents: Option<RelayContents>,
) -> Elsewhere {
    let place = match &end.archived {
        None => first(start, source),
        Some(archived) => place_of_new_host(end, archived, start, source),
    };
    let Some(RelayContents { before, received }) = contents else {
        return Elsewhere::Source(place);
    };
    // They came for the archive that was written from here before.
    let mut kept = end.archived.clone().unwrap_or_default();
    kept.union(&before);
    let unarchived = received.difference(&kept);
    let mut unsent = place.clone();
    unsent.union(&source.gtid_purged);
    let is_sent = unarchived.intersection(&unsent).is_empty();
    if is_sent && unarchived.is_subset_of(&source.gtid_executed) {
        return Elsewhere::Source(place);
    }
    let mut all = kept.clone();
    all.union(&received);
    Elsewhere::RelayStore { place: kept, received: all }
}

/// Returns everything that a new archive does not begin with.
fn first(start: &StartFrom, source: &SourceFacts) -> GtidSet {
    match start {
        StartFrom::Source => source.gtid_executed.clone(),
        StartFrom::Executed(set) => set.clone(),
        // Not said: everything that the source still has.
        StartFrom::Target => source.gtid_purged.clone(),
    }
}

/// Returns where a host without a relay store continues such an archive. Its source may be another one, or have lost
/// transactions: then another history begins.
fn place_of_new_host(
    end: &ArchiveEnd,
    archived: &GtidSet,
    start: &StartFrom,
    source: &SourceFacts,
) -> GtidSet {
    let SourceFacts { gtid_executed, gtid_purged, .. } = source;
    if !archived.is_subset_of(gtid_executed) {
        return first(start, source);
    }
    // The last file comes again, so that its transactions can be compared with those of the source.
    if gtid_purged.is_subset_of(&end.before_last) {
        return end.before_last.clone();
    }
    let mut after = archived.clone();
    after.union(gtid_purged);
    after
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

    fn source(purged: &str, executed: &str) -> SourceFacts {
        SourceFacts {
            version: "8.4.0".to_owned(),
            server_uuid: String::new(),
            gtid_executed: set(executed),
            gtid_purged: set(purged),
            is_without_tables: false,
            folds_case: None,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_new_archive_begins_with_all_that_the_source_has() {
        let source = source("1-7", "1-20");
        assert_eq!(first(&StartFrom::Target, &source), set("1-7"));
        assert_eq!(first(&StartFrom::Source, &source), set("1-20"));
        assert_eq!(first(&StartFrom::Executed(set("1-12")), &source), set("1-12"));
    }

    #[test]
    fn a_new_host_continues_the_archive_where_its_source_can() {
        let end = ArchiveEnd {
            archived: Some(set("1-10")),
            before_last: set("1-8"),
            is_known_here: false,
        };
        let place = |source: &SourceFacts| {
            place_of_new_host(&end, &set("1-10"), &StartFrom::Target, source)
        };
        assert_eq!(place(&source("1-3", "1-20")), set("1-8"), "the last file is compared");
        assert_eq!(place(&source("1-9", "1-20")), set("1-10"));
        assert_eq!(place(&source("1-14", "1-20")), set("1-14"), "a gap");
        assert_eq!(place(&source("1-3", "1-9")), set("1-3"), "the source lost some");
    }

    #[test]
    fn what_only_the_relay_store_has_comes_into_another_archive() {
        let new = ArchiveEnd { archived: None, before_last: GtidSet::new(), is_known_here: false };
        let copied = ArchiveEnd {
            archived: Some(set("1-10")),
            before_last: set("1-8"),
            is_known_here: false,
        };
        let decide = |end, start, purged, before, received| {
            let contents = RelayContents { before: set(before), received: set(received) };
            place_elsewhere(end, &start, &source(purged, "1-60"), Some(contents))
        };
        let relayed =
            |place, received| Elsewhere::RelayStore { place: set(place), received: set(received) };
        let (target, at_end) = (StartFrom::Target, StartFrom::Source);
        let sent = |place| Elsewhere::Source(set(place));
        assert_eq!(decide(&new, target.clone(), "1-40", "1-10", "1-50"), relayed("1-10", "1-50"));
        assert_eq!(decide(&new, at_end.clone(), "", "1-10", "1-50"), relayed("1-10", "1-50"));
        assert_eq!(
            decide(&new, StartFrom::Executed(set("1-10")), "1-40", "1-10", "1-50"),
            relayed("1-10", "1-50")
        );
        // The source lacks some of it: reception says so, once the rest is archived.
        assert_eq!(decide(&new, target.clone(), "", "1-10", "1-70"), relayed("1-10", "1-70"));
        assert_eq!(decide(&new, target.clone(), "1-5", "1-10", "1-50"), sent("1-5"), "it has more");
        assert_eq!(decide(&new, at_end, "", "1-50", "1-50"), sent("1-60"), "nothing is held");

        let decide = |purged, before| decide(&copied, target.clone(), purged, before, "1-50");
        assert_eq!(decide("1-40", "1-10"), relayed("1-10", "1-50"));
        assert_eq!(decide("1-40", "1-6"), relayed("1-10", "1-50"));
        assert_eq!(decide("1-40", "1-15"), relayed("1-15", "1-50"), "an older copy gets a gap");
        assert_eq!(decide("1-5", "1-10"), sent("1-8"), "the source sends all of it again");
        let without = place_elsewhere(&copied, &target, &source("1-40", "1-60"), None);
        assert_eq!(without, sent("1-40"));
    }
}
