//! The daemon's configuration file for tests.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use toml::{Table, Value};

use crate::{Daemon, Server};

/// The place to which a daemon logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogSink {
    /// A file that tests read.
    #[default]
    File,
    /// A disk without space.
    FullDisk,
    /// A pipe whose reader has ended.
    ClosedPipe,
}

impl LogSink {
    pub(crate) fn open(self, file: &Path) -> OwnedFd {
        let path = match self {
            Self::File => file,
            Self::FullDisk => Path::new("/dev/full"),
            Self::ClosedPipe => {
                let (_, writer) = std::io::pipe().expect("a pipe");
                return writer.into();
            }
        };
        let opened = OpenOptions::new().create(true).append(true).open(path);
        opened.expect("opening the log").into()
    }
}

/// Builds a configuration: test defaults, then the keys that the test sets.
#[derive(Debug, Clone)]
pub struct DaemonBuilder {
    pub(crate) daemon: Table,
    claims: Table,
    pub(crate) channels: Vec<Table>,
    pub(crate) admin_port: u16,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) umask: Option<u32>,
    pub(crate) descriptors: Option<u32>,
    pub(crate) is_on_disk: bool,
    pub(crate) log: LogSink,
    appended: String,
    state_dir_is_set: bool,
}

impl DaemonBuilder {
    /// Returns one channel named `test` from `source` to `target`.
    #[must_use]
    pub fn new(source: &Server, target: &Server) -> Self {
        let admin_port = free_port();
        let mut daemon = Table::new();
        daemon.insert("admin_listen".into(), format!("127.0.0.1:{admin_port}").into());
        daemon.insert("log_filter".into(), "info".into());
        let builder = Self {
            daemon,
            claims: Table::new(),
            channels: Vec::new(),
            admin_port,
            environment: Vec::new(),
            umask: None,
            descriptors: None,
            is_on_disk: false,
            log: LogSink::default(),
            appended: String::new(),
            state_dir_is_set: false,
        };
        builder.channel("test", source, target)
    }

    /// Adds a channel; keys set afterwards belong to it.
    #[must_use]
    pub fn channel(mut self, name: &str, source: &Server, target: &Server) -> Self {
        let server_id = i64::from(self.admin_port) * 100 + self.channels.len() as i64;
        self.channels.push(Table::new());
        self.set("name", name)
            .set("source.host", "127.0.0.1")
            .set("source.port", i64::from(source.port))
            .set("source.user", "repl")
            .set("source.password", "repl_pw")
            .set("source.server_id", server_id)
            .set("source.connect_retry", "100ms")
            .set("source.heartbeat_interval", "1s")
            .set("target.host", "127.0.0.1")
            .set("target.port", i64::from(target.port))
            .set("target.user", "csa")
            .set("target.password", "csa_pw")
            .set("relay.min_free_disk", "0")
            .set("applier.start_from", "target")
    }

    /// Sets the admin port, for a program that names it before its servers run.
    #[must_use]
    pub fn admin_port(mut self, port: u16) -> Self {
        self.admin_port = port;
        self.daemon.insert("admin_listen".into(), format!("127.0.0.1:{port}").into());
        self
    }

    /// Takes all channels away.
    #[must_use]
    pub fn without_channels(mut self) -> Self {
        self.channels.clear();
        self
    }

