//! The machine that simulated daemons run on.

use std::sync::Arc;

use csa_provider::seams::{Chance, Clock};
use csa_provider::server::Environment;
use csa_provider::server::link::Network;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::Instant;

/// tokio's clock as the wall clock.
#[derive(Debug)]
pub(crate) struct VirtualClock(Instant);

impl VirtualClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for VirtualClock {
    fn now_micros(&self) -> u64 {
        let since = u64::try_from(self.0.elapsed().as_micros()).expect("a short run");
        1_700_000_000_000_000 + since
    }
}

/// A clock that is ahead of another, or slow.
#[derive(Debug)]
pub(crate) struct SkewedClock {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ahead: i64,
}

impl Clock for SkewedClock {
    fn now_micros(&self) -> u64 {
        self.clock.now_micros().saturating_add_signed(self.ahead)
    }
}

#[derive(Debug)]
struct SeededChance(Mutex<StdRng>);

impl Chance for SeededChance {
    fn part(&self) -> f64 {
        self.0.lock().random()
    }
}

/// Returns everything from `seed`.
pub(crate) fn environment(
    clock: Arc<dyn Clock>,
    network: impl Network + 'static,
    seed: u64,
) -> Environment {
    let chance = SeededChance(Mutex::new(StdRng::seed_from_u64(seed)));
    Environment { clock, network: Arc::new(network), chance: Arc::new(chance) }
}
