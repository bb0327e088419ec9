//! `csa-daemon check --connect`: every finding appears with its fix, and disappears once that is run.

mod tables;

use csa_tests::{Daemon, DaemonBuilder, Server};
use mysql_async::prelude::Queryable as _;
use serde_json::Value;

use crate::DRAIN;

/// A row of the source's largest packet is longer as text; without this a finding says so.
const LARGE_PACKET: &str = "--max-allowed-packet=1073741824";
/// Without it, the target may refuse functions of the source.
pub(crate) const TRUST: &str = "--log-bin-trust-function-creators=ON";
/// The options with which a target has no warnings.
const FIT: [&str; 2] = [LARGE_PACKET, TRUST];

/// The findings of one run on its channel.
struct Checked {
    code: Option<i32>,
    findings: Vec<Value>,
    stderr: String,
}

/// Runs with the channel's own account on the source, which sees no tables.
fn check(builder: DaemonBuilder) -> Checked {
    run(builder, false)
}

/// Runs as the source's admin, who sees them.
fn check_tables(builder: DaemonBuilder) -> Checked {
    run(builder, true)
}

fn run(builder: DaemonBuilder, as_admin: bool) -> Checked {
    let daemon = builder.build();
    let password = daemon.config_path().with_file_name("source.pw");
    std::fs::write(&password, "admin_pw\n").expect("writable");
    let password = password.display().to_string();
    let mut arguments = vec!["check", "--connect", "--json"];
    if as_admin {
        arguments.extend(["--source-user", "admin", "--source-password-file", &password]);
    }
    let said = tokio::task::block_in_place(|| daemon.command(&arguments));
    let json: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    let findings = json["channels"][0]["findings"].as_array().expect("findings").clone();
    Checked { code: said.code, findings, stderr: said.error }
}

impl Checked {
    #[track_caller]
    fn of(&self, check: &str) -> &Value {
        let found = self.findings.iter().find(|finding| finding["check"] == check);
        found.unwrap_or_else(|| panic!("no {check} in {:#?}", self.findings))
    }

    /// Expects an error or a warning that contains all of `words`; returns its first fix.
    #[track_caller]
    fn says(&self, check: &str, level: &str, words: &[&str]) -> String {
        let finding = self.of(check);
        assert_eq!(finding["level"], level, "{finding:#}");
        let text = finding.to_string();
        for word in words {
            assert!(text.contains(word), "{word:?} is missing in {finding:#}");
        }
        let code = if self.errors().is_empty() { 0 } else { 2 };
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        finding["fixes"][0]["run"].as_str().unwrap_or_default().to_owned()
    }

    fn at(&self, level: &str) -> Vec<&str> {
        let those = self.findings.iter().filter(|finding| finding["level"] == level);
        those.filter_map(|finding| finding["check"].as_str()).collect()
    }

    fn errors(&self) -> Vec<&str> {
        self.at("error")
    }

    #[track_caller]
    fn is_fine(&self, checks: &[&str]) {
        for check in checks {
            let finding = self.of(check);
            assert_eq!(finding["level"], "ok", "{finding:#}");
        }
    }
}

/// Returns the state that a run must not change: GTIDs, schemas, accounts and settings.
async fn state(server: &Server) -> Vec<String> {
    let variables = "SELECT JSON_OBJECTAGG(variable_name, variable_value) \
         FROM performance_schema.global_variables WHERE variable_name <> 'timestamp'";
    let schemas = "SELECT GROUP_CONCAT(schema_name ORDER BY 1) FROM information_schema.schemata";
    vec![server.gtid_executed().await, server.value(variables).await, server.value(schemas).await]
}

