//! Facts about a server, by which all rules about sources and targets judge.

use std::collections::BTreeMap;

use super::ask::{Ask, TextRow, first};
use super::finding::{Finding, Level, Place};
use super::grants::Grants;
use super::group::{GroupView, Membership};
use super::link::Limits;
use super::version::Version;
use crate::binlog::gtid::GtidSet;

/// Booleans are ON or OFF; variables that a server does not have are absent.
const VARIABLES: [&str; 46] = [
    "aurora_version",
    "basedir",
    "binlog_expire_logs_auto_purge",
    "binlog_expire_logs_seconds",
    "binlog_format",
    "binlog_row_image",
    "binlog_space_limit",
    "binlog_transaction_compression",
    "connection_memory_limit",
    "enforce_gtid_consistency",
    "expire_logs_days",
    "global_connection_memory_tracking",
    "group_replication_group_name",
    "group_replication_single_primary_mode",
    "group_replication_transaction_size_limit",
    "group_replication_view_change_uuid",
    "gtid_mode",
    "init_connect",
    "innodb_flush_log_at_trx_commit",
    "innodb_native_foreign_keys",
    "innodb_read_only",
    "log_bin",
    "log_bin_trust_function_creators",
    "log_replica_updates",
    "log_slave_updates",
    "lower_case_table_names",
    "max_allowed_packet",
    "max_binlog_files",
    "max_connections",
    "max_user_connections",
    "read_only",
    "rpl_semi_sync_master_enabled",
    "rpl_semi_sync_master_timeout",
    "rpl_semi_sync_master_wait_point",
    "rpl_semi_sync_source_enabled",
    "rpl_semi_sync_source_timeout",
    "rpl_semi_sync_source_wait_point",
    "secure_timestamp",
    "server_id",
    "server_uuid",
    "sql_require_primary_key",
    "super_read_only",
    "sync_binlog",
    "version",
    "wsrep_on",
    "wsrep_provider",
];

/// The global variables, privileges and GTIDs of a server.
#[derive(Debug, Clone, Default)]
pub struct ServerFacts {
    pub version: Version,
    pub variables: BTreeMap<String, String>,
    pub grants: Grants,
    /// Empty on MariaDB, as `gtid_purged`.
    pub gtid_executed: GtidSet,
    pub gtid_purged: GtidSet,
    pub group: Membership,
    pub upstream: Upstream,
}

/// The knowledge about servers of which a server is a replica. It is asked where what comes from them is not logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Upstream {
    #[default]
    None,
    /// The account may not see them.
    Hidden,
    /// There is one at least, whether its channel runs or not.
    Known,
}

impl Upstream {
    /// Asks a server for its replication channels, in the ways that different privileges permit.
    pub(crate) async fn read<S: Ask + Send>(session: &mut S, version: &Version) -> Self {
        let status = match version.numbers() >= [8, 0, 22] {
            true => "SHOW REPLICA STATUS",
            false => "SHOW SLAVE STATUS",
        };
        let table =
            "SELECT CHANNEL_NAME FROM performance_schema.replication_connection_configuration";
        for query in [status, table] {
            // Whatever the reason of an error: a link that was lost fails the next question.
            if let Ok(channels) = session.ask(query, Limits::LIST).await {
                return if channels.is_empty() { Self::None } else { Self::Known };
            }
        }
        Self::Hidden
    }
}

/// Returns the variables that SHOW VARIABLES has found.
pub(crate) fn named_values(rows: Vec<TextRow>) -> BTreeMap<String, String> {
    let pair = |row: TextRow| {
        let mut values = row.into_iter().flatten();
        Some((values.next()?, values.next()?))
    };
    rows.into_iter().filter_map(pair).collect()
}

