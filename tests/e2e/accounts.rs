//! The target decides who may log in to it.

use std::path::Path;

use csa_tests::{Daemon, DaemonBuilder, Server, compare};
use mysql_async::prelude::Queryable as _;
use serde_json::Value;

use crate::DRAIN;

/// config/grants-target.sql, with its commented statements.
fn grants() -> (String, Vec<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/grants-target.sql");
    let target = std::fs::read_to_string(path).expect("config/grants-target.sql");
    let commented = target.lines().filter_map(|line| line.strip_prefix("-- GRANT "));
    let commented = commented.map(|grant| format!("GRANT {grant}")).collect();
    (target, commented)
}

/// Returns a daemon with exactly the accounts of the documentation.
fn documented(source: &Server, target: &Server) -> DaemonBuilder {
    Daemon::builder(source, target).set("target.password", "change me")
}

/// Returns all tables that hold logins and privileges.
async fn accounts_of(server: &Server) -> String {
    let mut conn = server.conn().await;
    let mut all = String::new();
    for table in ["user", "db", "tables_priv", "role_edges", "global_grants", "default_roles"] {
        let query = format!("SELECT * FROM mysql.{table} ORDER BY 1, 2, 3, 4");
        let rows: Vec<mysql_async::Row> = conn.query(query).await.expect("a grant table");
        let rows = rows.into_iter().map(|row| format!("{table}: {:?}\n", row.unwrap()));
        all.extend(rows);
    }
    all
}

const ATTACK: [&str; 12] = [
    "CREATE USER victim IDENTIFIED BY 'x'",
    "CREATE ROLE worker",
    "GRANT ALL ON *.* TO victim WITH GRANT OPTION",
    "ALTER USER boss@'%' IDENTIFIED BY 'taken over'",
    "SET PASSWORD FOR boss@'%' = 'taken over too'",
    "RENAME USER boss@'%' TO chief@'%'",
    "DROP USER chief@'%'",
    "/*!50003 REVOKE ALL ON *.* FROM victim */",
    "GRANT worker TO victim",
    "SET DEFAULT ROLE worker TO victim",
    "UPDATE mysql.user SET account_locked='Y' WHERE user='victim'",
    "INSERT INTO mysql.db (Host,Db,User,Select_priv) VALUES ('%','shop','victim','Y')",
];

async fn the_source_attacks(source: &Server, target: &Server, builder: DaemonBuilder) {
    // The account is on both servers, with a different password on each.
    for (server, password) in [(source, "of the source"), (target, "of the target")] {
        let boss = format!("SET sql_log_bin=0; CREATE USER boss@'%' IDENTIFIED BY '{password}'");
        server.exec(&boss).await;
    }
    let before = accounts_of(target).await;
    let daemon = builder.start();
    source.exec("CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)").await;
    for statement in ATTACK {
        source.exec(statement).await;
    }
    source.exec("FLUSH PRIVILEGES; FLUSH TABLES; FLUSH STATUS").await;
    source.exec("INSERT INTO shop.t VALUES (1,1); UPDATE shop.t SET v=2").await;
    source.exec("ALTER TABLE shop.t ADD w INT DEFAULT 3; INSERT INTO shop.t VALUES (2,2,2)").await;
    daemon.wait_drained(source, target, DRAIN).await;
    assert_eq!(accounts_of(target).await, before);
    let target_is = target.opts_as("boss", "of the target");
    mysql_async::Conn::new(target_is).await.expect("the target's own password still counts");
    let view = &daemon.status()["channels"][0];
    assert_eq!(view["applier"]["accounts_left_out_total"], ATTACK.len(), "{view}");
    let (_, metrics) = daemon.get("/metrics").expect("answers");
    let counted =
        format!("csa_applier_accounts_left_out_total{{channel=\"test\"}} {}", ATTACK.len());
    assert!(metrics.contains(&counted), "{metrics}");
    let log = daemon.log();
    assert_eq!(log.matches("account management left out").count(), ATTACK.len(), "{log}");
    assert!(!log.contains("taken over") && !log.contains("victim"), "{log}");
    compare(source, target).await;
}

/// Runs with the privileges of config/grants-target.sql, and with more.
#[tokio::test(flavor = "multi_thread")]
async fn the_sources_accounts_are_not_the_targets() {
    for documented_grants in [true, false] {
        let (source, target) = Server::pair(&[], &[]);
        source.exec("CREATE DATABASE shop").await;
        let mut builder = Daemon::builder(&source, &target);
        if documented_grants {
            target.exec("SET sql_log_bin=0; DROP USER csa@'%'").await;
            target.exec(&grants().0).await;
            builder = documented(&source, &target);
        }
        let probe = builder.clone().build();
        let said = tokio::task::block_in_place(|| probe.command(&["check", "--connect", "--json"]));
        let found: Value =
            serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
        let finding = found["channels"][0]["findings"]
            .as_array()
            .and_then(|list| list.iter().find(|f| f["check"] == "target.account_privileges"))
            .unwrap_or_else(|| panic!("{found}"));
        let expected = if documented_grants { "ok" } else { "warning" };
        assert_eq!(finding["level"], expected, "{finding}");
        the_source_attacks(&source, &target, builder).await;
    }
}

/// The grants schema by schema are enough for the replicated schemas.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_with_grants_for_its_schemas_alone() {
    let (source, target) = Server::pair(&[], &[]);
    let (script, commented) = grants();
    target.exec("SET sql_log_bin=0; DROP USER csa@'%'").await;
    target.exec(&script).await;
    target.exec("REVOKE ALL PRIVILEGES ON *.* FROM csa@'%'").await;
    let by_schema: Vec<&String> = commented
        .iter()
        .filter(|grant| grant.contains(".* TO") && !grant.contains("*.*"))
        .collect();
    assert_eq!(by_schema.len(), 3, "{commented:?}");
    for grant in by_schema {
        target.exec(grant).await;
    }
    target
        .exec(
            "GRANT REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN, SET_ANY_DEFINER ON *.* TO csa@'%'",
        )
        .await;
    source.exec("CREATE DATABASE shop").await;
    let builder =
        documented(&source, &target).set("applier.replicate_wild_do_table", vec!["shop.%"]);
    the_source_attacks(&source, &target, builder).await;
}

/// A change of the grant tables counts after FLUSH PRIVILEGES only, on the target as on the source.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_source_takes_away_is_taken_away_on_the_target() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = Daemon::builder(&source, &target).set("applier.replicate_accounts", true).start();
    source.exec("CREATE USER app IDENTIFIED BY 'app_pw'").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let app = || target.opts_as("app", "app_pw");
    mysql_async::Conn::new(app()).await.expect("it may log in");
    source.exec("UPDATE mysql.user SET account_locked='Y' WHERE user='app'").await;
    source.exec("FLUSH PRIVILEGES").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let error = mysql_async::Conn::new(app()).await.expect_err("it is locked").to_string();
    assert!(error.contains("3118"), "{error}");
}
