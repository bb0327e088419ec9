//! A machine on which daemons run, one after the other: its disk outlives them.

use std::sync::Arc;

use csa_provider::binlog::GtidSet;
use csa_relaystore::disk::{MemoryFs, SyncPolicy};
use csa_relaystore::opening::RelayStore;
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use super::World;
use crate::durable::Durable;
use crate::life::Life;
use crate::seeds::Case;
use crate::source::Departed;

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) number: u64,
    pub(super) identity: &'static str,
    pub(super) disk: MemoryFs,
    pub(super) departed: Departed,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    store: Option<Arc<RelayStore>>,
    durable: Durable,
    left: Left,
    lives: Vec<Life>,
    /// The life that applies, its epoch, and since when.
    applying: Option<(Life, u64, Instant)>,
}

/// The part of a channel's work that is still there. `None` while no daemon shows it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Left {
    /// Bytes of memory.
    held: Option<u64>,
    segments: Option<usize>,
    /// Seconds.
    lag: Option<f64>,
}

impl Left {
    /// Nothing: in memory, and on the disk but for the segment that is written to; and lag says so.
    pub(super) fn is_nothing(self) -> bool {
        let Self { held, segments, lag } = self;
        (held, lag) == (Some(0), Some(0.0)) && segments.is_some_and(|segments| segments <= 1)
    }
}

impl Machine {
    pub(super) fn new(case: Case, number: u64, identity: &'static str, sync: SyncPolicy) -> Self {
        let disk = MemoryFs::new(case.seed ^ number << 16);
        let durable = Durable::new(sync);
        let seen =
            Seen { store: None, durable, left: Left::default(), lives: Vec::new(), applying: None };
        Self { number, identity, disk, departed: Departed::default(), seen: Mutex::new(seen) }
    }

    pub(super) fn receiving(&self, store: &Arc<RelayStore>) {
        self.seen.lock().store = Some(Arc::clone(store));
    }

    pub(super) fn closed(&self) {
        self.look();
        let mut seen = self.seen.lock();
        seen.store = None;
        seen.durable.closed();
        seen.left = Left::default();
    }

    /// A store that was opened has all that it must have.
    pub(super) fn opened(&self, world: &World, received: &GtidSet) {
        let lost = self.seen.lock().durable.certain().difference(received);
        // If the target lost commits, the store begins again where the target has ended.
        // A copy that begins again may do so at an earlier place, of another source.
        let is_copied = world.copies.as_ref().is_some_and(|copies| copies.is_first);
        assert!(
            lost.is_empty() || world.may_lose > 0 || is_copied,
            "a crash took {lost} from the disk"
        );
    }

    pub(super) fn look(&self) {
        let mut seen = self.seen.lock();
        if let Some(store) = seen.store.clone() {
            seen.durable.look(&store);
        }
    }

    pub(super) fn begins(&self, life: &Life) {
        self.seen.lock().lives.push(life.clone());
    }

    pub(super) fn applies(&self, life: &Life, epoch: u64) {
        self.seen.lock().applying = Some((life.clone(), epoch, Instant::now()));
    }

    pub(super) fn applies_no_more(&self) {
        self.seen.lock().applying = None;
    }

    /// Returns the life that has applied with this epoch for some time.
    pub(super) fn applying(&self, epoch: u64, time: Duration) -> Option<Life> {
        let seen = self.seen.lock();
        let (life, of, since) = seen.applying.as_ref()?;
        (*of == epoch && !life.is_over() && since.elapsed() >= time).then(|| life.clone())
    }

    /// Of everything that its daemons did.
    pub(super) fn digest(&self) -> u64 {
        let seen = self.seen.lock();
        seen.lives.iter().fold(0, |all, life| all.rotate_left(1) ^ life.digest())
    }

    pub(super) fn durable(&self) -> GtidSet {
        self.seen.lock().durable.certain().clone()
    }

    pub(super) fn crash(&self, seed: u64) {
        self.seen.lock().durable.crashed();
        self.disk.crash(seed);
    }

    pub(super) fn may_be_damaged(&self) -> bool {
        self.seen.lock().durable.may_be_damaged()
    }

    /// `held` bytes of memory are used.
    pub(super) fn leaves(&self, held: u64, lag: Option<f64>) {
        let mut seen = self.seen.lock();
        let segments = seen.store.as_ref().map(|store| store.usage().segments);
        seen.left = Left { held: Some(held), segments, lag };
    }

    /// The part of what was applied that is left, as the daemon last showed it.
    pub(super) fn left(&self) -> Left {
        self.seen.lock().left
    }
}
