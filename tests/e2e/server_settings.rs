//! Global settings of both servers that would cut, end or change statements of the daemon: its sessions set
//! their own. Each round ends the daemon's sessions, so that it opens others under hostile values.

use std::time::{Duration, Instant};

use csa_provider::binlog::GtidSet;
use csa_tests::{Daemon, Server, compare};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngCore as _, SeedableRng as _};

use crate::DRAIN;
use crate::mariadb::equal;
use crate::verify::verify;

/// Variables and hostile values.
const MYSQL: &[(&str, &str)] = &[
    ("autocommit", "0"),
    ("completion_type", "CHAIN"),
    ("completion_type", "2"),
    ("transaction_isolation", "'SERIALIZABLE'"),
    ("transaction_read_only", "1"),
    ("max_execution_time", "1"),
    ("sql_select_limit", "0"),
    ("sql_safe_updates", "1"),
    ("max_join_size", "1"),
    ("lock_wait_timeout", "1"),
    ("innodb_lock_wait_timeout", "1"),
    ("wait_timeout", "1"),
    ("interactive_timeout", "1"),
    ("net_read_timeout", "1"),
    ("net_write_timeout", "1"),
    (
        "sql_mode",
        "'ANSI,TRADITIONAL,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE'",
    ),
    (
        "sql_mode",
        "'ANSI_QUOTES,PIPES_AS_CONCAT,NO_UNSIGNED_SUBTRACTION,REAL_AS_FLOAT,ONLY_FULL_GROUP_BY'",
    ),
    ("foreign_key_checks", "0"),
    ("unique_checks", "0"),
    ("sql_auto_is_null", "1"),
    ("sql_require_primary_key", "1"),
    ("default_storage_engine", "MyISAM"),
    ("default_tmp_storage_engine", "MyISAM"),
    ("explicit_defaults_for_timestamp", "0"),
    ("group_concat_max_len", "4"),
    ("max_sort_length", "4"),
    ("max_error_count", "0"),
    ("div_precision_increment", "0"),
    ("big_tables", "1"),
    ("tmp_table_size", "1024"),
    ("max_heap_table_size", "16384"),
    ("sort_buffer_size", "32768"),
    ("join_buffer_size", "128"),
    ("character_set_client", "latin1"),
    ("character_set_connection", "utf16"),
    ("collation_connection", "utf32_bin"),
    ("character_set_results", "ucs2"),
    ("character_set_server", "latin1"),
    ("character_set_filesystem", "utf16"),
    (
        "init_connect",
        "'SET NAMES latin1, autocommit=0, sql_select_limit=0, sql_mode=''ANSI'', max_execution_time=1'",
    ),
    (
        "init_connect",
        "'SET SESSION transaction_read_only=1, completion_type=2, sql_safe_updates=1, time_zone=''+07:00'', rbr_exec_mode=IDEMPOTENT, foreign_key_checks=0'",
    ),
    ("lc_messages", "'de_DE'"),
    ("lc_time_names", "'de_DE'"),
    ("low_priority_updates", "1"),
    ("updatable_views_with_limit", "0"),
    ("session_track_schema", "1"),
    ("session_track_state_change", "1"),
    ("session_track_system_variables", "'*'"),
    ("session_track_gtids", "ALL_GTIDS"),
    ("session_track_transaction_info", "CHARACTERISTICS"),
    ("binlog_row_image", "MINIMAL"),
    ("binlog_rows_query_log_events", "1"),
    ("binlog_transaction_compression", "1"),
    ("range_optimizer_max_mem_size", "1"),
    ("eq_range_index_dive_limit", "1"),
    (
        "optimizer_switch",
        "'index_merge=off,mrr=off,block_nested_loop=off,materialization=off,semijoin=off,derived_merge=off,index_condition_pushdown=off,use_invisible_indexes=on'",
    ),
    ("information_schema_stats_expiry", "31536000"),
    ("sql_quote_show_create", "0"),
    ("print_identified_with_as_hex", "1"),
    ("show_create_table_skip_secondary_engine", "1"),
    ("show_gipk_in_create_table_and_information_schema", "0"),
    ("sql_generate_invisible_primary_key", "1"),
    ("restrict_fk_on_non_standard_key", "1"),
    ("time_zone", "'-11:30'"),
    ("auto_increment_increment", "7"),
    ("auto_increment_offset", "3"),
    ("default_collation_for_utf8mb4", "'utf8mb4_general_ci'"),
    ("cte_max_recursion_depth", "0"),
    ("default_week_format", "7"),
    ("old_alter_table", "1"),
    ("xa_detach_on_prepare", "0"),
    ("parser_max_mem_size", "10000000"),
    ("net_buffer_length", "1024"),
    ("innodb_strict_mode", "0"),
    ("internal_tmp_mem_storage_engine", "MEMORY"),
    ("sql_log_off", "1"),
    ("event_scheduler", "OFF"),
];

