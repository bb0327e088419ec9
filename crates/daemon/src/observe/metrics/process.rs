//! Metrics of the process, with the names and meanings that Prometheus' client libraries give them.

use std::fs;

use prometheus::{Counter, Gauge};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use super::{Result, Scrape};
use crate::host::logging;

/// The process as `/proc/self/stat` shows it (proc_pid_stat(5)).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// User and system time, in clock ticks.
    cpu: u64,
    threads: u64,
    /// In clock ticks after the machine's start.
    started: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The program's name is the second field, in parentheses; it may contain anything.
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu: field(14)?.saturating_add(field(15)?),
            threads: field(20)?,
            started: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// The machine's start in seconds since the epoch, from `/proc/stat`.
fn machine_started(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

impl Scrape {
    /// Sets the metrics of the process; values that can't be read are absent.
    pub(super) fn process(&self) -> Result<()> {
        let help = "Lines that the log did not take.";
        self.counter("csa_log_lines_lost_total", help, &[])?
            .with_label_values::<&str>(&[])
            .inc_by(logging::lost_lines());
        let ticks = clock_ticks_per_second() as f64;
        let read = |path| fs::read_to_string(path).ok();
        if let Some(stat) = read("/proc/self/stat").as_deref().and_then(Stat::parse) {
            let cpu = Counter::new(
                "process_cpu_seconds_total",
                "Total user and system CPU time spent in seconds.",
            )?;
            self.register(cpu)?.inc_by(stat.cpu as f64 / ticks);
            let resident = stat.resident_pages as f64 * page_size() as f64;
            self.of_process(
                "process_resident_memory_bytes",
                "Resident memory size in bytes.",
                resident,
            )?;
            let size = stat.virtual_bytes as f64;
            self.of_process("process_virtual_memory_bytes", "Virtual memory size in bytes.", size)?;
            let threads = stat.threads as f64;
            self.of_process("process_threads", "Number of OS threads in the process.", threads)?;
            if let Some(machine) = read("/proc/stat").as_deref().and_then(machine_started) {
                self.of_process(
                    "process_start_time_seconds",
                    "Start time of the process since unix epoch in seconds.",
                    machine as f64 + stat.started as f64 / ticks,
                )?;
            }
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            let open = open.count() as f64;
            self.of_process("process_open_fds", "Number of open file descriptors.", open)?;
        }
        if let Some(most) = getrlimit(Resource::Nofile).current {
            let help = "Maximum number of open file descriptors.";
            self.of_process("process_max_fds", help, most as f64)?;
        }
        Ok(())
    }

    fn of_process(&self, name: &str, help: &str, value: f64) -> Result<()> {
        self.register(Gauge::new(name, help)?)?.set(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_moves_no_field() {
        let text = "7 (a) (b c) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14 15 16 9 18 4711 8192 3 21";
        let stat =
            Stat { cpu: 300, threads: 9, started: 4711, virtual_bytes: 8192, resident_pages: 3 };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(Stat::parse("7 (a) S 1 2"), None);
    }

    #[test]
    fn the_machines_start_is_read() {
        assert_eq!(
            machine_started("cpu 1 2\nbtime 1700000000\nprocesses 3\n"),
            Some(1_700_000_000)
        );
        assert_eq!(machine_started("cpu 1 2\n"), None);
    }
}
