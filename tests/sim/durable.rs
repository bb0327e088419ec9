//! The transactions that a power failure may not take from a relay store, by its policy of syncing.

use std::collections::VecDeque;

use csa_provider::binlog::GtidSet;
use csa_relaystore::disk::SyncPolicy;
use csa_relaystore::opening::RelayStore;
use tokio::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Durable {
    sync: SyncPolicy,
    /// The transactions that readers could see, and since when.
    visible: VecDeque<(Instant, GtidSet)>,
    certain: GtidSet,
    has_crashed: bool,
}

impl Durable {
    pub(crate) const fn new(sync: SyncPolicy) -> Self {
        Self { sync, visible: VecDeque::new(), certain: GtidSet::new(), has_crashed: false }
    }

    /// Notes how far the store is now.
    pub(crate) fn look(&mut self, store: &RelayStore) {
        let now = Instant::now();
        let age = match self.sync {
            SyncPolicy::Transaction => Duration::ZERO,
            // Timers have a granularity of a millisecond.
            SyncPolicy::Interval(interval) => interval + Duration::from_millis(10),
            SyncPolicy::Os => return,
        };
        self.visible.push_back((now, store.received_so_far()));
        while let Some((_, visible)) =
            self.visible.pop_front_if(|(since, _)| now.duration_since(*since) >= age)
        {
            self.certain.union(&visible);
        }
    }

    /// The store is closed: nothing more of it becomes durable.
    pub(crate) fn closed(&mut self) {
        self.visible.clear();
    }

    pub(crate) const fn crashed(&mut self) {
        self.has_crashed = true;
    }

    /// The store may begin again: the target is older than it was.
    pub(crate) fn forget(&mut self) {
        self.certain = GtidSet::new();
    }

    /// Returns the transactions that no power failure may take.
    pub(crate) const fn certain(&self) -> &GtidSet {
        &self.certain
    }

    /// With syncing left to the system, a power failure may take anything from the middle of the store; the
    /// next read of that place finds it.
    pub(crate) fn may_be_damaged(&self) -> bool {
        self.has_crashed && self.sync == SyncPolicy::Os
    }
}
