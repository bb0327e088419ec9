//! The questions to a target before anything is written to it. `requirements` has the rules.

use std::collections::BTreeSet;

use crate::checkpoint::Checkpoint;
use crate::error::Error;
use crate::options::{Executor, TargetGtids, TargetOptions};
use crate::ownership::channel_record::{self, ChannelRecord};
use crate::ownership::requirements::{
    GTID_PRIVILEGES, OfSource, executor_for, logged_again, requirements,
};
use crate::server::definitions::NOT_TRANSACTIONAL;
use crate::server::facts::own_uuids;
use crate::server::session::Session;
use crate::server::target::Target;
use csa_provider::binlog::{GtidSet, Uuid};
use csa_provider::server::link::Side;
use csa_provider::server::{Finding, Place, ServerFacts, Vendor};
use csa_provider::source::Foreign;

/// Facts about a target that meets them.
#[derive(Debug, Clone)]
pub struct TargetFacts {
    pub version: String,
    pub vendor: Vendor,
    /// How rows will be written.
    pub executor: Executor,
    /// Statements can run under their source's GTID.
    pub statement_gtids: bool,
    pub gtid_executed: GtidSet,
    /// It holds tables and no record of which of the source's transactions are in them.
    pub start_is_unknown: bool,
    /// Its `server_uuid`; MariaDB has none.
    pub server_uuid: Option<Uuid>,
    /// The UUIDs of GTIDs that the server makes: its own, and those of its group. MariaDB has none.
    pub own_uuids: BTreeSet<Uuid>,
    /// The channel's checkpoint, if it has one.
    pub checkpoint: Option<Checkpoint>,
    /// Every channel that the target records.
    pub channels: Vec<ChannelRecord>,
    /// Schemas and tables there, if other channels exist at a first start.
    pub tables: Vec<(String, String)>,
    /// `lower_case_table_names` is not 0: names of schemas and tables are the same in any case.
    pub folds_case: bool,
    /// Things that will work less well, one line each.
    pub warnings: Vec<String>,
}

impl TargetFacts {
    /// Returns everything that the target has executed of the channel; `None` without a checkpoint.
    #[must_use]
    pub fn executed(&self, gtids: TargetGtids) -> Option<GtidSet> {
        let mut executed = self.checkpoint.as_ref()?.executed.clone();
        // Under the source's GTIDs, `gtid_executed` is the truth; the row may be older.
        if gtids == TargetGtids::Source {
            executed.union(&self.gtid_executed);
        }
        Some(executed)
    }

    /// Servers whose transactions the source of `channel` need not have, though the target has them.
    #[must_use]
    pub fn foreign(&self, channel: &str) -> Foreign {
        let own = self.channels.iter().find(|record| record.channel == channel);
        let identity = own.and_then(ChannelRecord::followed);
        // The source has not been asked yet.
        channel_record::foreign(channel, identity, &self.own_uuids, None, &self.channels)
    }
}

/// The reason why a channel can't start on this target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreflightError {
    /// It may come back: wait for it.
    #[error(transparent)]
    Unreachable(Error),
    /// The target or the configuration has to change; the text says how.
    #[error("{0}")]
    Refused(String),
    /// The target refuses the session, with this number; the text says what has to change.
    #[error("{why}")]
    Login { why: String, code: u16 },
}

impl PreflightError {
    /// Returns the target's error number, if it sent one.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Unreachable(error) => error.code(),
            Self::Login { code, .. } => Some(*code),
            Self::Refused(_) => None,
        }
    }
}

/// Unknown system variable: the prelude sets only those that every MySQL since 8.0 has.
const UNKNOWN_VARIABLE: u16 = 1193;

/// Unknown collation, and one of another character set.
const NO_SUCH_COLLATION: [u16; 2] = [1273, 1253];

type Result<T> = std::result::Result<T, PreflightError>;