const MARIADB: &[(&str, &str)] = &[
    ("autocommit", "0"),
    ("completion_type", "CHAIN"),
    ("tx_isolation", "'SERIALIZABLE'"),
    ("tx_read_only", "1"),
    ("max_statement_time", "0.5"),
    ("sql_select_limit", "0"),
    ("sql_safe_updates", "1"),
    ("max_join_size", "1"),
    ("lock_wait_timeout", "1"),
    ("innodb_lock_wait_timeout", "1"),
    ("wait_timeout", "1"),
    ("idle_transaction_timeout", "1"),
    ("idle_write_transaction_timeout", "1"),
    (
        "sql_mode",
        "'ANSI,TRADITIONAL,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,EMPTY_STRING_IS_NULL'",
    ),
    ("foreign_key_checks", "0"),
    ("check_constraint_checks", "0"),
    ("sql_if_exists", "1"),
    ("sql_notes", "0"),
    ("max_error_count", "0"),
    ("old_mode", "'ZERO_DATE_TIME_CAST,NO_DUP_KEY_WARNINGS_WITH_IGNORE'"),
    ("alter_algorithm", "INSTANT"),
    ("character_set_client", "latin1"),
    ("collation_connection", "utf32_bin"),
    ("character_set_results", "ucs2"),
    ("init_connect", "'SET NAMES latin1, autocommit=0, sql_select_limit=0, sql_mode=''ANSI'''"),
    ("lc_messages", "'de_DE'"),
    ("time_zone", "'-11:30'"),
    ("max_recursive_iterations", "1"),
    ("default_storage_engine", "MyISAM"),
];

/// ER_UNKNOWN_SYSTEM_VARIABLE, and variables without a global value or that can't be changed.
const NOT_THERE: [u16; 3] = [1193, 1228, 1238];

/// A server's session that was opened before any value was hostile.
struct Admin {
    conn: Conn,
    name: &'static str,
    /// Values to restore.
    before: Vec<(String, String)>,
}

impl Admin {
    async fn open(server: &Server, name: &'static str) -> Self {
        Self { conn: server.conn().await, name, before: Vec::new() }
    }

    async fn run(&mut self, sql: &str) {
        if let Err(error) = self.conn.query_drop(sql).await {
            panic!("on the {}: {error}\n{sql}", self.name);
        }
    }

    /// Returns false if the server has no such variable.
    async fn set(&mut self, name: &str, value: &str) -> bool {
        let read = format!("SELECT CAST(@@GLOBAL.{name} AS CHAR)");
        let before: Option<Option<String>> = match self.conn.query_first(&read).await {
            Err(mysql_async::Error::Server(error)) if NOT_THERE.contains(&error.code) => {
                return false;
            }
            before => before.unwrap_or_else(|error| panic!("{read}: {error}")),
        };
        match self.conn.query_drop(format!("SET GLOBAL {name}={value}")).await {
            Err(mysql_async::Error::Server(error)) if NOT_THERE.contains(&error.code) => {
                return false;
            }
            set => set.unwrap_or_else(|error| panic!("{name}={value}: {error}")),
        }
        let before = before.flatten().unwrap_or_default();
        let is_number =
            !before.is_empty() && before.chars().all(|c| c.is_ascii_digit() || c == '.');
        let before = if is_number { before } else { format!("'{}'", before.replace('\'', "''")) };
        self.before.push((name.to_owned(), before));
        true
    }

