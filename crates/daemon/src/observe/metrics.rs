//! Prometheus metrics, made from the same views as `/status`, so that the two never disagree. A metric
//! is a line in a table, as `gauges`, `counters` or `histograms`, and its value a field of [`ChannelView`].

mod archive;
mod copy;
mod histograms;
mod process;
mod throttle;
mod verify;

use prometheus::core::{Collector, GenericCounterVec, GenericGaugeVec};
use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};

use crate::claims::fleet_view::FleetView;
use csa_applier::SessionState;

use crate::observe::view::{ChannelState, ChannelView, LastReload};

type Result<T> = std::result::Result<T, prometheus::Error>;

/// The name of a gauge, its meaning, and a channel's value, which may be absent.
type Row = (&'static str, &'static str, fn(&ChannelView) -> Option<f64>);

const ROWS: [Row; 5] = [
    (
        "csa_lag_seconds",
        "Now minus the source's commit time of the oldest transaction not yet committed on \
         the target, or not yet archived without one; absent while the source can't be reached and nothing is pending.",
        |view| view.lag_seconds,
    ),
    ("csa_desired_delay_seconds", "Intended delay of the target.", |view| {
        view.has_target().then_some(view.applier.desired_delay)
    }),
    (
        "csa_drain_seconds",
        "Time to drain the backlog at the rates of the last seconds; absent while it does not \
         shrink.",
        |view| view.seconds_to_drain,
    ),
    (
        "csa_applier_lock_wait_seconds",
        "Time for which the channel has waited for a lock of another session on the target; 0 \
         while it waits for none.",
        |view| Some(view.applier.lock_wait.as_ref().map_or(0, |wait| wait.seconds) as f64),
    ),
    (
        "csa_channel_next_attempt_seconds",
        "Time until the daemon tries again on its own; absent while it waits for no attempt.",
        |view| view.next_attempt_seconds,
    ),
];

/// The registry of one scrape.
struct Scrape {
    registry: Registry,
}

/// Renders one scrape.
pub(crate) fn render(
    channels: &[ChannelView],
    reload: LastReload,
    fleet: &FleetView,
) -> Result<String> {
    let scrape = Scrape { registry: Registry::new() };
    scrape.describe(channels)?;
    scrape.reload(reload)?;
    scrape.fleet(fleet)?;
    scrape.process()?;
    TextEncoder::new().encode_to_string(&scrape.registry.gather())
}

