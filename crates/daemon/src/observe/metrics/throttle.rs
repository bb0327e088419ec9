//! Metrics of the throttles.

use super::{Result, Scrape};
use crate::observe::view::{ChannelView, LimitView};

/// The keys of `[channel.throttle_by]` that are limits.
const REASONS: [&str; 3] = ["threads_running", "replica_lag", "query"];

/// Reads the limits of one key.
type ReadLimits = fn(&[&LimitView]) -> Option<f64>;

const OF_LIMITS: [(&str, &str, ReadLimits); 4] = [
    ("csa_throttle_exceeded", "1 while a limit of throttle_by is exceeded.", |limits| {
        Some(f64::from(limits.iter().any(|one| one.exceeded)))
    }),
    (
        "csa_throttle_unanswered",
        "1 while the value for a limit of throttle_by can't be determined.",
        |limits| Some(f64::from(limits.iter().any(|one| one.unanswered.is_some()))),
    ),
    (
        "csa_throttle_value",
        "Last value for a limit of throttle_by, of several replicas the highest; replica_lag in \
         seconds.",
        |limits| limits.iter().filter_map(|one| one.value).reduce(f64::max),
    ),
    ("csa_throttle_limit", "Limit of throttle_by.", |limits| limits.first().map(|one| one.limit)),
];

impl Scrape {
    pub(super) fn throttle(&self, channels: &[ChannelView]) -> Result<()> {
        let help = "Transactions per second that may begin, by `throttle` or by the limits of throttle_by \
                    (health); 0 for no limit.";
        self.labelled(["csa_throttle_rate", help, "reason"], channels, |view| {
            let health = view.throttle_by.as_ref().and_then(|by| by.rate).unwrap_or_default();
            [("throttle", f64::from(view.settings.throttle)), ("health", f64::from(health))]
        })?;
        for (name, help, read) in OF_LIMITS {
            self.labelled([name, help, "reason"], channels, |view| {
                let limits = view.throttle_by.as_ref().map(|by| &by.limits[..]).unwrap_or_default();
                REASONS.into_iter().filter_map(move |reason| {
                    let of: Vec<&LimitView> =
                        limits.iter().filter(|one| one.key == reason).collect();
                    read(&of).map(|value| (reason, value))
                })
            })?;
        }
        Ok(())
    }
}
