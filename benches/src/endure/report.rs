//! Figures of a run, and the rules it broke.

use std::process::ExitCode;

/// The allocator's, code, threads and sessions, apart from the events that a limit covers.
pub(super) const APART: u64 = 100 << 20;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

#[derive(Debug, Default)]
pub(super) struct Report {
    figures: Vec<(String, String)>,
    broken: Vec<String>,
}

impl Report {
    pub(super) fn figure(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        println!("{name}: {value}");
        self.figures.push((name, value));
    }

    pub(super) fn mebibytes(&mut self, name: impl Into<String>, bytes: u64) {
        self.figure(name, format!("{} MiB", bytes / MIB));
    }

    pub(super) fn seconds(&mut self, name: impl Into<String>, seconds: f64) {
        self.figure(name, format!("{seconds:.2} s"));
    }

    /// Notes a broken rule.
    pub(super) fn rule(&mut self, holds: bool, rule: impl Into<String>) {
        if !holds {
            self.broken.push(rule.into());
        }
    }

    pub(super) fn print(&self) -> ExitCode {
        println!("\n| figure | |\n| --- | --- |");
        for (name, value) in &self.figures {
            println!("| {name} | {value} |");
        }
        for rule in &self.broken {
            eprintln!("BROKEN: {rule}");
        }
        if self.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
