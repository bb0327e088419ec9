//! One server's variables, account, GTIDs and clock.

use std::collections::BTreeMap;

use csa_provider::binlog::GtidSet;
use csa_provider::seams::{Clock as _, SystemClock};
use csa_provider::server::Grants;

use super::account_limits::AccountLimits;
use super::session::{CheckSession, QueryError};
use super::version::Version;

/// Booleans are ON or OFF; variables that a server does not have are absent.
const VARIABLES: [&str; 30] = [
    "binlog_expire_logs_auto_purge",
    "binlog_expire_logs_seconds",
    "binlog_format",
    "binlog_row_image",
    "binlog_transaction_compression",
    "connection_memory_limit",
    "enforce_gtid_consistency",
    "global_connection_memory_tracking",
    "gtid_mode",
    "init_connect",
    "innodb_flush_log_at_trx_commit",
    "log_bin",
    "log_bin_trust_function_creators",
    "lower_case_table_names",
    "max_allowed_packet",
    "max_connections",
    "max_user_connections",
    "read_only",
    "rpl_semi_sync_master_enabled",
    "rpl_semi_sync_master_timeout",
    "rpl_semi_sync_master_wait_point",
    "rpl_semi_sync_source_enabled",
    "rpl_semi_sync_source_timeout",
    "rpl_semi_sync_source_wait_point",
    "server_id",
    "server_uuid",
    "sql_require_primary_key",
    "super_read_only",
    "sync_binlog",
    "version",
];

/// The facts about one server.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) address: String,
    pub(super) version: Version,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) grants: Grants,
    pub(super) limits: AccountLimits,
    /// Both empty where the server has none.
    pub(super) gtid_executed: GtidSet,
    pub(super) gtid_purged: GtidSet,
    /// Empty: the link is not encrypted.
    pub(super) cipher: String,
    /// The server knows time zones by name.
    pub(super) has_time_zones: bool,
    pub(super) clock: Clock,
}

/// A server's clock against this host's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// Microseconds by which it is ahead of this host's.
    pub(super) ahead: i64,
    /// Half of the time that the question took, which is the largest possible error.
    pub(super) uncertain: i64,
}

impl Server {
    pub(super) async fn read(session: &mut CheckSession) -> Result<Self, QueryError> {
        let clock = clock(session).await?;
        let list = VARIABLES.map(|name| format!("'{name}'")).join(",");
        let query = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({list})");
        let variables: BTreeMap<String, String> = session
            .rows(&query)
            .await?
            .into_iter()
            .filter_map(|row| {
                let mut values = row.into_iter().flatten();
                Some((values.next()?, values.next()?))
            })
            .collect();
        let account = session.value("SELECT CURRENT_USER()").await?.unwrap_or_default();
        let grants: Vec<String> =
            session.rows("SHOW GRANTS").await?.into_iter().flatten().flatten().collect();
        let cipher = session.rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'").await?;
        let cipher = cipher.into_iter().flatten().flatten().nth(1);
        let zones = "SELECT CONVERT_TZ('2020-01-01 00:00:00', 'UTC', 'Europe/Berlin') IS NOT NULL";
        Ok(Self {
            address: session.address().to_owned(),
            version: Version::parse(variables.get("version").map_or("", String::as_str)),
            grants: Grants::parse(&account, &grants),
            limits: AccountLimits::read(session).await,
            // SHOW VARIABLES shortens long values (manual, SHOW VARIABLES Statement).
            gtid_executed: gtids(session, "gtid_executed").await?,
            gtid_purged: gtids(session, "gtid_purged").await?,
            cipher: cipher.unwrap_or_default(),
            has_time_zones: session.value(zones).await?.as_deref() == Some("1"),
            variables,
            clock,
        })
    }

    pub(super) fn text(&self, variable: &str) -> &str {
        self.variables.get(variable).map_or("", String::as_str)
    }

    /// Returns a number; `None` where the server has no such variable.
    pub(super) fn number(&self, variable: &str) -> Option<u64> {
        self.variables.get(variable)?.parse().ok()
    }

    pub(super) fn is_on(&self, variable: &str) -> bool {
        self.text(variable) == "ON"
    }

    /// Names of tables are the same in any case.
    pub(super) fn folds_case(&self) -> bool {
        self.number("lower_case_table_names").is_some_and(|mode| mode != 0)
    }
}

/// Returns the empty set where the variable does not exist.
pub(super) async fn gtids(
    session: &mut CheckSession,
    variable: &str,
) -> Result<GtidSet, QueryError> {
    const UNKNOWN_VARIABLE: u16 = 1193;
    let text = match session.value(&format!("SELECT @@GLOBAL.{variable}")).await {
        Ok(text) => text.unwrap_or_default(),
        Err(refusal) if refusal.code == Some(UNKNOWN_VARIABLE) => String::new(),
        Err(refusal) => return Err(refusal),
    };
    parse(session, &text)
}

/// Parses a GTID set as a server writes it.
pub(super) fn parse(session: &CheckSession, text: &str) -> Result<GtidSet, QueryError> {
    text.parse().map_err(|error| QueryError {
        code: None,
        text: format!("{}: a GTID set can't be read: {error}", session.address()),
    })
}

async fn clock(session: &mut CheckSession) -> Result<Clock, QueryError> {
    let asked = now_micros();
    // UTC, which no time zone or daylight saving time affects.
    let query = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    let theirs = session.value(query).await?.and_then(|text| text.parse::<i64>().ok());
    let answered = now_micros();
    let uncertain = (answered - asked) / 2;
    let ahead = theirs.map_or(0, |theirs| theirs - (asked + uncertain));
    Ok(Clock { ahead, uncertain })
}

fn now_micros() -> i64 {
    i64::try_from(SystemClock.now_micros()).unwrap_or(i64::MAX)
}
