//! Random numbers, which a simulation replaces by its own.

use std::fmt::Debug;

use rand::Rng as _;

/// Random numbers for pauses; nothing secret depends on them.
pub trait Chance: Debug + Send + Sync {
    /// Returns a number from 0 to below 1.
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