/// True if the fix keeps this statement out of the server's binary log.
fn unlogged(fix: &str, statement: &str) -> bool {
    fix.starts_with("SET sql_log_bin=0") && fix.ends_with(statement)
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_accounts_and_this_host() {
    let (source, target) = Server::pair(&[], &FIT);
    // The sandbox's account may change the target's accounts: a finding without this key.
    let accounts = "applier.replicate_accounts";
    let builder = || Daemon::builder(&source, &target).set(accounts, true);
    let before = (state(&source).await, state(&target).await);
    let fine = check(builder());
    assert_eq!(fine.errors(), [""; 0], "{:#?}", fine.findings);
    // The sandbox's account on the source can only replicate.
    let grant = fine.says("tables.visible", "warning", &["'repl'@'%'", "--source-user"]);
    assert!(unlogged(&grant, "GRANT SELECT ON *.* TO 'repl'@'%';"), "{grant}");
    assert_eq!(fine.at("warning"), ["tables.visible"], "{:#?}", fine.findings);
    // It has no findings on tables that it can't see.
    let tables = |found: &Checked| found.at("ok").iter().any(|name| name.starts_with("tables."));
    assert!(!tables(&fine), "{:#?}", fine.findings);
    let seen = check_tables(builder());
    assert!(seen.at("warning").is_empty() && tables(&seen), "{:#?}", seen.findings);
    assert!(state(&source).await == before.0, "the source was changed");
    assert!(state(&target).await == before.1, "the target was changed");
    source.exec(&grant).await;
    assert_eq!(check(builder()).at("warning"), [""; 0]);
    source.exec("REVOKE SELECT ON *.* FROM 'repl'@'%'").await;
    fine.is_fine(&["source.version", "target.version", "source.clock", "target.clock"]);
    fine.is_fine(&["host.disk", "position.start", "channel.start", "target.channel"]);

    for (side, set, check_name, level, words) in [
        ("source", "binlog_format=MIXED", "source.binlog_format", "error", "MIXED"),
        ("source", "binlog_row_image=MINIMAL", "source.binlog_row_image", "warning", "MINIMAL"),
        (
            "source",
            "binlog_expire_logs_seconds=3600",
            "source.binlog_retention",
            "warning",
            "3600 s",
        ),
        ("source", "gtid_mode=ON_PERMISSIVE", "source.gtid_mode", "error", "have no GTID"),
        (
            "target",
            "gtid_mode=ON_PERMISSIVE; SET GLOBAL gtid_mode=OFF_PERMISSIVE",
            "target.gtid_mode",
            "error",
            "whether a replicated DDL ran",
        ),
        ("target", "super_read_only=ON", "target.read_only", "error", "super_read_only"),
        ("target", "max_connections=10", "target.max_connections", "warning", "8 workers want 13"),
        (
            "target",
            "max_allowed_packet=16777216",
            "target.max_allowed_packet",
            "warning",
            "permits larger ones",
        ),
    ] {
        let server = if side == "source" { &source } else { &target };
        server.exec(&format!("SET GLOBAL {set}")).await;
        let fix = check(builder()).says(check_name, level, &[words]);
        // Change the running server, not its next start.
        server.exec(&fix.replace("SET PERSIST", "SET GLOBAL")).await;
        check(builder()).is_fine(&[check_name]);
    }
    target.exec("SET GLOBAL read_only=OFF").await;

    source.exec("SET GLOBAL binlog_transaction_compression=ON").await;
    let compressed = check(builder());
    assert!(compressed.of("source.log_bin")["text"].to_string().contains("compressed"));
    source.exec("SET GLOBAL binlog_transaction_compression=OFF").await;

    let zones = "INSERT INTO mysql.time_zone VALUES (1, 'N'); \
        INSERT INTO mysql.time_zone_name VALUES ('UTC', 1), ('Europe/Berlin', 1); \
        INSERT INTO mysql.time_zone_transition_type VALUES (1, 0, 0, 0, 'UTC')";
    source.exec(zones).await;
    check(builder()).says("target.time_zones", "warning", &["source alone", "mysql_tzinfo_to_sql"]);
    target.exec(zones).await;
    check(builder()).is_fine(&["target.time_zones"]);

    // The clock looks wrong to an account without privileges.
    source.exec("SET GLOBAL init_connect='SET timestamp=1000000000'").await;
    check(builder()).says("source.clock", "warning", &["earlier than this host's", "NTP"]);
    source.exec("SET GLOBAL init_connect=''").await;
    check(builder()).is_fine(&["source.clock"]);

    let disk = |key: &str| builder().set(&format!("relay.{key}"), "900TiB");
    check(disk("space_limit")).says("host.disk", "warning", &["space_limit", "MiB"]);
    let full = check(disk("min_free_disk"));
    full.says("host.disk", "error", &["reception waits below min_free_disk"]);
    assert!(full.stderr.contains("channel \"test\": host.disk"), "{}", full.stderr);

    let same = i64::from(source.value::<u32>("SELECT @@server_id").await);
    let same = check(builder().set("source.server_id", same));
    same.says("source.server_id", "error", &["[channel.source] server_id"]);

    // A setting that only the start itself refuses.
    let idempotent = builder().set("applier.executor", "sql");
    let idempotent = check(idempotent.set("applier.exec_mode", "idempotent"));
    idempotent.says("channel.start", "error", &["exec_mode", "row images"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_login_and_privilege_in_one_run() {
    let (source, target) = Server::pair(&[], &[LARGE_PACKET]);
    let accounts = "applier.replicate_accounts";
    let builder = || Daemon::builder(&source, &target).set(accounts, true);
    // Neither server's errors hide the other's, nor those of this host.
    let wrong = check(
        builder()
            .set("source.password", "wrong")
            .set("target.port", 1)
            .set("relay.min_free_disk", "900TiB"),
    );
    wrong.says("source.login", "error", &["refused user 'repl'", "[channel.source]"]);
    wrong.says("target.login", "error", &["127.0.0.1:1"]);
    assert_eq!(wrong.errors(), ["source.login", "target.login", "host.disk"]);

    let weak = "CREATE USER weak@'%' IDENTIFIED BY 'weak_pw'";
    source.exec(weak).await;
    target.exec(weak).await;
    let as_weak = |executor: &str, gtids: &str| {
        builder()
            .set("source.user", "weak")
            .set("source.password", "weak_pw")
            .set("target.user", "weak")
            .set("target.password", "weak_pw")
            .set("applier.executor", executor)
            .set("applier.target_gtids", gtids)
    };
    target.exec("SET GLOBAL sql_require_primary_key=ON").await;
    source.exec("SET gtid_next='AUTOMATIC:tag'; CREATE DATABASE x; SET gtid_next=AUTOMATIC").await;
    let found = check(as_weak("auto", "own"));
    let demanded = found.says("target.sql_require_primary_key", "warning", &["without a key"]);
    let session = "GRANT SESSION_VARIABLES_ADMIN ON *.* TO 'weak'@'%';";
    assert!(unlogged(&demanded, session), "{demanded}");
    let replicate = found.says("source.privileges", "error", &["may not replicate"]);
    found.says("target.privileges", "error", &["SELECT, INSERT, UPDATE, DELETE, CREATE, TRIGGER"]);
    found.says("target.executor", "warning", &["slower"]);
    found.says("target.log_bin_trust_function_creators", "warning", &["1419"]);
    let found = check(as_weak("row-image", "mirror"));
    let write = found.says("target.privileges", "error", &["SYSTEM_VARIABLES_ADMIN"]);
    found.is_fine(&["target.executor"]);
    let define = found.says("target.ddl_privileges", "warning", &["SET_ANY_DEFINER", "GTID_TAG"]);
    let account =
        found.says("target.account_privileges", "warning", &["CREATE USER", "replicate_accounts"]);
    source.exec(&replicate).await;
    target.exec(&write).await;
    target.exec(&define).await;
    target.exec(&account).await;
    target.exec("SET GLOBAL log_bin_trust_function_creators=ON").await;
    // The printed fixes are enough, for the start as well.
    let found = check(as_weak("row-image", "mirror"));
    found.is_fine(&["source.privileges", "target.privileges", "target.ddl_privileges"]);
    found.is_fine(&["target.log_bin_trust_function_creators", "channel.start"]);
    found.is_fine(&["target.sql_require_primary_key", "target.account_privileges"]);

    target.exec("SET GLOBAL read_only=ON").await;
    let grant = check(as_weak("row-image", "own")).says("target.read_only", "error", &["ON"]);
    assert!(unlogged(&grant, "GRANT CONNECTION_ADMIN ON *.* TO 'weak'@'%';"), "{grant}");
    target.exec(&grant).await;
    check(as_weak("row-image", "own")).is_fine(&["target.read_only", "channel.start"]);
}

/// A failover address that is down is no error while another answers.
#[tokio::test(flavor = "multi_thread")]
async fn positions_and_a_channel_that_is_taken() {
    let (source, target) = Server::pair(&[], &FIT);
    let builder = || Daemon::builder(&source, &target);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    source.exec("INSERT INTO d.t VALUES (1)").await;
    let nobody: toml::Value =
        "a = [{ host = \"127.0.0.1\", port = 1 }]".parse::<toml::Table>().expect("TOML")["a"]
            .clone();
    let failover = check(builder().set("source.failover", nobody));
    assert_eq!(failover.errors(), [""; 0], "{:#?}", failover.findings);
    assert!(failover.at("warning").contains(&"source.login"), "{:#?}", failover.findings);

    // The missing tables are still to come.
    let lagging = check_tables(builder());
    lagging.says("tables.missing", "warning", &["d.t", "pending transactions"]);
    assert!(lagging.of("position.start")["text"].to_string().contains("3 transactions pending"));

    // Tables without GTIDs mean a copy whose transactions would be applied again.
    target.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    check_tables(builder()).says("position.start", "error", &["second time", "gtid_purged"]);
    let executed = source.gtid_executed().await;
    let told = check_tables(builder().set("applier.start_from", executed));
    told.is_fine(&["position.start", "tables.missing", "channel.start"]);
    target.exec("DROP DATABASE d").await;
    check_tables(builder()).is_fine(&["position.start"]);

    let daemon = builder().start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let said = tokio::task::block_in_place(|| daemon.command(&["check", "--connect"]));
    assert_eq!(said.code, Some(0), "{said:?}");
    for line in [
        "channel test\n",
        "\n  ok       source.gtid_mode: ON, enforce_gtid_consistency=ON\n",
        "\n  warning  target.channel: a daemon has the channel (connection ",
        "after the checkpoint; nothing is pending\n",
        "\n             on the source: SET sql_log_bin=0 /*",
        "*/; GRANT SELECT ON *.* TO 'repl'@'%';\n",
        " ok, 3 warnings, 0 errors\n",
    ] {
        assert!(said.out.contains(line), "{line:?} is missing in {}", said.out);
    }
    daemon.terminate();
    let said = tokio::task::block_in_place(|| daemon.command(&["check", "--connect"]));
    assert!(said.out.contains("it has a checkpoint, and no daemon has it"), "{}", said.out);

    target.exec("SET sql_log_bin=0; RENAME TABLE d.t TO d.away").await;
    let fix = "csa-daemon copy --channel test --table d.t";
    check_tables(builder()).says("tables.missing", "error", &["d.t", fix]);
    target.exec("SET sql_log_bin=0; RENAME TABLE d.away TO d.t").await;

    // A second channel can't get the transactions that the source has purged.
    source.exec("FLUSH BINARY LOGS").await;
    let log: String =
        source.value("SELECT LOCAL->>'$.binary_log_file' FROM performance_schema.log_status").await;
    source.exec(&format!("PURGE BINARY LOGS TO '{log}'")).await;
    let other = || builder().set("name", "other").set("source.server_id", 77);
    let purged = check(other());
    purged.says("position.purged", "error", &["purged 1 transaction that the target lacks"]);
    let executed = source.gtid_executed().await;
    let told = check_tables(other().set("applier.start_from", executed.clone()));
    told.is_fine(&["position.purged", "position.start", "channel.start"]);

    // The source forgets the transactions that the target has.
    let rest = format!("GTID_SUBTRACT('{executed}', @@GLOBAL.gtid_executed)");
    target.exec(&format!("SET GLOBAL gtid_purged=CONCAT('+', {rest})")).await;
    check(other()).is_fine(&["position.history", "position.purged"]);
    source.exec("RESET BINARY LOGS AND GTIDS").await;
    check(other()).says("position.history", "error", &["was it reset", &executed]);
}

/// Transactions that the source commits during the check count as still to come.
#[tokio::test(flavor = "multi_thread")]
async fn a_channel_in_use_has_no_errors() {
    let (source, target) = Server::pair(&[], &FIT);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let password = daemon.config_path().with_file_name("source.pw");
    std::fs::write(&password, "admin_pw\n").expect("writable");
    let password = password.display().to_string();
    let opts = source.opts();
    let load = tokio::spawn(async move {
        let mut conn = mysql_async::Conn::new(opts).await.expect("a session");
        for number in 0.. {
            let table = format!("CREATE TABLE d.n{number} (id INT PRIMARY KEY)");
            let row = "INSERT INTO d.t VALUES ()".to_owned();
            for statement in [row.clone(), table, row] {
                conn.query_drop(statement).await.expect("done");
            }
        }
    });
    for _ in 0..8 {
        let said = tokio::task::block_in_place(|| {
            daemon.command(&[
                "check",
                "--connect",
                "--source-user",
                "admin",
                "--source-password-file",
                &password,
            ])
        });
        assert_eq!(said.code, Some(0), "{}", said.out);
    }
    assert!(!load.is_finished(), "it was not in use");
    load.abort();
}

/// Limits that no session can lift for itself.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn limits_of_the_account_and_of_packets_are_named() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, b LONGBLOB)").await;
    let few = "SET sql_log_bin=0; CREATE USER few@'%' IDENTIFIED BY 'few_pw'; GRANT SELECT, INSERT, UPDATE, DELETE, \
         CREATE, DROP, ALTER, INDEX, REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN ON *.* TO few@'%'";
    target.exec(few).await;
    let builder = || {
        Daemon::builder(&source, &target).set("target.user", "few").set("target.password", "few_pw")
    };
    let fixed = ["target.account_limits", "target.init_connect", "target.connection_memory_limit"];
    let fine = check(builder());
    fine.is_fine(&fixed);
    fine.is_fine(&["source.account_limits", "source.init_connect"]);
    // A row of the source's largest packet is longer as text.
    let words = ["67108864", "rows of 49545216 bytes", "1153"];
    let larger = fine.says("target.max_allowed_packet", "warning", &words);

    target
        .exec(
            "SET sql_log_bin=0; ALTER USER few@'%' WITH MAX_QUERIES_PER_HOUR 100000 MAX_USER_CONNECTIONS 3; \
             SET GLOBAL init_connect='SET NAMES latin1'; \
             SET GLOBAL global_connection_memory_tracking=1, connection_memory_limit=8388608",
        )
        .await;
    source.exec("SET sql_log_bin=0; ALTER USER repl@'%' WITH MAX_CONNECTIONS_PER_HOUR 1000").await;
    let limited = check(builder());
    let words = ["MAX_QUERIES_PER_HOUR 100000", "MAX_USER_CONNECTIONS 3 where 13", "1226"];
    let lift = limited.says("target.account_limits", "warning", &words);
    let words = ["1184", "GRANT CONNECTION_ADMIN ON *.* TO 'few'@'%'"];
    let exempt = limited.says("target.init_connect", "warning", &words);
    limited.says("target.connection_memory_limit", "warning", &["8388608", "4082"]);
    let on_source =
        limited.says("source.account_limits", "warning", &["MAX_CONNECTIONS_PER_HOUR 1000"]);

    for fix in [larger, lift, exempt] {
        target.exec(&format!("SET sql_log_bin=0; {fix}")).await;
    }
    source.exec(&format!("SET sql_log_bin=0; {on_source}")).await;
    let fine = check(builder());
    fine.is_fine(&fixed);
    fine.is_fine(&["source.account_limits", "target.max_allowed_packet"]);
    // With it the largest row of the source arrives.
    let daemon = builder().start();
    source.exec("INSERT INTO d.t VALUES (1, REPEAT('x', 67000000))").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    csa_tests::compare(&source, &target).await;

    // A statement of it that fails ends each session.
    target
        .exec(
            "REVOKE CONNECTION_ADMIN ON *.* FROM few@'%'; SET GLOBAL init_connect='SELECT nothing'",
        )
        .await;
    check(builder()).says("target.login", "error", &["init_connect"]);
}

/// Nothing of what such a source applies would arrive.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_does_not_log_what_it_applies_is_named() {
    let (upstream, target) = Server::pair(&[], &[LARGE_PACKET]);
    let source = Server::start("silent", &["--log-replica-updates=OFF"]);
    upstream.exec("CREATE DATABASE d").await;
    source.follow(&upstream).await;
    let executed = upstream.gtid_executed().await;
    csa_tests::eventually("it follows", DRAIN, async || {
        let applied = format!("SELECT GTID_SUBSET('{executed}', @@GLOBAL.gtid_executed)");
        source.value::<bool>(&applied).await
    })
    .await;
    let name = "source.log_replica_updates";
    let checked = || check(Daemon::builder(&source, &target));
    // The sandbox's account can only replicate.
    checked().says(name, "warning", &["may not see", "GRANT REPLICATION CLIENT ON *.* TO 'repl'"]);
    source.exec("SET sql_log_bin=0; GRANT REPLICATION CLIENT ON *.* TO repl@'%'").await;
    checked().says(name, "error", &["it is a replica", "--log-replica-updates"]);
    source.exec("STOP REPLICA").await;
    checked().says(name, "error", &["it is a replica", "RESET REPLICA ALL"]);
    source.exec("RESET REPLICA ALL").await;
    checked().is_fine(&[name]);
}
