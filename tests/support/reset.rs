//! Makes a server as it was after its start, and finds out whether that worked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Row};

use crate::Server;

type Outcome<T> = Result<T, mysql_async::Error>;

/// The state of a server, as rows of text by the name of the query that found them.
#[derive(Debug)]
pub(crate) struct Fingerprint(BTreeMap<&'static str, BTreeSet<String>>);

/// The number of the first queries that ask for what [`clear`] doesn't change.
const LASTING: usize = 3;

/// Everything that outlives a test's schemata, sessions and binary logs.
const LOOKS: [(&str, &str); 28] = [
    ("branches", "XA RECOVER CONVERT XID"),
    ("plugins", "SELECT PLUGIN_NAME, PLUGIN_STATUS FROM information_schema.PLUGINS"),
    (
        "variables",
        "SELECT * FROM performance_schema.global_variables \
         WHERE VARIABLE_NAME NOT IN ('gtid_executed', 'gtid_purged')",
    ),
    ("position", "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged"),
    ("persisted variables", "SELECT * FROM performance_schema.persisted_variables"),
    ("schemata", "SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA"),
    (
        "tables",
        "SELECT TABLE_SCHEMA, TABLE_NAME, CREATE_TIME FROM information_schema.TABLES \
         WHERE TABLE_SCHEMA IN ('mysql', 'sys')",
    ),
    ("tablespaces", "SELECT NAME, STATE, ENCRYPTION FROM information_schema.INNODB_TABLESPACES"),
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
/// that the next login of each account is a whole one again.
const FORGET: [&str; 9] = [
    "FLUSH LOCAL STATUS",
    "FLUSH LOCAL PRIVILEGES",
    "TRUNCATE performance_schema.accounts",
    "TRUNCATE performance_schema.users",
    "TRUNCATE performance_schema.hosts",
    "TRUNCATE performance_schema.host_cache",
    "TRUNCATE performance_schema.events_statements_summary_by_digest",
    "TRUNCATE performance_schema.events_errors_summary_global_by_error",
    "RESET BINARY LOGS AND GTIDS",
];

/// The accounts that the sandbox has not made.
const ACCOUNTS: &str = "SELECT CONCAT(QUOTE(User), '@', QUOTE(Host)) FROM mysql.user WHERE \
    NOT (Host = '%' AND User IN ('repl', 'csa', 'admin')) AND User <> 'root' AND User NOT LIKE 'mysql.%'";

const SESSIONS: &str = "SELECT ID FROM performance_schema.processlist WHERE ID <> CONNECTION_ID() \
    AND COMMAND <> 'Daemon' AND USER NOT IN ('system user', 'event_scheduler')";

/// The files of a fresh server have less than half of it.
const MOST_MEBIBYTES: u64 = 300;

/// Returns what the server is like.
pub(crate) fn fingerprint(server: &Server) -> Result<Fingerprint, String> {
    on_a_thread(async || {
        let mut conn = connect(server).await?;
        let fingerprint = look(&mut conn, &LOOKS).await?;
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
        fresh.compare(&look(&mut conn, &LOOKS).await?)?;
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
    fn compare(&self, now: &Self) -> Result<(), Reason> {
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
    conn.query_drop("SET SESSION lock_wait_timeout = 5, foreign_key_checks = 0").await?;
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
    for statement in FORGET {
        conn.query_drop(statement).await?;
    }
    Ok(())
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

/// Returns the MiB of the server's files.
fn size(server: &Server) -> std::io::Result<u64> {
    let folder = server.socket.parent().unwrap_or(&server.socket);
    let output = std::process::Command::new("du").arg("-sm").arg(folder).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let size = text.split_whitespace().next().and_then(|size| size.parse().ok());
    size.ok_or_else(|| std::io::Error::other("du: no number"))
}
