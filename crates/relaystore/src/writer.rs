//! Appends transactions to the last segment, begins new ones, deletes released ones.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use csa_provider::{
    EventType, FormatDescription, Gtid, GtidSet, Placement, RawEvent, TransactionHeader,
};
use tracing::{debug, info, warn};

use crate::error::{Error, Result, io};
use crate::fs::{StoredFile, is_full};
use crate::segment::{
    FRAME_HEADER_LEN, FrameKind, SegmentHeader, begin_frame, encode_metadata, finish_frame,
    frame_around,
};
use crate::store::{Segment, Shared};
use crate::{RelayPosition, SyncPolicy};

/// Frames are written together up to this size.
const BATCH_BYTES: usize = 1 << 20;
/// The interval at which a full store looks for room.
const ROOM_POLL: Duration = Duration::from_millis(20);

/// Owned by the writer thread.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    file: Box<dyn StoredFile>,
    number: u64,
    header_len: u64,
    /// Bytes in the file.
    written: u64,
    /// Whole frames that are written next.
    batch: Vec<u8>,
    /// The unfinished frame.
    frame: Vec<u8>,
    metadata_len: usize,
    open: Option<OpenTransaction>,
    /// End of the last whole transaction in the file, once the batch is written.
    whole: u64,
    /// The same without a format description after it.
    transactions_end: u64,
    received: GtidSet,
    /// Whole transactions that are not yet visible to readers.
    fresh: Vec<Gtid>,
    format: Option<FormatDescription>,
    transactions: u64,
    event_bytes: u64,
    /// Bytes of all segments after the last write.
    used: u64,
    dirty: bool,
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
}

impl Writer {
    pub(crate) fn open(
        shared: Arc<Shared>,
        received: GtidSet,
        format: Option<FormatDescription>,
        totals: (u64, u64),
    ) -> Result<Self> {
        let end = shared.state.lock().end;
        let mut writer = Self {
            file: match end.segment {
                // An empty file, replaced below, because the field needs one.
                0 => {
                    let path = shared.directory.path(1);
                    shared.directory.create(1, &[]).map_err(io("creating", path))?
                }
                number => shared.directory.open_for_writing(number)?,
            },
            shared,
            number: end.segment,
            header_len: 0,
            written: end.offset,
            batch: Vec::new(),
            frame: Vec::new(),
            metadata_len: 0,
            open: None,
            whole: end.offset,
            transactions_end: 0,
            received,
            fresh: Vec::new(),
            format,
            transactions: totals.0,
            event_bytes: totals.1,
            used: 0,
            dirty: false,
            synced: Instant::now(),
        };
        if end.segment == 0 {
            writer.begin_segment()?;
        } else {
            let state = writer.shared.state.lock();
            if let Some(segment) = state.segments.get(&end.segment) {
                writer.header_len = segment.header_len;
                writer.transactions_end = segment.transactions_end;
            }
        }
        Ok(writer)
    }

