//! Spans of work on a timeline, recorded only while somebody asks for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::binlog::gtid::Gtid;

/// Spans that wait to be taken; more are dropped and counted.
const SPANS_MAX: usize = 65_536;
/// Transactions that arrive within this time of each other share a span, up to [`BURST_MAX`].
const BURST_GAP: Duration = Duration::from_millis(2);
const BURST_MAX: Duration = Duration::from_millis(50);

/// The line of the timeline on which a span is drawn. The spans of one line follow each other or lie
/// within each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Track {
    Reception,
    RelaySync,
    Intake,
    /// Statements that commit implicitly.
    Statements,
    Worker(u16),
}

/// Work that took some time.
#[derive(Debug, Clone)]
pub struct Span {
    pub track: Track,
    pub name: &'static str,
    pub begun: Instant,
    pub ended: Instant,
    pub details: Details,
}

/// Figures of a span; never values of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// The group's place in commit order.
    pub group: Option<u64>,
    /// The group whose commit was waited for.
    pub waited_for: Option<u64>,
    pub first: Option<Gtid>,
    pub last: Option<Gtid>,
    pub transactions: Option<u64>,
    pub rows: Option<u64>,
    /// The bytes of source events.
    pub bytes: Option<u64>,
}

/// Takes the spans of a channel; cheap to clone. Off, it costs one look at a flag.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_on: AtomicBool,
    recorded: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    /// Somebody records.
    is_taken: bool,
    spans: Vec<Span>,
    /// The span of transactions received last, if it can grow.
    burst: Option<usize>,
    /// The end of the last reception.
    received_until: Option<Instant>,
    dropped: u64,
}

impl Recorded {
    fn push(&mut self, span: Span) {
        if self.spans.len() < SPANS_MAX {
            self.spans.push(span);
        } else {
            self.dropped += 1;
        }
    }
}

impl Recorder {
    #[must_use]
    pub fn is_on(&self) -> bool {
        // Relaxed: a span more or less at the beginning and the end does not matter.
        self.shared.is_on.load(Ordering::Relaxed)
    }

    /// Records a span; `span` is made only if it is wanted.
    pub fn record(&self, span: impl FnOnce() -> Span) {
        if self.is_on() {
            let span = span();
            self.shared.recorded.lock().push(span);
        }
    }

    /// Records the arrival of a transaction, together with others just before it.
    pub fn received(&self, begun: Instant, gtid: &Gtid, bytes: u64) {
        if !self.is_on() {
            return;
        }
        let ended = Instant::now();
        let mut recorded = self.shared.recorded.lock();
        let burst = recorded.burst;
        if let Some(span) = burst.and_then(|place| recorded.spans.get_mut(place))
            && begun <= span.ended + BURST_GAP
            && ended <= span.begun + BURST_MAX
        {
            span.ended = ended;
            span.details.last = Some(gtid.clone());
            span.details.transactions = span.details.transactions.map(|count| count + 1);
            span.details.bytes = span.details.bytes.map(|sum| sum + bytes);
            recorded.received_until = Some(ended);
            return;
        }
        recorded.burst = Some(recorded.spans.len());
        // Transactions that arrive in one block have one begin, and may end apart.
        let before = recorded.received_until.replace(ended);
        let begun = before.map_or(begun, |before| begun.max(before));
        let details = Details {
            first: Some(gtid.clone()),
            last: Some(gtid.clone()),
            transactions: Some(1),
            bytes: Some(bytes),
            ..Details::default()
        };
        recorded.push(Span { track: Track::Reception, name: "receiving", begun, ended, details });
    }

    /// Begins to record; `None` if somebody else records.
    #[must_use]
    pub fn start(&self) -> Option<SpanRecording> {
        let mut recorded = self.shared.recorded.lock();
        if recorded.is_taken {
            return None;
        }
        *recorded = Recorded { is_taken: true, ..Recorded::default() };
        self.shared.is_on.store(true, Ordering::Relaxed);
        Some(SpanRecording { recorder: self.clone() })
    }
}

/// The right to take what is recorded. Recording ends when it is dropped.
#[derive(Debug)]
pub struct SpanRecording {
    recorder: Recorder,
}

