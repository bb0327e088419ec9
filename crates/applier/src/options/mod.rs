//! How the target is reached and how transactions are applied there. Pure, but for the server that a [`Route`] has
//! found.

mod collation_map;
mod converging_tables;
mod route;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use csa_provider::seams::{Backoff, Chance};
use csa_provider::server::link::{Endpoint, LinkOptions, Password, Purpose, Side, SystemNetwork};

pub use collation_map::{CollationMap, current_collation};
pub use converging_tables::ConvergingTables;
pub(crate) use converging_tables::first_of;
pub use route::Route;

/// How the link to the target is protected.
pub use csa_provider::server::link::{PublicKey, TlsMode, TlsOptions};

/// How a group's rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executor {
    /// The source's row images, through the BINLOG statement.
    RowImage,
    /// INSERT, UPDATE and DELETE made of their values.
    Sql,
}

impl Executor {
    /// Returns the name as in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RowImage => "row-image",
            Self::Sql => "sql",
        }
    }
}

/// Address of the target, account and limits.
#[derive(Debug, Clone)]
pub struct TargetOptions {
    pub host: String,
    pub port: u16,
    /// Unix socket, which takes the place of host and port.
    pub socket: Option<PathBuf>,
    pub user: String,
    pub password: Password,
    pub tls: TlsOptions,
    pub connect_timeout: Duration,
    /// The time without an answer after which the server is asked whether the session still
    /// executes.
    pub net_timeout: Duration,
    pub gtids: TargetGtids,
    /// How rows are written; `None`: as row images if the target permits it.
    pub executor: Option<Executor>,
    /// Applies to definitions.
    pub collation_map: Arc<CollationMap>,
    /// The servers that may take the place of `host` and `port`.
    pub route: Route,
}

/// The GTIDs under which transactions are applied on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetGtids {
    /// Groups are logged under GTIDs of the target's own.
    Own,
    /// Groups are kept out of the target's binary log; from time to time its `gtid_executed` is
    /// brought level with the checkpoint.
    Mirror,
    /// Each transaction is logged under the GTID it has on the source, and `gtid_executed` is the
    /// checkpoint. Groups must hold one transaction.
    Source,
}

impl TargetGtids {
    /// Returns the name as in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Mirror => "mirror",
            Self::Source => "source",
        }
    }

    /// Returns true if our own bookkeeping stays out of the binary log.
    pub(crate) fn hides_bookkeeping(self) -> bool {
        self != Self::Own
    }
}

impl TargetOptions {
    /// The target's name in messages.
    #[must_use]
    pub fn address(&self) -> String {
        match (&self.socket, self.route.now()) {
            (Some(socket), _) => socket.display().to_string(),
            (None, Some((host, port))) => format!("{host}:{port}"),
            (None, None) => format!("{}:{}", self.host, self.port),
        }
    }

    /// Options of the link to the server that is the target now; errors and the keys they name call it `side`.
    #[must_use]
    pub fn link(&self, side: Side) -> LinkOptions {
        let now = self.route.now().unwrap_or_else(|| (self.host.clone(), self.port));
        self.link_at(side, &now)
    }

    /// Returns the same for the server at an address, if no socket is set.
    pub(crate) fn link_at(&self, side: Side, (host, port): &(String, u16)) -> LinkOptions {
        LinkOptions {
            side,
            purpose: Purpose::Statements,
            endpoint: match &self.socket {
                Some(socket) => Endpoint::Unix(socket.clone()),
                None => Endpoint::Tcp { host: host.clone(), port: *port },
            },
            user: self.user.clone(),
            password: self.password.current(),
            tls: self.tls.clone(),
            connect_timeout: self.connect_timeout,
            // A statement may take any time; `net_timeout` asks whether it still runs.
            silence: None,
            net_timeout: Some(self.net_timeout),
            network: Arc::new(SystemNetwork),
        }
    }
}

/// Handling of a row that is missing, or already there: the server's `replica_exec_mode`
/// (<https://dev.mysql.com/doc/refman/en/replication-options-replica.html#sysvar_replica_exec_mode>).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecMode {
    /// The channel stops.
    Strict,
    /// A row to be inserted replaces the one there; one to be updated or deleted is skipped.
    Idempotent,
}

impl ExecMode {
    /// Returns the statement that sets it for the row images of a session.
    pub(crate) fn set(self) -> String {
        let mode = match self {
            Self::Strict => "STRICT",
            Self::Idempotent => "IDEMPOTENT",
        };
        format!("SET SESSION rbr_exec_mode='{mode}'")
    }
}

/// The columns of row images sent to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowImageColumns {
    /// Those that the source logged.
    Full,
    /// The primary key before and the changed columns after, for rows that are merged by their keys.
    Minimal,
}

impl RowImageColumns {
    /// Returns the name as in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Minimal => "minimal",
        }
    }
}

/// Settings that can change while transactions are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Groups that may run at the same time; at least 1.
    pub worker_count: u16,
    /// Running groups finish, and no new one begins.
    pub paused: bool,
    /// Source transactions begun per second; `None` for as many as the target takes.
    pub throttle: Option<NonZeroU32>,
}

/// How transactions are applied.
#[derive(Debug, Clone)]
pub struct ApplierOptions {
    pub channel: String,
    pub executor: Executor,
    /// Statements run under their source's GTID; else an entry in `csa.statement` is made before each.
    pub statement_gtids: bool,
    /// Groups commit in source order, so that each commit has everything before it; else as they finish.
    pub preserve_commit_order: bool,
    pub exec_mode: ExecMode,
    /// Tables that a copy read while they were changed, until the end of the copy is applied. They need
    /// row images, applied as they were logged.
    pub converging: Option<Arc<ConvergingTables>>,
    /// Of row images; statements are made of all columns.
    pub row_image: RowImageColumns,
    /// Attempts at a group that met a deadlock or a lock wait timeout.
    pub transaction_retries: u32,
    /// First and longest pause between attempts to reach the target.
    pub connect_retry: Duration,
    pub connect_retry_max: Duration,
    /// Raw row-image bytes in one BINLOG statement; a single larger event still goes alone.
    pub statement_bytes: usize,
    /// Other daemons stand by for the channel.
    pub standby: bool,
    /// For the pauses between attempts.
    pub chance: Arc<dyn Chance>,
}

impl ApplierOptions {
    /// One BINLOG statement carries 4/3 of this as text: well under every server's default
    /// `max_allowed_packet` of 64 MiB, and large enough that its round trip doesn't count.
    pub const STATEMENT_BYTES: usize = 4 << 20;

    /// Returns the interval between pings of the idle control session, well below the limit after which the
    /// target ends it and frees its lock.
    pub(crate) const fn ping_interval(&self) -> Duration {
        match self.standby {
            true => Duration::from_secs(1),
            false => Duration::from_secs(5),
        }
    }

    /// Returns the pauses of one series of attempts to reach the target.
    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(self.connect_retry, self.connect_retry_max)
    }
}
