//! Appends transactions to the last segment and begins new ones. Nothing here waits: a call that
//! finds no room says so, and is repeated later.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use csa_provider::binlog::{
    EventType, FormatDescription, Gtid, GtidSet, RawEvent, TransactionHeader,
};
use csa_provider::recorder::{Details, Span, Track};
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::source::Placement;
use tokio::time::Instant;
use tracing::debug;

use crate::disk::error::{Result, io};
use crate::disk::fs::{StoredFile, is_full};
use crate::disk::options::{RelayStoreOptions, SyncPolicy};
use crate::disk::segment::RelayPosition;
use crate::disk::segment::{
    FRAME_HEADER_LEN, FrameKind, SegmentHeader, begin_frame, encode_metadata, finish_frame,
    frame_around,
};
use crate::state::follow::Followed;
use crate::state::segments::Segment;
use crate::state::shared::{Open, Shared};
use crate::write::buffers::Buffers;

/// Frames are written together up to this size.
const BATCH_BYTES: usize = RelayStoreOptions::WAKE_BYTES;

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
    /// `None` before the first segment.
    file: Option<Box<dyn StoredFile>>,
    number: u64,
    /// The segment after `number` has to begin before anything is appended.
    segment_due: bool,
    header_len: u64,
    /// Bytes in the file.
    written: u64,
    /// Bytes that no crash takes, as far as the policy has them synced.
    durable: u64,
    /// Whole frames that are written next.
    batch: Vec<u8>,
    buffers: Buffers,
    /// The unfinished frame.
    frame: Vec<u8>,
    metadata_len: usize,
    open: Option<OpenTransaction>,
    /// The end of the last whole transaction in the file, once the batch is written.
    whole: u64,
    /// The end of the last whole transaction, without a format description after it.
    transactions_end: u64,
    received: GtidSet,
    /// The transactions that the target has and this store has never had, until a segment records them.
    only_on_target: GtidSet,
    /// Whole transactions that are not yet visible to readers.
    fresh: Vec<Gtid>,
    /// The first of them, if readers could follow it.
    followed: Option<Ended>,
    format: Option<FormatDescription>,
    transactions: u64,
    event_bytes: u64,
    /// Bytes of all segments after the last write.
    used: u64,
    dirty: bool,
    /// Bytes were cut from the file, and a crash may bring them back.
    cut: bool,
    synced: Instant,
}

#[derive(Debug)]
struct OpenTransaction {
    header: TransactionHeader,
    /// Its offset in the file.
    start: u64,
    bytes: u64,
    /// Its first frame is complete.
    continued: bool,
    /// Once a part of it is written.
    followed: Option<Arc<Followed>>,
}

/// The end of a transaction that readers could follow, once it is written.
#[derive(Debug)]
struct Ended {
    followed: Arc<Followed>,
    end: u64,
    event_bytes: u64,
}

impl Writer {
    /// The next transaction follows those of `received` and of `only_on_target`.
    pub(crate) fn open(
        shared: Arc<Shared>,
        received: GtidSet,
        only_on_target: GtidSet,
        format: Option<FormatDescription>,
        totals: (u64, u64),
    ) -> Result<Self> {
        let end = shared.state.lock().end;
        let file = match end.segment {
            0 => None,
            number => Some(shared.directory.open_for_writing(number)?),
        };
        // A killed process has left bytes that a crash may still take, and cuts that may
        // be undone. From here on readers see the bytes, this segment counts as whole once the next
        // one begins, and others are written in place of those cut.
        if let Some(file) = &file {
            let path = shared.directory.path(end.segment);
            file.sync_from(0).map_err(|failed| io("syncing", path)(failed.error))?;
        }
        // A buffer is written once it holds a batch, so it grows by less than two frames beyond.
        let (tail, frame) = (shared.options.tail_bytes, shared.options.frame_bytes);
        let buffers = Buffers::new(tail / BATCH_BYTES + 1, BATCH_BYTES + 2 * frame);
        let mut writer = Self {
            file,
            shared,
            number: end.segment,
            segment_due: end.segment == 0 || !only_on_target.is_empty(),
            only_on_target,
            header_len: 0,
            written: end.offset,
            durable: end.offset,
            batch: Vec::new(),
            buffers,
            frame: Vec::new(),
            metadata_len: 0,
            open: None,
            whole: end.offset,
            transactions_end: 0,
            received,
            fresh: Vec::new(),
            followed: None,
            format,
            transactions: totals.0,
            event_bytes: totals.1,
            used: 0,
            dirty: false,
            cut: false,
            synced: Instant::now(),
        };
        if let Some(segment) = writer.shared.state.lock().segments.get(&end.segment) {
            writer.header_len = segment.header_len;
            writer.transactions_end = segment.transactions_end;
        }
        Ok(writer)
    }

