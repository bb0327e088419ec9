//! How far the archive is, for the status, the metrics and the page.

use std::time::Duration;

use csa_provider::binlog::{CommitTimes, GtidSet};
use csa_provider::seams::{Clock as _, SystemClock};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::part::Contents;
use crate::archive::index::FileIndex;

/// The archive of a channel in its view.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ArchiveView {
    /// The place, without secrets.
    pub(crate) url: String,
    /// The run of files that is written; empty before the archive has answered.
    pub(crate) history: String,
    /// The number of the last file.
    pub(crate) file_number: u64,
    /// Everything up to the end of the last file, shortened.
    pub(crate) archived_transaction_set: String,
    /// The age of the oldest transaction that is received and not archived; absent before the archive has answered.
    pub(crate) lag_seconds: Option<f64>,
    /// `archive.interval`: a transaction may wait for so long without anything being wrong.
    #[serde(default)]
    pub(crate) interval_seconds: f64,
    /// Bytes of events that are received and not archived.
    pub(crate) pending_bytes: u64,
    /// The time of the last file, in RFC 3339.
    pub(crate) last_published: Option<String>,
    /// Counts since the daemon started.
    pub(crate) files_total: u64,
    pub(crate) bytes_total: u64,
    pub(crate) transactions_total: u64,
    pub(crate) failures_total: u64,
    /// Places at which transactions are missing, and how many are.
    pub(crate) gaps_total: u64,
    pub(crate) missing_transactions_total: u64,
    /// The reason nothing is archived at the moment.
    pub(crate) error: Option<String>,
}

impl ArchiveView {
    fn counts(self) -> Self {
        Self {
            files_total: self.files_total,
            bytes_total: self.bytes_total,
            transactions_total: self.transactions_total,
            failures_total: self.failures_total,
            gaps_total: self.gaps_total,
            missing_transactions_total: self.missing_transactions_total,
            ..Self::default()
        }
    }
}

/// Written by the uploader, read by everything that shows a channel.
#[derive(Debug, Default)]
pub(crate) struct ArchiveStatus {
    inner: Mutex<UploadState>,
}

#[derive(Debug, Default)]
struct UploadState {
    /// `None` for a channel without an archive.
    view: Option<ArchiveView>,
    /// The oldest transaction that is received and not archived.
    oldest: Option<Oldest>,
    /// The last transaction of the last file: what comes after it is no older, and nobody may look for that for minutes.
    last: Option<Oldest>,
    /// The last time at which the archive had everything, or got a file, or began.
    published: Option<Instant>,
    /// Event bytes that are archived, as the relay store counts them; `None` before the first is read.
    archived_bytes: Option<u64>,
    /// Everything up to the end of the last file; `None` before the archive has answered.
    archived: Option<GtidSet>,
    /// The time until which a session may still succeed; `None` between two of them.
    hopes_until: Option<Instant>,
    /// A session has failed, and none has shown since then that the archive can be written.
    fails: bool,
    /// Missing transactions that are counted, and in no index yet: each session finds them again.
    counted: GtidSet,
}

#[derive(Debug, Clone, Copy)]
struct Oldest {
    /// Its commit by the source's clock, in microseconds since the epoch; 0 if none was logged.
    committed: u64,
    /// The time since which it is known.
    since: Instant,
}

impl Oldest {
    /// Returns the seconds since its commit at `now` by our clock, of which the source's is ahead; never 0. With a clock that
    /// was wrong the commit may seem to be in the future: the time for which it is known is the lower bound.
    fn age(self, now: u64, clock_ahead: i64) -> f64 {
        let committed = CommitTimes { original: 0, immediate: self.committed };
        let known = self.since.elapsed().as_secs_f64();
        let age = committed.age(now, clock_ahead).map_or(known, |age| age as f64 / 1e6);
        age.max(known).max(1e-6)
    }
}