    /// Takes the next event of the stream.
    pub(crate) fn append(&mut self, event: &RawEvent, placement: Placement) -> Result<()> {
        let ends = placement == Placement::End;
        match placement {
            Placement::Outside => return self.format_description(event),
            Placement::PassedOver => return Ok(()),
            Placement::Begin(header) => self.begin(header)?,
            Placement::Body | Placement::End => self.make_room_in_frame(event.len())?,
        }
        let Some(open) = self.open.as_mut() else { return Ok(()) };
        open.bytes += event.len() as u64;
        if event.len() > BATCH_BYTES && open.continued {
            return self.append_large(event.bytes(), ends);
        }
        self.frame.extend_from_slice(event.bytes());
        if ends {
            self.finish_frame(true);
            self.complete();
        }
        if self.batch.len() >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn format_description(&mut self, event: &RawEvent) -> Result<()> {
        if event.event_type() != EventType::FORMAT_DESCRIPTION
            || self.format.as_ref().is_some_and(|known| known.raw() == event.bytes())
        {
            return Ok(());
        }
        // The provider has parsed it before, so this does not fail.
        let Ok(format) = FormatDescription::parse(event.bytes().clone()) else { return Ok(()) };
        self.format = Some(format);
        let start = begin_frame(&mut self.batch);
        self.batch.extend_from_slice(event.bytes());
        finish_frame(&mut self.batch, start, FrameKind::FormatDescription, 0);
        self.whole = self.written + self.batch.len() as u64;
        Ok(())
    }

    fn begin(&mut self, header: TransactionHeader) -> Result<()> {
        if self.batch_fills_store() {
            // Whole transactions must become visible, or they can't be applied to make room.
            self.flush()?;
        }
        if self.wants_new_segment() {
            self.flush()?;
            self.begin_segment()?;
        }
        self.frame.clear();
        begin_frame(&mut self.frame);
        self.metadata_len = encode_metadata(&header, &mut self.frame);
        let start = self.written + self.batch.len() as u64;
        self.open = Some(OpenTransaction { header, start, bytes: 0, continued: false });
        Ok(())
    }

    /// Continues a transaction in another frame once the current one is large.
    fn make_room_in_frame(&mut self, event_len: usize) -> Result<()> {
        let fits = self.frame.len() + event_len <= self.shared.options.frame_bytes;
        // An event that does not fit into an empty frame gets a frame of its own size.
        if fits || self.frame.len() == FRAME_HEADER_LEN {
            return Ok(());
        }
        self.finish_frame(false);
        begin_frame(&mut self.frame);
        if self.batch.len() >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
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
        if len <= self.header_len {
            return false;
        }
        // Near the limit a segment ends early, so that its transactions can be purged.
        let pressed = options.space_limit > 0 && self.shared.state.lock().usage.waiting.is_some();
        len >= options.effective_segment_size() || pressed
    }

    /// Ends this segment and begins the next one.
    pub(crate) fn begin_segment(&mut self) -> Result<()> {
        // Recovery scans only the last segment: this one has to be whole on disk first.
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
        let file = loop {
            match self.shared.directory.create(number, &encoded) {
                Err(error) if is_full(&error) => self.wait("a full disk")?,
                other => break other.map_err(io("creating", &path))?,
            }
        };
        // A crash from here on finds the segment by its name, with a complete header.
        self.shared.directory.sync()?;
        self.file = file;
        self.number = number;
        self.header_len = encoded.len() as u64;
        self.written = self.header_len;
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
        self.shared.grown.notify_all();
        debug!(segment = number, "relay segment begun");
        self.shared.purge();
        Ok(())
    }

    /// Writes whole frames, and makes whole transactions visible.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let next = Vec::with_capacity(self.batch.len().min(BATCH_BYTES));
        let mut run = std::mem::replace(&mut self.batch, next);
        if run.capacity() > run.len() * 2 {
            // The tail counts the bytes in use, so it must not hold many more.
            run.shrink_to_fit();
        }
        let run = Bytes::from(run);
        let start = self.write(&[&run])?;
        self.publish(Some((start, run)))
    }

    /// Writes an event that is larger than a batch as a frame of its own, without copying it. It
    /// does not enter the memory tail, because it would push out everything else.
    fn append_large(&mut self, event: &[u8], last: bool) -> Result<()> {
        self.flush()?;
        let head = frame_around(FrameKind::Transaction { first: false, last }, event);
        self.frame.clear();
        begin_frame(&mut self.frame);
        self.write(&[&head, event])?;
        if last {
            self.complete();
        }
        self.publish(None)
    }

