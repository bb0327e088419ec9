//! `status NAME`: one channel for people, in the order in which they ask. Pure.

use super::explanation::failing_row;
use super::units::{bytes, grouped, grouped_with, time};
use crate::observe::advice::{About, while_waiting};
use crate::observe::view::{
    ChannelState, ChannelView, ConnectionView, RelayView, VerifyView, WorkerView,
};

/// Workers that have a line.
const SHOWN: usize = 8;
const DASH: &str = "-";

/// Returns the channel as aligned lines: its state and what to do, the figures, then each part.
pub(super) fn one_channel(view: &ChannelView) -> String {
    let mut page = Page::default();
    standing(view, &mut page);
    page.gap();
    figures(view, &mut page);
    if let Some(verify) = &view.verify {
        page.gap();
        compared(verify, &mut page);
    }
    page.gap();
    source(view, &mut page);
    page.gap();
    if view.has_target() {
        target(view, &mut page);
        page.gap();
    }
    store(view, &mut page);
    if view.has_target() {
        page.gap();
        settings(view, &mut page);
        workers(view, &mut page);
    }
    page.text()
}

/// Lines of a label and a text; a line without a label continues the one above.
#[derive(Default)]
struct Page(Vec<(&'static str, String)>);

impl Page {
    fn add(&mut self, label: &'static str, text: impl Into<String>) {
        self.0.push((label, text.into()));
    }

    fn add_some(&mut self, label: &'static str, text: Option<impl Into<String>>) {
        if let Some(text) = text {
            self.add(label, text);
        }
    }

    fn gap(&mut self) {
        self.add("", "");
    }

    fn text(&self) -> String {
        let width = self.0.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
        let line = |(label, text): &(&str, String)| {
            let line = format!("{label:<width$}  {text}");
            format!("{}\n", line.trim_end())
        };
        self.0.iter().map(line).collect()
    }
}

fn standing(view: &ChannelView, page: &mut Page) {
    page.add("channel", &view.channel_name);
    page.add("state", view.state.name());
    let error = view.last_error.as_ref().filter(|_| view.state == ChannelState::Failed);
    page.add("why", error.map_or(&view.state_detail, |error| &error.message));
    if let Some(row) = error.and_then(|error| error.row.as_ref()) {
        failing_row(row).lines().for_each(|line| page.add("", line));
    }
    let steps = to_do(view);
    for (index, step) in steps.iter().enumerate() {
        let label = if index == 0 { "what to do" } else { "" };
        match steps.len() {
            1 => page.add(label, step),
            _ => page.add(label, format!("{}. {step}", index + 1)),
        }
    }
    let next = view.next_attempt_seconds;
    page.add_some("next attempt", next.map(|seconds| format!("in {}", time(seconds))));
    if let Some(copy) = &view.copy {
        let left = copy.seconds_left.map(|left| format!(", {} left", time(left)));
        page.add(
            "copy",
            format!(
                "{}: {} of {}, {} of about {}{}",
                copy.step,
                copy.tables_done,
                grouped_with(copy.tables, "table"),
                grouped_with(copy.rows, "row"),
                grouped(copy.rows_estimated),
                left.unwrap_or_default()
            ),
        );
    }
}

/// Returns the next steps of somebody who looks at the channel.
fn to_do(view: &ChannelView) -> Vec<String> {
    let name = &view.channel_name;
    let command = |rest: &str| format!("csa-daemon --channel {name} {rest}");
    let one = match view.state {
        ChannelState::Failed => {
            let steps = view.last_error.as_ref().map(|error| error.ways_on.clone());
            return steps.filter(|steps| !steps.is_empty()).unwrap_or_else(|| {
                vec![format!("change what the error names, then: {}", command("restart"))]
            });
        }
        ChannelState::WaitingForSource => {
            while_waiting(About::Source, &view.state_detail).unwrap_or_else(|| {
                "check that the source runs and can be reached from here; reception resumes on its own"
                    .to_owned()
            })
        }
        ChannelState::WaitingForTarget => {
            while_waiting(About::Target, &view.state_detail).unwrap_or_else(|| {
                "check that the target runs, can be reached from here and is writable; the channel resumes on \
                 its own"
                    .to_owned()
            })
        }
        ChannelState::WaitingForArchive => {
            "check that the archive can be reached from here and written; archiving resumes on its own".to_owned()
        }
        ChannelState::WaitingForLock => match &view.applier.lock_wait {
            Some(wait) => format!(
                "end the session that holds the lock; run on the target: {}",
                wait.unseen.as_ref().unwrap_or(&wait.look)
            ),
            None => "end the session that holds the lock".to_owned(),
        },
        ChannelState::WaitingForSpace => {
            "free space on the disk of the relay store, or change relay.min_free_disk or relay.space_limit and: \
             csa-daemon reload --restart"
                .to_owned()
        }
        ChannelState::Paused => command("resume"),
        ChannelState::Stopped if view.is_at_end() => format!(
            "{}; if applier.until is in the file, remove it there first, and: csa-daemon reload",
            command("until --clear")
        ),
        ChannelState::Stopped => command("restart"),
        ChannelState::Unknown => format!(
            "use a csa-daemon of the daemon's version, which knows the state; {} names it",
            command("status --json")
        ),
        ChannelState::Starting
        | ChannelState::Running
        | ChannelState::WaitingForDelay
        | ChannelState::Standby => "nothing".to_owned(),
    };
    vec![one]
}

fn figures(view: &ChannelView, page: &mut Page) {
    page.add("lag", view.lag_seconds.map_or("unknown".to_owned(), time));
    let backlog = view.backlog_transactions.map_or("unknown".to_owned(), |backlog| {
        let size = view.backlog_bytes.map(|size| format!(", {}", bytes(size)));
        format!("{}{}", grouped_with(backlog, "transaction"), size.unwrap_or_default())
    });
    page.add("backlog", backlog);
    // The rest concerns a target.
    if !view.has_target() {
        return;
    }
    let rate =
        |rate: Option<f64>| rate.map_or(DASH.to_owned(), |rate| grouped(rate.round() as u64));
    page.add(
        "rates",
        format!(
            "{} transactions/s applied, {} received",
            rate(view.applied_transactions_per_second),
            rate(view.received_transactions_per_second)
        ),
    );
    let drain = match (view.seconds_to_drain, view.state) {
        (Some(seconds), _) => time(seconds),
        (None, ChannelState::Running) => "unknown: the backlog does not shrink".to_owned(),
        (None, _) => DASH.to_owned(),
    };
    page.add("time to drain", drain);
    let bottleneck = &view.bottleneck;
    page.add(
        "bottleneck",
        format!(
            "{}, {:.0} % of the last seconds: {}",
            bottleneck.cause,
            bottleneck.share * 100.0,
            bottleneck.detail
        ),
    );
}

fn compared(verify: &VerifyView, page: &mut Page) {
    match &verify.last {
        None => page.add("compared", "not yet"),
        Some(last) => {
            let outcome = match last.differing.is_empty() {
                true => &last.outcome,
                false => "DIFFERENT",
            };
            let (age, rows) = (time(last.age_seconds), grouped_with(last.rows, "row"));
            let tables = grouped_with(last.tables, "table");
            page.add("compared", format!("{outcome} {age} ago: {tables}, {rows}"));
            if last.outcome != "equal" {
                page.add("", &last.text);
            }
        }
    }
    let share = verify.share().map(|share| format!(", {:.0} % done", 100.0 * share));
    page.add(
        "comparison",
        format!("{}: {}{}", verify.state, verify.detail, share.unwrap_or_default()),
    );
}

fn source(view: &ChannelView, page: &mut Page) {
    let ConnectionView {
        source,
        source_version,
        service_state,
        last_queued_transaction,
        last_queued_transaction_original_commit_timestamp: committed,
        queueing_transaction,
        queueing_transaction_bytes,
        queueing_transaction_received_bytes,
        arrival_delay_seconds,
        received_transactions_total,
        received_bytes_total,
        last_error_message,
        last_error_timestamp,
        semi_sync,
        ..
    } = &view.connection;
    let state = match service_state.as_str() {
        "ON" => "receiving",
        "OFF" => "not receiving",
        _ => "connecting",
    };
    page.add("source", server(source, source_version.as_deref(), state));
    page.add("  received", last(last_queued_transaction, committed));
    let arrival =
        arrival_delay_seconds.map(|delay| format!("; the last arrived after {}", time(delay)));
    page.add(
        "  in total",
        format!(
            "{}, {} since the daemon's start{}",
            grouped_with(*received_transactions_total, "transaction"),
            bytes(*received_bytes_total),
            arrival.unwrap_or_default()
        ),
    );
    if let Some(gtid) = queueing_transaction {
        let here = bytes(queueing_transaction_received_bytes.unwrap_or_default());
        let all = queueing_transaction_bytes.map_or(DASH.to_owned(), bytes);
        page.add("  arriving", format!("{gtid}: {here} of {all}"));
    }
    page.add_some(
        "  semi-sync",
        semi_sync.map(|takes| if takes { "acknowledges" } else { "the source waits for none" }),
    );
    if let Some(error) = last_error_message.as_ref().filter(|_| service_state != "ON") {
        let at = last_error_timestamp.as_deref().unwrap_or(DASH);
        page.add("  last error", format!("{error} (at {at})"));
    }
}

fn target(view: &ChannelView, page: &mut Page) {
    let applier = &view.applier;
    let state = match (applier.service_state.as_str(), &applier.target_error_message) {
        (_, Some(_)) => "away",
        ("ON", None) => "applying",
        _ => "not applying",
    };
    page.add("target", server(&applier.target, applier.target_version.as_deref(), state));
    page.add(
        "  applied",
        last(
            &applier.last_applied_transaction,
            &applier.last_applied_transaction_original_commit_timestamp,
        ),
    );
    page.add(
        "  in total",
        format!(
            "{} in {} since the daemon's start",
            grouped_with(view.applied_transactions_total, "transaction"),
            grouped_with(view.applied_groups_total, "commit")
        ),
    );
    let repeated = [
        (applier.count_transactions_retries, "repeated after a conflict"),
        (applier.skipped_total, "skipped"),
        (applier.target_rewinds_total, "lost by the target and applied again (times)"),
    ];
    let said: Vec<String> = repeated
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", grouped(*count)))
        .collect();
    page.add_some("  of these", (!said.is_empty()).then(|| said.join(", ")));
    if let Some(statement) = &applier.statement {
        let since = time(statement.seconds);
        page.add("  statement", format!("{} (since {since})", statement.statement));
    }
    page.add_some("  last error", applier.target_error_message.clone());
}

/// Returns the server's address, version and state.
fn server(address: &str, version: Option<&str>, state: &str) -> String {
    let version = version.map(|version| format!(", {version}")).unwrap_or_default();
    format!("{address}{version}, {state}")
}

/// Returns a transaction and the time of its commit.
fn last(gtid: &Option<String>, committed: &Option<String>) -> String {
    match (gtid, committed) {
        (Some(gtid), Some(committed)) => format!("{gtid}, committed {committed}"),
        (Some(gtid), None) => gtid.clone(),
        (None, _) => "nothing since the daemon's start".to_owned(),
    }
}

fn store(view: &ChannelView, page: &mut Page) {
    let RelayView {
        segments,
        bytes: used,
        space_limit_bytes: limit,
        min_free_disk_bytes: floor,
        free_disk_bytes: free,
        waiting,
        ..
    } = &view.relay;
    let of = if *limit == 0 { String::new() } else { format!(" of {}", bytes(*limit)) };
    page.add(
        "relay store",
        format!("{}{of} in {}", bytes(*used), grouped_with(*segments, "segment")),
    );
    let floor =
        if *floor == 0 { String::new() } else { format!(", {} are kept free", bytes(*floor)) };
    let free = free.map_or("unknown".to_owned(), |free| format!("{} free{floor}", bytes(free)));
    page.add("  disk", free);
    page.add_some("  reception", waiting.clone());
    archive(view, page);
    if !view.has_target() {
        return;
    }
    let memory = &view.event_memory;
    page.add(
        "event memory",
        format!("{} of {}", bytes(memory.held_bytes), bytes(memory.limit_bytes)),
    );
}

fn archive(view: &ChannelView, page: &mut Page) {
    let Some(archive) = &view.archive else { return };
    page.add("archive", &archive.url);
    page.add_some("  error", archive.error.clone());
    let lag = archive.lag_seconds.map_or_else(|| "unknown".to_owned(), time);
    let pending = bytes(archive.pending_bytes);
    page.add("  lag", format!("{lag}, {pending} to archive, file {}", archive.file_number));
    if archive.missing_transactions_total > 0 {
        let missing = grouped_with(archive.missing_transactions_total, "transaction");
        page.add("  gap", format!("{missing} left the relay store before they were archived"));
    }
}

fn settings(view: &ChannelView, page: &mut Page) {
    let settings = &view.settings;
    let mut parts = Vec::new();
    if settings.throttle > 0 {
        parts.push(format!("throttle {} transactions/s", grouped(settings.throttle.into())));
    }
    if view.applier.desired_delay > 0.0 {
        parts.push(format!("source_delay {}", time(view.applier.desired_delay)));
    }
    if let Some(until) = &settings.until {
        parts.push(format!("until {until}"));
    }
    page.add_some("held back by", (!parts.is_empty()).then(|| parts.join(", ")));
}

fn workers(view: &ChannelView, page: &mut Page) {
    let busy = &view.applier.workers;
    page.add("workers", format!("{} of {} busy", busy.len(), view.settings.worker_count));
    for worker in busy.iter().take(SHOWN) {
        page.add("", worker_line(worker));
    }
    if busy.len() > SHOWN {
        page.add("", format!("and {} more", busy.len() - SHOWN));
    }
}

fn worker_line(worker: &WorkerView) -> String {
    let connection = worker.thread_id.map_or(DASH.to_owned(), |id| id.to_string());
    let state = worker.state.replace('_', " ");
    format!(
        "{:<3} connection {connection:<8} {state:<22} {:>10}  {}",
        worker.worker_id,
        time(worker.seconds_in_state),
        grouped_with(worker.transactions, "transaction")
    )
}

#[cfg(test)]
#[path = "one_channel_tests.rs"]
mod tests;