    async fn restore(&mut self) {
        for (name, value) in std::mem::take(&mut self.before).into_iter().rev() {
            self.run(&format!("SET GLOBAL {name}={value}")).await;
        }
    }

    /// Ends the daemon's sessions, so that it opens others.
    async fn end_sessions(&mut self, user: &str) {
        let query = format!("SELECT ID FROM information_schema.PROCESSLIST WHERE USER='{user}'");
        let ids: Vec<u64> = self.conn.query(&query).await.expect("the process list");
        for id in ids {
            // It may have ended already.
            let _ = self.conn.query_drop(format!("KILL {id}")).await;
        }
    }
}

struct Site {
    source: Server,
    target: Server,
    on_source: Admin,
    on_target: Admin,
    daemon: Daemon,
    is_mariadb: bool,
    user: &'static str,
    failures: Vec<String>,
}

impl Site {
    async fn start(source: Server, target: Server, gtids: &str, account: Option<&str>) -> Self {
        let is_mariadb = target.value::<String>("SELECT @@version").await.contains("MariaDB");
        let user = if account.is_some() { "small" } else { "csa" };
        if let Some(grants) = account {
            let logged = if is_mariadb { "" } else { "SET sql_log_bin=0; " };
            target
                .exec(&format!("{logged}CREATE USER small@'%' IDENTIFIED BY 'csa_pw'; {grants}"))
                .await;
        }
        source
            .exec(
                "CREATE DATABASE h COLLATE utf8mb4_general_ci; \
                 CREATE TABLE h.p (id INT PRIMARY KEY, name VARCHAR(40)) ENGINE=InnoDB; \
                 CREATE TABLE h.t (id INT PRIMARY KEY, parent INT, name VARCHAR(80), \
                 u INT UNIQUE, d DECIMAL(20,6), at TIMESTAMP(6) NULL, b BLOB, \
                 FOREIGN KEY (parent) REFERENCES h.p (id)) ENGINE=InnoDB; \
                 CREATE TABLE h.free (a INT, b VARCHAR(20)) ENGINE=InnoDB",
            )
            .await;
        let mut builder = Daemon::builder(&source, &target)
            .set("target.user", user)
            .set("target.connect_retry", "50ms")
            .set("target.connect_retry_max", "200ms")
            .set("applier.worker_count", 4)
            .set("applier.transaction_retries", 2);
        if gtids == "source" {
            builder =
                builder.set("applier.target_gtids", gtids).set("applier.commit", "one-to-one");
        }
        let (on_source, on_target) =
            (Admin::open(&source, "source").await, Admin::open(&target, "target").await);
        let daemon = builder.start();
        daemon.wait_drained(&source, &target, DRAIN).await;
        Self {
            source,
            target,
            on_source,
            on_target,
            daemon,
            is_mariadb,
            user,
            failures: Vec::new(),
        }
    }

    /// Sets values on both servers; returns how many of them they have.
    async fn round(&mut self, number: usize, values: &[(&str, &str)]) -> usize {
        let mut applied = 0;
        for (name, value) in values {
            // The source is MySQL, always.
            if !self.is_mariadb {
                self.on_source.set(name, value).await;
            }
            applied += usize::from(self.on_target.set(name, value).await);
        }
        self.on_source.end_sessions("repl").await;
        self.on_target.end_sessions(self.user).await;
        self.change(number).await;
        if let Err(why) = self.wait_applied().await {
            self.failures.push(format!("{values:?}: {why}"));
            self.recover().await;
        }
        applied
    }

