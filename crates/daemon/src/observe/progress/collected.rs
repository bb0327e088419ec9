//! Collects a channel's progress from relay stores, pipelines and their intakes, as they come and go.

use std::sync::Arc;
use std::time::Duration;

use csa_applier::{ApplierStatus, ApplierView as Applied, Commits, HeldUntil};
use csa_provider::binlog::{CommitTimes, GtidSet};
use csa_provider::source::SourceView;
use csa_relaystore::opening::RelayStore;
use csa_relaystore::read::RelayedTransaction;
use csa_relaystore::state::RelayUsage;
use tokio::time::Instant;
use tracing::debug;

use super::backlog::{Count, ReadUpTo, done};
use super::progress_view::ProgressView;

/// The parts of a channel that progress is read from, and what remains of earlier ones.
#[derive(Debug, Default)]
pub struct CollectedProgress {
    link: LinkTimes,
    /// The relay store while it is open.
    store: Option<Arc<RelayStore>>,
    pipeline: Option<Running>,
    taken: bool,
    /// Applied by earlier pipelines.
    earlier: Applied,
    closed: ClosedStore,
    reading: Reading,
    /// The waiting transactions of the store while nothing is applied.
    waiting: Waiting,
    held_back: Option<HeldUntil>,
}

/// The last figures of relay stores that are closed.
#[derive(Debug, Default)]
struct ClosedStore {
    received: Arc<GtidSet>,
    usage: RelayUsage,
}

/// The part of the relay store that is read.
#[derive(Debug, Default)]
struct Reading {
    /// Everything up to there was committed when reading began, or when applying ended.
    base: Option<Count>,
    read_up_to: Option<ReadUpTo>,
    /// Relay ordinals of the transaction that the intake has in hand, and of the one before it that it read;
    /// 0 for none.
    in_hand: u64,
    handed_over: u64,
}

impl Reading {
    /// See [`CollectedProgress::read`].
    fn read(&mut self, relayed: &RelayedTransaction) {
        self.base.get_or_insert(Count::before(relayed));
        self.handed_over = std::mem::replace(&mut self.in_hand, relayed.ordinal);
    }

    /// See [`CollectedProgress::read_to_end`].
    fn read_to_end(&mut self, transactions: u64, bytes: u64) {
        let end = Count { transactions, bytes };
        self.base.get_or_insert(end);
        self.read_up_to = Some(ReadUpTo { last: self.in_hand, end });
    }

    /// Forgets how far the store was read and applied.
    const fn forget_place(&mut self) {
        self.base = None;
        self.read_up_to = None;
    }
}

/// Times by which a source and what it sent are judged.
#[derive(Debug, Default)]
struct LinkTimes {
    /// A source heard from within this time counts as present.
    fresh_within: Duration,
    /// The last moment at which the source was heard from and nothing was left to receive or to apply, of this
    /// pipeline and store, and the `server_uuid` of that source. Another one may have more, which was committed long
    /// before.
    level: Option<(Instant, Option<String>)>,
}

/// The running pipeline.
#[derive(Debug, Clone)]
struct Running {
    commits: Commits,
    status: Arc<ApplierStatus>,
}

/// The first transaction in the relay store that is not applied, while nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Waiting {
    #[default]
    Unknown,
    /// Its commit times, and the moment at which it was found.
    Since(CommitTimes, Instant),
    /// Damaged; the next pipeline to read it reports that.
    Unreadable,
}

/// A search for the first transaction in a relay store that is not applied.
#[derive(Debug)]
pub struct Search {
    store: Arc<RelayStore>,
    executed: Arc<GtidSet>,
}

/// The result of a search.
#[derive(Debug)]
pub enum SearchResult {
    /// Its commit times, and everything before it.
    First(CommitTimes, Count),
    /// Everything is applied, up to here.
    Nothing(Count),
    Unreadable,
}

impl Search {
    /// Reads the store; blocks.
    #[must_use]
    pub fn run(&self) -> SearchResult {
        let mut reader = self.store.reader(GtidSet::clone(&self.executed));
        reader.set_headers_only();
        match reader.next_now() {
            Ok(Some(relayed)) => {
                SearchResult::First(relayed.header.commit_times(), Count::before(&relayed))
            }
            Ok(None) => {
                let (transactions, bytes) = reader.read_so_far();
                SearchResult::Nothing(Count { transactions, bytes })
            }
            Err(error) => {
                debug!(%error, "the first transaction that waits can't be read");
                SearchResult::Unreadable
            }
        }
    }
}

/// Returns the figures of a store that is closed. Nobody measures its disk any more.
fn closed(usage: RelayUsage) -> RelayUsage {
    RelayUsage { waiting: None, waits_for_disk: false, queued: None, free_disk: None, ..usage }
}