/// Checks the target; reads only.
///
/// # Errors
/// [`PreflightError::Unreachable`] if it does not answer, otherwise [`PreflightError::Refused`] with
/// one line that names the fix.
pub async fn preflight(target: &Target, channel: &str) -> Result<TargetFacts> {
    target.route.forget();
    // With "mirror" the session would set sql_log_bin, and that privilege is checked below.
    let plain = target.with_own_gtids();
    let mut session = Session::connect(&plain).await.map_err(|error| login(target, error))?;
    let address = target.address();
    let facts = match check_collations(&mut session, target).await {
        Ok(()) => inspect(&mut session, target, channel, &address).await,
        Err(error) => Err(error),
    };
    session.close().await;
    facts
}

async fn inspect(
    session: &mut Session,
    target: &TargetOptions,
    channel: &str,
    address: &str,
) -> Result<TargetFacts> {
    let server = ServerFacts::read(session).await.map_err(PreflightError::Unreachable)?;
    target.route.note(&server);
    let vendor = server.version.vendor();
    let executor = executor_for(target, vendor, &server.grants);
    let has_gtids = matches!(server.text("gtid_mode"), "ON" | "ON_PERMISSIVE");
    let statement_gtids = has_gtids && server.grants.has_any(&GTID_PRIVILEGES);
    let found = requirements(&server, target, OfSource::default());
    let mut warnings = judged(&server, address, found)?;
    let (checkpoint, channels) = known_channels(session, channel).await?;
    let own = channels.iter().find(|record| record.channel == channel);
    let logged = logged_again(&server, target, own.is_some_and(|record| record.follows_target));
    warnings.extend(judged(&server, address, logged.into_iter().collect())?);
    let tables = tables_beside(session, checkpoint.is_none(), &channels).await?;
    warnings.extend(other_engines(session, address).await.map_err(PreflightError::Unreachable)?);
    // MariaDB has a warning of its own, at any start.
    if executor == Executor::Sql && !statement_gtids && vendor != Vendor::MariaDb {
        warnings.push(format!(
            "target {address} can't record statements under their GTID: after a crash in the \
             middle of one, the channel stops and asks whether it took effect; gtid_mode=ON and \
             the privilege {} avoid that",
            if vendor == Vendor::MySql { "REPLICATION_APPLIER" } else { "SUPER" }
        ));
    }
    let server_uuid = server.text("server_uuid").parse().ok();
    Ok(TargetFacts {
        version: server.version.text().to_owned(),
        vendor,
        executor,
        statement_gtids,
        start_is_unknown: vendor == Vendor::MariaDb && holds_tables(session).await?,
        server_uuid,
        own_uuids: own_uuids(server_uuid, &target.route),
        checkpoint,
        channels,
        tables,
        folds_case: server.folds_case(),
        gtid_executed: server.gtid_executed,
        warnings,
    })
}

/// Returns the warnings among findings.
fn judged(server: &ServerFacts, address: &str, found: Vec<Finding>) -> Result<Vec<String>> {
    let judged = server.judged(Place::Target, &format!("target {address}"), found);
    judged.map_err(|(_, why)| PreflightError::Refused(why))
}

/// Returns true if the target has user tables: a copy of the source may be in them.
async fn holds_tables(session: &mut Session) -> Result<bool> {
    const QUERY: &str = "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA NOT IN \
         ('csa', 'mysql', 'sys', 'information_schema', 'performance_schema')";
    let tables: Vec<u64> = session.rows(QUERY).await.map_err(PreflightError::Unreachable)?;
    Ok(tables.first() != Some(&0))
}

/// Returns the channel's checkpoint, if it has one, and every channel of the target.
async fn known_channels(
    session: &mut Session,
    channel: &str,
) -> Result<(Option<Checkpoint>, Vec<ChannelRecord>)> {
    let channels = channel_record::read_all(session).await.map_err(|error| match error {
        Error::Checkpoint { .. } | Error::GtidSet { .. } => {
            PreflightError::Refused(error.to_string())
        }
        other => PreflightError::Unreachable(other),
    })?;
    let own = channels.iter().find(|record| record.channel == channel);
    let checkpoint = own.and_then(|record| record.checkpoint.clone());
    Ok((checkpoint, channels))
}