    /// Appends `parts` to the file, waiting while there is no room. Returns their offset.
    fn write(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let start = self.written;
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        self.wait_for_room(len)?;
        while let Err(error) = self.try_write(parts, start) {
            if !is_full(&error) {
                return Err(io("writing", self.path())(error));
            }
            // Gives back the space of the half-written part while this waits.
            self.rewind(start)?;
            self.wait("a full disk")?;
        }
        self.clear_waiting();
        self.written = start + len;
        self.dirty = true;
        Ok(start)
    }

    fn try_write(&self, parts: &[&[u8]], mut at: u64) -> std::io::Result<()> {
        for part in parts {
            self.file.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn publish(&mut self, run: Option<(u64, Bytes)>) -> Result<()> {
        // Before the end moves: with this policy nothing is visible that a crash could lose.
        if self.shared.options.sync == SyncPolicy::Transaction {
            self.sync()?;
        }
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
            state.received.add(&gtid);
        }
        state.usage.transactions_total = self.transactions;
        state.usage.event_bytes_total = self.event_bytes;
        self.used = state.bytes();
        drop(state);
        self.shared.grown.notify_all();
        Ok(())
    }

    /// Drops the unfinished transaction.
    pub(crate) fn abandon(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        self.frame.clear();
        self.metadata_len = 0;
        // Still in the batch as a whole: nothing of it is in the file.
        if open.start >= self.written {
            self.batch.truncate((open.start - self.written) as usize);
            return self.flush();
        }
        self.batch.clear();
        self.rewind(open.start)?;
        self.written = open.start;
        let mut state = self.shared.state.lock();
        state.tail.truncate(RelayPosition { segment: self.number, offset: open.start });
        if let Some(segment) = state.segments.get_mut(&self.number) {
            segment.len = self.written;
        }
        Ok(())
    }

    fn rewind(&mut self, to: u64) -> Result<()> {
        self.file.set_len(to).map_err(io("truncating", self.path()))
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
        if self.dirty {
            self.file.sync_data().map_err(io("syncing", self.path()))?;
            self.dirty = false;
            self.shared.state.lock().usage.syncs_total += 1;
        }
        self.synced = Instant::now();
        Ok(())
    }

    pub(crate) fn sync_policy(&self) -> SyncPolicy {
        self.shared.options.sync
    }

    fn path(&self) -> PathBuf {
        self.shared.directory.path(self.number)
    }

    /// Waits while the store is at its limit or the disk near `min_free_disk`. A transaction that
    /// is alone in the store passes: nothing would ever make room for it.
    fn wait_for_room(&self, bytes: u64) -> Result<()> {
        let options = &self.shared.options;
        loop {
            let (used, alone) = {
                let state = self.shared.state.lock();
                (state.bytes(), state.is_all_released())
            };
            let free = match options.min_free_disk {
                0 => u64::MAX,
                _ => self.shared.directory.free_bytes(),
            };
            if free < options.min_free_disk.saturating_add(bytes) {
                let floor = options.min_free_disk;
                self.wait(&format!("free disk: {free} bytes left, min_free_disk is {floor}"))?;
            } else if options.space_limit > 0 && used + bytes > options.space_limit && !alone {
                let limit = options.space_limit;
                self.wait(&format!("relay space: {used} of {limit} bytes used"))?;
            } else {
                return Ok(());
            }
        }
    }

    fn wait(&self, what: &str) -> Result<()> {
        if self.shared.giving_up.load(Ordering::Acquire) {
            return Err(Error::Io {
                what: "waiting for space in",
                path: self.shared.directory.directory().to_owned(),
                source: ErrorKind::Interrupted.into(),
            });
        }
        let waiting = self.shared.state.lock().usage.waiting.replace(format!("waiting for {what}"));
        if waiting.is_none() {
            warn!("reception waits for {what}");
        }
        self.shared.purge();
        std::thread::sleep(ROOM_POLL);
        Ok(())
    }

    fn clear_waiting(&self) {
        if self.shared.state.lock().usage.waiting.take().is_some() {
            info!("reception resumes: there is room in the relay store");
        }
    }
}
