//! Timelines of a channel: `csa-daemon trace` and the path of the admin port.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use csa_tests::{Daemon, Server, compare, eventually};
use mysql_async::prelude::Queryable as _;
use serde_json::Value;

use crate::DRAIN;

const WORKERS: u16 = 4;
/// Microseconds: more than the error of the numbers, less than any span.
const EXACT: f64 = 0.01;

/// A span with its begin and end in microseconds.
#[derive(Debug, Clone)]
struct Span {
    name: String,
    begun: f64,
    ended: f64,
    args: Value,
}

/// Returns the spans of a timeline by the name of their line.
fn lines_of(timeline: &Value) -> BTreeMap<String, Vec<Span>> {
    let events = timeline["traceEvents"].as_array().expect("events");
    let named = events.iter().filter(|event| event["name"] == "thread_name");
    let names: BTreeMap<u64, String> = named
        .map(|event| {
            let name = event["args"]["name"].as_str().expect("a name");
            (event["tid"].as_u64().expect("a line"), name.to_owned())
        })
        .collect();
    let mut lines: BTreeMap<String, Vec<Span>> =
        names.values().map(|name| (name.clone(), Vec::new())).collect();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let number = |field: &str| event[field].as_f64().expect("a number");
        let name = &names[&event["tid"].as_u64().expect("a line")];
        lines.entry(name.clone()).or_default().push(Span {
            name: event["name"].as_str().expect("a name").to_owned(),
            begun: number("ts"),
            ended: number("ts") + number("dur"),
            args: event["args"].clone(),
        });
    }
    lines
}

/// Spans of a line lie within each other or follow each other.
#[track_caller]
fn check_nesting(line: &str, spans: &[Span]) {
    let mut spans = spans.to_vec();
    spans.sort_by(|a, b| a.begun.total_cmp(&b.begun).then(b.ended.total_cmp(&a.ended)));
    let mut open: Vec<Span> = Vec::new();
    for span in spans {
        assert!(span.begun >= 0.0 && span.ended >= span.begun, "{line}: {span:?}");
        while open.last().is_some_and(|outer| outer.ended <= span.begun + EXACT) {
            open.pop();
        }
        if let Some(outer) = open.last() {
            assert!(span.ended <= outer.ended + EXACT, "{line}: {span:?} leaves {outer:?}");
            assert!(outer.name.starts_with("group"), "{line}: {span:?} overlaps {outer:?}");
        }
        open.push(span);
    }
}

