//! The times of takeovers by fault, and the cost of the daemon that stood by.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::load::Written;
use crate::report::{Taken, at, counts, sorted, time};
use crate::takeovers::cost::Cost;
use crate::takeovers::fault::{Fault, Next};
use crate::takeovers::hosts::{Hosts, Outcome};

/// A takeover is over within this time of the fault, or of the target's answer after its restart: at the
/// 99th percentile, of so many at least.
const RULE: (Duration, usize) = (Duration::from_secs(10), 50);
/// The limit on any machine, however busy.
const LIMIT: Duration = Duration::from_secs(25);

pub(crate) struct Table {
    seed: u64,
    started: Instant,
    outcomes: BTreeMap<Fault, Vec<Outcome>>,
    pub(crate) cost: Cost,
    pub(crate) load: Written,
    pub(crate) samples: Taken,
}

impl Table {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            started: Instant::now(),
            outcomes: BTreeMap::new(),
            cost: Cost::default(),
            load: Written::default(),
            samples: Taken::default(),
        }
    }

    pub(crate) fn begin(&self, fault: Fault) {
        println!("{:7.1} s {} {}", self.started.elapsed().as_secs_f64(), time(), fault.name());
    }

    pub(crate) fn end(&mut self, fault: Fault, outcome: Outcome) {
        let who = if outcome.passed { "the other" } else { "the same" };
        println!("           {who} applies after {:.2} s", outcome.took.as_secs_f64());
        self.outcomes.entry(fault).or_default().push(outcome);
    }

    /// Ends the test with what is needed to investigate.
    #[track_caller]
    pub(crate) fn ends(&self, violation: &str, hosts: &Hosts) -> ! {
        self.print();
        self.keep_logs(hosts);
        let logs: Vec<String> = hosts.daemons().map(csa_tests::Daemon::log_tail).collect();
        panic!("{violation}\n{}", logs.join("\n--- the other ---\n"));
    }

    pub(crate) fn print(&self) {
        let text = self.text();
        println!("{text}");
        if let Ok(path) = std::env::var("CSA_CHAOS_REPORT") {
            let path = format!("{path}.takeovers");
            std::fs::write(&path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }

    /// Puts the logs of both daemons beside the report.
    pub(crate) fn keep_logs(&self, hosts: &Hosts) {
        let Ok(path) = std::env::var("CSA_CHAOS_REPORT") else { return };
        for (number, daemon) in hosts.daemons().enumerate() {
            let path = format!("{path}.takeovers-{number}.log");
            std::fs::write(&path, daemon.log()).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }

    /// # Panics
    /// A takeover took too long.
    pub(crate) fn judge(&self) {
        let times = self.takeovers();
        let (limit, count) = RULE;
        let (p99, most) = (at(&times, 0.99), at(&times, 1.0));
        assert!(most <= LIMIT.as_secs_f64(), "a takeover took {most:.1} s");
        assert!(times.len() < count || p99 <= limit.as_secs_f64(), "p99 of takeovers: {p99:.1} s");
    }

    /// Returns the seconds of those in which the other daemon had to take the channel.
    fn takeovers(&self) -> Vec<f64> {
        let to_other = self.outcomes.iter().filter(|(fault, _)| fault.next() == Next::Other);
        sorted(to_other.flat_map(|(_, outcomes)| outcomes).map(|outcome| outcome.took))
    }

    fn text(&self) -> String {
        let mut text = format!(
            "takeovers, seed {}, {:.0} s\n{:<30} {:>5} {:>9} {:>8} {:>8} {:>8}   seconds\n",
            self.seed,
            self.started.elapsed().as_secs_f64(),
            "fault",
            "count",
            "by other",
            "median",
            "p99",
            "max"
        );
        let mut line = |name: &str, passed: usize, times: &[f64]| {
            let _ = writeln!(
                text,
                "{name:<30} {:>5} {passed:>9} {:>8.2} {:>8.2} {:>8.2}",
                times.len(),
                at(times, 0.5),
                at(times, 0.99),
                at(times, 1.0)
            );
        };
        for (fault, outcomes) in &self.outcomes {
            let passed = outcomes.iter().filter(|outcome| outcome.passed).count();
            line(fault.name(), passed, &sorted(outcomes.iter().map(|outcome| outcome.took)));
        }
        let takeovers = self.takeovers();
        line("all that the other takes over", takeovers.len(), &takeovers);
        let cost = &self.cost;
        let per_second = |count: f64| count / cost.seconds.max(f64::MIN_POSITIVE);
        let mib = |kib: u64| kib as f64 / 1024.0;
        let _ = write!(
            text,
            "standby, in {:.0} s of standing by: {:.1} MiB at most (with the channel {:.1}), {:.2} % of a \
             core; to the target {:.2} requests and {:.0} bytes a second, {} connections; to the source \
             {:.2} requests a second, {} connections\n{}",
            cost.seconds,
            mib(cost.most_rss_kib),
            mib(cost.active_rss_kib),
            100.0 * per_second(cost.cpu_seconds),
            per_second(cost.to_target.requests as f64),
            per_second(cost.to_target.bytes as f64),
            cost.to_target.connections,
            per_second(cost.to_source.requests as f64),
            cost.to_source.connections,
            counts(self.load, self.samples)
        );
        text
    }
}
