//! Metrics of archives.

use prometheus::core::GenericGaugeVec;
use prometheus::{GaugeVec, Opts};

use super::{Result, Scrape};
use crate::observe::view::{ArchiveView, ChannelView};

impl Scrape {
    pub(super) fn archive(&self, channels: &[ChannelView]) -> Result<()> {
        let lag: GaugeVec = self.register(GenericGaugeVec::new(
            Opts::new(
                "csa_archive_lag_seconds",
                "Age of the oldest transaction that is received and not archived; absent without an archive, and \
                 until the archive has answered.",
            ),
            &["channel"],
        )?)?;
        let interval: GaugeVec = self.register(GenericGaugeVec::new(
            Opts::new(
                "csa_archive_interval_seconds",
                "Longest time for which a file of the archive collects transactions (archive.interval).",
            ),
            &["channel"],
        )?)?;
        let pending = self.gauge(
            "csa_archive_pending_bytes",
            "Bytes of events that are received and not archived.",
            &["channel"],
        )?;
        let failing =
            self.gauge("csa_archive_failing", "1 while nothing can be archived.", &["channel"])?;
        type ReadArchiveCounter = fn(&ArchiveView) -> u64;
        let counters: [(&str, &str, ReadArchiveCounter); 5] = [
            ("csa_archive_files_total", "Files added to the archive.", |a| a.files_total),
            (
                "csa_archive_bytes_total",
                "Bytes of the files added to the archive, as stored.",
                |a| a.bytes_total,
            ),
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
        let counters = counters
            .into_iter()
            .map(|(name, help, read)| Ok((self.counter(name, help, &["channel"])?, read)))
            .collect::<Result<Vec<_>>>()?;
        for view in channels {
            let Some(archive) = &view.archive else { continue };
            let channel = [view.channel_name.as_str()];
            if let Some(seconds) = archive.lag_seconds {
                lag.with_label_values(&channel).set(seconds);
            }
            interval.with_label_values(&channel).set(archive.interval_seconds);
            pending.with_label_values(&channel).set(archive.pending_bytes as i64);
            failing.with_label_values(&channel).set(archive.error.is_some().into());
            for (counter, read) in &counters {
                counter.with_label_values(&channel).inc_by(read(archive));
            }
        }
        Ok(())
    }
}
