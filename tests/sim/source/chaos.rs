//! Faults of links by chance.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::{LinkFaults, Transit};
use crate::refusals::Refusals;
use crate::seeds::Case;

#[derive(Debug)]
pub(crate) struct LinkChaos {
    random: StdRng,
    /// Faults left; without an end no run would reach its own.
    left: u32,
    rate: f64,
    has_damaged: bool,
    /// The share of packets that come late without any fault.
    pauses: f64,
    refusals: Refusals,
}

impl LinkChaos {
    /// Chooses the trouble of the source with this `number`, in a run with several.
    pub(crate) fn of(case: Case, number: u64) -> Self {
        let mut random = StdRng::seed_from_u64(case.seed ^ 0x00c0_ffee ^ number << 32);
        let rate = [0.0, 0.002, 0.02][random.random_range(0..3)];
        let left = random.random_range(0..20).min(case.faults);
        let refusals = Refusals::of(Case { seed: case.seed ^ !number, ..case });
        Self { random, left, rate, has_damaged: false, pauses: 0.0, refusals }
    }

    pub(crate) fn with_pauses(self, pauses: f64) -> Self {
        Self { pauses, ..self }
    }

    fn transit(&mut self) -> Transit {
        if self.left == 0 || !self.random.random_bool(self.rate) {
            return Transit::Arrive;
        }
        self.left -= 1;
        match self.random.random_range(0..4) {
            0 => Transit::Late(Duration::from_millis(self.random.random_range(0..40_000))),
            1 => Transit::Vanish,
            // Once: what arrives damaged twice is damaged on the source, and ends reception.
            2 if !std::mem::replace(&mut self.has_damaged, true) => Transit::Damage,
            _ => Transit::Cut,
        }
    }
}

impl LinkFaults for LinkChaos {
    fn connect(&mut self) -> Transit {
        self.transit()
    }

    fn refuses(&mut self) -> Option<u16> {
        self.refusals.session(0)
    }

    fn packet(&mut self) -> Transit {
        if self.pauses > 0.0 && self.random.random_bool(self.pauses) {
            return Transit::Late(Duration::from_millis(self.random.random_range(0..1_500)));
        }
        self.transit()
    }
}
