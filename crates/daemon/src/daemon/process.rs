//! The process: its channels, and the settings that can change while it runs.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::claims::keeper::Handle;
use csa_provider::binlog::Uuid;
use parking_lot::{Mutex, RwLock};
use secrecy::SecretString;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::channel::Supervisor;
use crate::config::{Access, ChannelSettings, Claims, Config, Written};
use crate::host::{logging::LogFilter, now_micros};
use crate::observe::history::History;
use crate::observe::peers::Peers;
use crate::observe::view::{ChannelView, LastReload};

/// Rows of csa.audit that may wait for a target; further commands are in the log only.
pub(crate) const AUDIT_ROWS_MAX: u32 = 256;

/// The state that signals and the admin port act on.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) at_start: AtStart,
    /// The channels in the order of the configuration.
    channels: RwLock<Vec<Arc<Supervisor>>>,
    pub(crate) history: Arc<History>,
    pub(crate) log: LogFilter,
    pub(crate) admin: AdminPort,
    pub(crate) process: Process,
    pub(crate) peers: Peers,
    fleet: Membership,
    /// Limits rows of `csa.audit` that wait for their target.
    pub(crate) audit_room: Arc<Semaphore>,
    /// The process ends: rows that are not written yet are given up.
    pub(crate) audit_over: CancellationToken,
    adopted: Adopted,
    /// One reload at a time, and none during the stop.
    pub(crate) reloading: AsyncMutex<()>,
}

/// The configuration at the start, as far as it does not change while the daemon runs.
#[derive(Debug)]
pub(crate) struct AtStart {
    pub(crate) config_path: PathBuf,
    pub(crate) state_dir: PathBuf,
    /// `[daemon]` and `[claims]` at the start.
    pub(crate) written: Written,
    pub(crate) written_claims: Written,
}

/// The admin port, apart from the rules of access.
#[derive(Debug)]
pub(crate) struct AdminPort {
    pub(crate) listen: String,
    pub(crate) socket_group: Option<String>,
    /// Made for this process; whoever can read `state_dir` may use it.
    pub(crate) own_token: SecretString,
}

/// This process, from its start to its end.
#[derive(Debug)]
pub(crate) struct Process {
    /// Made for this process, and no secret.
    pub(crate) id: String,
    pub(crate) started: Instant,
    pub(crate) stop: CancellationToken,
    kill: CancellationToken,
}

/// The daemon's place in a fleet.
#[derive(Debug)]
struct Membership {
    /// Channels run only where they are claimed.
    is_shared: bool,
    /// The claims, kept until the fleet is entered, for those who enter it.
    claims: Mutex<Option<Claims>>,
    handle: OnceLock<Handle>,
}

/// The settings of the process that a reload changes.
#[derive(Debug)]
struct Adopted {
    access: Mutex<Arc<Access>>,
    stop_timeout: Mutex<Duration>,
    last_reload: Mutex<LastReload>,
}

impl Process {
    /// Returns a channel that ends with the process.
    fn supervisor(&self, settings: ChannelSettings) -> Supervisor {
        Supervisor::new(settings, self.stop.child_token(), self.kill.child_token())
    }
}

impl Daemon {
    pub(crate) fn new(
        config: Config,
        config_path: PathBuf,
        log: LogFilter,
        stop: &CancellationToken,
        kill: &CancellationToken,
    ) -> Self {
        let daemon = Self {
            channels: RwLock::default(),
            history: Arc::new(History::new(config.daemon.state_dir.clone())),
            log,
            at_start: AtStart {
                config_path,
                state_dir: config.daemon.state_dir,
                written: config.written,
                written_claims: config.written_claims,
            },
            admin: AdminPort {
                listen: config.daemon.admin_listen,
                socket_group: config.daemon.admin_socket_group,
                own_token: new_token(),
            },
            process: Process {
                id: Uuid::new_v4().to_string(),
                started: Instant::now(),
                stop: stop.clone(),
                kill: kill.clone(),
            },
            peers: Peers::default(),
            fleet: Membership {
                is_shared: config.claims.is_some(),
                claims: Mutex::new(config.claims),
                handle: OnceLock::new(),
            },
            audit_room: Arc::new(Semaphore::new(AUDIT_ROWS_MAX as usize)),
            audit_over: CancellationToken::new(),
            adopted: Adopted {
                access: Mutex::new(Arc::new(config.access)),
                stop_timeout: Mutex::new(config.daemon.stop_timeout.0),
                last_reload: Mutex::new(LastReload { ok: true, adopted: now_micros() }),
            },
            reloading: AsyncMutex::default(),
        };
        let channels = config.channels.into_iter().map(|settings| daemon.supervisor(settings));
        *daemon.channels.write() = channels.collect();
        daemon
    }

    /// Returns a channel that does not run yet.
    pub(crate) fn supervisor(&self, settings: ChannelSettings) -> Arc<Supervisor> {
        let channel = self.process.supervisor(settings);
        Arc::new(if self.fleet.is_shared { channel.unclaimed() } else { channel })
    }

    /// Returns the settings of the fleet to join, once.
    pub(crate) fn take_claims(&self) -> Option<Claims> {
        self.fleet.claims.lock().take()
    }

    /// Sets the fleet of the configuration.
    pub(crate) fn set_fleet(&self, fleet: Handle) {
        // Joined once, at the start.
        let _ = self.fleet.handle.set(fleet);
    }

    pub(crate) fn fleet(&self) -> Option<&Handle> {
        self.fleet.handle.get()
    }

    /// The channels of the moment: a reload adds and removes some.
    pub(crate) fn channels(&self) -> Vec<Arc<Supervisor>> {
        self.channels.read().clone()
    }

    pub(crate) fn set_channels(&self, channels: Vec<Arc<Supervisor>>) {
        *self.channels.write() = channels;
    }

    pub(crate) fn channel(&self, name: &str) -> Option<Arc<Supervisor>> {
        self.channels.read().iter().find(|channel| channel.name() == name).cloned()
    }

    pub(crate) fn views(&self) -> Vec<ChannelView> {
        self.channels().iter().map(|channel| channel.view()).collect()
    }

    pub(crate) fn last_reload(&self) -> LastReload {
        *self.adopted.last_reload.lock()
    }

    /// Notes the outcome of a reload.
    pub(crate) fn reloaded(&self, ok: bool) {
        let mut last = self.adopted.last_reload.lock();
        last.ok = ok;
        if ok {
            last.adopted = now_micros();
        }
    }

    pub(crate) fn access(&self) -> Arc<Access> {
        Arc::clone(&self.adopted.access.lock())
    }

    /// Keeps the paths of the start: `state_dir` does not change while the daemon runs.
    pub(crate) fn set_access(&self, mut access: Access) {
        let mut current = self.adopted.access.lock();
        access.files.clone_from(&current.files);
        *current = Arc::new(access);
    }

    /// Time that a stop allows for running groups to finish.
    pub(crate) fn stop_timeout(&self) -> Duration {
        *self.adopted.stop_timeout.lock()
    }

    pub(super) fn set_stop_timeout(&self, timeout: Duration) {
        *self.adopted.stop_timeout.lock() = timeout;
    }
}

/// Returns a token of 244 random bits.
fn new_token() -> SecretString {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()).into()
}
