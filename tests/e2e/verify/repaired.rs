//! Statements of `verify --repair`, applied: source and target are equal then, whatever the types.

use std::io::Write as _;
use std::process::{Command, Stdio};

use csa_tests::compare;

use super::*;

/// Applies statements as operators do: with the `mysql` client.
#[track_caller]
fn apply(target: &Server, statements: &str) {
    let mut client = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/sandbox/mysql-sandbox"))
        .args(["client", "mysql", "--host=127.0.0.1", &format!("--port={}", target.port)])
        .args(["--user=admin", "--password=admin_pw"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("running mysql");
    client.stdin.take().expect("piped").write_all(statements.as_bytes()).expect("is read");
    let ended = client.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{}: {said}\n{statements}", ended.status);
}

/// Runs it with a file for the statements; returns the code, and the statements.
pub(crate) fn repair(daemon: &Daemon, arguments: &[&str]) -> (Option<i32>, String) {
    let password = daemon.config_path().with_file_name("source.pw");
    std::fs::write(&password, "admin_pw\n").expect("writable");
    let (password, file) =
        (password.display().to_string(), daemon.config_path().with_file_name("repair.sql"));
    let path = file.display().to_string();
    let fixed = ["verify", "--repair", &path, "--source-user", "admin", "--source-password-file"];
    let all = [&fixed[..], &[&password], arguments].concat();
    let said = tokio::task::block_in_place(|| daemon.command(&all));
    match said.code {
        Some(0) => {}
        code => {
            assert_eq!(code, Some(1), "{said:?}");
            assert!(said.error.contains("read them before you apply them"), "{said:?}");
        }
    }
    (said.code, std::fs::read_to_string(file).expect("a file"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn statements_bring_every_type_to_the_content_of_the_source() {
    let (source, target) = Server::pair(&[], &[]);
    every_type(&source).await;
    source.exec(TABLES).await;
    source.exec(ROWS).await;
    source
        .exec(
            "CREATE TABLE d.swapped (id INT PRIMARY KEY, u INT UNIQUE); \
             INSERT INTO d.swapped VALUES (1, 10), (2, 20), (3, 30)",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let (code, text) = repair(&daemon, &[]);
    assert_eq!((code, text.as_str()), (Some(0), ""), "nothing differs");

    let mut conn = target.conn().await;
    conn.query_drop("SET foreign_key_checks=0, sql_log_bin=0").await.expect("set");
    let everything: Vec<String> = conn
        .query(
            "SELECT CONCAT('`', REPLACE(TABLE_NAME, '`', '``'), '`') FROM information_schema.TABLES \
             WHERE TABLE_SCHEMA='everything' AND TABLE_TYPE='BASE TABLE'",
        )
        .await
        .expect("lists");
    assert!(everything.len() > 12, "{everything:?}");
    for table in &everything {
        let rows = match table.as_str() {
            // A trigger of the target would fire.
            "`child`" => "FALSE",
            // No text has the types in the other one.
            "`documents`" => "doc->'$.d' IS NULL",
            _ => "TRUE",
        };
        let delete = format!("DELETE FROM everything.{table} WHERE {rows}");
        conn.query_drop(delete).await.expect("deletes");
    }
    conn.query_drop("USE d").await.expect("d");
    for (change, _) in CHANGES {
        conn.query_drop(*change).await.unwrap_or_else(|error| panic!("{change}: {error}"));
    }
    // They have each other's value, so neither can be corrected alone.
    let swap = "UPDATE swapped SET u = NULL WHERE id = 1; UPDATE swapped SET u = 10 WHERE id = 2; \
                UPDATE swapped SET u = 20 WHERE id = 1";
    conn.query_drop(swap).await.expect("swaps");
    conn.disconnect().await.expect("disconnects");

    let (code, text) = repair(&daemon, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.starts_with("-- Written by csa-daemon verify at "), "{text}");
    // Rows that change or vanish after they were found stay as they are.
    source.exec("UPDATE d.t SET s='later' WHERE id=1; DELETE FROM d.t WHERE id=6").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    target.exec("SET sql_log_bin=0; UPDATE d.t SET g=5 WHERE id=9").await;
    for time in ["first", "second"] {
        apply(&target, &text);
        let left = verify(&daemon, &[]);
        let found = left.assert_code(1).differences();
        assert_eq!(found, BTreeSet::from(["d.t id=9 differs g".to_owned()]), "{time} time");
    }
    let (code, text) = repair(&daemon, &[]);
    assert_eq!(code, Some(1));
    assert_eq!(text.matches("DELETE FROM `d`.`t`").count(), 1, "{text}");
    apply(&target, &text);
    verify(&daemon, &[]).assert_code(0);
    compare(&source, &target).await;
    assert_eq!(daemon.status()["channels"][0]["state"], "running");

    // To standard output, and no more than asked for.
    target.exec("SET sql_log_bin=0; UPDATE d.t SET d=7 WHERE id BETWEEN 20 AND 40").await;
    let (code, text) = repair(&daemon, &["--max-differences", "5", "--schema", "d"]);
    assert_eq!(code, Some(1));
    assert_eq!(text.matches("DELETE FROM `d`.`t`").count(), 5, "{text}");
    assert!(text.contains("-- more rows differ"), "{text}");
    apply(&target, &text);
    // Definitions that differ can't be brought to the same content.
    target
        .exec(
            "SET sql_log_bin=0; ALTER TABLE d.t ADD COLUMN extra INT; \
                 CREATE TRIGGER d.fires BEFORE INSERT ON d.names FOR EACH ROW SET NEW.v = NEW.v; \
                 UPDATE d.names SET v=5 WHERE part=1.5",
        )
        .await;
    let (code, text) = repair(&daemon, &["--common-columns"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("-- no statements: the definitions differ"), "{text}");
    assert!(text.contains("-- the statements fire triggers of the target"), "{text}");
    assert!(!text.contains("`d`.`t`"), "{text}");
    target
        .exec("SET sql_log_bin=0; DELETE FROM everything.documents WHERE doc->'$.d' IS NOT NULL")
        .await;
    let (code, text) = repair(&daemon, &["--table", "everything.documents"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("JSON with types that no text has"), "{text}");
    assert!(!text.contains("START TRANSACTION"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_compute_in_another_time_zone_say_so() {
    let (source, target) = Server::pair(&[], &[]);
    source
        .exec(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, at TIMESTAMP NULL, \
             day DATE AS (DATE(at)) STORED); CREATE TABLE d.plain (id INT PRIMARY KEY, at TIMESTAMP NULL)",
        )
        .await;
    source
        .exec(
            "INSERT INTO d.t (id, at) VALUES (1, '2026-03-04 12:00:00'); \
             INSERT INTO d.plain VALUES (1, '2026-03-04 12:00:00')",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let note = "-- the statements compute generated columns in UTC";
    target.exec("SET sql_log_bin=0; DELETE FROM d.plain").await;
    let (_, text) = repair(&daemon, &[]);
    assert!(text.contains("`d`.`plain`") && !text.contains(note), "{text}");
    target.exec("SET sql_log_bin=0; DELETE FROM d.t").await;
    let (_, text) = repair(&daemon, &[]);
    assert!(text.contains(note), "{text}");
}