    /// Sets a key of the channel added last, or of `[daemon]` and `[claims]` for a path such as
    /// `daemon.log_filter`.
    ///
    /// # Panics
    /// If a part of the path is not a table.
    #[must_use]
    pub fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        self.put(path, value.into());
        self
    }

    pub(crate) fn put(&mut self, path: &str, value: Value) {
        self.state_dir_is_set |= path == "daemon.state_dir";
        let (table, key) = self.locate(path);
        table.insert(key, value);
    }

    /// Removes a key, for tests of defaults and of missing keys.
    ///
    /// # Panics
    /// If a part of the path is not a table.
    #[must_use]
    pub fn unset(mut self, path: &str) -> Self {
        self.take(path);
        self
    }

    pub(crate) fn take(&mut self, path: &str) {
        let (table, key) = self.locate(path);
        table.remove(&key);
    }

    /// Sets a variable in the daemon's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Starts the daemon with this umask.
    #[must_use]
    pub fn umask(mut self, umask: u32) -> Self {
        self.umask = Some(umask);
        self
    }

    /// Starts the daemon with this soft limit of open files.
    #[must_use]
    pub fn descriptors(mut self, descriptors: u32) -> Self {
        self.descriptors = Some(descriptors);
        self
    }

    /// Gives its standard output and error another place than the file of the log.
    #[must_use]
    pub fn log_to(mut self, log: LogSink) -> Self {
        self.log = log;
        self
    }

    /// Keeps configuration and state on a disk, for tests that need its free space to stay about the same.
    #[must_use]
    pub fn on_disk(mut self) -> Self {
        self.is_on_disk = true;
        self
    }

    /// Appends text to the configuration file, after its channels.
    #[must_use]
    pub fn append(mut self, text: &str) -> Self {
        self.appended.push_str(text);
        self
    }

    /// Returns the daemon with its configuration file, not started: for commands that need no
    /// running daemon.
    #[must_use]
    pub fn build(self) -> Daemon {
        let daemon = Daemon::new(self);
        daemon.write_config();
        daemon
    }

    /// Starts the daemon and waits until its admin port answers.
    ///
    /// # Panics
    /// With its log if it does not come up.
    #[track_caller]
    #[must_use]
    pub fn start(self) -> Daemon {
        let daemon = Daemon::new(self);
        daemon.start_again();
        daemon
    }

    /// Starts the daemon; returns its error when it refuses its configuration (exit code 2).
    ///
    /// # Errors
    /// The refusal.
    ///
    /// # Panics
    /// With its log if it does not come up for another reason.
    #[track_caller]
    pub fn start_unless_refused(self) -> Result<Daemon, String> {
        let daemon = Daemon::new(self);
        match daemon.start_or_exit() {
            Ok(()) => Ok(daemon),
            Err(status) if status.code() == Some(2) => {
                let log = daemon.log();
                let last = log.lines().last().unwrap_or_default();
                let why = last.trim_start_matches("csa-daemon: ");
                // The file is a temporary one.
                let file = format!("{}: ", daemon.config_path().display());
                Err(why.trim_start_matches(&file).to_owned())
            }
            Err(status) => {
                panic!("csa-daemon ended at its start: {status}\n{}", daemon.log_tail())
            }
        }
    }

    /// Starts the daemon, which is expected to exit on its own with `code`; returns its stderr.
    ///
    /// # Panics
    /// If it ends otherwise, or not within 30 s.
    #[track_caller]
    #[must_use]
    pub fn run_expect_exit(self, code: i32) -> String {
        Daemon::new(self).run_expect_exit(code)
    }

    /// Returns the table that holds the path's last part. Missing tables are made.
    fn locate(&mut self, path: &str) -> (&mut Table, String) {
        let (mut table, path) = match path.split_once('.') {
            Some(("daemon", rest)) => (&mut self.daemon, rest),
            Some(("claims", rest)) => (&mut self.claims, rest),
            _ => (self.channels.last_mut().expect("a channel"), path),
        };
        let (parents, key) = path.rsplit_once('.').unwrap_or(("", path));
        for part in parents.split('.').filter(|part| !part.is_empty()) {
            table = table
                .entry(part)
                .or_insert_with(|| Table::new().into())
                .as_table_mut()
                .unwrap_or_else(|| panic!("{part} in {path} is not a table"));
        }
        (table, key.to_owned())
    }

    pub(crate) fn channel_name(&self) -> String {
        let name = self.channels.first().and_then(|channel| channel.get("name"));
        name.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Returns the file's text.
    pub(crate) fn render(&self, state_dir: &str) -> String {
        let mut daemon = self.daemon.clone();
        if !self.state_dir_is_set {
            daemon.insert("state_dir".into(), state_dir.into());
        }
        let mut root = Table::new();
        root.insert("daemon".into(), daemon.into());
        if !self.claims.is_empty() {
            root.insert("claims".into(), self.claims.clone().into());
        }
        let channels = self.channels.iter().cloned().map(Value::from);
        // Those that are appended need the name.
        if !self.channels.is_empty() {
            root.insert("channel".into(), Value::Array(channels.collect()));
        }
        root.to_string() + &self.appended
    }
}

/// Returns a port on which nothing listens at this moment, and another one at each call. The daemon of
/// one test may be down for a while, and its port must not go to another test.
///
/// It lies below the range from which the kernel assigns ports to clients, so no client takes it from a server that is
/// down for a while. It also lies below those of the servers in the sandbox, and above all that browsers refuse
/// (10080 is the last one, <https://fetch.spec.whatwg.org/#port-blocking>).
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    const PORTS: std::ops::Range<u16> = 10_100..15_000;
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let drawn = std::iter::repeat_with(|| rand::random_range(PORTS)).take(1_000);
    let mut free = drawn
        .filter(|port| !given.contains(port) && TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let port = free.next().expect("a free port");
    given.insert(port);
    port
}
