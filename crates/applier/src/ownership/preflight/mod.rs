//! Requirements that a target must meet before anything is written to it: version, settings, and the
//! account's privileges by the rules of `target_privileges.rs`.

mod collations;
mod mariadb;

use crate::checkpoint::Checkpoint;
use crate::error::Error;
use crate::options::Executor;
use crate::options::{TargetGtids, TargetOptions};
use crate::ownership::channel_record::{self, ChannelRecord};
use crate::ownership::target_privileges::{
    DDL_PRIVILEGES, GTID_PRIVILEGES, executor_for, lacking_for_gtids, lacking_for_rows,
};
use crate::server::facts;
use crate::server::port::Target;
use crate::server::session::Session;
use crate::server::vendor::Vendor;
use csa_provider::binlog::{GtidSet, Uuid};
use csa_provider::server::Grants;
use csa_provider::server::link::Side;
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
    /// The server's own; MariaDB has none.
    pub server_uuid: Option<Uuid>,
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
    /// Servers whose transactions the source of `channel` need not have, though the target has them.
    #[must_use]
    pub fn foreign(&self, channel: &str) -> Foreign {
        let own = self.channels.iter().find(|record| record.channel == channel);
        let identity = own.and_then(|record| record.identity.as_ref());
        channel_record::foreign(channel, identity, self.server_uuid, &self.channels)
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
}

/// Unknown system variable: the prelude sets only those that every MySQL since 8.0 has.
const UNKNOWN_VARIABLE: u16 = 1193;

pub(crate) type Result<T> = std::result::Result<T, PreflightError>;