/// The channels and tables of a target.
#[derive(Debug, Clone, Default)]
pub struct TargetChannels {
    pub channels: Vec<ChannelRecord>,
    /// Schemas and tables there.
    pub tables: Vec<(String, String)>,
    pub folds_case: bool,
}

/// Reads the channels that the target records, and its tables.
///
/// # Errors
/// The target is away, or refuses.
pub async fn target_channels(target: &Target) -> crate::error::Result<TargetChannels> {
    let mut session = Session::connect(&target.with_own_gtids()).await?;
    let case: Option<u8> = session.setting("SELECT @@global.lower_case_table_names").await?;
    let channels = channel_record::read_all(&mut session).await?;
    let tables = session.rows(TABLES).await?;
    session.close().await;
    Ok(TargetChannels { channels, tables, folds_case: case.is_some_and(|case| case != 0) })
}

const TABLES: &str = "SELECT table_schema, table_name FROM information_schema.tables WHERE \
     table_type='BASE TABLE' AND table_schema NOT IN \
     ('csa','mysql','sys','performance_schema','information_schema')";

/// Returns the target's tables, for a first start where other channels exist.
async fn tables_beside(
    session: &mut Session,
    is_first: bool,
    channels: &[ChannelRecord],
) -> Result<Vec<(String, String)>> {
    if !is_first || channels.iter().all(|record| record.checkpoint.is_none()) {
        return Ok(Vec::new());
    }
    session.rows(TABLES).await.map_err(PreflightError::Unreachable)
}

/// Looks for the collations that `collation_map` puts in the place of the source's.
///
/// # Errors
/// Names one that the target does not have: every definition with it would stop the channel.
async fn check_collations(session: &mut Session, target: &TargetOptions) -> Result<()> {
    for (charset, collation) in target.collation_map.on_target() {
        let query = format!("SELECT CONVERT('' USING {charset}) COLLATE {collation}");
        match session.rows::<String>(&query).await {
            Ok(_) => {}
            Err(error) if error.code().is_some_and(|code| NO_SUCH_COLLATION.contains(&code)) => {
                return Err(PreflightError::Refused(format!(
                    "applier.collation_map: target {} has no collation {collation} of {charset} ({}); \
                     SHOW COLLATION there lists those that it has",
                    target.address(),
                    error.server_text()
                )));
            }
            Err(error) => return Err(PreflightError::Unreachable(error)),
        }
    }
    Ok(())
}

/// Returns a warning for each of the first tables that can't roll back.
async fn other_engines(session: &mut Session, address: &str) -> crate::error::Result<Vec<String>> {
    let engines: Vec<(String, String, String)> = session
        .rows(&format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE {NOT_TRANSACTIONAL} AND TABLE_SCHEMA NOT IN \
             ('mysql','sys','performance_schema','information_schema') LIMIT 3"
        ))
        .await?;
    let warning = |(schema, table, engine)| {
        format!(
            "{schema}.{table} on target {address} is {engine}: a change of its rows can't be \
             rolled back, so it is applied alone, and an interrupted one stops the channel; run \
             there: ALTER TABLE … ENGINE=InnoDB"
        )
    };
    Ok(engines.into_iter().map(warning).collect())
}

fn login(target: &TargetOptions, error: Error) -> PreflightError {
    let address = target.address();
    if let Error::Target { source, .. } = error.plain()
        && let Some(why) = source.refusal(Side::Target, &address, &target.user)
    {
        return match source.code() {
            Some(code) => PreflightError::Login { why, code },
            None => PreflightError::Refused(why),
        };
    }
    if error.code() == Some(UNKNOWN_VARIABLE) {
        return PreflightError::Refused(format!(
            "target {address} is neither MySQL 5.7 nor MariaDB 10.11, or newer ({}); other servers are not \
             supported by this version",
            error.server_text()
        ));
    }
    match error.plain() {
        Error::Product { .. } => PreflightError::Refused(error.to_string()),
        _ => PreflightError::Unreachable(error),
    }
}
