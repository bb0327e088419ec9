//! Fills the archive of a channel from its relay store.
//!
//! The relay store keeps what the archive lacks. A file is published by its index, which is written once and never
//! over another: two daemons can't both add a file after the same one. A daemon that is killed leaves a file without
//! an index, which nobody reads and a later sweep deletes.

mod begin;
mod continuation;
mod end;
mod marker;
mod options;
mod overlap;
mod part;
mod relief;
mod retention;
mod status;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use csa_provider::binlog::{GtidSet, Uuid};
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::seams::{Backoff, Clock as _, SystemChance, SystemClock};
use csa_provider::source::SourceStatus;
use csa_relaystore::disk;
use csa_relaystore::opening::RelayStore;
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::index::{FORMAT, FileIndex, HistoryMark};
use super::layout;
use super::store::{Archive, ArchiveError, ArchivedHistory, HistoryEnd, Result};
use crate::host::{blocking, rfc3339};
pub(crate) use begin::{BeginningOfReception, begin};
use continuation::{ArchiveFacts, Continuation, continuation};
pub(crate) use end::{ArchiveEnd, archive_end};
use marker::MarkerFile;
pub(crate) use options::ArchiveOptions;
use part::{FinishedFile, Made, PartError, PartMaker};
use relief::{LOOK, PATIENCE, Relief, patience};
use retention::{FEW, MOST, Sweeps};
pub(crate) use status::{ArchiveStatus, ArchiveView};

/// The task that fills a channel's archive.
#[derive(Debug)]
pub(crate) struct Uploader {
    archive: Archive,
    options: ArchiveOptions,
    channel: String,
    store: Arc<RelayStore>,
    source: Arc<SourceStatus>,
    status: Arc<ArchiveStatus>,
    marker: MarkerFile,
    /// Names this daemon in the indexes that it writes.
    writer: String,
    sweeps: Sweeps,
    /// The last session that was to add a file has added none, and the next makes room for one.
    adds_none: bool,
    /// The file that another daemon was given the time to add.
    left_to_another: Option<u64>,
}

/// The end of the archive, after which the next file is written.
#[derive(Debug)]
struct ArchiveTail {
    history: ArchivedHistory,
    /// Everything up to its last file.
    archived: GtidSet,
    /// Transactions between `archived` and the next file that nobody has.
    missing: GtidSet,
    next: u64,
    /// The daemon that wrote the last file.
    writer: Option<String>,
}

impl Uploader {
    /// Makes the uploader of a channel whose state is kept in `directory`.
    ///
    /// # Errors
    /// The place of the archive is wrong.
    pub(crate) fn new(
        options: &ArchiveOptions,
        (channel, writer): (&str, String),
        directory: &Path,
        store: Arc<RelayStore>,
        source: Arc<SourceStatus>,
        status: Arc<ArchiveStatus>,
    ) -> Result<Self> {
        let archive = Archive::open(&options.location, channel)?;
        let marker = MarkerFile::in_directory(directory);
        let uploader = Self::over(archive, options, channel, marker, store, source, status);
        Ok(Self { writer, ..uploader })
    }

    fn over(
        archive: Archive,
        options: &ArchiveOptions,
        channel: &str,
        marker: MarkerFile,
        store: Arc<RelayStore>,
        source: Arc<SourceStatus>,
        status: Arc<ArchiveStatus>,
    ) -> Self {
        status.begins(archive.url(), options.interval);
        Self {
            archive,
            options: options.clone(),
            channel: channel.to_owned(),
            store,
            source,
            status,
            marker,
            writer: Uuid::new_v4().to_string(),
            sweeps: Sweeps::default(),
            adds_none: false,
            left_to_another: None,
        }
    }