/// Changes rows in all workers for a while, some of them rows that others change as well.
async fn load(source: &Server, seconds: u64) {
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..4 {
        let mut conn = source.conn().await;
        clients.spawn(async move {
            let ends = std::time::Instant::now() + Duration::from_secs(seconds);
            let mut value = 0;
            while std::time::Instant::now() < ends {
                value += 1;
                let own = 10 + client * 100 + value % 100;
                let update = format!(
                    "BEGIN; UPDATE d.t SET v={value} WHERE id={own}; \
                     UPDATE d.t SET v={value} WHERE id=1; COMMIT"
                );
                conn.query_drop(update).await.expect("updates");
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.expect("a client");
    }
}

async fn filled() -> (Server, Server, Daemon) {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    source
        .exec(
            "INSERT INTO d.t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) \
             SELECT i, 0 FROM n",
        )
        .await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.worker_count", i64::from(WORKERS))
        .set("relay.sync", "transaction")
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    (source, target, daemon)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeline_shows_every_worker_and_spans_that_nest() {
    let (source, target, daemon) = filled().await;
    let file = daemon.state_dir().join("timeline.json");
    // A group that is held up for the whole time is on it, too.
    let mut held = target.conn().await;
    let tracing = Command::new(Daemon::executable())
        .arg("--config")
        .arg(daemon.config_path())
        .args(["trace", "--seconds", "5", "--output"])
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    eventually("recording has begun", DRAIN, async || {
        std::fs::metadata(&file).is_ok_and(|file| file.len() > 0)
    })
    .await;
    load(&source, 2).await;
    source.exec("ALTER TABLE d.t ADD w INT").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    held.query_drop("BEGIN; SELECT v FROM d.t WHERE id=2 FOR UPDATE").await.expect("locks");
    source.exec("UPDATE d.t SET v=-1 WHERE id=2").await;
    let waits =
        async || daemon.status()["channels"][0]["applier"]["workers"][0]["state"] == "applying";
    eventually("a group waits for the lock", DRAIN, waits).await;
    source.exec("UPDATE d.t SET v=-1 WHERE id=3").await;
    let output = tracing.wait_with_output().expect("the command");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    drop(held);

    let text = std::fs::read_to_string(&file).expect("the file");
    let timeline: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(timeline["otherData"]["dropped_spans"], 0);
    assert_eq!(timeline["otherData"]["channel"], "test");
    let lines = lines_of(&timeline);
    let names: Vec<String> = (0..WORKERS).map(|worker| format!("worker {worker}")).collect();
    let fixed = ["admission", "reception", "relay sync", "statements"].map(str::to_owned);
    let expected: Vec<&String> = fixed.iter().chain(&names).collect();
    assert_eq!(lines.keys().collect::<Vec<_>>(), expected);
    for (line, spans) in &lines {
        check_nesting(line, spans);
        assert!(spans.iter().all(|span| span.ended <= 7e6), "{line}");
    }
    for line in ["reception", "relay sync", "statements"] {
        assert!(!lines[line].is_empty(), "{line}");
    }
    let of_workers: Vec<&Span> = names.iter().flat_map(|name| &lines[name]).collect();
    for state in
        ["preparing", "waiting for dependency", "applying", "waiting for turn", "committing"]
    {
        assert!(of_workers.iter().any(|span| span.name == state), "no {state}");
    }
    // Waits name the group that is waited for, which is an earlier one.
    for span in of_workers.iter().filter(|span| span.name.starts_with("waiting")) {
        let of = |field: &str| span.args[field].as_u64();
        assert!(of("waited_for_group") < of("group") && of("group").is_some(), "{span:?}");
    }
    let groups: Vec<&&Span> =
        of_workers.iter().filter(|span| span.name.starts_with("group ")).collect();
    let transactions: u64 =
        groups.iter().filter_map(|group| group.args["transactions"].as_u64()).sum();
    let received: u64 =
        lines["reception"].iter().filter_map(|span| span.args["transactions"].as_u64()).sum();
    assert_eq!(transactions + lines["statements"].len() as u64, received, "all that was received");
    let uuid: String = source.value("SELECT @@server_uuid").await;
    for group in &groups {
        let args = &group.args;
        assert!(args["first_gtid"].as_str().is_some_and(|gtid| gtid.starts_with(&uuid)), "{args}");
        assert!(args["rows"].as_u64() > Some(0) && args["bytes"].as_u64() > Some(0), "{args}");
    }
    // The two that were not finished in time reach to the end.
    let unfinished = groups.iter().filter(|group| group.ended >= 5e6).count();
    assert_eq!(unfinished, 2, "{groups:?}");
    let events = timeline["traceEvents"].as_array().expect("events");
    for counter in ["backlog", "event memory", "groups in flight"] {
        let values = events.iter().filter(|event| event["ph"] == "C" && event["name"] == counter);
        assert!(values.count() > 20, "{counter}");
    }
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recording_ends_with_its_client_and_has_one_at_a_time() {
    let (source, target, daemon) = filled().await;
    let address = daemon.url("").trim_start_matches("http://").to_owned();
    let mut client = TcpStream::connect(&address).expect("connects");
    let request =
        format!("GET /channels/test/trace?seconds=600 HTTP/1.1\r\nHost: {address}\r\n\r\n");
    client.write_all(request.as_bytes()).expect("asks");
    let mut some = [0; 64];
    client.read_exact(&mut some).expect("an answer begins");
    let (code, why) = daemon.get("/channels/test/trace?seconds=1").expect("an answer");
    assert!(code == 409 && why.contains("another client records"), "{code}: {why}");
    daemon.command(&["trace", "--seconds", "1"]).refused(1, &["wait until it is done"]);
    drop(client);
    eventually("the next client's turn", Duration::from_secs(10), async || {
        daemon.get("/channels/test/trace?seconds=1").is_some_and(|(code, _)| code == 200)
    })
    .await;
    for wrong in ["0", "601", "x", "-1"] {
        let answer = daemon.get(&format!("/channels/test/trace?seconds={wrong}"));
        assert_eq!(answer.map(|answer| answer.0), Some(400), "{wrong}");
    }
    compare(&source, &target).await;
}