impl CollectedProgress {
    /// An idle source sends a heartbeat this often.
    pub fn expect_heartbeats(&mut self, interval: Duration) {
        self.link.fresh_within = interval * 2 + Duration::from_secs(1);
    }

    /// A relay store is open and being received into.
    pub fn receiving(&mut self, store: &Arc<RelayStore>) {
        self.store = Some(Arc::clone(store));
        // Ordinals of another store mean nothing in this one.
        self.reading.forget_place();
        self.link.level = None;
        self.waiting = Waiting::Unknown;
    }

    /// The store is closed; its figures stay, but for those that others change.
    pub fn store_closed(&mut self) {
        if let Some(store) = self.store.take() {
            self.closed.received = store.shared_received();
            self.closed.usage = closed(store.usage());
        }
    }

    /// A pipeline begins.
    pub fn attach(&mut self, commits: &Commits, status: &Arc<ApplierStatus>) {
        // Set again by the intake's first reading: this pipeline may begin elsewhere.
        self.reading = Reading::default();
        self.link.level = None;
        self.taken = true;
        self.pipeline = Some(Running { commits: commits.clone(), status: Arc::clone(status) });
    }

    /// The pipeline has ended; its totals stay.
    pub fn detach(&mut self) {
        // In one step with the totals: a wait must never see less than was executed.
        if let Some(running) = self.pipeline.take() {
            let ended = running.status.view();
            let reading = &mut self.reading;
            reading.base = done(reading.base, reading.read_up_to.take(), &ended);
            self.waiting = Waiting::Unknown;
            let earlier = &mut self.earlier;
            earlier.transactions_total += ended.transactions_total;
            earlier.groups_total += ended.groups_total;
            earlier.statements_total += ended.statements_total;
            earlier.accounts_left_out_total += ended.accounts_left_out_total;
            earlier.own_left_out_total += ended.own_left_out_total;
            earlier.returned_left_out_total += ended.returned_left_out_total;
            earlier.retries_total += ended.retries_total;
            earlier.lock_inversions_total += ended.lock_inversions_total;
            earlier.commit_inversions_total += ended.commit_inversions_total;
            earlier.refused_sessions_total += ended.refused_sessions_total;
            earlier.executed = ended.executed;
            earlier.last_applied = ended.last_applied;
        }
    }

    /// Another daemon has the channel: what this one received while it had it is no backlog of the other.
    pub fn given_up(&mut self) {
        self.reading.forget_place();
        self.link.level = None;
        self.waiting = Waiting::Unknown;
        self.held_back = None;
    }

    /// The intake has read a transaction: everything before the first of them is executed.
    pub fn read(&mut self, relayed: &RelayedTransaction) {
        self.reading.read(relayed);
    }

    /// The intake has read everything; those after the last that it was given were executed before.
    pub fn read_to_end(&mut self, transactions: u64, bytes: u64) {
        self.reading.read_to_end(transactions, bytes);
    }

    /// The intake holds a transaction back, or none any more.
    pub const fn held_back(&mut self, held: Option<HeldUntil>) {
        self.held_back = held;
    }

    #[must_use]
    pub const fn store(&self) -> Option<&Arc<RelayStore>> {
        self.store.as_ref()
    }

