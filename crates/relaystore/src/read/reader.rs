//! Follows the store up to its visible end.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use csa_provider::binlog::{FormatDescription, GtidSet, TransactionHeader};
use tokio::time::{Instant, timeout_at};

use crate::disk::error::{Error, Result};
use crate::disk::segment::RelayPosition;
use crate::disk::segment::{
    FRAME_HEADER_LEN, FrameHeader, FrameKind, decode_metadata, verify_frame,
};
use crate::read::ahead::{MOST_AHEAD, ReadAhead};
use crate::read::transaction::{RelayRange, RelayedTransaction, TransactionBody};
use crate::state::follow::{Followed, Outcome};
use crate::state::segments::last_begun;
use crate::state::shared::{Open, Shared, StoreState};

/// Bytes read if only frame headers are needed.
const PEEK: usize = 512;

/// Hands out whole transactions in the order in which they were received.
#[derive(Debug)]
pub struct RelayReader {
    shared: Arc<Shared>,
    position: RelayPosition,
    /// End of the last transaction in this segment that was read or skipped.
    transactions_end: u64,
    /// Transactions to skip.
    executed: GtidSet,
    format: Option<Arc<FormatDescription>>,
    ordinal: u64,
    cumulative_bytes: u64,
    inline_limit: u64,
    /// Nobody reads the events.
    headers_only: bool,
    /// A transaction under reception is handed out once so many bytes of it are written.
    follow_from: Option<u64>,
    /// The transaction at `position`, if it was handed out before it was whole.
    followed: Option<Arc<Followed>>,
    /// Bytes at `position`.
    ahead: ReadAhead,
}

/// The outcome of reading a transaction.
enum Found {
    Transaction(Box<RelayedTransaction>),
    /// It is one of those to skip.
    Executed,
    /// It is to be streamed, and its segment has no file yet.
    Unwritten,
}

impl RelayReader {
    pub(crate) fn new(shared: Arc<Shared>, executed: GtidSet) -> Self {
        let mut reader = Self {
            shared,
            position: RelayPosition { segment: 0, offset: 0 },
            transactions_end: 0,
            executed,
            format: None,
            ordinal: 0,
            cumulative_bytes: 0,
            inline_limit: u64::MAX,
            headers_only: false,
            follow_from: None,
            followed: None,
            ahead: ReadAhead::new(),
        };
        // Begins with the first segment that may hold something else: all those before it are covered by `executed`, as
        // the header of the next one shows.
        let first = {
            let state = reader.shared.state.lock();
            let begun = last_begun(&state.segments, &reader.executed);
            let first = state.segments.keys().next().copied();
            begun.or(first).unwrap_or(state.end.segment)
        };
        reader.enter_segment(first);
        reader
    }

    /// Transactions with more event bytes are streamed instead of held.
    pub fn set_inline_limit(&mut self, bytes: u64) {
        self.inline_limit = bytes;
    }

    /// Nobody is going to read the events of transactions.
    pub fn set_headers_only(&mut self) {
        (self.inline_limit, self.headers_only) = (0, true);
    }

    /// From now on [`Self::next`] also hands out a transaction that is still being received, once that many
    /// bytes of it are written; `None` for none. Such a transaction can be [lost](Outcome::Lost): then this
    /// reader hands out nothing more, because what it has handed out is not there.
    pub fn follow_from(&mut self, bytes: Option<u64>) {
        self.follow_from = bytes;
    }

    /// Returns the transaction that was handed out before it was whole, until it is seen to be.
    #[must_use]
    pub const fn followed(&self) -> Option<&Arc<Followed>> {
        self.followed.as_ref()
    }

    /// Takes back the transaction that was handed out last, before it was whole: it is handed out once it is.
    pub fn take_back(&mut self) {
        if let Some(followed) = self.followed.take() {
            followed.give_up();
        }
    }

    /// Returns the number of the last transaction read or skipped, and the event bytes up to it.
    #[must_use]
    pub const fn read_so_far(&self) -> (u64, u64) {
        (self.ordinal, self.cumulative_bytes)
    }

