//! Metrics of the comparisons that channels make on their own.

use prometheus::core::GenericGaugeVec;
use prometheus::{GaugeVec, Opts};

use super::{Result, Scrape};
use crate::host::micros_of;
use crate::observe::view::{ChannelView, VerifyView};

type ReadVerify = fn(&VerifyView) -> Option<f64>;

const GAUGES: [(&str, &str, ReadVerify); 6] = [
    (
        "csa_verify_every_seconds",
        "Time between two comparisons of all tables; absent if the daemon makes none.",
        |view| Some(view.every_seconds),
    ),
    (
        "csa_verify_last_finished_timestamp_seconds",
        "Time since the epoch at which the last comparison of all tables ended; absent before the first.",
        |view| {
            let last = view.last.as_ref()?;
            micros_of(&last.finished).map(|micros| (micros / 1_000_000) as f64)
        },
    ),
    (
        "csa_verify_differing_tables",
        "Tables that differ, by the last comparison; absent before the first.",
        |view| view.last.as_ref().map(|last| last.differing.len() as f64),
    ),
    (
        "csa_verify_differing_rows",
        "Rows that differ, at most 100 of each table; absent before the first comparison.",
        |view| {
            let last = view.last.as_ref()?;
            Some(last.differing.iter().map(|table| table.rows).sum::<u64>() as f64)
        },
    ),
    (
        "csa_verify_progress_ratio",
        "Part of the comparison that is done, 0 to 1; absent unless one has begun.",
        VerifyView::share,
    ),
    ("csa_verify_held", "1 while a comparison that is due waits.", |view| {
        Some(if view.state == "held" { 1.0 } else { 0.0 })
    }),
];

impl Scrape {
    pub(super) fn verify(&self, channels: &[ChannelView]) -> Result<()> {
        for (name, help, read) in GAUGES {
            let gauge: GaugeVec =
                self.register(GenericGaugeVec::new(Opts::new(name, help), &["channel"])?)?;
            for view in channels {
                if let Some(value) = view.verify.as_ref().and_then(read) {
                    gauge.with_label_values(&[view.channel_name.as_str()]).set(value);
                }
            }
        }
        Ok(())
    }
}
