//! Makes a server as it was after its start, and finds out whether that worked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Row};

use crate::Server;

type Outcome<T> = Result<T, mysql_async::Error>;

/// The state of a server, as rows of text by the name of the query that found them.
#[derive(Debug)]
pub(crate) struct Fingerprint(BTreeMap<&'static str, BTreeSet<String>>);

/// The number of the first queries that ask for what nothing here changes.
const LASTING: usize = 2;
/// The number of the first queries that ask for that, or for what [`undoing`] sets back.
const UNDONE: usize = 14;

/// Everything that outlives a test's schemata, sessions and binary logs.
const LOOKS: [(&str, &str); 28] = [
    ("branches", "XA RECOVER CONVERT XID"),
    ("plugins", "SELECT PLUGIN_NAME, PLUGIN_STATUS FROM information_schema.PLUGINS"),
    (
        "variables",
        "SELECT * FROM performance_schema.global_variables \
         WHERE VARIABLE_NAME NOT IN ('gtid_executed', 'gtid_purged')",
    ),
    ("persisted variables", "SELECT * FROM performance_schema.persisted_variables"),
    ("accounts", "SELECT * FROM mysql.user"),
    ("rights on schemata", "SELECT * FROM mysql.db"),
    ("rights on tables", "SELECT * FROM mysql.tables_priv"),
    ("rights on columns", "SELECT * FROM mysql.columns_priv"),
    ("rights on routines", "SELECT * FROM mysql.procs_priv"),
    ("proxies", "SELECT * FROM mysql.proxies_priv"),
    ("dynamic rights", "SELECT * FROM mysql.global_grants"),
    ("roles", "SELECT * FROM mysql.role_edges"),
    ("default roles", "SELECT * FROM mysql.default_roles"),
    ("old passwords", "SELECT * FROM mysql.password_history"),
    ("position", "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged"),
    ("schemata", "SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA"),
    (
        "tables",
        "SELECT TABLE_SCHEMA, TABLE_NAME, CREATE_TIME FROM information_schema.TABLES \
         WHERE TABLE_SCHEMA IN ('mysql', 'sys')",
    ),
    ("tablespaces", "SELECT NAME, STATE, ENCRYPTION FROM information_schema.INNODB_TABLESPACES"),
    ("components", "SELECT * FROM mysql.component"),
    ("loadable functions", "SELECT * FROM mysql.func"),
    ("servers", "SELECT * FROM mysql.servers"),
    (
        "costs",
        "SELECT cost_name, cost_value FROM mysql.server_cost \
         UNION ALL SELECT cost_name, cost_value FROM mysql.engine_cost",
    ),
    ("time zones", "SELECT COUNT(*) FROM mysql.time_zone_name"),
    (
        "logs in tables",
        "SELECT (SELECT COUNT(*) FROM mysql.general_log), (SELECT COUNT(*) FROM mysql.slow_log)",
    ),
    (
        "replication",
        "SELECT CHANNEL_NAME, HOST FROM performance_schema.replication_connection_configuration",
    ),
    (
        "replication filters",
        "SELECT FILTER_NAME FROM performance_schema.replication_applier_global_filters",
    ),
    (
        "instruments",
        "SELECT NAME, ENABLED, TIMED FROM performance_schema.setup_instruments \
         UNION ALL SELECT NAME, ENABLED, '' FROM performance_schema.setup_consumers \
         UNION ALL SELECT CONCAT(HOST, USER), ENABLED, HISTORY FROM performance_schema.setup_actors \
         UNION ALL SELECT CONCAT_WS('.', OBJECT_TYPE, OBJECT_SCHEMA, OBJECT_NAME), ENABLED, TIMED \
         FROM performance_schema.setup_objects",
    ),
    (
        "states",
        "SELECT * FROM performance_schema.global_status WHERE VARIABLE_NAME IN \
         ('Innodb_redo_log_enabled', 'Current_tls_cert', 'Ssl_server_not_after')",
    ),
];

/// Forgets what was counted and remembered, and ends in no GTIDs. `FLUSH PRIVILEGES` empties the cache of passwords, so
/// that the next login of each account is a whole one again. The last statement is for a test that kills the server at
/// once, though it does not write its log at each commit.
const FORGET: [&str; 10] = [
    "FLUSH LOCAL STATUS",
    "FLUSH LOCAL PRIVILEGES",
    "TRUNCATE performance_schema.accounts",
    "TRUNCATE performance_schema.users",
    "TRUNCATE performance_schema.hosts",
    "TRUNCATE performance_schema.host_cache",
    "TRUNCATE performance_schema.events_statements_summary_by_digest",
    "TRUNCATE performance_schema.events_errors_summary_global_by_error",
    "RESET BINARY LOGS AND GTIDS",
    "FLUSH LOCAL ENGINE LOGS",
];

/// Variables that can be set back: nothing else remembers their value once no session is left. Their order counts:
/// `gtid_mode` needs `enforce_gtid_consistency`, and `read_only` changes `super_read_only`.
const PLAIN_VARIABLES: [&str; 28] = [
    "binlog_checksum",
    "binlog_expire_logs_seconds",
    "binlog_format",
    "binlog_order_commits",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "binlog_transaction_compression",
    "cte_max_recursion_depth",
    "enable_cascade_triggers",
    "enforce_gtid_consistency",
    "event_scheduler",
    "foreign_key_checks",
    "gtid_mode",
    "init_connect",
    "innodb_flush_log_at_trx_commit",
    "log_bin_trust_function_creators",
    "max_allowed_packet",
    "max_connections",
    "max_user_connections",
    "partial_revokes",
    "read_only",
    "replica_exec_mode",
    "replica_type_conversions",
    "require_secure_transport",
    "sql_require_primary_key",
    "super_read_only",
    "sync_binlog",
];

/// The accounts that the sandbox has not made.
const ACCOUNTS: &str = "SELECT CONCAT(QUOTE(User), '@', QUOTE(Host)) FROM mysql.user WHERE \
    NOT (Host = '%' AND User IN ('repl', 'csa', 'admin')) AND User <> 'root' AND User NOT LIKE 'mysql.%'";

/// Rows of text are then the same in every session, and literals in it. Nothing is logged, so no statement waits for a
/// replica to confirm it.
const SETTINGS: &str = "SET SESSION lock_wait_timeout = 5, foreign_key_checks = 0, \
    sql_log_bin = 0, sql_mode = '', time_zone = '+00:00', autocommit = 1";

const SESSIONS: &str = "SELECT ID FROM performance_schema.processlist WHERE ID <> CONNECTION_ID() \
    AND COMMAND <> 'Daemon' AND USER NOT IN ('system user', 'event_scheduler')";

/// Parts of names of files without an effect: no index names these relay logs, and persisted variables are compared.
const MAY_STAY: [&str; 2] = ["mysqld-auto.cnf", "-relay-bin"];

/// The files of a fresh server have less than half of it.
const MOST_MEBIBYTES: u64 = 300;

/// Returns what the server is like.
pub(crate) fn fingerprint(server: &Server) -> Result<Fingerprint, String> {
    on_a_thread(async || {
        let mut conn = connect(server).await?;
        let mut fingerprint = look(&mut conn, &LOOKS).await?;
        fingerprint.0.extend(files(server)?.0);
        conn.disconnect().await?;
        Ok(fingerprint)
    })
}

/// Makes the server what it was when `fresh` was taken. The error names what can't be undone.
pub(crate) fn reset(server: &Server, fresh: &Fingerprint) -> Result<(), String> {
    on_a_thread(async || {
        let mut conn = connect(server).await?;
        // These stand in the way of the rest, or are lasting, and are asked for first.
        fresh.compare(&look(&mut conn, &LOOKS[..LASTING]).await?)?;
        clear(&mut conn).await?;
        let now = look(&mut conn, &LOOKS[LASTING..UNDONE]).await?;
        for statement in undoing(fresh, &now) {
            // The comparison finds what a server has refused.
            let _ = conn.query_drop(statement).await;
        }
        for statement in FORGET {
            conn.query_drop(statement).await?;
        }
        fresh.compare(&look(&mut conn, &LOOKS).await?)?;
        fresh.compare(&files(server)?)?;
        conn.disconnect().await?;
        let mebibytes = size(server)?;
        if mebibytes > MOST_MEBIBYTES {
            return Err(format!("large: {mebibytes} MiB").into());
        }
        Ok(())
    })
}

/// Returns every value as a literal: the values' own debug output is cut short.
fn text(row: Row) -> String {
    let values: Vec<_> = row.unwrap().iter().map(|value| value.as_sql(false)).collect();
    values.join(", ")
}

impl Fingerprint {
    /// The error names the first difference.
    pub(crate) fn compare(&self, now: &Self) -> Result<(), Reason> {
        for (name, rows) in &now.0 {
            let before = &self.0[name];
            let differences: Vec<_> = rows.symmetric_difference(before).take(2).collect();
            if !differences.is_empty() {
                return Err(format!("other {name}: {differences:?}").into());
            }
        }
        Ok(())
    }
}

type Reason = Box<dyn std::error::Error + Send + Sync>;

/// Runs on a thread of its own: the caller may be a task of a runtime.
fn on_a_thread<T: Send>(work: impl AsyncFnOnce() -> Result<T, Reason> + Send) -> Result<T, String> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), work()).await? })
    };
    let outcome = std::thread::scope(|scope| scope.spawn(run).join());
    outcome.map_err(|_| "a panic".to_owned())?.map_err(|reason: Reason| reason.to_string())
}