    /// Returns the next whole transaction; `None` if none arrives within `wait`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the bytes on disk differ from those written; the disk fails.
    pub async fn next(&mut self, wait: Duration) -> Result<Option<RelayedTransaction>> {
        // In a drain there always is one: then nothing else is touched.
        if let Some(next) = self.next_now()? {
            return Ok(Some(next));
        }
        let shared = Arc::clone(&self.shared);
        let until = Instant::now() + wait;
        loop {
            // Before the store is looked at, so that nothing that arrives in between is missed.
            let mut grown = pin!(shared.grown.notified());
            grown.as_mut().enable();
            let next = self.next_now()?;
            if next.is_some()
                || shared.closing.load(Ordering::Acquire)
                || timeout_at(until, grown).await.is_err()
            {
                return Ok(next);
            }
        }
    }

    /// Returns the next whole transaction, if it has arrived.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn next_now(&mut self) -> Result<Option<RelayedTransaction>> {
        if let Some(next) = self.next_whole()? {
            return Ok(Some(next));
        }
        Ok(self.next_open())
    }

    fn next_whole(&mut self) -> Result<Option<RelayedTransaction>> {
        while self.has_more()? {
            // After the visible end was seen, which moves past a transaction only when it is whole.
            if self.is_cut_off() {
                return Ok(None);
            }
            match self.next_frame() {
                Ok(Some(Found::Transaction(transaction))) => return Ok(Some(*transaction)),
                Ok(Some(Found::Executed) | None) => {}
                Ok(Some(Found::Unwritten)) => return Ok(None),
                // Between the look at the visible end and the reading.
                Err(_) if self.is_purged() => self.ahead.leave_segment(),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Reads the frame at the position, and the rest of the transaction that it begins; `None` for a frame without one.
    fn next_frame(&mut self) -> Result<Option<Found>> {
        let start = self.position;
        let (header, frame) = self.frame(start)?;
        match header.kind {
            FrameKind::FormatDescription => {
                let body = frame.slice(FRAME_HEADER_LEN..);
                let format = FormatDescription::parse(body)
                    .map_err(|_| self.damaged(start, "format description"))?;
                self.format = Some(Arc::new(format));
                Ok(None)
            }
            FrameKind::Transaction { first: true, last } => {
                let found = self.transaction(start, header, &frame, last)?;
                if matches!(found, Found::Unwritten) {
                    self.position = start;
                    self.ahead.clear();
                    self.shared.want_files();
                }
                Ok(Some(found))
            }
            FrameKind::Transaction { first: false, .. } => {
                Err(self.damaged(start, "transaction without a beginning"))
            }
        }
    }

    /// Returns true if the segment is gone: the target has all that it held.
    fn is_purged(&self) -> bool {
        let state = self.shared.state.lock();
        let number = self.position.segment;
        number != state.end.segment && !state.segments.contains_key(&number)
    }

    fn transaction(
        &mut self,
        start: RelayPosition,
        first: FrameHeader,
        frame: &Bytes,
        mut last: bool,
    ) -> Result<Found> {
        let events_at = FRAME_HEADER_LEN + first.metadata_len;
        let header = frame
            .get(FRAME_HEADER_LEN..events_at)
            .and_then(|metadata| decode_metadata(metadata).ok())
            .ok_or_else(|| self.damaged(start, "transaction metadata"))?;
        let skip = self.executed.contains(&header.gtid);
        let mut runs = vec![frame.slice(events_at..)];
        let mut event_bytes = (first.body_len - first.metadata_len) as u64;
        while !last {
            // Nothing is read of a frame that does not fit: it may have a gigabyte.
            let inline = !skip && event_bytes <= self.inline_limit && {
                let next = self.frame_header(start, MOST_AHEAD)?;
                event_bytes + next.body_len as u64 <= self.inline_limit
            };
            let (next, run) = if inline {
                let (next, frame) = self.frame(start)?;
                (next, Some(frame.slice(FRAME_HEADER_LEN..)))
            } else {
                (self.skip_frame(start)?, None)
            };
            let FrameKind::Transaction { first: false, last: ends } = next.kind else {
                return Err(self.damaged(start, "transaction without an end"));
            };
            last = ends;
            event_bytes += next.body_len as u64;
            match run {
                Some(run) => runs.push(run),
                // Skipped, or streamed from now on: its first frames are not needed either.
                None => runs.clear(),
            }
        }
        if event_bytes > self.inline_limit
            && !self.headers_only
            && !skip
            && self.shared.state.lock().is_unwritten(start.segment)
        {
            return Ok(Found::Unwritten);
        }
        self.passed(event_bytes);
        if skip {
            return Ok(Found::Executed);
        }
        let found = self.finish(start, header, runs, event_bytes)?;
        Ok(Found::Transaction(Box::new(found)))
    }

    /// The transaction handed out last is not there any more.
    fn is_cut_off(&self) -> bool {
        self.followed.as_ref().is_some_and(|followed| followed.is_lost())
    }

    /// Returns the transaction at the visible end, if enough of it is there.
    fn next_open(&mut self) -> Option<RelayedTransaction> {
        let (Some(least), None) = (self.follow_from, &self.followed) else { return None };
        let state = self.shared.state.lock();
        let Open { start, header, followed } = state.open.clone()?;
        let is_unwritten = state.is_unwritten(start.segment);
        drop(state);
        let event_bytes = followed.event_bytes();
        if start != self.position
            || event_bytes < least
            || !followed.is_growing()
            || self.executed.contains(&header.gtid)
        {
            return None;
        }
        if is_unwritten {
            self.shared.want_files();
            return None;
        }
        let range = RelayRange {
            fs: Arc::clone(self.shared.directory.fs()),
            path: self.shared.directory.path(start.segment),
            start: start.offset,
            end: start.offset,
        };
        // One that is lost from here on is noticed with the next look.
        self.followed = Some(Arc::clone(&followed));
        Some(RelayedTransaction {
            header,
            format: self.format.clone()?,
            start,
            end: start,
            ordinal: self.ordinal + 1,
            event_bytes,
            cumulative_bytes: self.cumulative_bytes + event_bytes,
            body: TransactionBody::Followed(range, followed),
        })
    }

    fn finish(
        &self,
        start: RelayPosition,
        header: TransactionHeader,
        runs: Vec<Bytes>,
        event_bytes: u64,
    ) -> Result<RelayedTransaction> {
        let format = self
            .format
            .clone()
            .ok_or_else(|| self.damaged(start, "transaction without a format description"))?;
        let body = if event_bytes <= self.inline_limit {
            TransactionBody::Whole(runs)
        // Frames passed without reading are known by the lengths in their headers only.
        } else if self.position.offset > self.readable_len(&self.shared.state.lock()) {
            return Err(self.damaged(start, "frame ends beyond its segment"));
        } else {
            TransactionBody::Streamed(RelayRange {
                fs: Arc::clone(self.shared.directory.fs()),
                path: self.shared.directory.path(start.segment),
                start: start.offset,
                end: self.position.offset,
            })
        };
        Ok(RelayedTransaction {
            header,
            format,
            start,
            end: self.position,
            ordinal: self.ordinal,
            event_bytes,
            cumulative_bytes: self.cumulative_bytes,
            body,
        })
    }

    /// Returns true if there is something between here and the visible end.
    fn has_more(&mut self) -> Result<bool> {
        loop {
            let shared = Arc::clone(&self.shared);
            let mut state = shared.state.lock();
            // Under this lock: its segment may be purged as soon as it is whole and committed.
            if self.pass_followed() {
                continue;
            }
            // An earlier segment is complete: it ends at its length, not at the visible end.
            if self.position.segment < state.end.segment {
                let segment = state.segments.get(&self.position.segment);
                if segment.is_some_and(|segment| self.position.offset < segment.len) {
                    return Ok(true);
                }
                // What was not read of a purged one, nobody needs.
                let is_purged = segment.is_none();
                // Not simply the next number: segments may have been purged.
                let next = state.segments.range(self.position.segment + 1..).next();
                let next = next.map_or(state.end.segment, |(&number, _)| number);
                // The next segment's header counts the transactions before it.
                let all_read = state.segments.get(&next).is_none_or(|segment| {
                    let header = &segment.header;
                    self.read_so_far() == (header.transactions_before, header.bytes_before)
                });
                // A start knows only the segment's length, which may include a format description at its end.
                if all_read && let Some(segment) = state.segments.get_mut(&self.position.segment) {
                    segment.transactions_end = self.transactions_end;
                }
                drop(state);
                if !all_read && !is_purged {
                    let what = "segment ends before its last transaction";
                    return Err(self.damaged(self.position, what));
                }
                self.enter_segment(next);
                continue;
            }
            return Ok(self.position < state.end);
        }
    }

    /// Moves past the transaction that was handed out before it was whole, if it is by now.
    fn pass_followed(&mut self) -> bool {
        let is_whole = |followed: &mut Arc<Followed>| followed.seen().outcome == Outcome::Whole;
        let Some(followed) = self.followed.take_if(is_whole) else { return false };
        self.position.offset = followed.seen().end;
        self.passed(followed.event_bytes());
        self.ahead.clear();
        true
    }

    /// Counts a whole transaction that ends at the position.
    fn passed(&mut self, event_bytes: u64) {
        self.ordinal += 1;
        self.cumulative_bytes += event_bytes;
        self.transactions_end = self.position.offset;
    }

    fn enter_segment(&mut self, number: u64) {
        let state = self.shared.state.lock();
        let Some(segment) = state.segments.get(&number) else { return };
        self.position = RelayPosition { segment: number, offset: segment.header_len };
        self.transactions_end = segment.header_len;
        self.ordinal = segment.header.transactions_before;
        self.cumulative_bytes = segment.header.bytes_before;
        if let Some(format) = &segment.header.format {
            self.format = Some(Arc::new(format.clone()));
        }
        drop(state);
        self.ahead.leave_segment();
    }

    /// Returns the frame at the position, whole and verified, and moves past it.
    fn frame(&mut self, transaction: RelayPosition) -> Result<(FrameHeader, Bytes)> {
        let header = self.frame_header(transaction, MOST_AHEAD)?;
        let len = header.frame_len();
        // This length is not verified yet, and may be damaged; the readable part of the segment
        // bounds what is read for it.
        self.read_ahead(len, MOST_AHEAD, transaction)?;
        let frame = self.ahead.take(len);
        self.position.offset += len as u64;
        if self.ahead.is_from_file()
            && let Err(error) = verify_frame(&header, &frame)
        {
            return Err(self.damaged(transaction, error.0));
        }
        Ok((header, frame))
    }

    /// Moves past the frame at the position without reading its body.
    fn skip_frame(&mut self, transaction: RelayPosition) -> Result<FrameHeader> {
        let header = self.frame_header(transaction, PEEK)?;
        let len = header.frame_len();
        self.ahead.take(len);
        self.position.offset += len as u64;
        Ok(header)
    }

    fn frame_header(&mut self, transaction: RelayPosition, ahead: usize) -> Result<FrameHeader> {
        self.read_ahead(FRAME_HEADER_LEN, ahead, transaction)?;
        FrameHeader::parse(self.ahead.bytes()).map_err(|error| self.damaged(transaction, error.0))
    }

    /// Makes sure that `want` bytes at the position are in memory.
    fn read_ahead(&mut self, want: usize, most: usize, transaction: RelayPosition) -> Result<()> {
        if self.ahead.bytes().len() >= want {
            return Ok(());
        }
        let (tail, len) = {
            let state = self.shared.state.lock();
            (state.tail.at(self.position), self.readable_len(&state))
        };
        let left = usize::try_from(len.saturating_sub(self.position.offset)).unwrap_or(usize::MAX);
        if let Some(mut run) = tail {
            run.truncate(left);
            if run.len() >= want {
                self.ahead.set(run);
                return Ok(());
            }
        }
        if left < want {
            return Err(self.damaged(transaction, "frame ends beyond its segment"));
        }
        self.ahead.read(&self.shared.directory, self.position, left.min(want.max(most)))
    }

    /// Bytes of the segment, but never beyond the visible end: those may still be abandoned and
    /// overwritten.
    fn readable_len(&self, state: &StoreState) -> u64 {
        let number = self.position.segment;
        if number == state.end.segment {
            return state.end.offset;
        }
        state.segments.get(&number).map_or(0, |segment| segment.len)
    }

    fn damaged(&self, transaction: RelayPosition, what: &'static str) -> Error {
        Error::Damaged {
            path: self.shared.directory.path(self.position.segment),
            offset: self.position.offset,
            what,
            transaction,
        }
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