impl ServerFacts {
    /// Asks for all of them; reads only. The session must not limit the rows of a query.
    ///
    /// # Errors
    /// The session's.
    pub async fn read<S: Ask + Send>(session: &mut S) -> Result<Self, S::Error> {
        let list = VARIABLES.map(|name| format!("'{name}'")).join(",");
        let query = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({list})");
        let variables = named_values(session.ask(&query, Limits::LIST).await?);
        let account = first(session.ask("SELECT CURRENT_USER()", Limits::SETTING).await?);
        let grants = session.ask("SHOW GRANTS", Limits::LIST).await?;
        let grants: Vec<String> = grants.into_iter().flatten().flatten().collect();
        let version = Version::parse(variables.get("version").map_or("", String::as_str));
        let mut facts = Self {
            grants: Grants::parse(&account.unwrap_or_default(), &grants),
            version,
            variables,
            ..Self::default()
        };
        // SHOW VARIABLES shortens long values (manual, SHOW VARIABLES Statement).
        if !facts.version.is_mariadb() {
            facts.gtid_executed = gtids(session, "gtid_executed").await?;
            facts.gtid_purged = gtids(session, "gtid_purged").await?;
        }
        // Empty where the plugin is installed and not used.
        if !facts.text("group_replication_group_name").is_empty() {
            facts.group = match GroupView::read(session, &facts.version).await {
                Ok(view) => Membership::Known(view),
                // Whatever the reason: a link that was lost fails the next question.
                Err(_) => Membership::Hidden,
            };
        }
        if facts.leaves_out_applied() && !facts.version.is_mariadb() {
            facts.upstream = Upstream::read(session, &facts.version).await;
        }
        Ok(facts)
    }

    /// Returns true if the server leaves out of its binary log what it applies as a replica.
    #[must_use]
    pub fn leaves_out_applied(&self) -> bool {
        // The name since 8.0.26, and the one before.
        ["log_replica_updates", "log_slave_updates"].iter().any(|name| self.text(name) == "OFF")
    }

    /// Returns true for a node of a Galera cluster, which applies what the other nodes write.
    #[must_use]
    pub fn is_galera_node(&self) -> bool {
        self.is_on("wsrep_on") && !matches!(self.text("wsrep_provider"), "" | "none")
    }

    /// Returns the value of a variable; empty where the server has no such variable.
    #[must_use]
    pub fn text(&self, variable: &str) -> &str {
        self.variables.get(variable).map_or("", String::as_str)
    }

    /// Returns a number; `None` where the server has no such variable.
    #[must_use]
    pub fn number(&self, variable: &str) -> Option<u64> {
        self.variables.get(variable)?.parse().ok()
    }

    #[must_use]
    pub fn is_on(&self, variable: &str) -> bool {
        self.text(variable) == "ON"
    }

    /// Returns true if names of schemas and tables are the same in any case.
    #[must_use]
    pub fn folds_case(&self) -> bool {
        self.number("lower_case_table_names").is_some_and(|mode| mode != 0)
    }

    /// Returns the warnings among findings about this server, one line each, to follow `name`.
    ///
    /// # Errors
    /// Returns the name and the line of the first that is a reason not to start.
    pub fn judged(
        &self,
        place: Place,
        name: &str,
        found: Vec<Finding>,
    ) -> Result<Vec<String>, (&'static str, String)> {
        let mut warnings = Vec::new();
        for mut finding in found {
            finding.adapt(place, self.version.vendor());
            let line = format!("{name}: {}", finding.line());
            match finding.level {
                Level::Ok => {}
                Level::Warning => warnings.push(line),
                Level::Error => return Err((finding.check, line)),
            }
        }
        Ok(warnings)
    }

    /// Returns the statement that grants the account what it lacks.
    #[must_use]
    pub fn grant(&self, privileges: &[&str]) -> String {
        format!("GRANT {} ON *.* TO {};", privileges.join(", "), self.grants.account())
    }
}

/// Returns a GTID set of the server, whatever its length.
///
/// # Errors
/// The session's.
pub async fn gtids<S: Ask + Send>(session: &mut S, variable: &str) -> Result<GtidSet, S::Error> {
    let text = first(session.ask(&format!("SELECT @@GLOBAL.{variable}"), Limits::GTIDS).await?);
    let set = text.unwrap_or_default().parse();
    set.map_err(|error| session.unreadable(variable, error))
}
