//! A machine on which daemons run, one after the other: its disk outlives them.

use std::collections::VecDeque;
use std::sync::Arc;

use csa_provider::GtidSet;
use csa_relaystore::{MemoryFs, RelayStore, SyncPolicy};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use super::World;
use crate::life::Life;
use crate::seeds::Case;

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) number: u64,
    pub(super) identity: &'static str,
    pub(super) disk: MemoryFs,
    sync: SyncPolicy,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    store: Option<Arc<RelayStore>>,
    /// The transactions that readers could see, and since when.
    visible: VecDeque<(Instant, GtidSet)>,
    /// The transactions that no crash may take from the disk.
    durable: GtidSet,
    has_crashed: bool,
    is_settled: bool,
    lives: Vec<Life>,
}

impl Machine {
    pub(super) fn new(case: Case, number: u64, identity: &'static str, sync: SyncPolicy) -> Self {
        let disk = MemoryFs::new(case.seed ^ number << 16);
        Self { number, identity, disk, sync, seen: Mutex::default() }
    }

    pub(super) fn receiving(&self, store: &Arc<RelayStore>) {
        self.seen.lock().store = Some(Arc::clone(store));
    }

    pub(super) fn closed(&self) {
        self.look();
        let mut seen = self.seen.lock();
        seen.store = None;
        seen.visible.clear();
        seen.is_settled = false;
    }

    /// A store that was opened has all that it must have.
    pub(super) fn opened(&self, world: &World, received: &GtidSet) {
        let lost = self.seen.lock().durable.difference(received);
        // Of a target that lost commits the store begins again where that has ended.
        assert!(lost.is_empty() || world.may_lose > 0, "a crash took {lost} from the disk");
    }

    /// Notes what a crash may not take from now on.
    pub(super) fn look(&self) {
        let mut seen = self.seen.lock();
        let Some(store) = seen.store.clone() else { return };
        let now = Instant::now();
        let age = match self.sync {
            SyncPolicy::Transaction => Duration::ZERO,
            // Timers have a granularity of a millisecond.
            SyncPolicy::Interval(interval) => interval + Duration::from_millis(10),
            SyncPolicy::Os => return,
        };
        seen.visible.push_back((now, store.received_so_far()));
        while let Some((_, visible)) =
            seen.visible.pop_front_if(|(since, _)| now.duration_since(*since) >= age)
        {
            seen.durable.union(&visible);
        }
    }

    pub(super) fn begins(&self, life: &Life) {
        self.seen.lock().lives.push(life.clone());
    }

    /// Of everything that its daemons did.
    pub(super) fn digest(&self) -> u64 {
        let seen = self.seen.lock();
        seen.lives.iter().fold(0, |all, life| all.rotate_left(1) ^ life.digest())
    }

    pub(super) fn durable(&self) -> GtidSet {
        self.seen.lock().durable.clone()
    }

    pub(super) fn crash(&self, seed: u64) {
        self.seen.lock().has_crashed = true;
        self.disk.crash(seed);
    }

    /// Only the last segment is looked at before it is read, and those before it are synced unless that
    /// is left to the system.
    pub(super) fn may_be_damaged(&self) -> bool {
        self.seen.lock().has_crashed && self.sync == SyncPolicy::Os
    }

    /// Nothing is left: in memory, and on the disk but for the segment that is written to.
    pub(super) fn settled(&self, held: u64) {
        let mut seen = self.seen.lock();
        let segments = seen.store.as_ref().map(|store| store.usage().segments);
        seen.is_settled = held == 0 && segments == Some(1);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.seen.lock().is_settled
    }
}