impl UploadState {
    /// Notes the contents of a file. A session that begins again finds the one of the session before.
    fn waits(&mut self, contents: &Contents) {
        let committed = contents.first_committed;
        self.archived_bytes = Some(contents.bytes_before);
        if self.oldest.is_none_or(|oldest| oldest.committed != committed) {
            self.oldest = Some(Oldest { committed, since: Instant::now() });
        }
    }
}

impl ArchiveStatus {
    /// Returns what is known now; `None` for a channel without an archive. The source's clock is ahead of ours by so many
    /// microseconds at most, and the relay store has received so many event bytes.
    pub(crate) fn view(&self, clock_ahead: i64, received: u64) -> Option<ArchiveView> {
        let inner = self.inner.lock();
        let mut view = inner.view.clone()?;
        // Here, because no session looks while the archive is away, or while it catches up.
        view.pending_bytes = inner.archived_bytes.map_or(0, |bytes| received.saturating_sub(bytes));
        let now = SystemClock.now_micros();
        let last = inner.last.filter(|_| view.pending_bytes > 0);
        view.lag_seconds = match inner.oldest.or(last) {
            Some(oldest) => Some(oldest.age(now, clock_ahead)),
            None if view.history.is_empty() => None,
            None => Some(0.0),
        };
        Some(view)
    }

    /// A channel with an archive starts. Of one at another place only the counts stay.
    pub(crate) fn begins(&self, url: &str, interval: Duration) {
        let mut inner = self.inner.lock();
        let mut earlier = inner.view.take().unwrap_or_default();
        if earlier.url != url {
            *inner = UploadState::default();
            earlier = earlier.counts();
        }
        inner.view = Some(ArchiveView {
            url: url.to_owned(),
            interval_seconds: interval.as_secs_f64(),
            error: None,
            ..earlier
        });
        inner.fails = false;
        inner.published = Some(Instant::now());
    }

    /// The channel has no archive any more.
    pub(crate) fn ends(&self) {
        *self.inner.lock() = UploadState::default();
    }

    /// Returns true if the channel has started with the archive at this place.
    pub(super) fn is_of(&self, url: &str) -> bool {
        self.inner.lock().view.as_ref().is_some_and(|view| view.url == url)
    }

    /// A session begins, or is further: it may take this long for its next step.
    pub(super) fn hopes(&self, time: Duration) {
        self.inner.lock().hopes_until = Some(Instant::now() + time);
    }

    /// Returns true while a session may still succeed.
    pub(super) fn is_hopeful(&self) -> bool {
        self.inner.lock().hopes_until.is_some_and(|until| Instant::now() < until)
    }

    /// The end of the archive is found. After a failure that does not show that a file can be added.
    pub(super) fn continues(&self, history: &str, number: u64, archived: &GtidSet) {
        let mut inner = self.inner.lock();
        inner.archived = Some(archived.clone());
        let fails = inner.fails;
        if let Some(view) = &mut inner.view {
            history.clone_into(&mut view.history);
            view.file_number = number;
            view.archived_transaction_set = archived.brief();
            view.error.take_if(|_| !fails);
        }
    }

    /// Something has to happen before the archive can continue.
    pub(super) fn waits(&self, why: &str) {
        if let Some(view) = &mut self.inner.lock().view {
            view.error = Some(why.to_owned());
        }
    }

    /// Everything up to the end of the last file; `None` before the archive has answered.
    pub(crate) fn archived(&self) -> Option<GtidSet> {
        self.inner.lock().archived.clone()
    }

    /// Notes a failure; returns true if the last thing that happened was none.
    pub(super) fn failed(&self, why: &str) -> bool {
        let mut inner = self.inner.lock();
        inner.hopes_until = None;
        inner.fails = true;
        let Some(view) = &mut inner.view else { return false };
        view.failures_total += 1;
        view.error.replace(why.to_owned()).is_none()
    }

