//! Appends transactions to the last segment, begins new ones, deletes released ones.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use csa_provider::{EventType, FormatDescription, GtidSet, Placement, RawEvent, TransactionHeader};
use tracing::{debug, info, warn};

use crate::error::{Error, Result, io};
use crate::segment::{FrameKind, SegmentHeader, begin_frame, encode_metadata, finish_frame};
use crate::store::{Segment, Shared};
use crate::{RelayPosition, SyncPolicy};

/// Frames are written together up to this size.
const BATCH_BYTES: usize = 1 << 20;
/// How often a full store looks for room.
const ROOM_POLL: Duration = Duration::from_millis(20);

/// Owned by the writer thread.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    file: File,
    number: u64,
    header_len: u64,
    /// Bytes in the file.
    written: u64,
    /// Whole frames to be written next.
    batch: Vec<u8>,
    /// The frame that grows.
    frame: Vec<u8>,
    metadata_len: usize,
    open: Option<OpenTransaction>,
    /// End of the last whole transaction, as it will stand in the file.
    whole: u64,
    received: GtidSet,
    format: Option<FormatDescription>,
    transactions: u64,
    event_bytes: u64,
    dirty: bool,
    synced: Instant,
}

#[derive(Debug)]
struct OpenTransaction {
    header: TransactionHeader,
    /// Where it begins in the file.
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
        let path = shared.directory.segment_path(end.segment.max(1));
        let mut writer = Self {
            file: OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .map_err(io("opening", &path))?,
            shared,
            number: end.segment,
            header_len: 0,
            written: end.offset,
            batch: Vec::new(),
            frame: Vec::new(),
            metadata_len: 0,
            open: None,
            whole: end.offset,
            received,
            format,
            transactions: totals.0,
            event_bytes: totals.1,
            dirty: false,
            synced: Instant::now(),
        };
        if end.segment == 0 {
            writer.begin_segment()?;
        } else {
            writer.file.seek(SeekFrom::Start(end.offset)).map_err(io("opening", &path))?;
            let state = writer.shared.state.lock();
            writer.header_len = state.segments.get(&end.segment).map_or(0, |s| s.header_len);
        }
        Ok(writer)
    }

    /// Takes the next event of the stream.
    pub(crate) fn append(&mut self, event: &RawEvent, placement: Placement) -> Result<()> {
        let ends = placement == Placement::End;
        match placement {
            Placement::Outside => return self.format_description(event),
            Placement::Begin(header) => self.begin(header)?,
            Placement::Body | Placement::End => self.make_room_in_frame(event.len())?,
        }
        self.frame.extend_from_slice(event.bytes());
        if let Some(open) = self.open.as_mut() {
            open.bytes += event.len() as u64;
        }
        if ends {
            self.finish_frame(true);
            if let Some(open) = self.open.take() {
                self.received.add(&open.header.gtid);
                self.transactions += 1;
                self.event_bytes += open.bytes;
                self.whole = self.written + self.batch.len() as u64;
            }
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
        // The provider has read it before; what it accepted parses again.
        let Ok(format) = FormatDescription::parse(event.bytes().clone()) else { return Ok(()) };
        self.format = Some(format);
        let start = begin_frame(&mut self.batch);
        self.batch.extend_from_slice(event.bytes());
        finish_frame(&mut self.batch, start, FrameKind::FormatDescription, 0);
        self.whole = self.written + self.batch.len() as u64;
        Ok(())
    }

    fn begin(&mut self, header: TransactionHeader) -> Result<()> {
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

    /// A transaction goes on in another frame once this one is large.
    fn make_room_in_frame(&mut self, event_len: usize) -> Result<()> {
        if self.frame.len() + event_len <= self.shared.options.frame_bytes {
            return Ok(());
        }
        self.finish_frame(false);
        begin_frame(&mut self.frame);
        if self.batch.len() >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
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

    fn wants_new_segment(&self) -> bool {
        let options = &self.shared.options;
        let len = self.written + self.batch.len() as u64;
        if len <= self.header_len {
            return false;
        }
        // Near the limit a segment ends early, so that what it holds can be purged.
        let pressed = options.space_limit > 0 && self.shared.state.lock().usage.waiting.is_some();
        len >= options.effective_segment_size() || pressed
    }

    fn begin_segment(&mut self) -> Result<()> {
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
        let path = self.shared.directory.segment_path(number);
        let mut file = loop {
            match create(&path, &encoded) {
                Err(error) if error.kind() == ErrorKind::StorageFull => self.wait("a full disk")?,
                other => break other.map_err(io("creating", &path))?,
            }
        };
        file.seek(SeekFrom::End(0)).map_err(io("creating", &path))?;
        self.shared.directory.sync()?;
        self.file = file;
        self.number = number;
        self.header_len = encoded.len() as u64;
        self.written = self.header_len;
        self.whole = self.header_len;
        let start = RelayPosition { segment: number, offset: self.header_len };
        let mut state = self.shared.state.lock();
        state
            .segments
            .insert(number, Segment { header, header_len: self.header_len, len: self.header_len });
        if state.released >= state.end {
            state.released = start;
        }
        state.end = start;
        drop(state);
        self.shared.grown.notify_all();
        debug!(segment = number, "relay segment begun");
        self.purge()
    }

    /// Writes what is whole frames, and shows what is whole transactions.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let run = Bytes::from(std::mem::take(&mut self.batch));
        let start = self.written;
        self.wait_for_room(run.len() as u64)?;
        loop {
            match self.file.write_all(&run) {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::StorageFull => {
                    self.rewind(start)?;
                    self.wait("a full disk")?;
                }
                Err(error) => return Err(io("writing", self.path())(error)),
            }
        }
        self.clear_waiting();
        self.written = start + run.len() as u64;
        self.dirty = true;
        if self.shared.options.sync == SyncPolicy::Transaction {
            self.sync()?;
        }
        let mut state = self.shared.state.lock();
        let limit = self.shared.options.tail_bytes;
        state.tail.push(RelayPosition { segment: self.number, offset: start }, run, limit);
        if let Some(segment) = state.segments.get_mut(&self.number) {
            segment.len = self.written;
        }
        state.end = RelayPosition { segment: self.number, offset: self.whole };
        state.usage.transactions_total = self.transactions;
        state.usage.event_bytes_total = self.event_bytes;
        drop(state);
        self.shared.grown.notify_all();
        Ok(())
    }

    /// Drops the unfinished transaction.
    pub(crate) fn abandon(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        self.frame.clear();
        self.metadata_len = 0;
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
        self.file
            .set_len(to)
            .and_then(|()| self.file.seek(SeekFrom::Start(to)).map(drop))
            .map_err(io("truncating", self.path()))
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

    /// Deletes segments whose last transaction is released; never the one that is written.
    pub(crate) fn purge(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        let released = state.released;
        let gone: Vec<u64> = state
            .segments
            .iter()
            .take_while(|(number, segment)| {
                **number < self.number
                    && (**number < released.segment
                        || **number == released.segment && released.offset >= segment.len)
            })
            .map(|(number, _)| *number)
            .collect();
        for number in &gone {
            state.segments.remove(number);
        }
        drop(state);
        for number in gone {
            self.shared.directory.remove(number)?;
            debug!(segment = number, "relay segment purged");
        }
        Ok(())
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    fn path(&self) -> PathBuf {
        self.shared.directory.segment_path(self.number)
    }

    /// Waits while the store is at its limit or the disk is near its floor. A transaction that is
    /// alone in the store passes: nothing would ever make room for it.
    fn wait_for_room(&self, bytes: u64) -> Result<()> {
        let options = &self.shared.options;
        loop {
            let (used, alone) = {
                let state = self.shared.state.lock();
                (state.bytes(), state.released >= state.end)
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
        if self.shared.closing.load(Ordering::Acquire) {
            return Err(Error::Io {
                what: "waiting for space in",
                path: self.shared.directory.path().to_owned(),
                source: ErrorKind::Interrupted.into(),
            });
        }
        let waiting = self.shared.state.lock().usage.waiting.replace(format!("waiting for {what}"));
        if waiting.is_none() {
            warn!("reception waits for {what}");
        }
        self.purge()?;
        std::thread::sleep(ROOM_POLL);
        Ok(())
    }

    fn clear_waiting(&self) {
        if self.shared.state.lock().usage.waiting.take().is_some() {
            info!("reception goes on: there is room in the relay store");
        }
    }
}

/// A half-written header must not stay behind: without room there is no segment.
fn create(path: &PathBuf, header: &[u8]) -> std::io::Result<File> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    match file.write_all(header).and_then(|()| file.sync_all()) {
        Ok(()) => Ok(file),
        Err(error) => {
            std::fs::remove_file(path)?;
            Err(error)
        }
    }
}
