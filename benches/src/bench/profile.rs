//! Profiles: how source, targets and both appliers are configured.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The settings that both targets share, and the configuration of each applier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Profile {
    /// Targets with binlog, sync_binlog=1, innodb_flush_log_at_trx_commit=1; commit order kept.
    Default,
    /// The default, but targets with sync_binlog=1000, innodb_flush_log_at_trx_commit=2.
    Relaxed,
    /// As default, but csa-daemon with applier.target_gtids="mirror".
    Mirror,
    /// Targets without binlog and redo log; the server's applier without commit order.
    Nologs,
    /// As default, but the source compresses its transactions.
    Compressed,
    /// As default, but csa-daemon commits each transaction separately, under the source's GTID.
    OneToOne,
    /// As relaxed, but csa-daemon commits each transaction separately, under the source's GTID.
    OneToOneRelaxed,
    /// As one-to-one, but both appliers commit without the source's order, and csa-daemon has 32 workers.
    OneToOneUnordered,
    /// The profile one-to-one, but targets without binlog.
    OneToOneNobinlog,
    /// As nologs, so without commit order, but csa-daemon commits each transaction separately, under the source's GTID.
    OneToOneNologs,
}

/// The syncs that a COMMIT waits for.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Durability {
    pub(super) sync_binlog: u32,
    pub(super) innodb_flush_log_at_trx_commit: u32,
}

impl Durability {
    pub(super) const FULL: Self = Self { sync_binlog: 1, innodb_flush_log_at_trx_commit: 1 };
    pub(super) const RELAXED: Self = Self { sync_binlog: 1000, innodb_flush_log_at_trx_commit: 2 };
    /// No durability: fills tables and produces backlogs quickly.
    pub(super) const NONE: Self = Self { sync_binlog: 0, innodb_flush_log_at_trx_commit: 0 };

    pub(super) fn statement(self) -> String {
        format!(
            "SET GLOBAL sync_binlog={}; SET GLOBAL innodb_flush_log_at_trx_commit={}",
            self.sync_binlog, self.innodb_flush_log_at_trx_commit
        )
    }
}

impl Profile {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(super) fn source_options(self) -> &'static [&'static str] {
        match self {
            Self::Compressed => &["--binlog-transaction-compression=ON"],
            _ => &[],
        }
    }

    pub(super) fn target_options(self) -> &'static [&'static str] {
        match self {
            Self::Nologs | Self::OneToOneNobinlog | Self::OneToOneNologs => {
                &["--skip-log-bin", "--log-replica-updates=OFF"]
            }
            _ => &[],
        }
    }

    /// Of both targets.
    pub(super) fn durability(self) -> Durability {
        match self {
            Self::Relaxed | Self::OneToOneRelaxed => Durability::RELAXED,
            _ => Durability::FULL,
        }
    }

    pub(super) fn target_redo_log(self) -> bool {
        !matches!(self, Self::Nologs | Self::OneToOneNologs)
    }

    /// `replica_preserve_commit_order` of the server's own applier.
    pub(super) fn mta_keeps_commit_order(self) -> bool {
        !matches!(self, Self::Nologs | Self::OneToOneUnordered | Self::OneToOneNologs)
    }

    /// Returns the keys of csa-daemon's channel that differ from their defaults.
    pub(super) fn daemon_keys(self) -> Vec<(&'static str, &'static str)> {
        let own: &[_] = match self {
            Self::Mirror => return vec![("applier.target_gtids", "mirror")],
            Self::Default | Self::Relaxed | Self::Nologs | Self::Compressed => return vec![],
            Self::OneToOne | Self::OneToOneRelaxed | Self::OneToOneNobinlog => &[],
            Self::OneToOneNologs => &[("applier.preserve_commit_order", "false")],
            Self::OneToOneUnordered => {
                &[("applier.preserve_commit_order", "false"), ("applier.worker_count", "32")]
            }
        };
        [&[("applier.commit", "one-to-one"), ("applier.target_gtids", "source")], own].concat()
    }
}