    /// Begins the segments that have to begin before anything is appended. What only the target has is all that
    /// comes between one without transactions and the next, so that
    /// [`holes`](crate::state::segments::holes) knows it from the headers.
    pub(crate) fn prepare(&mut self) -> Result<Progress> {
        if !self.segment_due {
            return Ok(Progress::Done);
        }
        if !self.only_on_target.is_empty() {
            let has_transactions = self.transactions_end > self.header_len;
            if has_transactions && self.begin_segment()? == Progress::NoRoom {
                return Ok(Progress::NoRoom);
            }
            self.segment_due = true;
            self.received.union(&std::mem::take(&mut self.only_on_target));
        }
        self.begin_segment()
    }

    /// Takes the next event of the stream. All that needs room is done first: without room, the same
    /// event can be handed over again.
    pub(crate) fn append(&mut self, event: &RawEvent, placement: &Placement) -> Result<Progress> {
        if self.batch.len() >= BATCH_BYTES && self.flush()? == Progress::NoRoom {
            return Ok(Progress::NoRoom);
        }
        match placement {
            Placement::Outside => {
                self.format_description(event);
                return Ok(Progress::Done);
            }
            Placement::PassedOver => return Ok(Progress::Done),
            Placement::Begin(header) => {
                if self.begin(header)? == Progress::NoRoom {
                    return Ok(Progress::NoRoom);
                }
            }
            Placement::Body | Placement::End => self.make_room_in_frame(event.len()),
        }
        let ends = *placement == Placement::End;
        let Some(open) = self.open.as_mut() else { return Ok(Progress::Done) };
        // `frame_bytes` is below BATCH_BYTES, so `make_room_in_frame` has ended the frame, and
        // nothing of this transaction is left in it that belongs before this event.
        if event.len() > BATCH_BYTES && open.continued {
            return self.append_large(event.bytes(), ends);
        }
        open.bytes += event.len() as u64;
        self.frame.extend_from_slice(event.bytes());
        if ends {
            self.finish_frame(true);
            self.complete();
        }
        Ok(Progress::Done)
    }

    fn format_description(&mut self, event: &RawEvent) {
        // A source sends one for each file and each dump; only a change is worth a frame.
        if event.event_type() != EventType::FORMAT_DESCRIPTION
            || self.format.as_ref().is_some_and(|known| known.raw() == event.bytes())
        {
            return;
        }
        // The provider has parsed it before, so this does not fail.
        let Ok(format) = FormatDescription::parse(event.bytes().clone()) else { return };
        self.format = Some(format);
        let start = begin_frame(&mut self.batch);
        self.batch.extend_from_slice(event.bytes());
        finish_frame(&mut self.batch, start, FrameKind::FormatDescription, 0);
        self.whole = self.written + self.batch.len() as u64;
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
        self.frame.clear();
        begin_frame(&mut self.frame);
        self.metadata_len = encode_metadata(header, &mut self.frame);
        let start = self.written + self.batch.len() as u64;
        let header = header.clone();
        self.open =
            Some(OpenTransaction { header, start, bytes: 0, continued: false, followed: None });
        Ok(Progress::Done)
    }

