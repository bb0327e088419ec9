//! `status --max-lag`: the channels that a monitor should report. Pure.

use std::time::Duration;

use super::units::time;
use crate::observe::view::{ChannelState, ChannelView};

/// Returns a line for each channel that does not run, or lags by more, with its name. A channel that another
/// daemon has is judged there.
pub(super) fn late(channels: &[ChannelView], most: Duration) -> Vec<(&str, String)> {
    let reason = |view: &ChannelView| match (view.state, view.lag_seconds) {
        (ChannelState::Standby, _) => None,
        (state, _) if !state.is_well() => Some(state.name().to_owned()),
        (_, None) => Some("lag unknown".to_owned()),
        (_, Some(lag)) => (lag > most.as_secs_f64()).then(|| format!("lag {}", time(lag))),
    };
    let line = |view: &ChannelView, reason: String| {
        format!("{}: {reason}: {}", view.channel_name, view.state_detail)
    };
    let late = |view| reason(view).map(|reason| (view.channel_name.as_str(), line(view, reason)));
    channels.iter().filter_map(late).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_late_unless_it_runs_within_the_limit() {
        let channel = |name: &str, state, lag_seconds| ChannelView {
            channel_name: name.to_owned(),
            state,
            state_detail: "why".to_owned(),
            lag_seconds,
            ..ChannelView::default()
        };
        let channels = [
            channel("ok", ChannelState::Running, Some(30.0)),
            channel("late", ChannelState::Running, Some(30.1)),
            channel("locked", ChannelState::WaitingForLock, Some(1.0)),
            channel("unknown", ChannelState::Running, None),
            channel("paused", ChannelState::Paused, Some(0.0)),
            channel("full", ChannelState::WaitingForSpace, Some(0.0)),
            channel("other", ChannelState::Standby, None),
        ];
        let late = late(&channels, Duration::from_secs(30));
        let lines: Vec<&str> = late.iter().map(|(_, line)| line.as_str()).collect();
        let expected = [
            "late: lag 30.1 s: why",
            "unknown: lag unknown: why",
            "paused: paused: why",
            "full: waiting_for_space: why",
        ];
        assert_eq!(lines, expected);
        assert_eq!(late[0].0, "late");
    }
}
