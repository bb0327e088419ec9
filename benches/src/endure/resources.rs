//! The resources that the daemon holds at a moment: of its host, by the kernel, and of its servers.

use anyhow::{Context, Result};
use csa_tests::{Daemon, Server};

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Resources {
    pub(super) rss_bytes: u64,
    pub(super) descriptors: u64,
    pub(super) threads: u64,
    pub(super) target_sessions: u64,
    pub(super) source_sessions: u64,
}

impl Resources {
    pub(super) async fn of(daemon: &Daemon, source: &Server, target: &Server) -> Result<Self> {
        let pid = daemon.pid().context("csa-daemon is gone")?;
        let path = format!("/proc/{pid}/status");
        let status = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            number.with_context(|| format!("{path} has no {name}"))
        };
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).context("its descriptors")?;
        let sessions = |user: &str| {
            format!("SELECT COUNT(*) FROM performance_schema.processlist WHERE user='{user}'")
        };
        Ok(Self {
            rss_bytes: field("VmRSS:")? * 1024,
            descriptors: files.count() as u64,
            threads: field("Threads:")?,
            target_sessions: target.value(&sessions("csa")).await,
            source_sessions: source.value(&sessions("repl")).await,
        })
    }
}
