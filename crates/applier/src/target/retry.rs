use std::time::Duration;

use rand::Rng as _;

/// The pause before a retry. It grows to a second, with jitter so that two transactions don't meet
/// again.
pub(crate) fn pause(retries: u32) -> Duration {
    let ceiling = 10_u64.saturating_mul(1 << retries.min(7)).min(1000);
    Duration::from_millis(rand::rng().random_range(ceiling / 2..=ceiling))
}
