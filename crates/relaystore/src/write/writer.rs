//! Appends transactions to the last segment and begins new ones. Nothing here waits: a call that
//! finds no room says so, and is repeated later.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use csa_provider::binlog::{RawEvent, TransactionHeader};
use csa_provider::recorder::{Details, Span, Track};
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::source::Placement;
use tokio::time::Instant;
use tracing::debug;

use crate::disk::error::Result;
use crate::disk::options::SyncPolicy;
use crate::disk::segment::{FrameKind, frame_around};
use crate::state::segments::Segment;
use crate::state::shared::Shared;
use crate::state::space::NoRoom;
use crate::write::frames::{BATCH_BYTES, Frames};
use crate::write::history::History;
use crate::write::pace::Pace;
use crate::write::segment_file::{SegmentFile, Synced};
use crate::write::unpublished::{OpenTransaction, Unpublished, lose};
use crate::write::unwritten::{UnwrittenSegment, unwritten};

/// The outcome of a call that may need room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Progress {
    Done,
    /// There is no room: the same call has to be repeated.
    NoRoom,
}

/// Owned by whatever drives it, see [`RelayWriter`](crate::write::RelayWriter).
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    segment: SegmentFile,
    /// The segment after `segment` has to begin before anything is appended.
    segment_due: bool,
    frames: Frames,
    history: History,
    unpublished: Unpublished,
    pace: Pace,
    /// Somebody applied what was received, when the last transaction began.
    had_applier: bool,
    /// Bytes of all segments after the last write.
    used: u64,
    /// The caller must not wait for the disk: what needs it finds no room.
    pub(crate) memory_only: bool,
}

impl Writer {
    /// The next transaction follows those of `history`.
    pub(crate) fn open(shared: Arc<Shared>, history: History) -> Result<Self> {
        let segment = SegmentFile::open(&shared)?;
        let state = shared.state.lock();
        let unpublished = Unpublished::after(&state);
        let pace = Pace::new(&shared.options, state.end);
        let keeps_up = pace.keeps_up(state.passed());
        drop(state);
        Ok(Self {
            pace,
            had_applier: false,
            segment_due: segment.number == 0 || !history.only_on_target.is_empty() || keeps_up,
            segment,
            frames: Frames::new(&shared.options),
            history,
            unpublished,
            used: 0,
            memory_only: false,
            shared,
        })
    }

    /// Begins the segments that have to begin before anything is appended. What only the target has is all that
    /// comes between one without transactions and the next, so that
    /// [`holes`](crate::state::segments::holes) knows it from the headers.
    pub(crate) fn prepare(&mut self) -> Result<Progress> {
        if !self.segment_due {
            return Ok(Progress::Done);
        }
        if !self.history.only_on_target.is_empty() {
            let has_transactions = self.unpublished.transactions_end > self.segment.header_len;
            if has_transactions && self.begin_segment()? == Progress::NoRoom {
                return Ok(Progress::NoRoom);
            }
            self.segment_due = true;
            self.history.take_over_from_target();
        }
        self.begin_segment()
    }

    /// Takes the next event of the stream. All that needs room is done first: without room, the same
    /// event can be handed over again.
    pub(crate) fn append(&mut self, event: &RawEvent, placement: &Placement) -> Result<Progress> {
        if self.frames.len() >= BATCH_BYTES && self.flush()? == Progress::NoRoom {
            return Ok(Progress::NoRoom);
        }
        match placement {
            Placement::Outside => {
                if self.history.changes_format(event) {
                    self.frames.add_format_description(event.bytes());
                    self.unpublished.whole = self.end();
                }
                return Ok(Progress::Done);
            }
            Placement::PassedOver => return Ok(Progress::Done),
            Placement::Begin(header) => {
                if self.begin(header)? == Progress::NoRoom {
                    return Ok(Progress::NoRoom);
                }
            }
            Placement::Body | Placement::End => self.frames.make_room(event.len()),
        }
        let ends = *placement == Placement::End;
        let Some(open) = self.unpublished.open.as_mut() else { return Ok(Progress::Done) };
        if self.frames.is_apart(event.len()) {
            return self.append_large(event.bytes(), ends);
        }
        open.bytes += event.len() as u64;
        self.frames.add(event.bytes());
        if ends {
            self.frames.finish(true);
            self.complete();
        }
        Ok(Progress::Done)
    }

