//! The kinds of power loss.

/// The machine that loses power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    Target,
    Daemon,
    Both,
}

/// A machine, and the settings that decide what it may lose.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) machine: Machine,
    /// `sync_binlog` and `innodb_flush_log_at_trx_commit`. With `target_gtids = "source"` the latter is
    /// always 1, as the documents ask for.
    pub(crate) commits: (u32, u32),
    /// `relay.sync`.
    pub(crate) relay_sync: &'static str,
    /// Moments before, the source purges binary logs that were received and not applied.
    pub(crate) purges: bool,
}

impl Kind {
    pub(crate) const ALL: [Self; 12] = [
        Self::target("target, 1 and 1", (1, 1)),
        Self::target("target, 0 and 0", (0, 0)),
        Self::target("target, 0 and 2", (0, 2)),
        Self::target("target, 1 and 0", (1, 0)),
        Self::target("target, 1 and 2", (1, 2)),
        Self::target("target, 0 and 1", (0, 1)),
        Self::daemon("daemon, transaction, source purges", "transaction", true),
        Self::daemon("daemon, 500ms", "500ms", false),
        Self::daemon("daemon, os", "os", false),
        Self::daemon("daemon, os, source purges", "os", true),
        Self {
            machine: Machine::Both,
            commits: (1, 1),
            ..Self::daemon("both, 1 and 1, transaction, source purges", "transaction", true)
        },
        Self {
            machine: Machine::Both,
            commits: (0, 2),
            ..Self::daemon("both, 0 and 2, os", "os", false)
        },
    ];

    const fn target(name: &'static str, commits: (u32, u32)) -> Self {
        Self { name, machine: Machine::Target, commits, relay_sync: "1s", purges: false }
    }

    const fn daemon(name: &'static str, relay_sync: &'static str, purges: bool) -> Self {
        Self { name, machine: Machine::Daemon, commits: (1, 1), relay_sync, purges }
    }

    /// `sync_binlog` and `innodb_flush_log_at_trx_commit` of the target with this `target_gtids`.
    pub(crate) fn commits_of(&self, mode: &str) -> (u32, u32) {
        let (sync_binlog, flush) = self.commits;
        (sync_binlog, if mode == "source" { 1 } else { flush })
    }

    /// The target with this `target_gtids` may lose nothing that it has committed.
    pub(crate) fn target_is_durable(&self, mode: &str) -> bool {
        self.machine == Machine::Daemon || self.commits_of(mode) == (1, 1)
    }

    /// The target may lose commits.
    pub(crate) fn target_may_lose(&self, mode: &str) -> bool {
        !self.target_is_durable(mode)
    }

    /// The relay store may lose anything, with each `target_gtids`.
    pub(crate) fn relay_may_lose(&self, _: &str) -> bool {
        self.machine != Machine::Target && self.relay_sync == "os"
    }
}
