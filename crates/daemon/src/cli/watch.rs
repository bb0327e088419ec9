//! `status --watch` on a terminal: one line for each channel, the worst first, as many as fit. Pure.

use std::collections::BTreeMap;

use super::channel_table::channel_table;
use crate::observe::view::{ChannelState, ChannelView, StatusView};

/// Lag in seconds above which a running channel is worse than those below. Under the last limit the order
/// is that of the configuration, so that lines do not jump about.
const LATE: [f64; 4] = [3600.0, 600.0, 60.0, 10.0];

/// The lines of a screen, without line ends; at most `height`, each at most `width` characters.
pub(super) fn screen(view: &StatusView, now: &str, height: usize, width: usize) -> Vec<String> {
    let mut channels: Vec<&ChannelView> = view.channels.iter().collect();
    channels.sort_by_key(|channel| rank(channel));
    let head = format!("{now}  csa-daemon {}  {}", view.daemon.version, summary(&channels));
    let room = height.saturating_sub(2);
    // The last line tells of those that are left out.
    let shown = if channels.len() <= room { channels.len() } else { room.saturating_sub(1) };
    let (shown, hidden) = channels.split_at(shown);
    let mut lines = vec![head];
    let rows = channel_table(shown.iter().copied(), 1, detail);
    lines.extend(rows.lines().map(str::to_owned));
    if !hidden.is_empty() {
        let (count, does) = match hidden.len() {
            1 => ("1 more channel".to_owned(), "does"),
            more => (format!("{more} more channels"), "do"),
        };
        lines.push(format!("{count} {does} not fit: {}", summary(hidden)));
    }
    lines.truncate(height);
    lines.iter().map(|line| line.chars().take(width).collect()).collect()
}

/// By the attention that a channel needs: a smaller rank is worse.
fn rank(view: &ChannelView) -> usize {
    const STATES: [ChannelState; 9] = [
        ChannelState::Failed,
        ChannelState::WaitingForTarget,
        ChannelState::WaitingForArchive,
        ChannelState::WaitingForSource,
        ChannelState::WaitingForSpace,
        ChannelState::Unknown,
        ChannelState::Stopped,
        ChannelState::Paused,
        ChannelState::Starting,
    ];
    if let Some(rank) = STATES.iter().position(|state| *state == view.state) {
        return rank;
    }
    // A delay that was asked for is no lag.
    let lag = view.lag_seconds.unwrap_or_default() - view.applier.desired_delay;
    STATES.len() + LATE.iter().position(|limit| lag > *limit).unwrap_or(LATE.len())
}

/// How many there are in each state, and the highest lag.
fn summary(channels: &[&ChannelView]) -> String {
    let mut counts: BTreeMap<usize, (ChannelState, usize)> = BTreeMap::new();
    for view in channels {
        let place = ChannelState::ALL.iter().position(|state| *state == view.state);
        counts.entry(place.unwrap_or(ChannelState::ALL.len())).or_insert((view.state, 0)).1 += 1;
    }
    let count = |(state, count): &(ChannelState, usize)| format!("{count} {}", state.name());
    let counts: Vec<String> = counts.values().rev().map(count).collect();
    let lag = channels.iter().filter_map(|view| view.lag_seconds).reduce(f64::max);
    let lag = lag.map_or_else(String::new, |lag| format!("; lag at most {lag:.1} s"));
    format!("{}{lag}", counts.join(", "))
}

/// Returns the reason of a state, which a channel that runs needs none for.
fn detail(view: &ChannelView) -> &str {
    match view.state {
        ChannelState::Running => "",
        _ => &view.state_detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::view::DaemonView;

    fn channel(name: &str, state: ChannelState, lag_seconds: Option<f64>) -> ChannelView {
        let state_detail = format!("why {name} is so");
        ChannelView {
            channel_name: name.to_owned(),
            state,
            state_detail,
            lag_seconds,
            ..ChannelView::default()
        }
    }

    fn status(channels: Vec<ChannelView>) -> StatusView {
        let daemon = DaemonView {
            id: String::new(),
            peers: 0,
            version: "1.2".to_owned(),
            pid: 1,
            uptime_seconds: 1,
            log_filter: "info".to_owned(),
            shows_values: true,
        };
        StatusView { daemon, channels }
    }

    #[test]
    fn the_worst_come_first_and_all_fit() {
        use ChannelState::{Failed, Paused, Running, Standby, WaitingForSource};
        let mut channels: Vec<ChannelView> =
            (0..100).map(|n| channel(&format!("c{n:02}"), Running, Some(0.1))).collect();
        channels[40] = channel("c40", Paused, Some(7200.0));
        channels[50] = channel("c50", Failed, None);
        channels[60].lag_seconds = Some(700.0);
        channels[70] = channel("c70", WaitingForSource, None);
        channels[80].lag_seconds = Some(70.0);
        channels[90] = channel("c90", Standby, None);
        let status = status(channels);
        let lines = screen(&status, "18:00:00", 12, 60);
        assert_eq!(lines.len(), 12, "{lines:#?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 60), "{lines:#?}");
        assert!(lines[0].starts_with("18:00:00  csa-daemon 1.2  1 failed, 1 paused, 96 running,"));
        let names: Vec<&str> =
            lines[2..11].iter().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(names, ["c50", "c70", "c40", "c60", "c80", "c00", "c01", "c02", "c03"]);
        let rest = "91 more channels do not fit: 90 running, 1 standby; lag at most 0.1 s";
        assert_eq!(lines[11], rest[..60]);

        let all = screen(&status, "18:00:00", 102, 200);
        assert_eq!(all.len(), 102);
        assert!(all[2].ends_with("why c50 is so"), "{}", all[2]);
        assert_eq!(screen(&status, "", 101, 200).len(), 101);
        for height in 0..4 {
            assert_eq!(screen(&status, "", height, 200).len(), height);
        }
    }
}