    fn begin(&mut self, header: &TransactionHeader) -> Result<Progress> {
        let new_segment = self.wants_new_segment();
        // Whole transactions must become visible, or they can't be applied to make room.
        if (new_segment || self.batch_fills_store()) && self.flush()? == Progress::NoRoom {
            return Ok(Progress::NoRoom);
        }
        if new_segment && self.begin_segment()? == Progress::NoRoom {
            return Ok(Progress::NoRoom);
        }
        self.frames.begin(header);
        let (header, start) = (header.clone(), self.end());
        self.unpublished.open = Some(OpenTransaction { header, start, bytes: 0, followed: None });
        Ok(Progress::Done)
    }

    /// Records that the open transaction is whole.
    fn complete(&mut self) {
        if let Some(open) = self.unpublished.open.take() {
            self.history.add(open.received());
            self.unpublished.complete(open, self.end());
        }
    }

    /// Returns the end of the file, once the batch is written.
    fn end(&self) -> u64 {
        self.segment.written + self.frames.len() as u64
    }

    fn batch_fills_store(&self) -> bool {
        let limit = self.shared.options.space_limit;
        limit > 0 && self.used + self.frames.len() as u64 >= limit
    }

    fn wants_new_segment(&mut self) -> bool {
        let has_applier = self.shared.has_applier.load(Ordering::Acquire);
        let is_news = std::mem::replace(&mut self.had_applier, has_applier) != has_applier;
        if !self.segment.is_in_memory()
            && has_applier
            && (is_news || self.pace.is_due())
            && self.keeps_up()
        {
            return true;
        }
        let (options, len) = (&self.shared.options, self.end());
        // A segment without transactions takes the next one, however large: another segment would
        // be just as empty.
        if len <= self.segment.header_len {
            return false;
        }
        // Near the limit a segment ends early, so that its transactions can be purged.
        let pressed = options.space_limit > 0 && self.shared.state.lock().usage.waiting.is_some();
        len >= options.effective_segment_size()
            || pressed
            || self.pace.is_due() && self.segment.is_in_memory()
    }

    /// Returns true if the next segment may do without a file for now.
    fn keeps_up(&self) -> bool {
        self.shared.has_applier.load(Ordering::Acquire)
            && self.pace.keeps_up(self.shared.state.lock().passed())
    }

    /// Ends this segment and begins the next one.
    fn begin_segment(&mut self) -> Result<Progress> {
        let in_memory = self.keeps_up();
        if !in_memory && (self.memory_only || self.write_out()? == Progress::NoRoom) {
            return Ok(Progress::NoRoom);
        }
        self.begin_segment_in(in_memory)
    }

    fn begin_segment_in(&mut self, memory: bool) -> Result<Progress> {
        // Recovery scans only the last segment: this one has to be whole on disk first.
        // With `Os` a crash may take the end of this one. The reader notices: the next header
        // counts the transactions before it.
        if self.segment.number > 0 && self.shared.options.sync != SyncPolicy::Os {
            self.sync()?;
        }
        let (directory, previous) = (&self.shared.directory, &self.history.received);
        let header = self.history.header(self.segment.number + 1);
        if memory {
            self.segment.begin_in_memory(directory, header.number, header.encoded_len(previous));
        } else if !self.segment.begin(directory, header.number, &header.encode(previous))? {
            return self.no_room(&NoRoom::full_disk());
        }
        self.segment_due = false;
        let (number, header_len) = (self.segment.number, self.segment.header_len);
        self.unpublished.begin_segment(header_len);
        self.pace.note(self.segment.position(header_len), true);
        let segment = Segment {
            header,
            grown: std::mem::take(&mut self.history.grown),
            header_len,
            len: header_len,
            transactions_end: header_len,
            unwritten: memory.then(Instant::now),
        };
        let mut state = self.shared.state.lock();
        state.segments.insert(number, segment);
        state.end = self.segment.position(header_len);
        drop(state);
        self.shared.grown.notify_waiters();
        debug!(segment = number, "relay segment begun");
        if !self.memory_only {
            self.shared.purge();
        }
        Ok(Progress::Done)
    }

    /// Writes whole frames, and makes whole transactions visible.
    pub(crate) fn flush(&mut self) -> Result<Progress> {
        if self.frames.len() == 0 {
            return Ok(Progress::Done);
        }
        let run = self.frames.take();
        let Some(start) = self.write(&[&run])? else {
            self.frames.put_back(run);
            return Ok(Progress::NoRoom);
        };
        let run = self.frames.share(run);
        self.publish(Some((start, run)))?;
        Ok(Progress::Done)
    }