async fn connect(server: &Server) -> Outcome<Conn> {
    let opts = OptsBuilder::default().socket(server.socket.to_str()).user(Some("root"));
    let mut conn = Conn::new(opts).await?;
    conn.query_drop(SETTINGS).await?;
    Ok(conn)
}

async fn look(conn: &mut Conn, looks: &[(&'static str, &str)]) -> Outcome<Fingerprint> {
    let mut found = BTreeMap::new();
    for &(name, query) in looks {
        let rows: Vec<Row> = conn.query(query).await?;
        found.insert(name, rows.into_iter().map(text).collect());
    }
    Ok(Fingerprint(found))
}

async fn clear(conn: &mut Conn) -> Result<(), Reason> {
    end_sessions(conn).await?;
    // It stands in the way of root, too.
    conn.query_drop("SET GLOBAL super_read_only = OFF").await?;
    conn.query_drop("STOP REPLICA").await?;
    conn.query_drop("RESET REPLICA ALL").await?;
    let schemata = "SELECT CONCAT('`', REPLACE(SCHEMA_NAME, '`', '``'), '`') FROM information_schema.SCHEMATA \
         WHERE SCHEMA_NAME NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')";
    for schema in conn.query::<String, _>(schemata).await? {
        conn.query_drop(format!("DROP DATABASE {schema}")).await?;
    }
    for account in conn.query::<String, _>(ACCOUNTS).await? {
        conn.query_drop(format!("DROP USER {account}")).await?;
    }
    Ok(())
}

/// Returns the statements that set back accounts and variables which are not as they were.
fn undoing(fresh: &Fingerprint, now: &Fingerprint) -> Vec<String> {
    let mut statements = Vec::new();
    for (name, query) in &LOOKS[LASTING..UNDONE] {
        let Some(table) = query.strip_prefix("SELECT * FROM mysql.") else { continue };
        let before = &fresh.0[name];
        if now.0[name] == *before {
            continue;
        }
        // As the rows were, with the same passwords and times. No statement for accounts sets all of it.
        statements.push(format!("DELETE FROM mysql.{table}"));
        let rows: Vec<_> = before.iter().map(|row| format!("({row})")).collect();
        if !rows.is_empty() {
            statements.push(format!("INSERT INTO mysql.{table} VALUES {}", rows.join(", ")));
        }
    }
    if !statements.is_empty() {
        // Before variables: `partial_revokes` can't be set back while an account has a restriction.
        statements.push("FLUSH LOCAL PRIVILEGES".to_owned());
    }
    if now.0["persisted variables"] != fresh.0["persisted variables"] {
        statements.push("RESET PERSIST".to_owned());
    }
    for variable in PLAIN_VARIABLES {
        if let Some(before) = value(fresh, variable)
            && value(now, variable) != Some(before)
        {
            statements.extend(setting_back(variable, before));
        }
    }
    statements
}

/// Returns the literal of a variable's value.
fn value<'a>(fingerprint: &'a Fingerprint, variable: &str) -> Option<&'a str> {
    let beginning = format!("'{variable}', ");
    fingerprint.0["variables"].iter().find_map(|row| row.strip_prefix(beginning.as_str()))
}