    /// Continues a transaction in another frame once the current one is large.
    fn make_room_in_frame(&mut self, event_len: usize) {
        let fits = self.frame.len() + event_len <= self.shared.options.frame_bytes;
        // An event that does not fit into an empty frame gets a frame of its own size.
        if fits || self.frame.len() == FRAME_HEADER_LEN {
            return;
        }
        self.finish_frame(false);
        begin_frame(&mut self.frame);
    }

    /// Records that the open transaction is whole.
    fn complete(&mut self) {
        if let Some(open) = self.open.take() {
            self.received.add(&open.header.gtid);
            self.fresh.push(open.header.gtid);
            self.transactions += 1;
            self.event_bytes += open.bytes;
            self.whole = self.written + self.batch.len() as u64;
            self.transactions_end = self.whole;
            if let Some(followed) = open.followed {
                let (end, event_bytes) = (self.whole, open.bytes);
                self.followed = Some(Ended { followed, end, event_bytes });
            }
        }
    }

    fn finish_frame(&mut self, last: bool) {
        let first = self.open.as_ref().is_some_and(|open| !open.continued);
        finish_frame(&mut self.frame, 0, FrameKind::Transaction { first, last }, self.metadata_len);
        self.batch.extend_from_slice(&self.frame);
        self.frame.clear();
        self.metadata_len = 0;
        if let Some(open) = self.open.as_mut() {
            open.continued = true;
        }
    }

    fn batch_fills_store(&self) -> bool {
        let limit = self.shared.options.space_limit;
        limit > 0 && self.used + self.batch.len() as u64 >= limit
    }

    fn wants_new_segment(&self) -> bool {
        let options = &self.shared.options;
        let len = self.written + self.batch.len() as u64;
        // A segment without transactions takes the next one, however large: another segment would
        // be just as empty.
        if len <= self.header_len {
            return false;
        }
        // Near the limit a segment ends early, so that its transactions can be purged.
        let pressed = options.space_limit > 0 && self.shared.state.lock().usage.waiting.is_some();
        len >= options.effective_segment_size() || pressed
    }

    /// Ends this segment and begins the next one.
    fn begin_segment(&mut self) -> Result<Progress> {
        // Recovery scans only the last segment: this one has to be whole on disk first.
        // With `Os` a crash may take the end of this one. The reader notices: the next header
        // counts the transactions before it.
        if self.number > 0 && self.shared.options.sync != SyncPolicy::Os {
            self.sync()?;
        }
        let number = self.number + 1;
        let header = SegmentHeader {
            number,
            transactions_before: self.transactions,
            bytes_before: self.event_bytes,
            previous: self.received.clone(),
            format: self.format.clone(),
        };
        let encoded = header.encode();
        let path = self.shared.directory.path(number);
        let file = match self.shared.directory.create(number, &encoded) {
            Err(error) if is_full(&error) => return self.no_room("a full disk"),
            other => other.map_err(io("creating", &path))?,
        };
        // A crash from here on finds the segment by its name, with a complete header.
        self.shared.directory.sync()?;
        self.file = Some(file);
        self.number = number;
        self.segment_due = false;
        self.dirty = false;
        self.cut = false;
        self.header_len = encoded.len() as u64;
        self.written = self.header_len;
        self.durable = self.header_len;
        self.whole = self.header_len;
        self.transactions_end = self.header_len;
        let start = RelayPosition { segment: number, offset: self.header_len };
        let mut state = self.shared.state.lock();
        state.segments.insert(
            number,
            Segment {
                header,
                header_len: self.header_len,
                len: self.header_len,
                transactions_end: self.header_len,
            },
        );
        state.end = start;
        drop(state);
        self.shared.grown.notify_waiters();
        debug!(segment = number, "relay segment begun");
        self.shared.purge();
        Ok(Progress::Done)
    }

    /// Writes whole frames, and makes whole transactions visible.
    pub(crate) fn flush(&mut self) -> Result<Progress> {
        if self.batch.is_empty() {
            return Ok(Progress::Done);
        }
        let run = std::mem::take(&mut self.batch);
        let Some(start) = self.write(&[&run])? else {
            self.batch = run;
            return Ok(Progress::NoRoom);
        };
        self.batch = self.buffers.take();
        let run = self.buffers.share(run);
        self.publish(Some((start, run)))?;
        Ok(Progress::Done)
    }