    /// Writes an event that is larger than a batch as a frame of its own, without copying it. It
    /// does not enter the memory tail, because it would push out everything else.
    fn append_large(&mut self, event: &[u8], last: bool) -> Result<Progress> {
        if self.flush()? == Progress::NoRoom || self.write_out()? == Progress::NoRoom {
            return Ok(Progress::NoRoom);
        }
        let head = frame_around(FrameKind::Transaction { first: false, last }, event);
        if self.write(&[&head, event])?.is_none() {
            return Ok(Progress::NoRoom);
        }
        if let Some(open) = self.unpublished.open.as_mut() {
            open.bytes += event.len() as u64;
        }
        if last {
            self.frames.drop_unfinished();
            self.complete();
        }
        self.publish(None)?;
        Ok(Progress::Done)
    }

    /// Appends `parts` to the file and returns their offset; `None` if there is no room for them.
    fn write(&mut self, parts: &[&[u8]]) -> Result<Option<u64>> {
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if !self.memory_takes(len) && self.write_out()? == Progress::NoRoom {
            return Ok(None);
        }
        // Also for what may never be written: whoever sets a floor wants to hear of it in time.
        let lacks = self.shared.lacks_disk_for(len, self.memory_only);
        if let Some(reason) = lacks.or_else(|| self.shared.lacks_room_for(len)) {
            return self.no_room(&reason).map(|_| None);
        }
        let Some(start) = self.segment.append(parts)? else {
            return self.no_room(&NoRoom::full_disk()).map(|_| None);
        };
        if !self.segment.is_in_memory() {
            self.shared.state.lock().usage.written_total += len;
        }
        self.shared.clear_waiting();
        Ok(Some(start))
    }

    /// Returns true if the segment has a file, or so many bytes more can stay in memory without pushing out others
    /// that have none.
    fn memory_takes(&self, len: u64) -> bool {
        !self.segment.is_in_memory()
            || self.shared.state.lock().unwritten_bytes() + len <= self.pace.memory
    }

    /// Writes every segment that is in memory only, as a file each.
    pub(crate) fn write_out(&mut self) -> Result<Progress> {
        if !self.segment.is_in_memory() {
            return Ok(Progress::Done);
        }
        if self.memory_only {
            return Ok(Progress::NoRoom);
        }
        // Those that are applied by now are never written.
        self.shared.purge();
        let unwritten = unwritten(&self.shared.state.lock());
        let bytes = unwritten.iter().map(UnwrittenSegment::len).sum();
        if let Some(reason) = self.shared.lacks_disk_for(bytes, false) {
            return self.no_room(&reason);
        }
        for segment in unwritten {
            let is_last = segment.number == self.segment.number;
            let Some(file) = segment.write(&self.shared.directory, is_last)? else {
                return self.no_room(&NoRoom::full_disk());
            };
            if is_last {
                self.segment.is_written_to(file);
            }
            let mut state = self.shared.state.lock();
            state.usage.written_total += segment.len();
            let is_there = state.segments.get_mut(&segment.number).map(|it| it.unwritten = None);
            drop(state);
            // Or it was released meanwhile, and purged as one without a file.
            if is_there.is_none() {
                self.shared.directory.remove(segment.number)?;
            }
        }
        self.shared.file_wanted.store(false, Ordering::Release);
        self.shared.clear_waiting();
        self.shared.grown.notify_waiters();
        self.shared.purge();
        Ok(Progress::Done)
    }

    /// Returns true if what comes next needs no disk, as far as that can be known.
    pub(crate) fn needs_no_disk(&self) -> bool {
        self.segment.is_in_memory() && !self.segment_due && !self.must_write_out()
    }

    /// Returns true if it is time for [`Self::write_out`].
    pub(crate) fn must_write_out(&self) -> bool {
        if !self.segment.is_in_memory() {
            // There is nothing without a file.
            self.shared.file_wanted.store(false, Ordering::Release);
            return false;
        }
        self.shared.file_wanted.load(Ordering::Acquire) || self.write_due() == Some(Duration::ZERO)
    }

    /// Returns the time until a transaction has to be written that was not applied yet.
    pub(crate) fn write_due(&self) -> Option<Duration> {
        let SyncPolicy::Interval(interval) = self.sync_policy() else { return None };
        if !self.segment.is_in_memory() {
            return None;
        }
        let since = self.shared.state.lock().unwritten_since();
        since.map(|since| interval.saturating_sub(since.elapsed()))
    }

