//! The table of `status`: a line for each channel. Pure.

use super::table;
use super::units::bytes;
use crate::observe::view::ChannelView;

const HEAD: [&str; 9] =
    ["CHANNEL", "STATE", "LAG", "BACKLOG", "BYTES", "TRX/S", "DRAINED IN", "HELD UP BY", "DETAIL"];

/// Lag has that many `decimals` of a second, and `detail` is the last column.
pub(super) fn channel_table<'a>(
    channels: impl IntoIterator<Item = &'a ChannelView>,
    decimals: usize,
    detail: impl Fn(&ChannelView) -> &str,
) -> String {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let row = |view: &ChannelView| {
        [
            view.channel_name.clone(),
            view.state.name().to_owned(),
            or_dash(view.lag_seconds.map(|lag| format!("{lag:.decimals$} s"))),
            or_dash(view.backlog_transactions.map(|value| value.to_string())),
            or_dash(view.backlog_bytes.map(bytes)),
            or_dash(view.applied_transactions_per_second.map(|rate| format!("{rate:.0}"))),
            or_dash(view.seconds_to_drain.map(|seconds| format!("{seconds:.0} s"))),
            // Nothing holds up a channel that has nothing to do.
            or_dash(
                Some(view.bottleneck.cause.clone())
                    .filter(|cause| !cause.is_empty() && view.lag_seconds != Some(0.0)),
            ),
            detail(view).to_owned(),
        ]
    };
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(channels.into_iter().map(row));
    table::columns(&rows)
}