    /// A definition, and transactions of all kinds, from a session with good values.
    async fn change(&mut self, number: usize) {
        let id = number * 10;
        let on = &mut self.on_source;
        on.run(&format!(
            "CREATE TABLE h.x{number} (id INT PRIMARY KEY, v VARCHAR(20)) ENGINE=InnoDB"
        ))
        .await;
        on.run(&format!("INSERT INTO h.p VALUES ({id},'ä\\'\"\\\\{number}')")).await;
        on.run("BEGIN").await;
        for row in id..id + 3 {
            on.run(&format!(
                "INSERT INTO h.t VALUES ({row},{id},'ümläut {row} \\'quoted\\' ``',{row},{row}/7,\
                 '2024-02-29 12:00:00.123456',0x00FF5C27)"
            ))
            .await;
        }
        on.run(&format!("INSERT INTO h.x{number} VALUES (1,'a'),(2,'b')")).await;
        on.run("COMMIT").await;
        on.run(&format!("UPDATE h.t SET u=NULL, d=d+1 WHERE id={id}")).await;
        on.run(&format!("DELETE FROM h.t WHERE id={}", id + 1)).await;
        on.run(&format!("INSERT INTO h.free VALUES ({id},'x'),({id},'x')")).await;
        on.run(&format!("UPDATE h.free SET b='y' WHERE a={id} LIMIT 1")).await;
        on.run(&format!(
            "ALTER TABLE h.x{number} ADD COLUMN w INT NOT NULL DEFAULT 5, ADD INDEX (v)"
        ))
        .await;
        on.run(&format!("INSERT INTO h.x{number} VALUES (3,'c',6)")).await;
        if !self.is_mariadb {
            self.change_of_a_hidden_key(number).await;
        }
    }

    /// A table whose primary key is generated, with a column of the type of that key first.
    async fn change_of_a_hidden_key(&mut self, number: usize) {
        let on = &mut self.on_source;
        on.run("SET SESSION sql_generate_invisible_primary_key=1").await;
        on.run(&format!(
            "CREATE TABLE h.g{number} (v BIGINT UNSIGNED, w BIGINT UNSIGNED) ENGINE=InnoDB"
        ))
        .await;
        on.run("SET SESSION sql_generate_invisible_primary_key=0").await;
        on.run(&format!("INSERT INTO h.g{number} VALUES (10,100),(20,200),(30,300)")).await;
        on.run(&format!("UPDATE h.g{number} SET w=201 WHERE v=20")).await;
        on.run(&format!("DELETE FROM h.g{number} WHERE v=10")).await;
    }

    /// So that the next values have their turn, too.
    async fn recover(&mut self) {
        self.restore().await;
        self.on_target.end_sessions(self.user).await;
        tokio::task::block_in_place(|| self.daemon.command(&["restart"]));
        let recovered = self.wait_applied().await;
        recovered
            .unwrap_or_else(|why| panic!("not even with good values: {why}\n{:#?}", self.failures));
    }