    /// Fills the archive until it is stopped. What a stop cuts off is archived after the next start.
    ///
    /// # Errors
    /// The relay store is damaged. Without a target also: the archive belongs to another daemon from now on.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<()> {
        let mut pauses = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let (store, status) = (Arc::clone(&self.store), Arc::clone(&self.status));
        let relief = Relief::new(&self.options, store, status);
        loop {
            let files = self.status.files();
            let ended = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = relief.given() => None,
                never = self.follow() => match never {
                    Ok(never) => match never {},
                    Err(error) => Some(error),
                },
            };
            // The next session finds what is missing.
            let Some(error) = ended else { continue };
            if self.status.files() != files {
                pauses.restart();
            }
            let is_news = self.status.failed(&error.to_string());
            if self.is_of_channel(&error) {
                return Err(error);
            }
            if is_news {
                warn!(%error, "the archive can't be written; trying again");
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = relief.given() => {}
                () = tokio::time::sleep(pauses.jittered(0.75..1.25, &SystemChance)) => {}
            }
        }
    }

    /// A further attempt is for the channel to decide.
    const fn is_of_channel(&self, error: &ArchiveError) -> bool {
        match error {
            ArchiveError::Relay(_) => true,
            ArchiveError::Overtaken { .. } => self.options.is_alone,
            _ => false,
        }
    }

    /// Finds the end of the archive and adds file after file.
    async fn follow(&mut self) -> Result<std::convert::Infallible> {
        self.status.hopes(PATIENCE);
        let mut tail = self.tail().await?;
        self.let_another_be_first(&tail).await?;
        self.status.hopes(patience(&self.options));
        self.note_archived(&tail.archived).await;
        // An archive that is full takes no file before others leave it, and the other sweeps follow a file. No more than
        // room for it is made: reception may wait for it.
        if self.adds_none {
            self.sweep_if_due(&tail.history, FEW).await;
        }
        let store = Arc::clone(&self.store);
        let archived = tail.archived.clone();
        let (compression, size) = (self.options.compression, self.options.file_size);
        let made = blocking(move || PartMaker::new(store.reader(archived), compression, size));
        let mut maker = made.await.map_err(|panic| self.broken(&panic.to_string()))?;
        if let Err(error) = self.marker.remember(self.archive.url(), &tail.history.name) {
            return Err(self.away("remembering the history", &error));
        }
        self.status.continues(&tail.history.name, tail.next - 1, &tail.archived);
        info!(
            archive = self.archive.url(), history = tail.history.name, next = tail.next,
            archived = %tail.archived.brief(), "archiving"
        );
        self.adds_none = true;
        loop {
            maker = self.add(maker, &mut tail).await?;
        }
    }

    /// Waits whether the daemon that wrote the last file adds another one: where nothing else keeps two daemons apart, the
    /// one that already writes is to win.
    async fn let_another_be_first(&mut self, tail: &ArchiveTail) -> Result<()> {
        let another = tail.writer.as_ref().filter(|writer| **writer != self.writer);
        let Some(another) = another.filter(|_| self.options.is_alone) else { return Ok(()) };
        if self.left_to_another == Some(tail.next) {
            return Ok(());
        }
        self.status.waits(&format!(
            "daemon {another} wrote the last file: waiting to see whether it adds another one"
        ));
        let until = Instant::now() + self.options.interval * 2;
        while Instant::now() < until {
            // A store that does not answer says nothing about the other daemon, and no index is written twice.
            if tail.history.index(tail.next).await.is_ok_and(|index| index.is_some()) {
                let url = self.archive.url().to_owned();
                return Err(ArchiveError::Overtaken { url, number: tail.next });
            }
            tokio::time::sleep(self.options.interval / 4).await;
        }
        self.left_to_another = Some(tail.next);
        Ok(())
    }

    /// Adds one file.
    async fn add(&mut self, mut maker: PartMaker, tail: &mut ArchiveTail) -> Result<PartMaker> {
        let name = layout::file_name(tail.next, random(), self.options.compression.extension());
        let mut writer = None;
        let written = loop {
            let (before, interval) = (tail.before(), self.options.interval);
            let store = Arc::clone(&self.store);
            let is_awaited = store.waits_for_archive();
            let made = blocking(move || {
                let made = maker.make(&before, interval, is_awaited).map_err(|why| match why {
                    PartError::Relay(error) => PartError::Relay(store.as_damage(error)),
                    why => why,
                });
                (maker, made)
            });
            let made = made.await.map_err(|panic| self.broken(&panic.to_string()))?;
            maker = made.0;
            let (bytes, finished) = match made.1.map_err(|why| self.unmade(why))? {
                Made::Nothing => {
                    self.look(&maker, tail).await;
                    continue;
                }
                Made::Bytes(bytes) => {
                    self.status.holds(maker.contents());
                    (bytes, None)
                }
                Made::Last(bytes, finished) => (bytes, Some(finished)),
            };
            let new = || tail.history.writer(&name, maker.first_bytes());
            let writer = writer.get_or_insert_with(new);
            if let Err(error) = writer.put(bytes.into()).await {
                // Otherwise a store keeps the parts, which nobody sees, for ever.
                drop(tokio::time::timeout(PATIENCE, writer.abort()).await);
                return Err(self.away("sending a file", &error));
            }
            if let Some(finished) = finished {
                writer.shutdown().await.map_err(|error| self.away("ending a file", &error))?;
                break finished;
            }
        };
        self.publish(&name, *written, tail).await?;
        Ok(maker)
    }

    /// Publishes a file that is written, and lets the relay store go of what is in it.
    async fn publish(
        &mut self,
        name: &str,
        written: FinishedFile,
        tail: &mut ArchiveTail,
    ) -> Result<()> {
        let FinishedFile { contents, bytes, stored_bytes, sha256 } = written;
        if is_planted(Bug::ArchivedTooEarly) {
            let mut end = contents.before.clone();
            end.union(&contents.added);
            self.note_archived(&end).await;
        }
        self.check_stored(tail, name, stored_bytes).await?;
        let index = FileIndex {
            format: FORMAT,
            number: tail.next,
            file: name.to_owned(),
            compression: self.options.compression,
            bytes,
            stored_bytes,
            sha256,
            before: contents.before,
            added: contents.added,
            missing: std::mem::take(&mut tail.missing),
            transactions: contents.transactions,
            first_committed: rfc3339(contents.first_committed),
            last_committed: rfc3339(contents.last_committed),
            source_uuid: self.source.view().source_uuid.unwrap_or_default(),
            source_version: contents.source_version,
            writer: self.writer.clone(),
            written: rfc3339(SystemClock.now_micros()),
        };
        tail.history.publish(&index).await?;
        // A directory whose mount has gone takes files, too. It may have gone and come back between any two requests:
        // both objects must be where the history is.
        self.marker.check(&self.archive, &[&tail.history.name]).await?;
        if !is_planted(Bug::MountTrusted) {
            self.check_published(tail, &index).await?;
        }
        tail.archived = index.end();
        tail.next += 1;
        self.adds_none = false;
        self.note_archived(&tail.archived).await;
        self.status.published(&index, contents.read_bytes, contents.last_committed);
        self.sweep_if_due(&tail.history, MOST).await;
        Ok(())
    }

    async fn check_published(&self, tail: &ArchiveTail, index: &FileIndex) -> Result<()> {
        if tail.history.index(index.number).await?.as_ref() != Some(index) {
            return Err(self.away("writing a file", &format!("index {} is gone", index.number)));
        }
        self.check_stored(tail, &index.file, index.stored_bytes).await
    }

    /// Checks that a file is there: a store may say yes and keep nothing, or a part.
    async fn check_stored(&self, tail: &ArchiveTail, name: &str, bytes: u64) -> Result<()> {
        let stored = match tail.history.stored_bytes(name).await? {
            Some(stored) if stored == bytes => return Ok(()),
            _ if is_planted(Bug::ObjectStoreBelieved) => return Ok(()),
            Some(stored) => format!("{stored} bytes"),
            None => "nothing".to_owned(),
        };
        let why = format!("{bytes} bytes of {name} were accepted, the store has {stored}");
        Err(self.away("writing a file", &why))
    }

    /// Does what is due while nothing new has been received.
    async fn look(&mut self, maker: &PartMaker, tail: &ArchiveTail) {
        self.status.looked(maker.contents(), maker.read_bytes());
        self.sweep_if_due(&tail.history, MOST).await;
        tokio::time::sleep(LOOK).await;
    }

    async fn sweep_if_due(&mut self, history: &ArchivedHistory, most: usize) {
        self.sweeps.sweep_if_due(history, most, &self.options, &self.status).await;
    }

    /// Finds the end of the archive, and decides how it continues.
    async fn tail(&mut self) -> Result<ArchiveTail> {
        let last = self.marker.histories(&self.archive).await?.pop();
        let Some(last) = last else { return self.begin(None, String::new()).await };
        let history = self.archive.history(&last);
        let end = history.end().await?;
        if let Some(index) = &end.without_file {
            warn!(
                history = history.name,
                file = index.file,
                "the last file of the archive is not there; its transactions are archived again"
            );
            history.delete(index).await?;
        }
        let missing = match self.decide(&end.archived).await {
            Ok(_) if is_planted(Bug::ArchiveGapUnnoticed) => GtidSet::new(),
            Ok(missing) => missing,
            Err(why) => return self.begin(Some(&last), why).await,
        };
        if let Some(why) = overlap::difference(&self.store, &history, &end, &self.status).await? {
            return self.begin(Some(&last), why).await;
        }
        if !missing.is_empty() {
            self.status.lost(&missing);
            warn!(
                missing = %missing.brief(),
                "the archive has a gap: these transactions left the relay store before they were archived"
            );
        }
        let HistoryEnd { numbers, archived, writer, .. } = end;
        let next = numbers.last().map_or(1, |last| last + 1);
        retention::remove_unfinished(&history, next).await;
        Ok(ArchiveTail { history, archived, missing, next, writer })
    }

    /// Returns what is missing before the archive continues, or why it can't. Waits for the source if that is needed.
    async fn decide(&self, archived: &GtidSet) -> std::result::Result<GtidSet, String> {
        loop {
            let received = self.store.received_so_far();
            // What it had when the link was made, and what it has sent since.
            let source = self.source.view().executed.map(|executed| {
                let mut source = received.difference(self.store.received());
                source.union(&executed);
                source
            });
            let before = &self.store.passed_over();
            let decided = continuation(&ArchiveFacts {
                archived,
                before,
                received: &received,
                source: source.as_ref(),
            });
            match decided {
                Continuation::Same { missing } => return Ok(missing),
                Continuation::Other(why) => return Err(why),
                Continuation::AskSource => self
                    .status
                    .waits("waiting for the source: only it can say whether the archive continues"),
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Begins a history after `last` with what the relay store has.
    async fn begin(&mut self, last: Option<&str>, reason: String) -> Result<ArchiveTail> {
        let now = rfc3339(SystemClock.now_micros());
        let begins_after = self.store.passed_over();
        if !reason.is_empty() {
            warn!(reason, "the archive begins another history");
        }
        let mark = HistoryMark {
            format: FORMAT,
            channel: self.channel.clone(),
            history: layout::history_name(&now, random()),
            begins_after: begins_after.clone(),
            written: now,
            reason,
            earlier: Vec::new(),
        };
        let history = match self.archive.begin(&mark).await {
            Ok(history) => history,
            Err(error) => {
                // An archive that is full takes no mark, either.
                if let Some(last) = last {
                    self.sweep_if_due(&self.archive.history(last), FEW).await;
                }
                return Err(error);
            }
        };
        // It is remembered only if it begins where the last one is.
        let both: Vec<&str> = last.into_iter().chain([history.name.as_str()]).collect();
        self.marker.check(&self.archive, &both).await?;
        Ok(ArchiveTail {
            history,
            archived: begins_after,
            missing: GtidSet::new(),
            next: 1,
            writer: None,
        })
    }

    /// The relay store may purge what is archived; the purge blocks on the disk.
    async fn note_archived(&self, archived: &GtidSet) {
        let (store, archived) = (Arc::clone(&self.store), archived.clone());
        drop(blocking(move || store.note_archived(&archived)).await);
    }

    fn away(&self, what: &str, why: &dyn std::fmt::Display) -> ArchiveError {
        let (what, why) = (what.to_owned(), why.to_string());
        ArchiveError::Away { url: self.archive.url().to_owned(), what, why }
    }

    fn unmade(&self, why: PartError) -> ArchiveError {
        match why {
            // Nobody but the channel can have the rest sent again. An applier that is ahead does not see the damage.
            PartError::Relay(damage @ disk::Error::Damaged { .. }) => ArchiveError::Relay(damage),
            why => self.broken(&why.to_string()),
        }
    }

    fn broken(&self, why: &str) -> ArchiveError {
        self.away("reading what is to be archived", &why)
    }
}

impl ArchiveTail {
    /// Returns everything before the next file.
    fn before(&self) -> GtidSet {
        let mut before = self.archived.clone();
        before.union(&self.missing);
        before
    }
}

fn random() -> u32 {
    Uuid::new_v4().as_fields().0
}

#[cfg(test)]
mod simulation_tests;
