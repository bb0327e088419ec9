//! Metrics of archives.

use super::{Result, Row, Scrape};
use crate::observe::view::{ArchiveView, ChannelView};

const ROWS: [Row; 4] = [
    (
        "csa_archive_lag_seconds",
        "Age of the oldest transaction that is received and not archived; absent without an archive, and \
         until the archive has answered.",
        |view| view.archive.as_ref()?.lag_seconds,
    ),
    (
        "csa_archive_interval_seconds",
        "Longest time for which a file of the archive collects transactions (archive.interval).",
        |view| Some(view.archive.as_ref()?.interval_seconds),
    ),
    ("csa_archive_pending_bytes", "Bytes of events that are received and not archived.", |view| {
        Some(view.archive.as_ref()?.pending_bytes as f64)
    }),
    ("csa_archive_failing", "1 while nothing can be archived.", |view| {
        Some(f64::from(view.archive.as_ref()?.error.is_some()))
    }),
];

type ReadArchiveCounter = fn(&ArchiveView) -> u64;

const COUNTERS: [(&str, &str, ReadArchiveCounter); 5] = [
    ("csa_archive_files_total", "Files added to the archive.", |a| a.files_total),
    ("csa_archive_bytes_total", "Bytes of the files added to the archive, as stored.", |a| {
        a.bytes_total
    }),
    ("csa_archive_transactions_total", "Transactions in the files added.", |a| {
        a.transactions_total
    }),
    ("csa_archive_failures_total", "Failed attempts to write to the archive.", |a| {
        a.failures_total
    }),
    (
        "csa_archive_missing_transactions_total",
        "Transactions that left the relay store before they were archived.",
        |a| a.missing_transactions_total,
    ),
];

impl Scrape {
    pub(super) fn archive(&self, channels: &[ChannelView]) -> Result<()> {
        self.rows(&ROWS, channels)?;
        for (name, help, read) in COUNTERS {
            let counter = self.counter(name, help, &["channel"])?;
            for view in channels {
                if let Some(archive) = &view.archive {
                    counter.with_label_values(&[view.channel_name.as_str()]).inc_by(read(archive));
                }
            }
        }
        Ok(())
    }
}
