//! Transactions that readers do not see yet: the open one, and whole ones from their last event to the
//! write that makes them visible.

use std::sync::Arc;

use csa_provider::binlog::{Gtid, TransactionHeader};
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::source::LastReceived;

use crate::state::follow::Followed;
use crate::state::shared::{Open, Shared, StoreState};
use crate::write::segment_file::SegmentFile;

#[derive(Debug)]
pub(super) struct Unpublished {
    pub(super) open: Option<OpenTransaction>,
    /// The end of the last whole transaction in the file, once the batch is written.
    pub(super) whole: u64,
    /// The end of the last whole transaction, without a format description after it.
    pub(super) transactions_end: u64,
    /// Whole transactions.
    fresh: Vec<Gtid>,
    /// The first of them, if readers could follow it.
    followed: Option<Ended>,
}

#[derive(Debug)]
pub(super) struct OpenTransaction {
    pub(super) header: TransactionHeader,
    /// Its offset in the file.
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// Once a part of it is written.
    pub(super) followed: Option<Arc<Followed>>,
}

impl OpenTransaction {
    /// Returns what is kept of it once it is whole.
    pub(super) fn received(&self) -> LastReceived {
        LastReceived {
            gtid: self.header.gtid.clone(),
            committed: self.header.original_commit_timestamp,
            bytes: self.bytes,
        }
    }
}

/// The end of a transaction that readers could follow, once it is written.
#[derive(Debug)]
struct Ended {
    followed: Arc<Followed>,
    end: u64,
    event_bytes: u64,
}

impl Unpublished {
    /// Everything in the last segment is visible.
    pub(super) fn after(state: &StoreState) -> Self {
        let segment = state.segments.get(&state.end.segment);
        Self {
            open: None,
            whole: state.end.offset,
            transactions_end: segment.map_or(0, |segment| segment.transactions_end),
            fresh: Vec::new(),
            followed: None,
        }
    }

    /// A segment begins, whose header is so long.
    pub(super) fn begin_segment(&mut self, header_len: u64) {
        (self.whole, self.transactions_end) = (header_len, header_len);
    }

    /// The open transaction is whole, and ends there.
    pub(super) fn complete(&mut self, open: OpenTransaction, end: u64) {
        self.fresh.push(open.header.gtid);
        (self.whole, self.transactions_end) = (end, end);
        if let Some(followed) = open.followed {
            self.followed = Some(Ended { followed, end, event_bytes: open.bytes });
        }
    }

    /// Makes whole transactions visible, all of which are written. Readers can follow the open one as far as
    /// it is written.
    pub(super) fn publish(&mut self, file: &SegmentFile, state: &mut StoreState) {
        if let Some(segment) = state.segments.get_mut(&file.number) {
            segment.len = file.written;
            segment.transactions_end = self.transactions_end;
        }
        state.end = file.position(self.whole);
        for gtid in self.fresh.drain(..) {
            state.receives(&gtid);
        }
        if let Some(Ended { followed, end, event_bytes }) = self.followed.take() {
            state.open = None;
            followed.complete(end, event_bytes);
        }
        if let Some(open) = self.open.as_mut().filter(|open| open.start < file.written) {
            let start = file.position(open.start);
            // One that was cut off there is forgotten, so what is known there is this one.
            let known = state.open.take().filter(|known| known.start == start);
            let known = known.unwrap_or_else(|| {
                let followed = Arc::new(Followed::new(file.written));
                Open { start, header: open.header.clone(), followed }
            });
            known.followed.grow(file.written, file.written - open.start);
            open.followed = Some(Arc::clone(&known.followed));
            state.open = Some(known);
        }
    }

    /// No end of a transaction will become visible any more.
    pub(super) fn lose_all(&mut self, shared: &Shared) {
        let open = self.open.take().and_then(|open| open.followed);
        let ended = self.followed.take().map(|ended| ended.followed);
        lose(open.or(ended), shared);
    }
}

/// Tells the readers that follow the open transaction to read no more of it.
pub(super) fn lose(followed: Option<Arc<Followed>>, shared: &Shared) {
    if let Some(followed) = followed
        && !is_planted(Bug::FollowersNotTold)
    {
        shared.state.lock().open = None;
        followed.give_up();
        shared.grown.notify_waiters();
    }
}
