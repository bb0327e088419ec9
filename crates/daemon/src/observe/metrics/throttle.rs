//! Metrics of the throttles.

use prometheus::core::GenericGaugeVec;
use prometheus::{GaugeVec, Opts};

use super::{Result, Scrape};
use crate::observe::view::{ChannelView, LimitView};

/// The keys of `[channel.throttle_by]` that are limits.
const REASONS: [&str; 3] = ["threads_running", "replica_lag", "query"];

impl Scrape {
    pub(super) fn throttle(&self, channels: &[ChannelView]) -> Result<()> {
        let rate = self.gauge(
            "csa_throttle_rate",
            "Transactions per second that may begin, by `throttle` or by the limits of throttle_by \
             (health); 0 for no limit.",
            &["channel", "reason"],
        )?;
        let exceeded = self.gauge(
            "csa_throttle_exceeded",
            "1 while a limit of throttle_by is exceeded.",
            &["channel", "reason"],
        )?;
        let unanswered = self.gauge(
            "csa_throttle_unanswered",
            "1 while the value for a limit of throttle_by can't be determined.",
            &["channel", "reason"],
        )?;
        let value = self.measured(
            "csa_throttle_value",
            "Last value for a limit of throttle_by, of several replicas the highest; replica_lag in \
             seconds.",
        )?;
        let limit = self.measured("csa_throttle_limit", "Limit of throttle_by.")?;
        for view in channels {
            let channel = view.channel_name.as_str();
            let by = view.throttle_by.as_ref();
            let health = by.and_then(|by| by.rate).unwrap_or_default();
            for (reason, of) in [("throttle", view.settings.throttle), ("health", health)] {
                rate.with_label_values(&[channel, reason]).set(i64::from(of));
            }
            for reason in REASONS {
                let labels = [channel, reason];
                let limits = by.map(|by| &by.limits[..]).unwrap_or_default();
                let of: Vec<&LimitView> = limits.iter().filter(|one| one.key == reason).collect();
                let any = |is: fn(&LimitView) -> bool| i64::from(of.iter().any(|one| is(one)));
                exceeded.with_label_values(&labels).set(any(|one| one.exceeded));
                unanswered.with_label_values(&labels).set(any(|one| one.unanswered.is_some()));
                if let Some(highest) = of.iter().filter_map(|one| one.value).reduce(f64::max) {
                    value.with_label_values(&labels).set(highest);
                }
                if let Some(one) = of.first() {
                    limit.with_label_values(&labels).set(one.limit);
                }
            }
        }
        Ok(())
    }

    fn measured(&self, name: &str, help: &str) -> Result<GaugeVec> {
        self.register(GenericGaugeVec::new(Opts::new(name, help), &["channel", "reason"])?)
    }
}