    /// Writes an event that is larger than a batch as a frame of its own, without copying it. It
    /// does not enter the memory tail, because it would push out everything else.
    fn append_large(&mut self, event: &[u8], last: bool) -> Result<Progress> {
        if self.flush()? == Progress::NoRoom {
            return Ok(Progress::NoRoom);
        }
        let head = frame_around(FrameKind::Transaction { first: false, last }, event);
        if self.write(&[&head, event])?.is_none() {
            return Ok(Progress::NoRoom);
        }
        if let Some(open) = self.open.as_mut() {
            open.bytes += event.len() as u64;
        }
        if last {
            self.frame.clear();
            self.complete();
        }
        self.publish(None)?;
        Ok(Progress::Done)
    }

    /// Appends `parts` to the file and returns their offset; `None` if there is no room for them.
    fn write(&mut self, parts: &[&[u8]]) -> Result<Option<u64>> {
        let start = self.written;
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if let Some(reason) = self.shared.lacks_room_for(len) {
            return self.no_room(&reason).map(|_| None);
        }
        let mut at = start;
        for part in parts {
            match self.file()?.write_all_at(part, at) {
                Ok(()) => at += part.len() as u64,
                Err(error) if is_full(&error) => {
                    // Gives back the space of the half-written part.
                    // No sync here, unlike `abandon`: the next bytes in this place are the same
                    // ones, unless the transaction is abandoned.
                    self.rewind(start)?;
                    return self.no_room("a full disk").map(|_| None);
                }
                Err(error) => return Err(io("writing", self.path())(error)),
            }
        }
        self.shared.clear_waiting();
        self.written = at;
        self.dirty = true;
        Ok(Some(start))
    }

    fn no_room(&self, reason: &str) -> Result<Progress> {
        self.shared.wait_for(reason)?;
        Ok(Progress::NoRoom)
    }

    fn publish(&mut self, run: Option<(u64, Bytes)>) -> Result<()> {
        // Before the end moves: with this policy nothing is visible that a crash could lose.
        if self.shared.options.sync == SyncPolicy::Transaction {
            self.sync()?;
        }
        // Under one lock: a reader that sees the new end finds all bytes before it.
        let mut state = self.shared.state.lock();
        if let Some((start, run)) = run {
            let limit = self.shared.options.tail_bytes;
            state.tail.push(RelayPosition { segment: self.number, offset: start }, run, limit);
        }
        if let Some(segment) = state.segments.get_mut(&self.number) {
            segment.len = self.written;
            segment.transactions_end = self.transactions_end;
        }
        state.end = RelayPosition { segment: self.number, offset: self.whole };
        for gtid in self.fresh.drain(..) {
            state.receives(&gtid);
        }
        if let Some(Ended { followed, end, event_bytes }) = self.followed.take() {
            state.open = None;
            followed.complete(end, event_bytes);
        }
        if let Some(open) = self.open.as_mut().filter(|open| open.start < self.written) {
            let start = RelayPosition { segment: self.number, offset: open.start };
            // One that was cut off there is forgotten, so what is known there is this one.
            let known = state.open.take().filter(|known| known.start == start);
            let known = known.unwrap_or_else(|| {
                let followed = Arc::new(Followed::new(self.written));
                Open { start, header: open.header.clone(), followed }
            });
            known.followed.grow(self.written, self.written - open.start);
            open.followed = Some(Arc::clone(&known.followed));
            state.open = Some(known);
        }
        state.usage.transactions_total = self.transactions;
        state.usage.event_bytes_total = self.event_bytes;
        self.used = state.bytes();
        drop(state);
        self.shared.grown.notify_waiters();
        if self.shared.options.sync == SyncPolicy::Transaction {
            self.shared.safe.send_replace(self.transactions);
        }
        Ok(())
    }