    /// Transactions left the relay store before they were archived. Those of an earlier session count once.
    pub(super) fn lost(&self, missing: &GtidSet) {
        let mut inner = self.inner.lock();
        let news = missing.difference(&inner.counted).count();
        inner.counted.union(missing);
        if news > 0
            && let Some(view) = &mut inner.view
        {
            view.gaps_total += 1;
            view.missing_transactions_total += news;
        }
    }

    /// Notes the contents of the file that is being made.
    pub(super) fn holds(&self, contents: Option<&Contents>) {
        if let Some(contents) = contents {
            self.inner.lock().waits(contents);
        }
    }

    /// Nothing more has been received.
    pub(super) fn looked(&self, contents: Option<&Contents>, read: u64) {
        let mut inner = self.inner.lock();
        match contents {
            Some(contents) => inner.waits(contents),
            None => {
                (inner.oldest, inner.last) = (None, None);
                inner.archived_bytes = Some(read);
                inner.published = Some(Instant::now());
                inner.fails = false;
                if let Some(view) = &mut inner.view {
                    view.error = None;
                }
            }
        }
    }

    /// A file is in the archive, whose last commit was at this time by the source's clock.
    pub(super) fn published(&self, index: &FileIndex, read: u64, committed: u64) {
        let mut inner = self.inner.lock();
        inner.published = Some(Instant::now());
        inner.last = Some(Oldest { committed, since: Instant::now() });
        inner.archived_bytes = Some(read);
        inner.oldest = None;
        inner.fails = false;
        inner.counted = GtidSet::new();
        inner.archived = Some(index.end());
        if let Some(view) = &mut inner.view {
            view.file_number = index.number;
            view.files_total += 1;
            view.bytes_total += index.stored_bytes;
            view.transactions_total += index.transactions;
            view.archived_transaction_set = index.end().brief();
            view.last_published = Some(index.written.clone());
            view.error = None;
        }
    }

    /// Returns the number of files since the daemon started.
    pub(super) fn files(&self) -> u64 {
        self.inner.lock().view.as_ref().map_or(0, |view| view.files_total)
    }

