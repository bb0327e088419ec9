//! Deletes what is too old, and what killed daemons have left.

use std::time::Duration;

use csa_provider::binlog::GtidSet;
use csa_provider::seams::{Clock as _, SystemClock};
use tokio::time::Instant;
use tracing::{info, warn};

use super::options::ArchiveOptions;
use super::relief::patience;
use super::status::ArchiveStatus;
use crate::archive::index::FileIndex;
use crate::archive::layout;
use crate::archive::store::{Archive, ArchivedHistory, Result};
use crate::host::micros_of;

/// Files that one sweep deletes at most, so that it ends.
pub(super) const MOST: usize = 1000;
/// Files that make room for another one, which reception may wait for.
pub(super) const FEW: usize = 10;

/// The sweeps of an archive, one after the other.
#[derive(Debug, Default)]
pub(super) struct Sweeps {
    next: Option<Instant>,
}

impl Sweeps {
    /// Deletes `most` files at most, if that is due; see [`sweep`].
    pub(super) async fn sweep_if_due(
        &mut self,
        current: &ArchivedHistory,
        most: usize,
        options: &ArchiveOptions,
        status: &ArchiveStatus,
    ) {
        if self.next.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let time = patience(options);
        // A sweep may take longer than a file may, in an archive that answers all the time.
        let answered = || status.hopes(time);
        let now = SystemClock.now_micros();
        let swept = sweep(current, options.keep, most, now, &answered).await;
        answered();
        match &swept {
            Ok(0) => {}
            Ok(files) => info!(files, "files of the archive deleted: they are too old"),
            Err(error) => warn!(%error, "old files of the archive are not deleted"),
        }
        // Only now: the session may have been ended in the middle.
        self.next = Some(Instant::now() + pause(&swept, most));
    }
}

/// Returns the time until the next sweep. One that has made room for a file leaves the rest to the next.
const fn pause(swept: &Result<usize>, most: usize) -> Duration {
    match swept {
        Ok(FEW) if most == FEW => Duration::ZERO,
        Ok(_) => Duration::from_secs(600),
        Err(_) => Duration::from_secs(60),
    }
}

/// Deletes `most` files at most, of all histories up to `current`, that are older than `keep` and that no pin needs. The
/// newest file stays: it says where the archive ends. Returns the number of deleted files.
///
/// A file's age is that of its last commit and that of its writing, of which the lower counts: the source's clock may have
/// been slow. Each counts from that of the newest file, if this host's clock is later: a clock that is set wrong must not
/// delete an archive. Calls `answered` each time that the archive has listed a history or deleted a file.
pub(super) async fn sweep(
    current: &ArchivedHistory,
    keep: Option<Duration>,
    most: usize,
    now: u64,
    answered: &(impl Fn() + Sync),
) -> Result<usize> {
    let archive = current.archive();
    let Some(keep) = keep else { return Ok(0) };
    let mut histories = archive.histories().await?;
    // A later one is another daemon's, which may be writing its first file.
    let Some(at) = histories.iter().position(|name| *name == current.name) else { return Ok(0) };
    histories.truncate(at + 1);
    let Some(newest) = newest_file(archive, &histories).await? else { return Ok(0) };
    let Some(limits) = AgeLimits::of(&newest, keep, now) else { return Ok(0) };
    let pins: Vec<GtidSet> =
        archive.pins().await?.into_iter().map(|(_, pin)| pin.gtid_set).collect();
    let mut deleted = 0;
    for name in histories {
        let history = archive.history(&name);
        let is_current = name == current.name;
        let objects = history.objects().await?;
        answered();
        let mut kept = None;
        for (at, &number) in objects.numbers.iter().enumerate() {
            let is_last = is_current && at + 1 == objects.numbers.len();
            let index = history.index(number).await?;
            match index.filter(|index| !is_last && is_over(index, limits, &pins)) {
                Some(index) if deleted < most => {
                    history.delete(&index).await?;
                    answered();
                    deleted += 1;
                }
                _ => {
                    kept = Some(number);
                    break;
                }
            }
        }
        // Files without an index, below the first that stays: a killed daemon left them.
        let before = kept.unwrap_or(if is_current { 0 } else { u64::MAX });
        for file in &objects.files {
            if layout::file_number(file).is_some_and(|number| number < before) {
                history.delete_file(file).await?;
                answered();
            }
        }
        if kept.is_none() && !is_current {
            history.forget().await?;
        }
    }
    Ok(deleted)
}

