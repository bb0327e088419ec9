//! The last minutes of every channel, for a table of them: few values, so that many channels can be asked for
//! again and again. Pure.

use serde::Serialize;

use super::series::Columns;
use super::track::Track;
use super::window::Window;

const SECONDS: u64 = 600;
const STEP: u64 = 10;

/// `/history/recent`: columns of equal length, oldest first, `null` where nothing is known.
#[derive(Debug, Serialize)]
pub(crate) struct RecentView {
    /// Seconds since the epoch: the newest sample, and the beginning of the first bucket.
    now: u64,
    first: u64,
    /// Seconds in a bucket.
    step: u64,
    channels: Vec<RecentChannel>,
}

/// The highest lag of each bucket, and its rate.
#[derive(Debug, Serialize)]
struct RecentChannel {
    channel_name: String,
    lag_seconds: Vec<Option<f64>>,
    applied_transactions_per_second: Vec<Option<f64>>,
}

impl RecentView {
    pub(super) fn new(tracks: &[Track]) -> Self {
        let now = tracks.iter().filter_map(Track::newest).max().unwrap_or_default();
        let window = Window::ending(now, SECONDS, STEP);
        let channel = |track: &Track| {
            let columns = Columns::new(window, track.samples());
            RecentChannel {
                channel_name: track.channel_name().to_owned(),
                lag_seconds: columns.lag_seconds,
                applied_transactions_per_second: columns.applied_transactions_per_second,
            }
        };
        let channels = tracks.iter().map(channel).collect();
        Self { now, first: window.first, step: window.step, channels }
    }
}
