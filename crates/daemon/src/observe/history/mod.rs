//! The last hour of every channel, one sample a second, for the status page. Incidents, and the samples in less
//! detail, are also kept on disk.

mod clock;
mod errors;
mod incident_file;
mod incidents;
mod recent;
mod sample;
mod sample_file;
mod series;
#[cfg(test)]
mod tests;
mod track;
mod window;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::host::{Failure, now_micros};
use crate::observe::view::ChannelView;
use clock::SampleClock;
pub(crate) use incidents::IncidentsView;
pub(crate) use recent::RecentView;
pub(crate) use series::HistoryView;
use track::Track;
use window::{SECONDS_MAX, Window};

/// The fewest seconds that a client may request; the most are [`SECONDS_MAX`].
const SECONDS_MIN: u64 = 60;
/// Points of a line: as many as a screen can show separately.
const POINTS: u64 = 300;

/// Filled by a thread that takes the samples; read by the admin port.
#[derive(Debug, Default)]
pub(crate) struct History {
    tracks: Mutex<Vec<Track>>,
    /// The folder in which each channel has one.
    state_dir: Option<PathBuf>,
}

/// Takes a sample of `measure`'s views every second until stopped, on a thread of its own: measuring a
/// disk blocks. With each view: whether the channel's folder is certainly ours.
///
/// # Errors
/// No thread can be started.
pub(crate) fn start(
    history: Arc<History>,
    measure: impl Fn() -> Vec<(ChannelView, bool)> + Send + 'static,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let run = move || {
        let now = || now_micros() / 1_000_000;
        let (mut clock, started) = (SampleClock::new(now()), Instant::now());
        loop {
            let (views, ours): (Vec<_>, Vec<_>) = measure().into_iter().unzip();
            // A channel that ends with the process has no incident.
            if stop.is_cancelled() {
                break;
            }
            let second = clock.second(now(), started.elapsed());
            history.take(second, &views);
            let ours = views.iter().zip(ours).filter(|(_, is_ours)| *is_ours);
            history.keep(second, ours.map(|(view, _)| view.channel_name.as_str()));
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
    pub(crate) fn new(state_dir: PathBuf) -> Self {
        Self { state_dir: Some(state_dir), ..Self::default() }
    }

    /// Takes a sample; `second` counts from the epoch. What new channels have on disk is read without the lock: no request
    /// waits for a disk.
    fn take(&self, second: u64, views: &[ChannelView]) {
        let mut tracks = self.tracks.lock();
        // A channel that was removed, and comes back, begins again with what is on disk.
        tracks.retain(|track| views.iter().any(|view| view.channel_name == track.channel_name()));
        let is_new = |name: &&String| tracks.iter().all(|track| track.channel_name() != **name);
        let names = views.iter().map(|view| &view.channel_name);
        let names: Vec<&String> = names.filter(is_new).collect();
        drop(tracks);
        let folder = |name: &String| self.state_dir.as_ref().map(|dir| dir.join(name));
        let new: Vec<_> =
            names.into_iter().map(|name| Track::new(name, folder(name), second)).collect();
        let mut tracks = self.tracks.lock();
        tracks.extend(new);
        for view in views {
            let is_it = |track: &&mut Track| track.channel_name() == view.channel_name;
            if let Some(track) = tracks.iter_mut().find(is_it) {
                track.take(second, view);
            }
        }
    }

    /// Writes what is new of these channels, without the lock as well.
    fn keep<'a>(&self, second: u64, channels: impl Iterator<Item = &'a str>) {
        for name in channels {
            self.keep_incidents(second, name);
            self.keep_samples(name, false);
        }
    }

    /// Writes what is not yet on disk, at the end of the process.
    pub(crate) fn close<'a>(&self, channels: impl Iterator<Item = &'a str>) {
        for name in channels {
            self.keep_samples(name, true);
        }
    }

    fn with<T>(&self, name: &str, act: impl FnOnce(&mut Track) -> Option<T>) -> Option<T> {
        let mut tracks = self.tracks.lock();
        act(tracks.iter_mut().find(|track| track.channel_name() == name)?)
    }

    fn keep_incidents(&self, second: u64, name: &str) {
        let due = self.with(name, |track| {
            let path = track.file.due(second)?;
            Some((path, track.incidents.entries().cloned().collect::<Vec<_>>()))
        });
        let Some((path, incidents)) = due else { return };
        if let Err(error) = incident_file::write(&path, incidents.iter()) {
            let path = path.display();
            warn!(%path, %error, "incidents are not kept: their file can't be written");
            self.with(name, |track| {
                track.file.refused(second);
                Some(())
            });
        }
    }

    fn keep_samples(&self, name: &str, is_last: bool) {
        let Some(writing) = self.with(name, |track| track.sample_file.due(is_last)) else { return };
        if let Err(error) = writing.write() {
            let path = writing.path.display();
            debug!(%path, %error, "a minute of the charts is not kept");
        }
    }

    /// Answers `/channels/{name}/incidents`, newest last.
    pub(crate) fn incidents(&self, channel: &str) -> IncidentsView {
        let tracks = self.tracks.lock();
        let track = tracks.iter().find(|track| track.channel_name() == channel);
        let incidents = track.into_iter().flat_map(|track| track.incidents.entries().cloned());
        IncidentsView { channel_name: channel.to_owned(), incidents: incidents.collect() }
    }

    /// Answers `/history/recent`.
    pub(crate) fn recent(&self) -> RecentView {
        RecentView::new(&self.tracks.lock())
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