/// Deletes what killed daemons have left of files before the `next` one. That a file stays costs its space only.
pub(super) async fn remove_unfinished(history: &ArchivedHistory, next: u64) {
    match history.remove_unfinished(next).await {
        Ok(0) => {}
        Ok(files) => {
            info!(files, "files of the archive deleted that were not written to their end")
        }
        Err(error) => warn!(%error, "unfinished files of the archive are not deleted"),
    }
}

/// Returns the index of the last file; `None` without files. A history that has just begun has none, and in a full archive
/// it gets none before older ones leave.
async fn newest_file(archive: &Archive, histories: &[String]) -> Result<Option<FileIndex>> {
    for name in histories.iter().rev() {
        let history = archive.history(name);
        if let Some(last) = history.objects().await?.numbers.pop() {
            return history.index(last).await;
        }
    }
    Ok(None)
}

/// The times before which a file is too old, in microseconds since the epoch.
#[derive(Debug, Clone, Copy)]
struct AgeLimits {
    /// The host's clock, past which no time is believed.
    now: u64,
    committed: u64,
    written: u64,
}

impl AgeLimits {
    fn of(newest: &FileIndex, keep: Duration, now: u64) -> Option<Self> {
        let keep = u64::try_from(keep.as_micros()).unwrap_or(u64::MAX);
        let limit = |newest: u64| now.min(newest).saturating_sub(keep);
        let committed = limit(micros_of(&newest.last_committed)?);
        let written = micros_of(&newest.written).map_or(committed, limit);
        Some(Self { now, committed, written })
    }

    fn is_over(self, index: &FileIndex) -> bool {
        // A source whose clock was ahead for a moment must not keep all later files.
        let is_old = |text: &str, limit: u64| {
            micros_of(text).filter(|at| *at <= self.now).map(|at| at < limit)
        };
        let committed = is_old(&index.last_committed, self.committed);
        let written = is_old(&index.written, self.written);
        match (committed, written) {
            (None, None) => false,
            (committed, written) => committed.unwrap_or(true) && written.unwrap_or(true),
        }
    }
}

