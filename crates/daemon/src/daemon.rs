//! The process: its channels, and what can be changed while it runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::channel::Supervisor;
use crate::config::{Access, Config, Written};
use crate::history::History;
use crate::logging::LogFilter;
use crate::view::ChannelView;

/// What signals and the admin port act on.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) config_path: PathBuf,
    pub(crate) channels: Vec<Arc<Supervisor>>,
    pub(crate) history: History,
    pub(crate) log: LogFilter,
    pub(crate) started: Instant,
    pub(crate) admin_listen: String,
    /// `[daemon]` as it was at the start.
    pub(crate) written: Written,
    access: Mutex<Arc<Access>>,
    stop_timeout: Mutex<Duration>,
    /// One reload at a time.
    pub(crate) reloading: Mutex<()>,
}

impl Daemon {
    pub(crate) fn new(
        config: Config,
        config_path: PathBuf,
        log: LogFilter,
        stop: &CancellationToken,
        kill: &CancellationToken,
    ) -> Self {
        let supervisor =
            |settings| Arc::new(Supervisor::new(settings, stop.child_token(), kill.child_token()));
        Self {
            config_path,
            channels: config.channels.into_iter().map(supervisor).collect(),
            history: History::default(),
            log,
            started: Instant::now(),
            admin_listen: config.daemon.admin_listen,
            written: config.written,
            access: Mutex::new(Arc::new(config.access)),
            stop_timeout: Mutex::new(config.daemon.stop_timeout.0),
            reloading: Mutex::default(),
        }
    }

    pub(crate) fn channel(&self, name: &str) -> Option<&Arc<Supervisor>> {
        self.channels.iter().find(|channel| channel.name() == name)
    }

    pub(crate) fn views(&self) -> Vec<ChannelView> {
        self.channels.iter().map(|channel| channel.view()).collect()
    }

    pub(crate) fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.lock())
    }

    pub(crate) fn set_access(&self, access: Access) {
        *self.access.lock() = Arc::new(access);
    }

    /// How long a stop may take to finish what is running.
    pub(crate) fn stop_timeout(&self) -> Duration {
        *self.stop_timeout.lock()
    }

    pub(crate) fn set_stop_timeout(&self, timeout: Duration) -> Duration {
        std::mem::replace(&mut *self.stop_timeout.lock(), timeout)
    }
}