    async fn wait_applied(&mut self) -> Result<(), String> {
        let executed: Option<String> = self
            .on_source
            .conn
            .query_first("SELECT @@GLOBAL.gtid_executed")
            .await
            .expect("its GTIDs");
        let wanted: GtidSet = executed.unwrap_or_default().parse().expect("a GTID set");
        let begun = Instant::now();
        loop {
            let view = self.daemon.status()["channels"][0].clone();
            let applied = view["applied_transaction_set"].as_str().unwrap_or_default();
            if wanted.is_subset_of(&applied.parse().expect("a GTID set")) {
                return Ok(());
            }
            let is_late = begun.elapsed() > Duration::from_secs(30);
            if is_late || view["state"] == "failed" {
                let log = self.daemon.log();
                let lines: Vec<&str> = log.lines().rev().take(6).collect();
                return Err(format!("{} {}\n{lines:#?}", view["state"], view["state_detail"]));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The commands read the same under these values.
    fn compared(&self) {
        verify(&self.daemon, &[]).assert_code(0);
        let said =
            tokio::task::block_in_place(|| self.daemon.command(&["check", "--connect", "--json"]));
        let json: serde_json::Value =
            serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        let findings = json["channels"][0]["findings"].as_array().expect("findings");
        // Those of a setting, and not of a question that was cut.
        let cut = [
            "maximum statement execution time",
            "no answer",
            "can't be compared",
            "error 3024",
            "error 1969",
        ];
        for word in cut {
            assert!(!said.out.contains(word), "{word:?} in {findings:#?}");
        }
        assert!(findings.len() > 15, "{findings:#?}");
    }

    async fn restore(&mut self) {
        self.on_source.restore().await;
        self.on_target.restore().await;
    }

    /// Each value alone, then several at once.
    async fn rounds(mut self, values: &[(&str, &str)], subsets: usize) {
        let seed =
            std::env::var("CSA_SETTINGS_SEED").ok().map(|text| text.parse().expect("a number"));
        let seed: u64 = seed.unwrap_or_else(|| rand::rng().next_u64());
        println!("CSA_SETTINGS_SEED={seed}");
        let (begun, mut number, mut known) = (Instant::now(), 0, 0);
        for one in values {
            number += 1;
            known += self.round(number, std::slice::from_ref(one)).await;
            self.restore().await;
        }
        println!("{known} of {} values in {:?}", values.len(), begun.elapsed());
        assert!(known * 10 >= values.len() * 8, "the server knows {known} of {}", values.len());
        let mut random = StdRng::seed_from_u64(seed);
        for _ in 0..subsets {
            number += 1;
            let some: Vec<(&str, &str)> =
                values.choose_multiple(&mut random, 12).copied().collect();
            self.round(number, &some).await;
            self.compared();
            self.restore().await;
        }
        // All of the daemon's sessions are as they were; the harness's own are good again.
        self.daemon.wait_drained(&self.source, &self.target, DRAIN).await;
        match self.is_mariadb {
            true => drop(equal(&self.source, &self.target).await),
            false => drop(compare(&self.source, &self.target).await),
        }
        println!("{:?}", begun.elapsed());
        assert!(self.failures.is_empty(), "{:#?}", self.failures);
    }
}

/// The privileges of config/grants-target.sql: `init_connect` is run for such an account.
const GRANTS: &str = "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, \
     SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, TRIGGER, EVENT, EXECUTE, REPLICATION_APPLIER, \
     SESSION_VARIABLES_ADMIN ON *.* TO small@'%'";

/// Without any privilege to set restricted variables: rows are written as SQL.
const FEW_GRANTS: &str = "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, \
     SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, TRIGGER, EVENT, EXECUTE ON *.* TO small@'%'";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn no_global_setting_of_a_server_cuts_our_statements() {
    let (source, target) = Server::pair(&[], &[]);
    Site::start(source, target, "own", Some(GRANTS)).await.rounds(MYSQL, 6).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn no_global_setting_cuts_statements_of_an_account_with_few_privileges() {
    let (source, target) = Server::pair(&[], &[]);
    // That one takes a privilege, as `check` says.
    let values = MYSQL.iter().filter(|(name, _)| *name != "sql_require_primary_key");
    let hidden = MYSQL.iter().filter(|(name, _)| name.starts_with("show_gipk"));
    let values: Vec<_> = values.take(24).chain(hidden).copied().collect();
    let site = Site::start(source, target, "own", Some(FEW_GRANTS));
    site.await.rounds(&values, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn no_global_setting_cuts_our_statements_under_the_sources_gtids_on_an_old_server() {
    let (source, target) = Server::both(
        || Server::start_version("source", "8.0.31", &[]),
        || Server::start_version("target", "8.0.31", &[]),
    );
    let values = MYSQL.get(..24).expect("so many");
    Site::start(source, target, "source", None).await.rounds(values, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_global_setting_of_mariadb_cuts_our_statements() {
    let (source, target) = Server::both(
        || Server::start("source", &[]),
        || Server::start_version("target", "mariadb-11.4", &[]),
    );
    Site::start(source, target, "own", None).await.rounds(MARIADB, 2).await;
}