    /// Returns the time since the archive got its last file, or had everything.
    pub(super) fn since_published(&self) -> Duration {
        self.inner.lock().published.map_or(Duration::ZERO, |published| published.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::index::tests::index;

    fn set(text: &str) -> GtidSet {
        format!("3e11fa47-71ca-11e1-9e33-c80aa9429562:{text}").parse().expect("a set")
    }

    fn begun() -> ArchiveStatus {
        let status = ArchiveStatus::default();
        status.begins("file:///archive", Duration::from_secs(1200));
        status
    }

    fn error(status: &ArchiveStatus) -> Option<String> {
        status.view(0, 0).expect("an archive").error
    }

    #[test]
    fn an_archive_that_can_only_be_read_has_failed_until_it_has_everything() {
        let status = begun();
        status.waits("another daemon");
        status.continues("1", 1, &set("1-5"));
        assert_eq!(error(&status), None, "what was waited for is over");
        assert!(status.failed("read-only"));
        status.continues("1", 1, &set("1-5"));
        assert_eq!(error(&status).as_deref(), Some("read-only"));
        assert!(!status.failed("read-only"), "no news");
        status.looked(None, 10);
        assert_eq!(error(&status), None);
        assert!(status.failed("read-only"), "news again");
    }

    /// Returns the contents of a file that begins with a commit of this time.
    fn contents(first_committed: u64, bytes_before: u64) -> Contents {
        Contents {
            before: GtidSet::new(),
            added: GtidSet::new(),
            transactions: 1,
            first_committed,
            last_committed: first_committed,
            source_version: String::new(),
            bytes_before,
            read_bytes: 0,
        }
    }

    /// Returns the lag while a file is made that begins with a commit of this time.
    fn lag(status: &ArchiveStatus, first_committed: u64, clock_ahead: i64) -> f64 {
        status.holds(Some(&contents(first_committed, 0)));
        status.view(clock_ahead, 0).and_then(|view| view.lag_seconds).expect("it lags")
    }

    #[test]
    fn what_is_pending_grows_while_the_archive_is_away_and_falls_with_each_file() {
        let status = begun();
        let pending = |received| status.view(0, received).expect("an archive").pending_bytes;
        assert_eq!(pending(500), 0, "not known before anything is read");
        status.looked(None, 500);
        assert_eq!(pending(500), 0);
        assert!(status.failed("away"));
        assert_eq!(pending(700), 200);
        status.holds(Some(&contents(1, 500)));
        assert_eq!(pending(900), 400);
        status.published(&index(1, "", ""), 800, 1);
        assert_eq!(pending(900), 100, "before anybody looks again");
        // A daemon that starts into a backlog.
        let status = begun();
        status.holds(Some(&contents(1, 500)));
        assert_eq!(status.view(0, 900).expect("an archive").pending_bytes, 400);
    }

    #[tokio::test(start_paused = true)]
    async fn lag_is_by_our_clock_and_never_less_than_the_time_it_is_known_for() {
        const HOUR: u64 = 3_600_000_000;
        let (status, now) = (begun(), SystemClock.now_micros());
        let ahead = |hours: i64| hours * HOUR as i64;
        let is_about = |lag: f64, seconds: f64| (seconds..seconds + 60.0).contains(&lag);
        let slow = lag(&status, now - HOUR, ahead(-1));
        assert!(slow > 0.0 && is_about(slow, 0.0), "the source's clock is slow: {slow}");
        let fast = lag(&status, now + HOUR, ahead(2));
        assert!(is_about(fast, 3600.0), "the source's clock is ahead: {fast}");
        // It was ahead for a moment.
        assert!(is_about(lag(&status, now + 2 * HOUR, 0), 0.0));
        tokio::time::advance(Duration::from_secs(1200)).await;
        let later = lag(&status, now + 2 * HOUR, 0);
        assert!(is_about(later, 1200.0), "another session holds the same: {later}");
        assert!(is_about(lag(&status, 0, 0), 0.0), "no time was logged");
    }

    #[test]
    fn an_archive_lags_until_somebody_has_seen_that_nothing_waits() {
        let (status, now) = (begun(), SystemClock.now_micros());
        status.continues("1", 1, &set("1-5"));
        let lag = |received| status.view(0, received).expect("an archive").lag_seconds;
        status.published(&index(1, "", ""), 800, now - 3_600_000_000);
        assert!(lag(900).is_some_and(|lag| lag >= 3600.0), "{:?}", lag(900));
        assert_eq!(lag(800), Some(0.0), "the file had everything");
        status.looked(None, 800);
        assert_eq!(lag(900), Some(0.0), "it has arrived since");
    }

    #[test]
    fn the_interval_is_that_of_the_last_start() {
        let status = begun();
        assert_eq!(status.view(0, 0).expect("an archive").interval_seconds, 1200.0);
        status.begins("file:///archive", Duration::from_secs(60));
        assert_eq!(status.view(0, 0).expect("an archive").interval_seconds, 60.0);
    }

    #[test]
    fn nothing_but_the_counts_is_left_of_an_archive_at_another_place() {
        let status = begun();
        status.continues("1", 3, &set("1-5"));
        status.lost(&set("6-7"));
        assert!(status.failed("away"));
        status.begins("file:///other", Duration::from_secs(1200));
        let shown = status.view(0, 0).expect("an archive");
        let expected = ArchiveView {
            url: "file:///other".to_owned(),
            interval_seconds: 1200.0,
            failures_total: 1,
            gaps_total: 1,
            missing_transactions_total: 2,
            ..ArchiveView::default()
        };
        assert_eq!((shown, status.archived()), (expected, None));
    }

    #[test]
    fn a_gap_that_each_session_finds_is_counted_once() {
        let status = begun();
        for missing in ["6-10", "6-10", "6-12"] {
            status.lost(&set(missing));
        }
        let view = status.view(0, 0).expect("an archive");
        assert_eq!((view.gaps_total, view.missing_transactions_total), (2, 7));
    }
}
