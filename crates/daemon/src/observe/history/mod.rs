//! The last hour of every channel, one sample a second, for the status page. Kept in memory only.

mod errors;
mod series;
#[cfg(test)]
mod tests;
mod track;
mod window;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::host::{Failure, now_micros};
use crate::observe::view::ChannelView;
pub(crate) use series::HistoryView;
use track::Track;
use window::Window;

/// The range of seconds that a client may request.
const SECONDS_MIN: u64 = 60;
const SECONDS_MAX: u64 = 3600;
/// Points of a line: as many as a screen can show separately.
const POINTS: u64 = 300;

/// Filled by a thread that takes the samples; read by the admin port.
#[derive(Debug, Default)]
pub(crate) struct History {
    tracks: Mutex<Vec<Track>>,
}

/// Takes a sample of `measure`'s views every second until stopped, on a thread of its own: measuring a
/// disk blocks.
///
/// # Errors
/// No thread can be started.
pub(crate) fn start(
    history: Arc<History>,
    measure: impl Fn() -> Vec<ChannelView> + Send + 'static,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let run = move || {
        // Counted by the monotonic clock, so that setting the clock has no effect.
        let (start, started) = (now_micros() / 1_000_000, Instant::now());
        while !stop.is_cancelled() {
            history.take(start + started.elapsed().as_secs(), &measure());
            let next = Duration::from_secs(started.elapsed().as_secs() + 1);
            std::thread::sleep(next.saturating_sub(started.elapsed()));
        }
    };
    std::thread::Builder::new()
        .name("csa-history".to_owned())
        .spawn(run)
        .map(drop)
        .map_err(|error| Failure::Runtime(format!("starting the history thread: {error}")))
}

impl History {
    /// Takes a sample; `second` counts from the epoch.
    fn take(&self, second: u64, views: &[ChannelView]) {
        let mut tracks = self.tracks.lock();
        // A channel that was removed, and comes back, begins again.
        tracks.retain(|track| views.iter().any(|view| view.channel_name == track.channel_name()));
        for view in views {
            match tracks.iter_mut().find(|track| track.channel_name() == view.channel_name) {
                Some(track) => track.take(second, view),
                None => {
                    let mut track = Track::new(&view.channel_name);
                    track.take(second, view);
                    tracks.push(track);
                }
            }
        }
    }

    /// Answers `/history`; the default is the last hour of all channels.
    ///
    /// # Errors
    /// `seconds` is no number, or out of range.
    pub(crate) fn answer(
        &self,
        seconds: Option<&str>,
        channel: Option<&str>,
    ) -> Result<HistoryView, String> {
        let seconds = match seconds {
            None => SECONDS_MAX,
            Some(text) => text
                .parse()
                .ok()
                .filter(|seconds| (SECONDS_MIN..=SECONDS_MAX).contains(seconds))
                .ok_or_else(|| {
                    format!("seconds: {text:?} is not in {SECONDS_MIN}..{SECONDS_MAX}")
                })?,
        };
        let tracks = self.tracks.lock();
        let newest = tracks.iter().filter_map(Track::newest).max().unwrap_or_default();
        let window = Window::ending(newest, seconds, seconds.div_ceil(POINTS));
        let chosen = |track: &&Track| channel.is_none_or(|name| track.channel_name() == name);
        Ok(HistoryView::new(newest, window, tracks.iter().filter(chosen)))
    }
}