    /// The channel was taken at least once.
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        self.taken
    }

    /// Returns the status of the running pipeline.
    #[must_use]
    pub fn status(&self) -> Option<&Arc<ApplierStatus>> {
        self.pipeline.as_ref().map(|running| &running.status)
    }

    /// Returns the transactions that earlier pipelines applied.
    #[must_use]
    pub const fn earlier_transactions(&self) -> u64 {
        self.earlier.transactions_total
    }

    /// Everything committed on the target, as far as this process knows.
    #[must_use]
    pub fn executed(&self) -> GtidSet {
        match &self.pipeline {
            Some(running) => running.commits.executed(),
            None => GtidSet::clone(&self.earlier.executed),
        }
    }

    #[must_use]
    pub fn has_executed(&self, set: &GtidSet) -> bool {
        match &self.pipeline {
            Some(running) => running.commits.has_executed(set),
            None => set.is_subset_of(&self.earlier.executed),
        }
    }

    /// No group and no statement is running.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.pipeline.as_ref().is_none_or(|running| running.commits.is_at_rest())
    }

    /// Returns the search that is due for the first transaction that is not applied. While a pipeline runs, the
    /// applier knows it. Without a pipeline one search is enough: the first stays the first.
    #[must_use]
    pub fn search(&self) -> Option<Search> {
        let store = self.store.as_ref()?;
        let is_searched = self.waiting != Waiting::Unknown;
        if self.pipeline.is_some() || !self.taken || is_searched {
            return None;
        }
        let total = store.usage().transactions_total;
        if self.reading.base.is_some_and(|base| base.transactions >= total) {
            return None;
        }
        Some(Search { store: Arc::clone(store), executed: self.earlier.executed.clone() })
    }

    /// Takes the result of a search. During the search a pipeline may have begun, or another store been
    /// opened.
    pub fn found(&mut self, search: &Search, found: SearchResult) {
        let is_same = self.store.as_ref().is_some_and(|now| Arc::ptr_eq(now, &search.store));
        if self.pipeline.is_some() || !is_same {
            return;
        }
        match found {
            SearchResult::First(committed, before) => {
                self.waiting = Waiting::Since(committed, Instant::now());
                self.reading.base = Some(before);
            }
            SearchResult::Nothing(all) => self.reading.base = Some(all),
            SearchResult::Unreadable => self.waiting = Waiting::Unreadable,
        }
    }

    /// Returns everything known at this moment. `source` was read before: what was applied is read before what
    /// was received, so the backlog is never too small.
    #[must_use]
    pub fn view(&mut self, source: SourceView) -> ProgressView {
        let applied = match &self.pipeline {
            Some(running) => running.status.view(),
            None => self.at_rest(),
        };
        let (usage, relayed) = match &self.store {
            Some(store) => (store.usage(), store.shared_received()),
            None => (self.closed.usage.clone(), self.closed.received.clone()),
        };
        let level = self.link.level.as_ref().filter(|(_, with)| *with == source.source_uuid);
        let level_at = level.map(|(at, _)| *at);
        let mut view = ProgressView {
            source,
            fresh_within: self.link.fresh_within,
            level_at,
            usage,
            relayed,
            is_applying: self.pipeline.is_some() && self.store.is_some(),
            applied,
            earlier: self.earlier.clone(),
            base: self.reading.base,
            read_up_to: self.reading.read_up_to,
            held_back: self.held_back,
            handed_over: self.reading.handed_over,
        };
        let now = Instant::now();
        if view.is_level(now) {
            // What was committed since the source was last heard from may be on its way.
            view.level_at = view.source.last_event;
            self.link.level = view.level_at.map(|at| (at, view.source.source_uuid.clone()));
        }
        view
    }

    /// Returns the applier's part of the view while no pipeline runs.
    fn at_rest(&self) -> Applied {
        Applied {
            executed: self.earlier.executed.clone(),
            last_applied: self.earlier.last_applied.clone(),
            oldest_pending: match self.waiting {
                Waiting::Since(committed, since) => Some((committed, since)),
                Waiting::Unknown | Waiting::Unreadable => None,
            },
            ..Applied::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use csa_relaystore::disk::{MemoryFs, RelayStoreOptions, SyncPolicy};

    use super::*;

    /// Samples are taken several times a second, and a set with gaps is large.
    #[test]
    fn a_view_has_the_sets_of_the_store_and_of_the_target_and_no_copies() {
        let options = RelayStoreOptions {
            directory: "/relay".into(),
            segment_size: 2000,
            space_limit: 0,
            min_free_disk: 0,
            sync: SyncPolicy::Os,
            archived: false,
            tail_bytes: 1500,
            frame_bytes: 300,
            wake_bytes: RelayStoreOptions::WAKE_BYTES,
            files: Arc::new(MemoryFs::new(1)),
        };
        let store = Arc::new(RelayStore::open(options, &GtidSet::new()).expect("opens").0);
        let mut progress = CollectedProgress::default();
        progress.receiving(&store);
        let view = progress.view(SourceView::default());
        assert!(Arc::ptr_eq(&view.relayed, &store.shared_received()));
        assert!(Arc::ptr_eq(&view.applied.executed, &progress.earlier.executed));
        progress.store_closed();
        let closed = progress.view(SourceView::default());
        assert!(Arc::ptr_eq(&view.relayed, &closed.relayed));
    }

    #[test]
    fn a_closed_store_says_nothing_of_its_disk_and_waits_for_nothing() {
        let open = RelayUsage {
            bytes: 7,
            min_free_disk: 5,
            free_disk: Some(9),
            waiting: Some("waiting".to_owned()),
            waits_for_disk: true,
            ..RelayUsage::default()
        };
        let closed = closed(open);
        assert_eq!((closed.bytes, closed.min_free_disk), (7, 5), "they stay");
        assert_eq!((closed.free_disk, closed.waiting, closed.waits_for_disk), (None, None, false));
    }
}
