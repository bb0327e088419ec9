//! Times to recovery by kind of fault, and counts of everything that was looked at.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use csa_tests::not_run;

use crate::faults::{Kind, Outcome};
use crate::load::Written;
use crate::world::{Recovery, World};

/// Counts of samples and of the transactions that they were compared with.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) samples: usize,
    /// Looks that the target did not answer.
    pub(crate) missed: u64,
    pub(crate) transactions: usize,
    pub(crate) counted: u64,
}

pub(crate) struct Report {
    seed: u64,
    started: Instant,
    recoveries: BTreeMap<Kind, Vec<Recovery>>,
    not_permitted: Vec<Kind>,
    together: u64,
    steps: u64,
    pub(crate) load: Written,
    pub(crate) samples: Taken,
    pub(crate) sessions: u64,
    pub(crate) exits: u64,
}

impl Report {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            started: Instant::now(),
            recoveries: BTreeMap::new(),
            not_permitted: Vec::new(),
            together: 0,
            steps: 0,
            load: Written::default(),
            samples: Taken::default(),
            sessions: 0,
            exits: 0,
        }
    }

    /// Returns false, and noted in the report, for a fault that this machine does not permit.
    pub(crate) fn permits(&mut self, kind: Kind, world: &World) -> bool {
        let permitted = kind != Kind::DiskFull || world.disk().is_small;
        if !permitted && !self.not_permitted.contains(&kind) {
            self.not_permitted.push(kind);
            not_run(kind.name(), "this machine permits no mount of a small disk");
        }
        permitted
    }

    pub(crate) fn begin(&mut self, step: &[Kind]) {
        self.steps += 1;
        self.together += u64::from(step.len() > 1);
        let names: Vec<&str> = step.iter().map(|kind| kind.name()).collect();
        let time = time();
        println!("{:7.1} s {time} {}", self.started.elapsed().as_secs_f64(), names.join(" + "));
    }

    /// Notes the time to recovery, which faults of one step share.
    ///
    /// # Panics
    /// When the channel did not recover.
    #[track_caller]
    pub(crate) fn end(&mut self, step: &[Kind], outcome: Outcome, world: &World) {
        let recovery = outcome
            .recovery
            .unwrap_or_else(|why| self.ends(&format!("no recovery after {step:?}: {why}"), world));
        let Recovery { total, source, slow } = &recovery;
        println!(
            "           recovered in {:.2} s, {:.2} s of it the source's {} {slow}",
            total.as_secs_f64(),
            source.as_secs_f64(),
            outcome.notes
        );
        for kind in step {
            self.recoveries.entry(*kind).or_default().push(recovery.clone());
        }
    }

    /// Ends the test with what is needed to investigate.
    #[track_caller]
    pub(crate) fn ends(&self, violation: &str, world: &World) -> ! {
        self.print();
        panic!("{violation}\n{}", world.evidence());
    }

    pub(crate) fn print(&self) {
        let text = self.text();
        println!("{text}");
        if let Ok(path) = std::env::var("CSA_CHAOS_REPORT") {
            std::fs::write(&path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }

    /// Puts the logs of both daemons beside the report.
    pub(crate) fn keep_logs(&self, world: &World) {
        let Ok(path) = std::env::var("CSA_CHAOS_REPORT") else { return };
        for (number, daemon) in world.daemons.iter().enumerate() {
            let path = format!("{path}.daemon-{number}.log");
            std::fs::write(&path, daemon.log()).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "chaos, seed {}, {:.0} s, {} steps, {} of them with several faults\n\
             {:<26} {:>5} {:>8} {:>8} {:>8} {:>12}   time to recovery, seconds\n",
            self.seed,
            self.started.elapsed().as_secs_f64(),
            self.steps,
            self.together,
            "fault",
            "count",
            "median",
            "p99",
            "max",
            "p99 without"
        );
        let mut all = Vec::new();
        for (kind, times) in &self.recoveries {
            line(&mut text, kind.name(), times);
            all.extend(times.iter().cloned());
        }
        line(&mut text, "all", &all);
        text.push_str(
            "p99 without: less the time until the source had committed the transaction\n",
        );
        for kind in &self.not_permitted {
            let _ = writeln!(text, "NOT PERMITTED on this machine: {}", kind.name());
        }
        let _ = write!(
            text,
            "{}\nat the end: {} sessions of the daemon, {} unexpected exits of it",
            counts(self.load, self.samples),
            self.sessions,
            self.exits
        );
        text
    }
}

fn line(text: &mut String, name: &str, recoveries: &[Recovery]) {
    let times = |time: fn(&Recovery) -> Duration| sorted(recoveries.iter().map(time));
    let total = times(|one| one.total);
    let without_source = times(|one| one.total - one.source);
    let _ = writeln!(
        text,
        "{name:<26} {:>5} {:>8.2} {:>8.2} {:>8.2} {:>12.2}",
        total.len(),
        at(&total, 0.5),
        at(&total, 0.99),
        at(&total, 1.0),
        at(&without_source, 0.99)
    );
}

/// Returns everything that clients wrote, and that was looked at.
pub(crate) fn counts(load: Written, samples: Taken) -> String {
    format!(
        "clients: {} transactions confirmed, {} definitions, {} large, {} errors\n\
         target: {} samples compared with {} transactions of the binary log ({} of clients), \
         {} looks unanswered",
        load.committed,
        load.definitions,
        load.large,
        load.errors,
        samples.samples,
        samples.transactions,
        samples.counted,
        samples.missed
    )
}

/// Returns the seconds, the shortest first.
pub(crate) fn sorted(times: impl Iterator<Item = Duration>) -> Vec<f64> {
    let mut times: Vec<f64> = times.map(|time| time.as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Returns the time that this part of them does not exceed; 0 if there are none.
pub(crate) fn at(sorted: &[f64], part: f64) -> f64 {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or_default()
}

/// The time of day, as in the daemon's log.
pub(crate) fn time() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = since.expect("after 1970").as_secs_f64() % 86_400.0;
    let (hours, minutes) = ((seconds / 3600.0) as u32, (seconds / 60.0) as u32 % 60);
    format!("{hours:02}:{minutes:02}:{:06.3}", seconds % 60.0)
}
