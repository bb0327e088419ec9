//! The clock, the network and the chance of a channel: everything it gets from its machine except disks.

use std::sync::Arc;

use crate::seams::chance::{Chance, SystemChance};
use crate::seams::clock::{Clock, SystemClock};
use crate::server::link::{Network, SystemNetwork};

/// The machine as a channel sees it; cheap to clone. A simulation has its own, so that a run can be
/// repeated.
#[derive(Debug, Clone)]
pub struct Environment {
    pub clock: Arc<dyn Clock>,
    /// The network to the source. The target has a door of its own.
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
