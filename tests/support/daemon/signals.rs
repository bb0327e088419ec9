//! Signals to a running daemon.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use super::Daemon;

impl Daemon {
    /// Sends a signal, named as `kill` names it. After `STOP` nothing of it runs.
    ///
    /// # Panics
    /// If it is not running.
    #[track_caller]
    pub fn signal(&self, signal: &str) {
        let pid = self.pid().expect("csa-daemon is not running");
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status();
        assert!(sent.expect("running kill").success(), "kill -{signal} {pid} failed");
        let deadline = Instant::now() + Duration::from_secs(10);
        while signal == "STOP" && !is_stopped(pid) {
            assert!(Instant::now() < deadline, "{pid} does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// True if no thread of the process runs: a signal stops all of them only when one has received it.
fn is_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name before the state may hold anything.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}
