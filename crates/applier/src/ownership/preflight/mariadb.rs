//! Requirements that a MariaDB target must meet before anything is written to it.

use csa_provider::binlog::GtidSet;

use crate::options::TargetOptions;
use crate::options::{Executor, TargetGtids};
use crate::ownership::preflight::{
    PreflightError, Result, TargetFacts, known_channels, read_grants, refuse_lack_of,
    tables_beside, warnings,
};
use crate::server::mariadb::is_supported;
use crate::server::session::Session;
use crate::server::vendor::Vendor;

/// Privileges for writing rows and their checkpoint, and for reading triggers and locks.
const PRIVILEGES: [&str; 7] =
    ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "TRIGGER", "PROCESS"];

/// Counts the target's user tables: a copy of the source may be in them.
const HOLDS_TABLES: &str = "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA NOT IN \
     ('csa', 'mysql', 'sys', 'information_schema', 'performance_schema')";

pub(crate) async fn inspect(
    session: &mut Session,
    target: &TargetOptions,
    channel: &str,
    version: String,
) -> Result<TargetFacts> {
    let address = target.address();
    let address = address.as_str();
    fits(address, target, &version)?;
    let row: Option<(String, bool, u64, u8, String, String)> = session
        .setting(
            "SELECT @@global.read_only, @@global.log_bin, @@global.max_allowed_packet, \
             @@global.lower_case_table_names, @@session.binlog_format, @@global.secure_timestamp",
        )
        .await
        .map_err(PreflightError::Unreachable)?;
    let Some((read_only, log_bin, packet, case, format, secure_timestamp)) = row else {
        return Err(PreflightError::Unreachable(session.unexpected("its variables")));
    };
    let grants = read_grants(session).await.map_err(PreflightError::Unreachable)?;
    let refuse = |why: String| Err(PreflightError::Refused(format!("target {address} {why}")));
    if !matches!(read_only.as_str(), "0" | "OFF") && !grants.has_any(&["READ_ONLY ADMIN"]) {
        return refuse(format!(
            "is read_only; run there: SET GLOBAL read_only=OFF, or: GRANT READ_ONLY ADMIN ON *.* TO {}",
            grants.account()
        ));
    }
    if log_bin && format == "STATEMENT" {
        return refuse(
            "has binlog_format=STATEMENT, which can't log what sessions in READ COMMITTED write; run \
             there: SET GLOBAL binlog_format=MIXED"
                .to_owned(),
        );
    }
    if secure_timestamp != "NO" {
        return refuse(format!(
            "has secure_timestamp={secure_timestamp}, so statements can't run at the time they ran on \
             the source; start it with secure_timestamp=NO"
        ));
    }
    let needed = if grants.has_schemas() { &["TRIGGER", "PROCESS"][..] } else { &PRIVILEGES };
    refuse_lack_of(&grants, address, &grants.missing(needed))?;
    let (checkpoint, channels) = known_channels(session, channel).await?;
    let beside = tables_beside(session, checkpoint.is_none(), &channels).await?;
    let tables: Vec<u64> = session.rows(HOLDS_TABLES).await.map_err(PreflightError::Unreachable)?;
    let mut warnings = warnings(session, target, &grants, log_bin, packet)
        .await
        .map_err(PreflightError::Unreachable)?;
    warnings.push(format!(
        "target {address} is MariaDB {version}: rows are written by executor \"sql\", and after a \
         crash in the middle of a statement (DDL) the channel stops and asks whether it took effect"
    ));
    Ok(TargetFacts {
        version,
        vendor: Vendor::MariaDb,
        executor: Executor::Sql,
        statement_gtids: false,
        gtid_executed: GtidSet::default(),
        start_is_unknown: tables.first() != Some(&0),
        server_uuid: None,
        checkpoint,
        channels,
        tables: beside,
        folds_case: case != 0,
        warnings,
    })
}

/// Refuses releases and options that don't work on MariaDB.
fn fits(address: &str, target: &TargetOptions, version: &str) -> Result<()> {
    let why = match () {
        () if !is_supported(version) => {
            format!("target {address} is MariaDB {version}; 10.11 or newer is needed")
        }
        () if target.gtids != TargetGtids::Own => format!(
            "applier.target_gtids: \"{}\" needs the GTIDs of MySQL, and target {address} is MariaDB; \
             set \"own\"",
            target.gtids.name()
        ),
        () if target.executor == Some(Executor::RowImage) => format!(
            "applier.executor: \"row-image\" needs the BINLOG statement of MySQL, and target {address} \
             is MariaDB; set \"sql\" or \"auto\""
        ),
        () => return Ok(()),
    };
    Err(PreflightError::Refused(why))
}