impl Scrape {
    fn describe(&self, channels: &[ChannelView]) -> Result<()> {
        let build = self.gauge("csa_build_info", "Always 1.", &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        self.rows(&ROWS, channels)?;
        let state = ["csa_channel_state", "1 for the state a channel is in.", "state"];
        self.labelled(state, channels, |view| {
            ChannelState::ALL.map(|state| (state.name(), f64::from(state == view.state)))
        })?;
        let workers = ["csa_applier_workers", "Workers with a group, by state.", "state"];
        self.labelled(workers, channels, |view| {
            SessionState::ALL.map(|state| {
                let workers = view.applier.workers.iter();
                (state.name(), workers.filter(|worker| worker.state == state.name()).count() as f64)
            })
        })?;
        let help = "Duration of a step of the channel's last start.";
        self.labelled(["csa_start_seconds", help, "step"], channels, |view| {
            view.start.iter().map(|step| (step.step.as_str(), step.seconds))
        })?;
        let help = "1 for the part that limits the channel.";
        self.labelled(["csa_bottleneck", help, "cause"], channels, |view| {
            let cause = view.bottleneck.cause.as_str();
            (!cause.is_empty()).then_some((cause, 1.0))
        })?;
        self.throttle(channels)?;
        self.archive(channels)?;
        self.copies(channels)?;
        self.verify(channels)?;
        self.gauges(channels)?;
        self.histograms(channels)?;
        self.counters(channels)
    }

    fn reload(&self, LastReload { ok, adopted }: LastReload) -> Result<()> {
        let help = "1 unless the last attempt to read the configuration again failed.";
        self.gauge("csa_config_last_reload_ok", help, &[])?
            .with_label_values::<&str>(&[])
            .set(i64::from(ok));
        let help = "Time since the epoch at which the configuration in use was read.";
        self.gauge("csa_config_last_reload_success_timestamp_seconds", help, &[])?
            .with_label_values::<&str>(&[])
            .set(i64::try_from(adopted / 1_000_000).unwrap_or(i64::MAX));
        Ok(())
    }

    /// Sets the metrics of a fleet: zeros where nothing is shared.
    fn fleet(&self, fleet: &FleetView) -> Result<()> {
        let claimed = fleet.claims.values().filter(|holder| **holder == fleet.name).count();
        let is_lost = fleet.engine != "none" && !fleet.has_session;
        for (name, help, value) in [
            ("csa_claims_members", "Daemons of the fleet.", fleet.members.len()),
            ("csa_claims_held", "Channels that this daemon has claimed.", claimed),
            (
                "csa_claims_unclaimed",
                "Channels of this daemon's configuration that no daemon has claimed.",
                fleet.unclaimed.len(),
            ),
            (
                "csa_claims_session_lost",
                "1 while this daemon may have lost its session in the fleet.",
                usize::from(is_lost),
            ),
            (
                "csa_claims_draining",
                "1 while this daemon gives its channels away.",
                usize::from(fleet.draining),
            ),
        ] {
            self.gauge(name, help, &[])?
                .with_label_values::<&str>(&[])
                .set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        Ok(())
    }

    fn gauges(&self, channels: &[ChannelView]) -> Result<()> {
        type ReadGauge = fn(&ChannelView) -> Option<u64>;
        let rows: [(&str, &str, ReadGauge); 20] = [
            (
                "csa_backlog_transactions",
                "Transactions received and not committed on the target, or not archived without one.",
                |v| v.backlog_transactions,
            ),
            (
                "csa_backlog_bytes",
                "Bytes of events received and not committed on the target, or not archived without one.",
                |v| v.backlog_bytes,
            ),
            (
                "csa_channel_error_number",
                "Number of the server's error at which the channel failed, 0 without one.",
                |v| Some(v.last_error.as_ref().map_or(0, |error| error.number.into())),
            ),
            (
                "csa_applier_session_limit",
                "Sessions that the target permits beside the one that holds the channel; absent unless it \
                 has refused one more.",
                |v| v.applier.session_limit,
            ),
            ("csa_notify_waiting", "Events that are still to be delivered.", |v| {
                v.notify.as_ref().map(|notify| notify.waiting)
            }),
            ("csa_provider_connected", "1 while the source sends its stream.", |v| {
                Some(u64::from(v.connection.service_state == "ON"))
            }),
            (
                "csa_provider_wanted",
                "1 while something should be received: reception has begun, and nobody has ended it since.",
                |v| Some(u64::from(v.connection.is_wanted)),
            ),
            (
                "csa_provider_semi_sync",
                "1 while transactions are acknowledged to the source.",
                |v| Some(u64::from(v.connection.semi_sync == Some(true))),
            ),
            ("csa_relaystore_bytes", "Bytes of all relay segments.", |v| Some(v.relay.bytes)),
            ("csa_relaystore_segments", "Relay segments.", |v| Some(v.relay.segments)),
            (
                "csa_relaystore_space_limit_bytes",
                "Bytes of relay segments at which reception waits; absent without a limit.",
                |v| Some(v.relay.space_limit_bytes).filter(|&limit| limit > 0),
            ),
            (
                "csa_relaystore_free_disk_bytes",
                "Bytes free on the file system of the relay segments.",
                |v| v.relay.free_disk_bytes,
            ),
            (
                "csa_relaystore_min_free_disk_bytes",
                "Free bytes on disk below which reception waits.",
                |v| Some(v.relay.min_free_disk_bytes),
            ),
            ("csa_relaystore_waiting", "1 while reception waits for space.", |v| {
                Some(u64::from(v.relay.waiting.is_some()))
            }),
            ("csa_applier_worker_limit", "Limit of workers.", |v| {
                Some(u64::from(v.settings.worker_count))
            }),
            (
                "csa_scheduler_waiting_transactions",
                "Transactions read ahead that are in no group yet.",
                |v| Some(v.applier.waiting_transactions),
            ),
            (
                "csa_scheduler_waiting_groups",
                "Groups that wait for the commit of another with the same keys.",
                |v| Some(v.applier.waiting_groups),
            ),
            (
                "csa_scheduler_event_memory_bytes",
                "Bytes held for events in flight, decompressed, and for the data built from them.",
                |v| Some(v.event_memory.held_bytes),
            ),
            (
                "csa_scheduler_event_memory_peak_bytes",
                "Highest value of the bytes in flight.",
                |v| Some(v.event_memory.peak_bytes),
            ),
            ("csa_scheduler_event_memory_limit_bytes", "Limit of the bytes in flight.", |v| {
                Some(v.event_memory.limit_bytes)
            }),
        ];
        for (name, help, read) in rows {
            let gauge = self.gauge(name, help, &["channel"])?;
            for view in with(name, channels) {
                if let Some(value) = read(view) {
                    gauge
                        .with_label_values(&[view.channel_name.as_str()])
                        .set(i64::try_from(value).unwrap_or(i64::MAX));
                }
            }
        }
        Ok(())
    }

    fn counters(&self, channels: &[ChannelView]) -> Result<()> {
        type ReadCounter = fn(&ChannelView) -> u64;
        let rows: [(&str, &str, ReadCounter); 26] = [
            ("csa_provider_transactions_total", "Transactions received completely.", |v| {
                v.connection.received_transactions_total
            }),
            ("csa_provider_events_total", "Events received.", |v| {
                v.connection.received_events_total
            }),
            ("csa_provider_heartbeats_total", "Heartbeats received.", |v| {
                v.connection.count_received_heartbeats
            }),
            ("csa_provider_bytes_total", "Bytes of events received.", |v| {
                v.connection.received_bytes_total
            }),
            ("csa_provider_connects_total", "Dumps started on a source.", |v| {
                v.connection.connects_total
            }),
            ("csa_provider_checksum_failures_total", "Events that arrived damaged.", |v| {
                v.connection.checksum_failures_total
            }),
            (
                "csa_provider_passed_over_events_total",
                "Events passed over because they mean nothing to a replica.",
                |v| v.connection.passed_over_events_total,
            ),
            (
                "csa_provider_acknowledgements_total",
                "Acknowledgements sent to a semi-synchronous source.",
                |v| v.connection.acknowledgements_total,
            ),
            ("csa_relaystore_written_bytes_total", "Bytes written to relay segments.", |v| {
                v.relay.written_bytes_total
            }),
            ("csa_relaystore_syncs_total", "Syncs of relay segments.", |v| v.relay.syncs_total),
            (
                "csa_applier_transactions_total",
                "Source transactions committed on the target.",
                |v| v.applied_transactions_total,
            ),
            (
                "csa_applier_groups_total",
                "Target transactions that committed source transactions.",
                |v| v.applied_groups_total,
            ),
            ("csa_applier_statements_total", "Statements executed that commit implicitly.", |v| {
                v.applied_statements_total
            }),
            (
                "csa_applier_accounts_left_out_total",
                "Transactions whose account management was left out.",
                |v| v.applier.accounts_left_out_total,
            ),
            (
                "csa_applier_own_left_out_total",
                "Statements about schema csa that were left out.",
                |v| v.applier.own_left_out_total,
            ),
            (
                "csa_applier_returned_left_out_total",
                "Transactions that came back to the target and were left out.",
                |v| v.applier.returned_left_out_total,
            ),
            ("csa_applier_skipped_total", "Transactions that an operator skipped.", |v| {
                v.applier.skipped_total
            }),
            (
                "csa_applier_lock_inversions_total",
                "Groups that gave up locks for which an earlier one waited.",
                |v| v.applier.lock_inversions_total,
            ),
            (
                "csa_applier_commit_inversions_total",
                "Groups whose commit was answered before that of an earlier one.",
                |v| v.applier.commit_inversions_total,
            ),
            (
                "csa_applier_retries_total",
                "Attempts repeated after a deadlock or lock wait.",
                |v| v.applier.count_transactions_retries,
            ),
            (
                "csa_applier_refused_sessions_total",
                "Sessions that the target refused with an error.",
                |v| v.applier.refused_sessions_total,
            ),
            (
                "csa_channel_attempts_after_failure_total",
                "Times the daemon tried again on its own after the channel had failed.",
                |v| v.attempts_after_failure_total,
            ),
            ("csa_notify_delivered_total", "Events that their receiver has taken.", |v| {
                v.notify.as_ref().map_or(0, |notify| notify.delivered_total)
            }),
            ("csa_notify_failed_total", "Attempts to deliver an event that failed.", |v| {
                v.notify.as_ref().map_or(0, |notify| notify.failed_attempts_total)
            }),
            (
                "csa_notify_dropped_total",
                "Events that were given up without being delivered.",
                |v| v.notify.as_ref().map_or(0, |notify| notify.dropped_total),
            ),
            (
                "csa_applier_target_rewinds_total",
                "Times the target came back without transactions that were committed there.",
                |v| v.applier.target_rewinds_total,
            ),
        ];
        for (name, help, read) in rows {
            let counter: IntCounterVec =
                self.register(GenericCounterVec::new(Opts::new(name, help), &["channel"])?)?;
            for view in with(name, channels) {
                counter.with_label_values(&[view.channel_name.as_str()]).inc_by(read(view));
            }
        }
        Ok(())
    }

    /// Sets the gauges of these rows.
    fn rows(&self, rows: &[Row], channels: &[ChannelView]) -> Result<()> {
        for &(name, help, read) in rows {
            let gauge: GaugeVec =
                self.register(GenericGaugeVec::new(Opts::new(name, help), &["channel"])?)?;
            for view in with(name, channels) {
                if let Some(value) = read(view) {
                    gauge.with_label_values(&[view.channel_name.as_str()]).set(value);
                }
            }
        }
        Ok(())
    }

    /// Sets a gauge that has a second label, to a value for each text of that label.
    fn labelled<'a, I: IntoIterator<Item = (&'a str, f64)>>(
        &self,
        [name, help, label]: [&str; 3],
        channels: &'a [ChannelView],
        read: impl Fn(&'a ChannelView) -> I,
    ) -> Result<()> {
        let gauge: GaugeVec =
            self.register(GenericGaugeVec::new(Opts::new(name, help), &["channel", label])?)?;
        for view in with(name, channels) {
            for (text, value) in read(view) {
                gauge.with_label_values(&[view.channel_name.as_str(), text]).set(value);
            }
        }
        Ok(())
    }

    fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec> {
        self.register(GenericGaugeVec::new(Opts::new(name, help), labels)?)
    }

    fn counter(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec> {
        self.register(GenericCounterVec::new(Opts::new(name, help), labels)?)
    }

    fn register<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C> {
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }
}

/// Returns the channels that have a metric: what applies transactions exists with a target alone.
fn with<'a>(name: &str, channels: &'a [ChannelView]) -> impl Iterator<Item = &'a ChannelView> {
    let applies = ["csa_applier_", "csa_scheduler_", "csa_end_to_end_"];
    let is_of_target = applies.iter().any(|part| name.starts_with(part));
    channels.iter().filter(move |view| view.has_target() || !is_of_target)
}

#[cfg(test)]
mod tests;