/// Checks the target; reads only.
///
/// # Errors
/// [`PreflightError::Unreachable`] if it does not answer, otherwise [`PreflightError::Refused`] with
/// one line that names the fix.
pub async fn preflight(target: &Target, channel: &str) -> Result<TargetFacts> {
    let address = target.address();
    // With "mirror" the session would set sql_log_bin, and that privilege is checked below.
    let plain = target.with_own_gtids();
    let mut session = Session::connect(&plain).await.map_err(|error| login(target, error))?;
    let facts = match collations::check(&mut session, target).await {
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
    if session.vendor() == Vendor::MariaDb {
        let version =
            session.setting("SELECT @@version").await.map_err(PreflightError::Unreachable)?;
        let version = version.unwrap_or_default();
        return mariadb::inspect(session, target, channel, version).await;
    }
    let row: Option<(String, bool, bool, String, bool, u64, u8)> = session
        .setting(
            "SELECT @@version, @@global.read_only, @@global.super_read_only, @@global.gtid_mode, \
             @@global.log_bin, @@global.max_allowed_packet, @@global.lower_case_table_names",
        )
        .await
        .map_err(PreflightError::Unreachable)?;
    let Some((version, read_only, super_read_only, gtid_mode, log_bin, packet, case)) = row else {
        return Err(PreflightError::Unreachable(session.unexpected("its variables")));
    };
    let grants = read_grants(session).await.map_err(PreflightError::Unreachable)?;
    if super_read_only {
        return Err(PreflightError::Refused(format!(
            "target {address} is super_read_only; run there: SET GLOBAL super_read_only=OFF"
        )));
    }
    if read_only && !grants.has_any(&["CONNECTION_ADMIN", "SUPER"]) {
        return Err(PreflightError::Refused(format!(
            "target {address} is read_only; run there: SET GLOBAL read_only=OFF, or: \
             GRANT {} ON *.* TO {}",
            if session.vendor() == Vendor::MySql57 { "SUPER" } else { "CONNECTION_ADMIN" },
            grants.account()
        )));
    }
    let vendor = session.vendor();
    if let Some(why) = lacking_in_57(target, vendor) {
        return Err(PreflightError::Refused(why));
    }
    let executor = executor_for(target, vendor, &grants);
    let gtids = matches!(gtid_mode.as_str(), "ON" | "ON_PERMISSIVE");
    let statement_gtids = gtids && grants.has_any(&GTID_PRIVILEGES);
    if !gtids && (executor == Executor::RowImage || target.gtids.hides_bookkeeping()) {
        return Err(PreflightError::Refused(format!(
            "target {address} has gtid_mode={gtid_mode}, so after a crash nothing would show \
             whether a replicated DDL ran; set gtid_mode=ON and enforce_gtid_consistency=ON there"
        )));
    }
    verify(&grants, address, executor)?;
    verify_gtids(&grants, address, target.gtids)?;
    let gtid_executed = facts::executed(session).await.map_err(PreflightError::Unreachable)?;
    let server_uuid = facts::server_uuid(session).await.map_err(PreflightError::Unreachable)?;
    let (checkpoint, channels) = known_channels(session, channel).await?;
    let tables = tables_beside(session, checkpoint.is_none(), &channels).await?;
    let mut warnings = warnings(session, target, &grants, log_bin, packet)
        .await
        .map_err(PreflightError::Unreachable)?;
    if executor == Executor::Sql {
        warnings.extend(sql_warnings(target, vendor, &grants, statement_gtids));
    }
    Ok(TargetFacts {
        version,
        vendor,
        executor,
        statement_gtids,
        gtid_executed,
        start_is_unknown: false,
        server_uuid,
        checkpoint,
        channels,
        tables,
        folds_case: case != 0,
        warnings,
    })
}

/// Returns the channel's checkpoint, if it has one, and every channel of the target.
pub(crate) async fn known_channels(
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
pub(crate) async fn tables_beside(
    session: &mut Session,
    is_first: bool,
    channels: &[ChannelRecord],
) -> Result<Vec<(String, String)>> {
    if !is_first || channels.iter().all(|record| record.checkpoint.is_none()) {
        return Ok(Vec::new());
    }
    session.rows(TABLES).await.map_err(PreflightError::Unreachable)
}

pub(crate) async fn warnings(
    session: &mut Session,
    target: &TargetOptions,
    grants: &Grants,
    log_bin: bool,
    packet: u64,
) -> crate::error::Result<Vec<String>> {
    let address = target.address();
    let set = session.vendor().set();
    let mut warnings = Vec::new();
    let missing = grants.missing(&DDL_PRIVILEGES);
    if !missing.is_empty() {
        warnings.push(format!(
            "replicated DDL may fail on target {address}; run there: GRANT {} ON *.* TO {}",
            missing.join(", "),
            grants.account()
        ));
    }
    let trusted: Vec<bool> =
        session.rows("SELECT @@global.log_bin_trust_function_creators").await.unwrap_or_default();
    if log_bin && !grants.has_any(&["SUPER"]) && trusted.first() == Some(&false) {
        warnings.push(format!(
            "CREATE FUNCTION and CREATE TRIGGER will fail on target {address} (1419); run there: \
             {set} log_bin_trust_function_creators=ON, or: GRANT SUPER ON *.* TO {}",
            grants.account()
        ));
    }
    let engines: Vec<(String, String, String)> = session
        .rows(
            "SELECT table_schema, table_name, engine FROM information_schema.tables \
             WHERE table_type='BASE TABLE' AND engine NOT IN ('InnoDB') AND table_schema NOT IN \
             ('mysql','sys','performance_schema','information_schema') LIMIT 3",
        )
        .await?;
    for (schema, table, engine) in engines {
        warnings.push(format!(
            "{schema}.{table} on target {address} is {engine}: a change of its rows can't be \
             rolled back, so it is applied alone, and an interrupted one stops the channel; run \
             there: ALTER TABLE … ENGINE=InnoDB"
        ));
    }
    if packet < 64 << 20 {
        warnings.push(format!(
            "target {address} has max_allowed_packet={packet}; large rows need more: \
             {set} max_allowed_packet=1073741824"
        ));
    }
    Ok(warnings)
}

/// Returns the drawbacks of a target that does not take row images.
fn sql_warnings(
    target: &TargetOptions,
    vendor: Vendor,
    grants: &Grants,
    statement_gtids: bool,
) -> Vec<String> {
    let address = target.address();
    let mut warnings = Vec::new();
    if target.executor.is_none() && vendor == Vendor::MySql {
        warnings.push(format!(
            "target {address} does not permit the BINLOG statement, so rows are written by executor \
             \"sql\", which is slower; to change that, run there: GRANT REPLICATION_APPLIER ON *.* TO {}",
            grants.account()
        ));
    }
    if !statement_gtids {
        warnings.push(format!(
            "target {address} can't record statements under their GTID: after a crash in the \
             middle of one, the channel stops and asks whether it took effect; gtid_mode=ON and \
             GRANT {} ON *.* TO {} avoid that",
            if vendor == Vendor::MySql { "REPLICATION_APPLIER" } else { "SUPER" },
            grants.account()
        ));
    }
    warnings
}

fn login(target: &TargetOptions, error: Error) -> PreflightError {
    let address = target.address();
    if let Error::Target { source, .. } = error.plain()
        && let Some(why) = source.refusal(Side::Target, &address, &target.user)
    {
        return PreflightError::Refused(why);
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

/// Reads the privileges of our account.
pub(crate) async fn read_grants(session: &mut Session) -> crate::error::Result<Grants> {
    let account: Option<String> = session.setting("SELECT CURRENT_USER()").await?;
    let lines: Vec<String> = session.rows("SHOW GRANTS").await?;
    Ok(Grants::parse(&account.unwrap_or_default(), &lines))
}

/// The reason why MySQL 5.7 can't have these options.
fn lacking_in_57(target: &TargetOptions, vendor: Vendor) -> Option<String> {
    let address = target.address();
    match vendor {
        Vendor::MySql | Vendor::MariaDb => None,
        Vendor::MySql57 if target.gtids != TargetGtids::Own => Some(format!(
            "applier.target_gtids: \"{}\" needs MySQL 8.0 or newer, and target {address} is MySQL 5.7; \
             set \"own\"",
            target.gtids.name()
        )),
        Vendor::MySql57 if target.executor == Some(Executor::RowImage) => Some(format!(
            "applier.executor: \"row-image\" needs MySQL 8.0 or newer, and target {address} is MySQL \
             5.7; set \"sql\" or \"auto\""
        )),
        Vendor::MySql57 => None,
    }
}

fn verify(grants: &Grants, address: &str, executor: Executor) -> Result<()> {
    let missing = lacking_for_rows(grants, executor);
    refuse_lack_of(grants, address, &missing).map_err(|error| match error {
        PreflightError::Refused(why) if missing.contains(&"REPLICATION_APPLIER") => {
            PreflightError::Refused(format!(
                "{why}; where nobody can grant REPLICATION_APPLIER: executor = \"sql\""
            ))
        }
        other => other,
    })
}

fn verify_gtids(grants: &Grants, address: &str, gtids: TargetGtids) -> Result<()> {
    let Some(missing) = lacking_for_gtids(grants, gtids) else { return Ok(()) };
    Err(PreflightError::Refused(format!(
        "target {address} lacks a privilege for target_gtids = \"{}\"; run there: \
         GRANT {missing} ON *.* TO {}; where nobody can grant it: target_gtids = \"own\"",
        gtids.name(),
        grants.account()
    )))
}

/// # Errors
/// Names the privileges that are missing.
pub(crate) fn refuse_lack_of(grants: &Grants, address: &str, missing: &[&str]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    Err(PreflightError::Refused(format!(
        "target {address} lacks privileges; run there: GRANT {} ON *.* TO {}",
        missing.join(", "),
        grants.account()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(lines: &[&str]) -> Grants {
        let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        Grants::parse("csa@%", &lines)
    }

    #[test]
    fn missing_privileges_are_printed_as_a_grant() {
        let error = verify(
            &grants(&["GRANT SELECT, INSERT, UPDATE ON *.* TO `csa`@`%`"]),
            "db:3306",
            Executor::RowImage,
        )
        .expect_err("incomplete");
        assert_eq!(
            error.to_string(),
            "target db:3306 lacks privileges; run there: GRANT DELETE, CREATE, \
             REPLICATION_APPLIER ON *.* TO 'csa'@'%'; where nobody can grant REPLICATION_APPLIER: \
             executor = \"sql\""
        );
    }

    #[test]
    fn dynamic_privileges_come_on_a_line_of_their_own() {
        let full = grants(&[
            "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO `csa`@`%`",
            "GRANT REPLICATION_APPLIER ON *.* TO `csa`@`%`",
        ]);
        assert!(verify(&full, "db:3306", Executor::RowImage).is_ok());
        let error = verify(&full, "db:3306", Executor::Sql).expect_err("triggers are not seen");
        assert!(error.to_string().contains("GRANT TRIGGER ON"), "{error}");
        let all = grants(&["GRANT ALL PRIVILEGES ON *.* TO `root`@`%`"]);
        assert!(verify(&all, "db:3306", Executor::RowImage).is_ok());
        assert!(verify(&all, "db:3306", Executor::Sql).is_ok());
    }
}