    /// Leaves everything on disk that the target may lack, and the end of what was received.
    pub(crate) fn close(&mut self) -> Result<Progress> {
        let is_applied = self.shared.state.lock().is_all_released();
        let left = match self.segment.is_in_memory() {
            true if is_applied => self.begin_segment_in(false)?,
            true => self.write_out()?,
            false => Progress::Done,
        };
        if left == Progress::Done {
            self.sync()?;
        }
        Ok(left)
    }

    fn no_room(&self, reason: &NoRoom) -> Result<Progress> {
        // Making room needs the disk: the writer's thread looks for itself, and makes it.
        if !self.memory_only {
            self.shared.wait_for(reason)?;
        }
        Ok(Progress::NoRoom)
    }

    fn publish(&mut self, run: Option<(u64, Bytes)>) -> Result<()> {
        // Before the end moves: with this policy nothing is visible that a crash could lose.
        if self.sync_policy() == SyncPolicy::Transaction {
            self.sync()?;
        }
        // Under one lock: a reader that sees the new end finds all bytes before it.
        let mut state = self.shared.state.lock();
        if let Some(segment) = state.segments.get_mut(&self.segment.number)
            && segment.unwritten.is_some()
            && segment.len == segment.header_len
        {
            segment.unwritten = Some(Instant::now());
        }
        if let Some((start, run)) = run {
            let limit = self.shared.options.tail_bytes;
            state.tail.push(self.segment.position(start), run, limit);
        }
        self.unpublished.publish(&self.segment, &mut state);
        self.pace.note(state.end, false);
        state.usage.transactions_total = self.history.transactions;
        state.usage.event_bytes_total = self.history.event_bytes;
        self.used = state.bytes();
        drop(state);
        self.shared.grown.notify_waiters();
        if self.sync_policy() == SyncPolicy::Transaction {
            self.shared.safe.send_replace(self.history.transactions);
        }
        Ok(())
    }

    /// Drops the unfinished transaction.
    pub(crate) fn abandon(&mut self) -> Result<()> {
        let Some(open) = self.unpublished.open.take() else { return Ok(()) };
        self.frames.drop_unfinished();
        if is_planted(Bug::CutTransactionKept) {
            return Ok(());
        }
        if let Some(before) = open.start.checked_sub(self.segment.written) {
            // Still in the batch as a whole, unless a full disk has cut it from the file.
            self.frames.truncate(before as usize);
            return self.sync_cut();
        }
        // The batch holds nothing but this transaction, and the visible end is at or before its start: a
        // reader can have some of its bytes only if it follows it, and learns first.
        lose(open.followed, &self.shared);
        self.frames.truncate(0);
        self.segment.cut(open.start)?;
        self.sync_cut()?;
        let mut state = self.shared.state.lock();
        state.tail.truncate(self.segment.position(open.start));
        if let Some(segment) = state.segments.get_mut(&self.segment.number) {
            segment.len = open.start;
        }
        Ok(())
    }

    /// The next transaction is written in the same place. Were the cut not durable, a crash could
    /// leave frames of both, and together they could pass for one transaction.
    fn sync_cut(&mut self) -> Result<()> {
        if self.segment.has_cut() { self.sync() } else { Ok(()) }
    }

    /// Time until the next background sync is due, if one is.
    pub(crate) fn sync_due(&self) -> Option<Duration> {
        match self.sync_policy() {
            SyncPolicy::Interval(interval) => self.segment.sync_due(interval),
            _ => None,
        }
    }

    pub(crate) fn sync(&mut self) -> Result<()> {
        match self.segment.sync() {
            Ok(None) => {}
            Ok(Some(synced)) => self.note_sync(&synced),
            Err(failed) => {
                self.unpublished.lose_all(&self.shared);
                if !failed.is_written_again && self.sync_policy() != SyncPolicy::Os {
                    // Or the next one to open the file would take it for durable. Readers who have
                    // seen it fail with the writer.
                    self.segment.cut_to_durable()?;
                }
                return Err(self.segment.failed("syncing", failed.error));
            }
        }
        Ok(())
    }

    fn note_sync(&self, &Synced { begun, ended, bytes }: &Synced) {
        self.shared.state.lock().usage.syncs_total += 1;
        self.shared.syncs.note(ended - begun);
        if let Some(recorder) = self.shared.recorder.get() {
            let details = Details { bytes: Some(bytes), ..Details::default() };
            let (track, name) = (Track::RelaySync, "sync");
            recorder.record(|| Span { track, name, begun, ended, details });
        }
    }

    pub(crate) fn sync_policy(&self) -> SyncPolicy {
        self.shared.options.sync
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.unpublished.lose_all(&self.shared);
    }
}
