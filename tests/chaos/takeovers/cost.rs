//! The cost of a daemon that stands by: its process, and what it sends to the servers.

use std::time::{Duration, Instant};

use csa_tests::{Daemon, FaultyProxy, Passed};

/// Clock ticks in a second, as `/proc` counts them on every Linux.
const TICKS: f64 = 100.0;

/// A process at one moment.
#[derive(Debug, Clone, Copy)]
struct Process {
    rss_kib: u64,
    ticks: u64,
}

impl Process {
    fn of(daemon: &Daemon) -> Self {
        let pid = daemon.pid().expect("a process");
        let read = |name: &str| {
            std::fs::read_to_string(format!("/proc/{pid}/{name}")).expect("a process to read of")
        };
        let status = read("status");
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        let rss_kib = rss.trim().trim_end_matches(" kB").parse().expect("kB");
        let stat = read("stat");
        // After the name, which may have spaces: state is the third field, the times are 14 and 15.
        let fields = stat.rsplit_once(')').expect("a name").1.split_whitespace();
        let ticks = fields.skip(11).take(2).map(|text| text.parse::<u64>().expect("ticks")).sum();
        Self { rss_kib, ticks }
    }
}

/// Sums over the times in which a daemon stood by.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) most_rss_kib: u64,
    /// Resident memory of the daemon that had the channel, for comparison.
    pub(crate) active_rss_kib: u64,
    pub(crate) to_target: Passed,
    pub(crate) to_source: Passed,
}

impl Cost {
    pub(crate) fn add(&mut self, more: &Self) {
        self.seconds += more.seconds;
        self.cpu_seconds += more.cpu_seconds;
        self.most_rss_kib = self.most_rss_kib.max(more.most_rss_kib);
        self.active_rss_kib = self.active_rss_kib.max(more.active_rss_kib);
        self.to_target = self.to_target.plus(more.to_target);
        self.to_source = self.to_source.plus(more.to_source);
    }

    /// Of this daemon in this time.
    pub(crate) async fn of(
        standby: &Daemon,
        active: &Daemon,
        target: &FaultyProxy,
        source: &FaultyProxy,
        length: Duration,
    ) -> Self {
        let (begun, process) = (Instant::now(), Process::of(standby));
        let passed = (target.passed(), source.passed());
        tokio::time::sleep(length).await;
        let after = Process::of(standby);
        Self {
            seconds: begun.elapsed().as_secs_f64(),
            cpu_seconds: (after.ticks - process.ticks) as f64 / TICKS,
            most_rss_kib: after.rss_kib,
            active_rss_kib: Process::of(active).rss_kib,
            to_target: target.passed().since(passed.0),
            to_source: source.passed().since(passed.1),
        }
    }
}
