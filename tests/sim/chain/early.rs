//! Transactions that begin before they are whole: from a few bytes on, so that many do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use csa_relaystore::disk::RelayStoreOptions;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::World;
use crate::seeds::Case;

/// A seed's own generator of chance: the rest of a run is as without it.
#[derive(Debug, Default)]
pub(super) struct Early {
    /// `begin_early`.
    pub(super) from: Option<u64>,
    /// The share of events before which a source pauses.
    pub(super) pauses: f64,
    frame_bytes: usize,
    wake_bytes: usize,
    /// Transactions that were begun so.
    pub(super) begun: Arc<AtomicUsize>,
}

impl Early {
    pub(super) fn of(case: Case) -> Self {
        let mut random = StdRng::seed_from_u64(case.seed ^ 0x00ea_4117);
        if random.random_bool(0.5) {
            return Self::default();
        }
        Self {
            from: Some(random.random_range(1..300)),
            pauses: [0.02, 0.1, 0.4][random.random_range(0..3)],
            frame_bytes: random.random_range(60..250),
            wake_bytes: random.random_range(1..250),
            begun: Arc::default(),
        }
    }

    pub(super) fn relay(&self, options: RelayStoreOptions) -> RelayStoreOptions {
        if self.from.is_none() {
            return options;
        }
        let Self { frame_bytes, wake_bytes, .. } = *self;
        RelayStoreOptions { frame_bytes, wake_bytes, ..options }
    }
}

/// Otherwise the runs prove nothing about them.
#[test]
fn many_transactions_begin_early() {
    let mut begun = 0;
    for case in (0..60).map(Case::of) {
        let world = World::new(case, false);
        super::runtime().block_on(Box::pin(world.run(0)));
        begun += world.early.begun.load(Ordering::Relaxed);
    }
    println!("{begun} were begun early");
    assert!(begun > 100, "{begun}");
}