fn setting_back(variable: &str, before: &str) -> Vec<String> {
    // A server takes no text for a number.
    let plain = before.trim_matches('\'');
    let value = if plain.parse::<u64>().is_ok() { plain } else { before };
    // Modes follow each other one by one, and no test starts a server in another one than ON.
    let steps = match variable {
        "gtid_mode" => vec!["'OFF_PERMISSIVE'", "'ON_PERMISSIVE'", value],
        _ => vec![value],
    };
    steps.into_iter().map(|step| format!("SET GLOBAL {variable} = {step}")).collect()
}

async fn end_sessions(conn: &mut Conn) -> Result<(), Reason> {
    for _ in 0..100 {
        let sessions: Vec<u64> = conn.query(SESSIONS).await?;
        if sessions.is_empty() {
            return Ok(());
        }
        for session in sessions {
            // It may have ended.
            let _ = conn.query_drop(format!("KILL {session}")).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err("a session does not end".into())
}

/// Returns the names in the folders of data and of temporary files: a server that ended too early may have left some.
fn files(server: &Server) -> std::io::Result<Fingerprint> {
    let mut names = BTreeSet::new();
    for part in ["data", "files"] {
        for entry in std::fs::read_dir(folder(server).join(part))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !MAY_STAY.iter().any(|word| name.contains(word)) {
                names.insert(format!("{part}/{name}"));
            }
        }
    }
    Ok(Fingerprint(BTreeMap::from([("files", names)])))
}

/// Returns the folder of the server's data and logs.
fn folder(server: &Server) -> &Path {
    server.log.parent().unwrap_or(&server.log)
}

/// Returns the MiB of the server's files.
fn size(server: &Server) -> std::io::Result<u64> {
    let output = std::process::Command::new("du").arg("-sm").arg(folder(server)).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let size = text.split_whitespace().next().and_then(|size| size.parse().ok());
    size.ok_or_else(|| std::io::Error::other("du: no number"))
}
