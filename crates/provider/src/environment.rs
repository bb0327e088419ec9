//! The clock, the network and the chance of a channel: everything it gets from its machine except disks.

use std::fmt::Debug;
use std::sync::Arc;

use rand::Rng as _;

use crate::clock::{Clock, SystemClock};
use crate::link::{Network, SystemNetwork};

/// The machine as a channel sees it; cheap to clone. A simulation has its own, so that a run can be
/// repeated.
#[derive(Debug, Clone)]
pub struct Environment {
    pub clock: Arc<dyn Clock>,
    /// To the source. The target has a door of its own.
    pub network: Arc<dyn Network>,
    pub chance: Arc<dyn Chance>,
}

/// The system's clock, network and random numbers.
impl Default for Environment {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            network: Arc::new(SystemNetwork),
            chance: Arc::new(SystemChance),
        }
    }
}

/// Random numbers for pauses; nothing secret depends on them.
pub trait Chance: Debug + Send + Sync {
    /// A number from 0 to below 1.
    fn part(&self) -> f64;
}

/// The system's random numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemChance;

#[expect(clippy::disallowed_methods, reason = "the one place that gives it to channels")]
impl Chance for SystemChance {
    fn part(&self) -> f64 {
        rand::rng().random()
    }
}