/// Returns true if nobody needs the file any more.
fn is_over(index: &FileIndex, limits: AgeLimits, pins: &[GtidSet]) -> bool {
    limits.is_over(index) && pins.iter().all(|pin| index.added.is_subset_of(pin))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use object_store::memory::InMemory;

    use super::*;
    use crate::archive::index::tests::{index, mark};
    use crate::archive::store::Archive;

    async fn begun(archive: &Archive, history: &str) -> ArchivedHistory {
        archive.begin(&mark(history)).await.expect("begun")
    }

    #[tokio::test]
    async fn a_history_that_another_daemon_has_just_begun_stays() {
        let archive = Archive::over(Arc::new(InMemory::new()), "shop");
        let own = begun(&archive, "a").await;
        for number in 1..=20 {
            own.publish(&index(number, "", "")).await.expect("published");
        }
        let other = begun(&archive, "b").await;
        let now = micros_of("2026-11-26T09:00:00Z").expect("a time");
        let keep = Some(Duration::from_secs(9 * 60));
        let answers = AtomicUsize::new(0);
        let answered = || {
            answers.fetch_add(1, Ordering::Relaxed);
        };
        assert_eq!(sweep(&own, keep, MOST, now, &answered).await.expect("it answers"), 10);
        assert_eq!(answers.into_inner(), 1 + 10, "one list, and a file each");
        assert_eq!(archive.histories().await.expect("they are there"), ["a", "b"]);
        // The newest one is above those that it names.
        other.publish(&index(40, "", "")).await.expect("published");
        assert_eq!(sweep(&other, keep, MOST, now, &|| {}).await.expect("it answers"), 10);
        assert_eq!(archive.histories().await.expect("they are there"), ["b"]);
    }

    /// A full archive takes no file of it before that, and reception may wait for the first.
    #[tokio::test]
    async fn a_history_without_files_makes_room_by_the_files_before_it() {
        let archive = Archive::over(Arc::new(InMemory::new()), "shop");
        let earlier = begun(&archive, "a").await;
        for number in 1..=30 {
            earlier.publish(&index(number, "", "")).await.expect("published");
        }
        let current = begun(&archive, "b").await;
        let now = micros_of("2026-11-26T09:00:00Z").expect("a time");
        let keep = Some(Duration::from_secs(9 * 60));
        for (most, deleted, seconds) in [(FEW, FEW, 0), (MOST, 10, 600), (FEW, 0, 600)] {
            let swept = sweep(&current, keep, most, now, &|| {}).await;
            assert_eq!(pause(&swept, most), Duration::from_secs(seconds), "{most}");
            assert_eq!(swept.expect("it answers"), deleted, "{most}");
        }
        assert_eq!(archive.histories().await.expect("they are there"), ["a", "b"]);
    }

    /// Returns the index of a file that was written when its last transaction was committed.
    fn written(number: u64) -> FileIndex {
        let file = index(number, "", "");
        FileIndex { written: file.last_committed.clone(), ..file }
    }

    #[tokio::test]
    async fn a_wrong_clock_deletes_nothing() {
        let archive = Archive::over(Arc::new(InMemory::new()), "shop");
        let history = begun(&archive, "20261126T080000Z-1f8a22c4").await;
        let keep = Some(Duration::from_secs(9 * 60));
        let sweep = async |now: &str| {
            let now = micros_of(now).expect("a time");
            sweep(&history, keep, MOST, now, &|| {}).await.expect("it answers")
        };
        assert_eq!(sweep("2126-11-26T08:00:00Z").await, 0, "it has no files yet");
        // One file a minute.
        for number in 1..=20 {
            let published = history.publish(&index(number, "", "")).await;
            published.expect("published");
            let deleted = sweep("2126-11-26T08:00:00Z").await;
            assert_eq!(deleted, usize::from(number > 10), "{number}");
        }
        assert_eq!(sweep("2026-11-26T08:00:00Z").await, 0);
    }

    #[test]
    fn old_files_stay_while_a_backup_needs_them() {
        let uuid = "07070707-0707-0707-0707-070707070707";
        let file = index(5, "", &format!("{uuid}:10-20"));
        let at = |text: &str| micros_of(text).expect("a time");
        let (before, after) = (at("2026-11-26T08:04:59Z"), at("2026-11-26T08:05:01Z"));
        let pin = |set: &str| vec![format!("{uuid}:{set}").parse().expect("a set")];
        let now = at("2026-11-27T08:00:00Z");
        let is_over = |file: &FileIndex, oldest, pins: &[GtidSet]| {
            is_over(file, AgeLimits { now, committed: oldest, written: oldest }, pins)
        };
        assert!(!is_over(&file, before, &[]), "too young");
        assert!(is_over(&file, after, &[]));
        assert!(!is_over(&file, after, &pin("1-19")), "the backup lacks 20");
        assert!(is_over(&file, after, &pin("1-20")));
        assert!(!is_over(&file, after, &[pin("1-20"), pin("1-3")].concat()));
        // The source's clock was ahead.
        let early = |written: &str| FileIndex {
            last_committed: "2027-11-26T08:05:00Z".to_owned(),
            written: written.to_owned(),
            ..index(5, "", "")
        };
        assert!(is_over(&early("2026-11-26T08:05:00Z"), after, &[]));
        assert!(!is_over(&early("2026-11-26T08:05:02Z"), after, &[]));
    }

    #[tokio::test]
    async fn files_of_a_source_whose_clock_was_slow_stay_for_their_time() {
        let slow = |number: u64| FileIndex {
            last_committed: format!("2026-10-27T08:{number:02}:00Z"),
            ..written(number)
        };
        let now = micros_of("2026-11-26T08:20:00Z").expect("a time");
        let keep = Some(Duration::from_secs(9 * 60));
        // It is right from the third file on, and in the other archive it stays slow.
        for (right_from, deleted) in [(3, 10), (21, 10)] {
            let archive = Archive::over(Arc::new(InMemory::new()), "shop");
            let history = begun(&archive, "a").await;
            for number in 1..=20 {
                let file = if number < right_from { slow(number) } else { written(number) };
                history.publish(&file).await.expect("published");
                if number == right_from {
                    let early = sweep(&history, keep, MOST, now, &|| {}).await;
                    assert_eq!(early.expect("it answers"), 0);
                }
            }
            let late = sweep(&history, keep, MOST, now, &|| {}).await;
            assert_eq!(late.expect("it answers"), deleted);
        }
    }
}