impl SpanRecording {
    /// Returns the spans since the last call, in the order in which they ended.
    #[must_use]
    pub fn take(&self) -> Vec<Span> {
        let mut recorded = self.recorder.shared.recorded.lock();
        recorded.burst = None;
        std::mem::take(&mut recorded.spans)
    }

    /// Returns the spans that were lost because nobody took them in time.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.recorder.shared.recorded.lock().dropped
    }

    /// No more spans are recorded; those there can be taken.
    pub fn stop(&self) {
        self.recorder.shared.is_on.store(false, Ordering::Relaxed);
    }
}

impl Drop for SpanRecording {
    fn drop(&mut self) {
        self.stop();
        *self.recorder.shared.recorded.lock() = Recorded::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binlog::gtid::{Tag, Uuid};

    fn gtid(gno: u64) -> Gtid {
        Gtid { uuid: Uuid::from_bytes([1; 16]), tag: Tag::untagged(), gno }
    }

    fn span() -> Span {
        let now = Instant::now();
        let (track, details) = (Track::RelaySync, Details::default());
        Span { track, name: "a", begun: now, ended: now, details }
    }

    #[test]
    fn nothing_is_kept_or_made_unless_somebody_records() {
        let recorder = Recorder::default();
        recorder.record(|| panic!("not wanted"));
        let recording = recorder.start().expect("free");
        assert!(recorder.start().is_none(), "one at a time");
        recorder.record(span);
        assert_eq!(recording.take().len(), 1);
        recorder.record(span);
        recording.stop();
        recorder.record(|| panic!("no longer wanted"));
        assert_eq!(recording.take().len(), 1);
        drop(recording);
        recorder.record(|| panic!("not wanted any more"));
        let again = recorder.start().expect("free again");
        assert!(again.take().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn spans_of_reception_follow_each_other() {
        let recorder = Recorder::default();
        let recording = recorder.start().expect("free");
        let block = Instant::now();
        tokio::time::advance(BURST_MAX / 2).await;
        recorder.received(block, &gtid(1), 10);
        let first = recording.take();
        tokio::time::advance(BURST_MAX * 3).await;
        recorder.received(block, &gtid(2), 10);
        let second = recording.take();
        assert_eq!((first.len(), second.len()), (1, 1));
        assert!(first[0].ended <= second[0].begun, "{first:?} {second:?}");
    }

    #[test]
    fn what_nobody_takes_is_dropped_and_counted() {
        let recorder = Recorder::default();
        let recording = recorder.start().expect("free");
        for _ in 0..SPANS_MAX + 3 {
            recorder.record(span);
        }
        assert_eq!((recording.take().len(), recording.dropped()), (SPANS_MAX, 3));
        recorder.record(span);
        assert_eq!(recording.take().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn transactions_that_arrive_together_are_one_span() {
        let recorder = Recorder::default();
        let recording = recorder.start().expect("free");
        let step = Duration::from_millis(1);
        for gno in 1..=100 {
            let begun = Instant::now();
            tokio::time::advance(step).await;
            recorder.received(begun, &gtid(gno), 10);
        }
        let spans = recording.take();
        let counts: Vec<_> = spans.iter().map(|span| span.details.transactions).collect();
        assert_eq!(counts, [Some(50), Some(50)]);
        assert!(spans.windows(2).all(|pair| pair[0].ended <= pair[1].begun));
        assert_eq!(spans[1].details.first, Some(gtid(51)));
        assert_eq!(
            (spans[1].details.last.clone(), spans[1].details.bytes),
            (Some(gtid(100)), Some(500))
        );
        // One that was taken does not grow.
        recorder.received(Instant::now(), &gtid(101), 10);
        assert_eq!(recording.take().len(), 1);
        tokio::time::advance(BURST_GAP + step).await;
        recorder.received(Instant::now(), &gtid(102), 10);
        tokio::time::advance(BURST_GAP + step).await;
        recorder.received(Instant::now(), &gtid(103), 10);
        assert_eq!(recording.take().len(), 2, "a pause between them");
    }
}