    /// Drops the unfinished transaction.
    pub(crate) fn abandon(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        if is_planted(Bug::CutTransactionKept) {
            self.frame.clear();
            return Ok(());
        }
        self.frame.clear();
        self.metadata_len = 0;
        if open.start >= self.written {
            // Still in the batch as a whole, unless a full disk has cut it from the file.
            self.batch.truncate((open.start - self.written) as usize);
            return self.sync_cut();
        }
        // The batch holds nothing but this transaction, and the visible end is at or before its start: a
        // reader can have some of its bytes only if it follows it, and learns first.
        self.lose(open.followed);
        self.batch.clear();
        self.rewind(open.start)?;
        self.written = open.start;
        self.sync_cut()?;
        let mut state = self.shared.state.lock();
        state.tail.truncate(RelayPosition { segment: self.number, offset: open.start });
        if let Some(segment) = state.segments.get_mut(&self.number) {
            segment.len = self.written;
        }
        Ok(())
    }

    /// Tells the readers that follow the open transaction to read no more of it.
    fn lose(&self, followed: Option<Arc<Followed>>) {
        if let Some(followed) = followed
            && !is_planted(Bug::FollowersNotTold)
        {
            self.shared.state.lock().open = None;
            followed.give_up();
            self.shared.grown.notify_waiters();
        }
    }

    /// No end of a transaction will become visible any more.
    fn lose_all(&mut self) {
        let open = self.open.take().and_then(|open| open.followed);
        let ended = self.followed.take().map(|ended| ended.followed);
        self.lose(open.or(ended));
    }

    /// The next transaction is written in the same place. Were the cut not durable, a crash could
    /// leave frames of both, and together they could pass for one transaction.
    fn sync_cut(&mut self) -> Result<()> {
        if self.cut { self.sync() } else { Ok(()) }
    }

    fn rewind(&mut self, to: u64) -> Result<()> {
        self.file()?.set_len(to).map_err(io("truncating", self.path()))?;
        self.durable = self.durable.min(to);
        self.dirty = true;
        self.cut = true;
        Ok(())
    }

    /// Time until the next background sync is due, if one is.
    pub(crate) fn sync_due(&self) -> Option<Duration> {
        match self.shared.options.sync {
            SyncPolicy::Interval(interval) if self.dirty => {
                Some(interval.saturating_sub(self.synced.elapsed()))
            }
            _ => None,
        }
    }

    pub(crate) fn sync(&mut self) -> Result<()> {
        let begun = Instant::now();
        self.synced = begun;
        if self.dirty {
            let file = self.file()?;
            let synced = match is_planted(Bug::SyncIgnored) {
                true => Ok(()),
                false => file.sync_from(self.durable),
            };
            if let Err(failed) = synced {
                self.lose_all();
                if !failed.is_written_again && self.sync_policy() != SyncPolicy::Os {
                    // Or the next one to open the file would take it for durable. Readers who have
                    // seen it fail with the writer.
                    self.file()?.set_len(self.durable).map_err(io("truncating", self.path()))?;
                }
                return Err(io("syncing", self.path())(failed.error));
            }
            let bytes = self.written.saturating_sub(self.durable);
            self.durable = self.written;
            self.dirty = false;
            self.cut = false;
            self.shared.state.lock().usage.syncs_total += 1;
            self.synced = Instant::now();
            self.shared.syncs.note(self.synced - begun);
            if let Some(recorder) = self.shared.recorder.get() {
                recorder.record(|| Span {
                    track: Track::RelaySync,
                    name: "sync",
                    begun,
                    ended: self.synced,
                    details: Details { bytes: Some(bytes), ..Details::default() },
                });
            }
        }
        Ok(())
    }

    pub(crate) fn sync_policy(&self) -> SyncPolicy {
        self.shared.options.sync
    }

    fn file(&self) -> Result<&dyn StoredFile> {
        let missing = || io("writing", self.path())(std::io::ErrorKind::NotFound.into());
        self.file.as_deref().ok_or_else(missing)
    }

    fn path(&self) -> PathBuf {
        self.shared.directory.path(self.number)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.lose_all();
    }
}
