//! Verify that is interrupted and resumes, and verify of a channel that applies nothing.

use std::process::{Child, Command, Stdio};

use super::*;

const ROWS_OF_LARGE: u64 = 6_000;

/// Returns a small table, which comes first, and a large one.
async fn site() -> (Server, Server, Daemon) {
    let (source, target) = Server::pair(&[], &[]);
    source
        .exec(&format!(
            "SET cte_max_recursion_depth=10000; CREATE DATABASE d; USE d; \
             CREATE TABLE a (id INT PRIMARY KEY, v INT); INSERT INTO a VALUES (1,1),(2,2); \
             CREATE TABLE large (id INT PRIMARY KEY, v INT); INSERT INTO large \
             WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS_OF_LARGE}) \
             SELECT n, n FROM s"
        ))
        .await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    (source, target, daemon)
}

/// Starts a slow comparison, and waits until it has compared some of the large table.
async fn begun(daemon: &Daemon) -> Child {
    let password = daemon.config_path().with_file_name("source.pw");
    std::fs::write(&password, "admin_pw\n").expect("writable");
    let mut run = Command::new(Daemon::executable());
    run.arg("--config").arg(daemon.config_path());
    run.args(["verify", "--max-rate", "1000", "--chunk-rows", "100", "--from-start"]);
    run.args(["--source-user", "admin", "--source-password-file"]).arg(&password);
    let run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    eventually("a part is compared", DRAIN, async || rows(daemon) >= 1000).await;
    run
}

/// Returns the rows of the large table in the state of a comparison.
fn rows(daemon: &Daemon) -> u64 {
    let file = daemon.state_dir().join("test/verify.json");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let state: Value = serde_json::from_str(&text).unwrap_or_default();
    state["saved"]["part"]["rows"].as_u64().unwrap_or_default()
}

/// Kills a comparison after it has compared some of the large table; returns the rows of its state.
async fn interrupt(daemon: &Daemon) -> u64 {
    let mut run = begun(daemon).await;
    run.kill().expect("killed");
    run.wait().expect("ends");
    let compared = rows(daemon);
    assert!(compared < ROWS_OF_LARGE, "{compared}");
    compared
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_interrupted_resumes_where_it_was() {
    let (source, target, daemon) = site().await;
    let compared = interrupt(&daemon).await;
    // In rows that are not read again, and in one that is.
    target
        .exec("UPDATE d.a SET v=7 WHERE id=1; UPDATE d.large SET v=0 WHERE id IN (5, 5999)")
        .await;
    let resumed = verify(&daemon, &[]);
    assert_eq!(
        resumed.assert_code(1).differences(),
        BTreeSet::from(["d.large id=5999 differs v".to_owned()])
    );
    assert_eq!(resumed.table("d.large")["rows"], ROWS_OF_LARGE);
    assert_eq!(resumed.table("d.a")["compared_before"], true);
    for said in [
        "channel test: a run was interrupted at ".to_owned(),
        "after 1 tables and ".to_owned(),
        format!("d.large: resuming after {compared} rows"),
    ] {
        assert!(resumed.stderr.contains(&said), "{said}: {}", resumed.stderr);
    }
    // One that came to its end leaves nothing.
    let all = BTreeSet::from(
        ["d.a id=1 differs v", "d.large id=5 differs v", "d.large id=5999 differs v"]
            .map(str::to_owned),
    );
    let again = verify(&daemon, &[]);
    assert_eq!(again.assert_code(1).differences(), all);
    assert!(!again.stderr.contains("interrupted"), "{}", again.stderr);

    interrupt(&daemon).await;
    let again = verify(&daemon, &["--from-start"]);
    assert_eq!(again.assert_code(1).differences(), all);
    target
        .exec("UPDATE d.a SET v=1 WHERE id=1; UPDATE d.large SET v=id WHERE id IN (5, 5999)")
        .await;
    interrupt(&daemon).await;
    // Another part of the tables is another run.
    target.exec("UPDATE d.large SET v=0 WHERE id=5").await;
    let part = verify(&daemon, &["--table", "d.large"]);
    let found = BTreeSet::from(["d.large id=5 differs v".to_owned()]);
    assert_eq!(part.assert_code(1).differences(), found);
    // Definitions that changed make what was found worthless.
    interrupt(&daemon).await;
    source.exec("ALTER TABLE d.large ADD COLUMN w INT").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert_eq!(verify(&daemon, &[]).assert_code(1).differences(), found);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_a_signal_ends_has_its_code_and_says_how_to_continue() {
    let (_source, _target, daemon) = site().await;
    let run = begun(&daemon).await;
    let killed = Command::new("kill").args(["-TERM", &run.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
    let said = tokio::task::block_in_place(|| run.wait_with_output()).expect("ends");
    let error = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(143), "{error}");
    let how = "interrupted; the same command without --from-start continues it";
    assert!(error.contains(how), "{error}");
    let resumed = verify(&daemon, &[]);
    assert_eq!(resumed.assert_code(0).table("d.a")["compared_before"], true);
    assert!(resumed.stderr.contains("d.large: resuming after "), "{}", resumed.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_lacks_what_it_had_is_compared_as_a_whole() {
    let (_source, target, daemon) = site().await;
    interrupt(&daemon).await;
    target.exec("UPDATE d.a SET v=7 WHERE id=1; RESET BINARY LOGS AND GTIDS").await;
    let again = verify(&daemon, &[]);
    let found = BTreeSet::from(["d.a id=1 differs v".to_owned()]);
    assert_eq!(again.assert_code(1).differences(), found);
    assert!(!again.stderr.contains("resuming after"), "{}", again.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_applies_nothing_is_named_at_once() {
    let (source, target, daemon) = site().await;
    let at_once = |words: &[&str]| {
        let started = Instant::now();
        let said = verify(&daemon, &[]);
        said.assert_code(2);
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        let error = said.json["error"].as_str().expect("an error").to_owned();
        for word in words {
            assert!(error.contains(word), "{word}: {error}");
        }
    };
    for (command, words) in [
        (["pause"], ["channel test is paused", "csa-daemon --channel test resume"]),
        (["stop"], ["channel test is stopped", "csa-daemon --channel test restart"]),
    ] {
        daemon.commanded(&command);
        source.exec("UPDATE d.a SET v=v+1 WHERE id=2").await;
        at_once(&words);
        daemon.commanded(&["restart"]);
        daemon.commanded(&["resume"]);
        daemon.wait_drained(&source, &target, DRAIN).await;
    }
    target.exec("DELETE FROM d.a WHERE id=1").await;
    source.exec("UPDATE d.a SET v=9 WHERE id=1").await;
    crate::wait_state(&daemon, 0, "failed").await;
    at_once(&["lacks 1 transaction from ", "channel test has failed (", "csa-daemon status names"]);
}
