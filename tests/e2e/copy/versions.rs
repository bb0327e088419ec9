//! Copies between servers of different versions and vendors.

use csa_tests::{Compare, Daemon, Server, compare, eventually};

use super::{copied, refused};
use crate::{DRAIN, wait_state};

/// The way back after an upgrade.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_copy_goes_to_an_older_release() {
    let source = Server::start("source", &[]);
    for statement in [
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(40), j JSON, \
         at TIMESTAMP NOT NULL, UNIQUE KEY v (v))",
        "CREATE TABLE d.keyless (a INT, b BLOB)",
        "INSERT INTO d.t (v,j,at) VALUES ('ä','{\"a\":1}',NOW()),('b',NULL,NOW()),('c','[]',NOW())",
        "INSERT INTO d.keyless VALUES (1,'x'),(1,'x')",
    ] {
        source.exec(statement).await;
    }
    for limit in ["0MiB", "32MiB"] {
        // Such a server gives the first TIMESTAMP column a default.
        let options = &["--explicit-defaults-for-timestamp=OFF"];
        let target = Server::start_version("target", "8.0.31", options);
        let daemon = Daemon::builder(&source, &target)
            .set("target.tls", "disabled")
            .set("target.get_public_key", true)
            .set("copy.snapshot_limit", limit)
            .build();
        let said = copied(&daemon);
        assert_eq!(said.contains("in chunks"), limit == "0MiB", "{said}");
        assert_eq!(said.contains("all rows equal"), limit != "0MiB", "{said}");
        daemon.start_again();
        source
            .exec("UPDATE d.t SET v=CONCAT(v, 'x') WHERE id=2; DELETE FROM d.keyless LIMIT 1")
            .await;
        wait_state(&daemon, 0, "running").await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        let compared = Compare::contents().run(&source, &target).await;
        compared.unwrap_or_else(|difference| panic!("{difference}"));
        let default: String = target
            .value(
                "SELECT CONCAT(COALESCE(COLUMN_DEFAULT, 'none'), EXTRA) FROM information_schema.COLUMNS \
                 WHERE TABLE_SCHEMA='d' AND COLUMN_NAME='at'",
            )
            .await;
        assert_eq!(default, "none");
    }
}

/// Definitions of MariaDB differ: nothing is made there, and the error names the way.
#[tokio::test(flavor = "multi_thread")]
async fn a_mariadb_target_is_refused_before_the_first_row() {
    let source = Server::start("source", &[]);
    let target = Server::start_mariadb("target", &[]);
    source.exec("CREATE DATABASE d").await;
    source.exec("CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1)").await;
    for limit in ["0MiB", "32MiB"] {
        let daemon = Daemon::builder(&source, &target)
            .set("copy.snapshot_limit", limit)
            .set("applier.start_from", "copy")
            .set("source.user", "admin")
            .set("source.password", "admin_pw")
            .build();
        let error = refused(&daemon);
        assert!(error.contains("MariaDB") && error.contains("copy with a dump"), "{error}");
        daemon.spawn();
        eventually("the channel says why", DRAIN, async || {
            let status = daemon.try_status().unwrap_or_default().to_string();
            status.contains("copy with a dump")
        })
        .await;
        daemon.terminate();
        let schemas: u64 = target
            .value("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='d'")
            .await;
        assert_eq!(schemas, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn copies_go_between_versions() {
    const STATEMENTS: [&str; 8] = [
        "CREATE DATABASE d CHARACTER SET utf8mb4",
        "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(40), n DECIMAL(9,3), j JSON, \
         g DECIMAL(9,3) AS (n+1) STORED, KEY v (v))",
        "CREATE TABLE d.keyless (a INT, b BLOB)",
        "CREATE TABLE d.quiet (id INT PRIMARY KEY)",
        "INSERT INTO d.t (v,n,j) VALUES ('ä',1.5,'{\"a\":1}'),('b',NULL,NULL)",
        "INSERT INTO d.keyless VALUES (1,'x'),(1,'x')",
        "CREATE TRIGGER d.tr BEFORE UPDATE ON d.quiet FOR EACH ROW SET NEW.id = NEW.id + 1",
        "CREATE PROCEDURE d.p() SELECT 1",
    ];
    let pairs = [("5.7", None), ("8.0.15", None), ("8.0.31", None), ("5.7", Some("5.7"))];
    for (number, (from, to)) in pairs.into_iter().enumerate() {
        let source = Server::start_version("source", from, &[]);
        let target = match to {
            Some(version) => Server::start_version("target", version, &[]),
            None => Server::start("target", &[]),
        };
        for statement in STATEMENTS {
            source.exec(statement).await;
        }
        // The library of 5.7 knows no TLS that is used today.
        let mut daemon = Daemon::builder(&source, &target);
        for side in ["source", "target"] {
            daemon = daemon
                .set(&format!("{side}.tls"), "disabled")
                .set(&format!("{side}.get_public_key"), true);
        }
        // In chunks where the target can apply what changes meanwhile.
        let limit = if number % 2 == 0 { "0MiB" } else { "32MiB" };
        let daemon = daemon.set("copy.snapshot_limit", limit).build();
        let said = copied(&daemon);
        assert_eq!(said.contains("in chunks"), limit == "0MiB", "{said}");
        daemon.start_again();
        source.exec("UPDATE d.t SET v='c' WHERE id=2; DELETE FROM d.keyless LIMIT 1").await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        match to {
            Some(_) => compare(&source, &target).await,
            None => Compare::contents()
                .run(&source, &target)
                .await
                .unwrap_or_else(|why| panic!("{why}")),
        };
        // The versions have different defaults for utf8mb4.
        let collations = "SELECT GROUP_CONCAT(column_name, collation_name ORDER BY 1, 2) \
            FROM information_schema.columns WHERE table_schema='d'";
        let [of_source, of_target]: [String; 2] =
            [source.value(collations).await, target.value(collations).await];
        assert_eq!(of_source, of_target, "{from}");
        let programs: u64 = target
            .value(
                "SELECT (SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema='d') + \
                 (SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema='d')",
            )
            .await;
        assert_eq!(programs, 2, "{from}");
    }
}
