//! Metrics of the comparisons that channels make on their own.

use super::{Result, Row, Scrape};
use crate::host::micros_of;
use crate::observe::view::{ChannelView, VerifyResultView};

const ROWS: [Row; 6] = [
    (
        "csa_verify_every_seconds",
        "Time between two comparisons of all tables; absent if the daemon makes none.",
        |view| Some(view.verify.as_ref()?.every_seconds),
    ),
    (
        "csa_verify_last_finished_timestamp_seconds",
        "Time since the epoch at which the last comparison of all tables ended; absent before the first.",
        |view| micros_of(&last(view)?.finished).map(|micros| (micros / 1_000_000) as f64),
    ),
    (
        "csa_verify_differing_tables",
        "Tables that differ, by the last comparison; absent before the first.",
        |view| Some(last(view)?.differing.len() as f64),
    ),
    (
        "csa_verify_differing_rows",
        "Rows that differ, at most 100 of each table; absent before the first comparison.",
        |view| Some(last(view)?.differing.iter().map(|table| table.rows).sum::<u64>() as f64),
    ),
    (
        "csa_verify_progress_ratio",
        "Part of the comparison that is done, 0 to 1; absent unless one has begun.",
        |view| view.verify.as_ref()?.share(),
    ),
    ("csa_verify_held", "1 while a comparison that is due waits.", |view| {
        Some(f64::from(view.verify.as_ref()?.state == "held"))
    }),
];

fn last(view: &ChannelView) -> Option<&VerifyResultView> {
    view.verify.as_ref()?.last.as_ref()
}

impl Scrape {
    pub(super) fn verify(&self, channels: &[ChannelView]) -> Result<()> {
        self.rows(&ROWS, channels)
    }
}
