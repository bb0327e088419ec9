//! The daemon as a separate process.

mod admin_port;
mod commands;
mod drained;
mod refusal;
mod signals;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub use commands::Said;

use crate::{DaemonBuilder, Server, scratch};

/// How long a start, a stop or an expected exit may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Lines of the log shown in a panic.
const LOG_TAIL: usize = 60;

/// The process, and a guard that kills it when this process ends without running its destructors.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    guard: Child,
}

impl Running {
    pub(crate) fn new(child: Child) -> Self {
        // Its stdin ends when this process does.
        let guard = Command::new("sh")
            .args(["-c", "read -r _; kill -9 \"$0\"", &child.id().to_string()])
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("starting a guard");
        Self { child, guard }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.guard.kill();
        let _ = self.guard.wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A `csa-daemon` with its configuration and state in a temporary directory; killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    builder: Mutex<DaemonBuilder>,
    directory: TempDir,
    child: Mutex<Option<Running>>,
    http: ureq::Agent,
}

impl Daemon {
    /// See [`DaemonBuilder::new`].
    #[must_use]
    pub fn builder(source: &Server, target: &Server) -> DaemonBuilder {
        DaemonBuilder::new(source, target)
    }

    /// Returns a daemon that is not running yet.
    pub(crate) fn new(builder: DaemonBuilder) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(5)))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        let folder = if builder.is_on_disk { std::env::temp_dir() } else { scratch::folder() };
        let directory = TempDir::with_prefix_in("csa-daemon-", folder);
        Self {
            builder: Mutex::new(builder),
            directory: directory.expect("a temporary directory"),
            child: Mutex::new(None),
            http: config.new_agent(),
        }
    }

    /// Returns `CSA_DAEMON_BIN`, otherwise `csa-daemon` in the target directory of this executable.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    #[must_use]
    pub fn executable() -> PathBuf {
        if let Some(path) = std::env::var_os("CSA_DAEMON_BIN") {
            return path.into();
        }
        let own = std::env::current_exe().expect("the path of this executable");
        let mut directory = own.parent().unwrap_or(Path::new("."));
        // Test executables lie in deps/ below the binaries.
        if directory.ends_with("deps") {
            directory = directory.parent().unwrap_or(directory);
        }
        let path = directory.join("csa-daemon");
        assert!(
            path.exists(),
            "{} is missing: build it first (cargo build -p csa-daemon) or set CSA_DAEMON_BIN",
            path.display()
        );
        path
    }

    /// Changes the configuration file for the next start. Paths as in [`DaemonBuilder::set`].
    pub fn set(&self, path: &str, value: impl Into<toml::Value>) {
        guard(&self.builder).put(path, value.into());
    }

    /// Removes a key from the configuration file for the next start.
    pub fn unset(&self, path: &str) {
        guard(&self.builder).take(path);
    }

    /// Returns the configuration file.
    #[must_use]
    pub fn config_path(&self) -> PathBuf {
        self.directory.path().join("csa-daemon.toml")
    }

    /// Returns the state directory, unless the test set another.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Returns the segments in the relay store of channel "test", in order.
    ///
    /// # Panics
    /// If there is no relay store.
    #[must_use]
    pub fn relay_segments(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.state_dir().join("test/relay")).expect("a relay store");
        let paths = files.map(|entry| entry.expect("an entry").path());
        let mut segments: Vec<_> =
            paths.filter(|path| path.extension().is_some_and(|end| end == "relay")).collect();
        segments.sort();
        segments
    }

    /// Starts it with its present configuration and state, and waits until its admin port answers.
    ///
    /// # Panics
    /// With its log if it runs already or does not come up.
    #[track_caller]
    pub fn start_again(&self) {
        if let Err(status) = self.start_or_exit() {
            panic!("csa-daemon ended at its start: {status}\n{}", self.log_tail());
        }
    }

    /// Starts it and waits until its admin port answers; returns its exit status if it ends before that.
    ///
    /// # Panics
    /// With its log if it runs already or does neither in time.
    #[track_caller]
    pub(crate) fn start_or_exit(&self) -> Result<(), ExitStatus> {
        self.spawn();
        let started = Instant::now();
        while self.get("/healthz").is_none() {
            if let Some(status) = self.exited() {
                *guard(&self.child) = None;
                return Err(status);
            }
            if started.elapsed() > PATIENCE {
                panic!("csa-daemon opened no admin port in {PATIENCE:?}\n{}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Starts it without waiting for anything.
    ///
    /// # Panics
    /// If it runs already or can't be started.
    #[track_caller]
    pub fn spawn(&self) {
        let mut child = guard(&self.child);
        assert!(child.is_none(), "csa-daemon is already running");
        let builder = guard(&self.builder);
        fs::create_dir_all(self.state_dir()).expect("creating the state directory");
        let config = self.config_path();
        fs::write(&config, builder.render(&self.state_dir().to_string_lossy()))
            .expect("writing the configuration");
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600))
            .expect("setting the configuration's mode");
        let log = builder.log.open(&self.log_path());
        let umask = builder.umask.map(|umask| format!("umask {umask:o}; "));
        let limit = builder.descriptors.map(|limit| format!("ulimit -S -n {limit}; "));
        let before: String = umask.into_iter().chain(limit).collect();
        let mut command = match before.as_str() {
            "" => Command::new(Self::executable()),
            before => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(format!("{before}exec \"$@\"")).arg("sh");
                shell.arg(Self::executable());
                shell
            }
        };
        let command = command
            .arg("--config")
            .arg(&config)
            .arg("run")
            .envs(builder.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone().expect("the log a second time")))
            .stderr(log)
            // Ctrl-C is for this process, which then ends the daemon.
            .process_group(0)
            .spawn();
        *child = Some(Running::new(command.expect("starting csa-daemon")));
    }

    /// Starts it and waits for it to end with `code`; returns its output.
    ///
    /// # Panics
    /// If it ends otherwise, or not within 30 s.
    #[track_caller]
    #[must_use]
    pub fn run_expect_exit(&self, code: i32) -> String {
        let before = self.log().len();
        self.spawn();
        let status = self.wait_exit(PATIENCE);
        let log = self.log().split_off(before);
        assert_eq!(status.code(), Some(code), "csa-daemon ended with {status}\n{log}");
        log
    }

    /// `kill -9`.
    ///
    /// # Panics
    /// If it is not running.
    #[track_caller]
    pub fn kill9(&self) {
        drop(guard(&self.child).take().expect("csa-daemon is not running"));
    }

    /// Sends `SIGTERM`; returns its exit status.
    ///
    /// # Panics
    /// If it is not running or does not end within 30 s.
    #[track_caller]
    pub fn terminate(&self) -> ExitStatus {
        self.signal("TERM");
        self.wait_exit(PATIENCE)
    }

    /// Waits until it exits on its own.
    ///
    /// # Panics
    /// If it is not running or does not end in time.
    #[track_caller]
    pub fn wait_exit(&self, deadline: Duration) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.exited() {
                *guard(&self.child) = None;
                return status;
            }
            if started.elapsed() > deadline {
                panic!("csa-daemon did not end within {deadline:?}\n{}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its process id until it has been waited for.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        guard(&self.child).as_ref().map(|running| running.child.id())
    }

    /// Returns true if it was started and has ended without [`Daemon::wait_exit`].
    #[must_use]
    pub fn has_exited(&self) -> bool {
        self.pid().is_some() && self.exited().is_some()
    }

    /// Its exit status, if it has ended; the process is kept for [`Daemon::wait_exit`].
    #[track_caller]
    fn exited(&self) -> Option<ExitStatus> {
        let mut running = guard(&self.child);
        let running = running.as_mut().expect("csa-daemon is not running");
        running.child.try_wait().expect("asking how csa-daemon is")
    }

    /// Writes the configuration as it was set, for a running daemon.
    ///
    /// # Panics
    /// When it can't be written.
    pub fn write_config(&self) {
        let text = guard(&self.builder).render(&self.state_dir().to_string_lossy());
        fs::write(self.config_path(), text).expect("writing the configuration");
    }

    /// Returns the file that receives stdout and stderr.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.directory.path().join("csa-daemon.log")
    }

    /// Returns all its output, over all its starts.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the end of the log, with a heading.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL)..];
        format!("--- end of the daemon's log ---\n{}", tail.join("\n"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(guard(&self.child).take());
        if std::thread::panicking() {
            eprintln!("{}", self.log_tail());
        }
    }
}

/// A panic in another thread leaves nothing half done under these locks.
fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
