//! Access to the admin port, the effects of a reload, and the port as docs/openapi.json describes it.

use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use csa_tests::{Daemon, Etcd, Load, LoadOptions, OpenApi, Server, compare, eventually, prepare};
use serde_json::Value;

use crate::{DRAIN, wait_state};

const TOKEN: &str = "a-token-of-some-length";
const READ_TOKEN: &str = "another-token-to-look";

fn secret(directory: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, format!("{text}\n")).expect("writable");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("permitted");
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_changes_what_can_change_and_names_the_rest() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions { rate: Some(100.0), ..LoadOptions::default() };
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let load = Load::start(&source, &options);
    let settings = || daemon.status()["channels"][0]["settings"].clone();
    assert_eq!(daemon.commanded(&["reload"]), "nothing has changed\n");

    // By signal: some settings change at once, the others are named.
    daemon.set("applier.worker_count", 3);
    daemon.set("applier.throttle", 5000);
    daemon.set("source.connect_retry", "200ms");
    daemon.set("daemon.log_filter", "info,csa_applier=debug");
    daemon.write_config();
    daemon.signal("HUP");
    eventually("the new settings", DRAIN, async || {
        settings()["worker_count"] == 3 && settings()["throttle"] == 5000
    })
    .await;
    assert_eq!(daemon.status()["daemon"]["log_filter"], "info,csa_applier=debug");
    // The immediate changes take effect before the rest is named.
    eventually("the rest is named", DRAIN, async || daemon.log().contains("source.connect_retry"))
        .await;

    // Until the channel restarts, the key is named again; a value set by hand follows the file.
    daemon.commanded(&["set", "worker_count", "5"]);
    let said = daemon.commanded(&["reload"]);
    assert!(said.contains("applier.worker_count: 5 -> 3"), "{said}");
    let needs = "source.connect_retry has changed and needs a restart of the channel";
    assert!(said.contains(needs), "{said}");
    daemon.commanded(&["restart"]);
    wait_state(&daemon, 0, "running").await;
    assert_eq!(daemon.commanded(&["reload"]), "nothing has changed\n");

    // With a mistake anywhere nothing changes.
    for (key, value, words) in [
        (
            "applier.transaction_retries",
            "many",
            "applier.transaction_retries: \"many\" is not an integer",
        ),
        ("daemon.log_filter", "csa=loud", "log_filter"),
        ("applier.worker_cuont", "4", "worker_count"),
    ] {
        daemon.set("applier.worker_count", 7);
        let kept = std::fs::read_to_string(daemon.config_path()).expect("readable");
        daemon.set(key, value);
        daemon.write_config();
        daemon.command(&["reload"]).refused(2, &[words, "nothing was changed"]);
        assert_eq!(settings()["worker_count"], 3);
        daemon.unset(key);
        std::fs::write(daemon.config_path(), kept).expect("writable");
    }
    // The file then no longer names the socket of this process.
    let socket = daemon.socket_path().display().to_string();
    let state = tempfile::tempdir().expect("a temporary directory");
    daemon.set("daemon.state_dir", state.path().display().to_string());
    daemon.write_config();
    let said = daemon.commanded(&["reload", "--admin", &socket]);
    assert!(said.contains("state_dir has changed and needs a restart of the daemon"), "{said}");
    daemon.commanded(&["restart", "--admin", &socket]);
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    assert_eq!(std::fs::read_dir(state.path()).expect("readable").count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn others_need_a_token_and_a_token_permits_what_it_says() {
    let (source, target) = Server::pair(&[], &[]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let token = secret(&directory, "token", TOKEN);
    let read_token = secret(&directory, "read", READ_TOKEN);
    let builder = || Daemon::builder(&source, &target);
    for (builder, words) in [
        (builder().set("daemon.admin_listen", "0.0.0.0:0"), "daemon.admin_token_file"),
        (builder().set("daemon.admin_read_token_file", &*read_token), "admin_token_file"),
        (
            builder().set("daemon.admin_token_file", secret(&directory, "short", "short")),
            "at least 16",
        ),
        (builder().set("daemon.admin_token_file", "/nonexistent"), "daemon.admin_token_file"),
    ] {
        let said = builder.run_expect_exit(2);
        assert!(said.lines().count() == 1 && said.contains(words), "{said}");
    }
    let daemon = builder()
        .set("daemon.admin_token_file", &*token)
        .set("daemon.admin_read_token_file", &*read_token)
        .start();
    let bearer = |token: &str| format!("Bearer {token}");
    let asked = |method: &str, path: &str, token: &str| {
        daemon.request(method, path, &[("authorization", &bearer(token))], "").0
    };
    let pause = "/channels/test/pause";
    assert_eq!(daemon.request("GET", "/healthz", &[], "").0, 200);
    for path in ["/status", "/metrics", "/readyz"] {
        assert_eq!(daemon.request("GET", path, &[], "").0, 401, "{path}");
    }
    assert_eq!(asked("GET", "/status", READ_TOKEN), 200);
    assert_eq!(asked("GET", "/status", "a-token-of-some-lengtH"), 401);
    assert_eq!(asked("POST", pause, READ_TOKEN), 403);
    let rows = "/channels/test/relay/transactions?rows=true";
    assert_eq!(asked("GET", rows, READ_TOKEN), 403);
    assert_eq!(asked("GET", rows, TOKEN), 200);
    wait_state_with(&daemon, TOKEN, "running").await;
    assert_eq!(asked("POST", pause, TOKEN), 200);
    // The configuration names the token; another may be given.
    daemon.commanded(&["resume"]);
    daemon.command(&["pause", "--token-file", &read_token]).refused(2, &["reading only"]);
    // A reload takes over a new token; with `admin_control = false` nobody can give commands.
    secret(&directory, "token", "a-new-token-of-some-length");
    daemon.signal("HUP");
    eventually("the new token", DRAIN, async || asked("GET", "/status", TOKEN) == 401).await;
    daemon.set("daemon.admin_control", false);
    daemon.write_config();
    daemon.signal("HUP");
    // Until then the command is accepted, so it is one that changes nothing.
    let resume = "/channels/test/resume";
    eventually("no commands", DRAIN, async || {
        asked("POST", resume, "a-new-token-of-some-length") == 403
    })
    .await;
    daemon.command(&["pause"]).refused(2, &["takes no commands", "admin_control"]);
    daemon.commanded(&["status"]);
}

async fn wait_state_with(daemon: &Daemon, token: &str, state: &str) {
    let header = format!("Bearer {token}");
    eventually(&format!("state {state}"), DRAIN, async || {
        let (_, body) = daemon.request("GET", "/status", &[("authorization", &header)], "");
        let body: Value = serde_json::from_str(&body).expect("JSON");
        body["channels"][0]["state"] == state
    })
    .await;
}

/// Returns a client that waits.
fn waiting(daemon: &Daemon, set: &str) -> TcpStream {
    let address = daemon.url("");
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).expect("connects");
    let request = format!(
        "GET /channels/test/wait{set} HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer {READ_TOKEN}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("is sent");
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_as_the_description_says() {
    let (source, target) = Server::pair(&[], &[]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let daemon = Daemon::builder(&source, &target)
        .set("daemon.admin_token_file", secret(&directory, "token", TOKEN))
        .set("daemon.admin_read_token_file", secret(&directory, "read", READ_TOKEN))
        .start();
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    source.exec("INSERT INTO d.t VALUES (1, 1)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    wait_state_with(&daemon, TOKEN, "running").await;
    let mut api = OpenApi::default();
    let mut ask = |method: &str, path: &str, parameters: &str, token: &str, body: &str| {
        let header = format!("Bearer {token}");
        let url = format!("{}{parameters}", api.versioned(path).replace("{name}", "test"));
        let headers = [("authorization", header.as_str())];
        let headers = if token.is_empty() { &[][..] } else { &headers[..] };
        let (status, answer) = daemon.request(&method.to_uppercase(), &url, headers, body);
        api.check(method, path, status, &answer);
        status
    };
    for path in [
        "/",
        "/healthz",
        "/readyz",
        "/metrics",
        "/status",
        "/peers",
        "/history",
        "/history/recent",
        "/runbook",
        "/openapi.json",
        "/fleet",
    ] {
        assert_eq!(ask("get", path, "", READ_TOKEN, ""), 200, "{path}");
        let code = if ["/", "/runbook", "/healthz"].contains(&path) { 200 } else { 401 };
        assert_eq!(ask("get", path, "", "", ""), code, "{path}");
        // Scripts may have the path without its version.
        let header = [("authorization", &*format!("Bearer {READ_TOKEN}"))];
        assert_eq!(daemon.request("GET", path, &header, "").0, 200, "{path}");
    }
    let wait = "/channels/{name}/wait";
    let transactions = "/channels/{name}/relay/transactions";
    let trace = "/channels/{name}/trace";
    for (path, parameters) in [
        ("/channels/{name}/status", ""),
        ("/channels/{name}/incidents", ""),
        (wait, "?gtid_set=&timeout_seconds=1"),
        ("/channels/{name}/relay", ""),
        (transactions, ""),
        (trace, "?seconds=1"),
    ] {
        assert_eq!(ask("get", path, parameters, READ_TOKEN, ""), 200, "{path}");
        assert_eq!(ask("get", path, parameters, "", ""), 401, "{path}");
    }
    for (path, parameters) in [
        ("/history", "?seconds=7"),
        (wait, ""),
        (wait, "?gtid_set=x"),
        (wait, "?gtid_set=&timeout_seconds=-1"),
        (wait, "?gtid=x"),
        (transactions, "?limit=x"),
        (transactions, "?rows=x"),
        (trace, "?seconds=0"),
    ] {
        assert_eq!(ask("get", path, parameters, READ_TOKEN, ""), 400, "{path}{parameters}");
    }
    assert_eq!(ask("get", "/history", "?channel=other", READ_TOKEN, ""), 404);
    assert_eq!(ask("get", "/history", "?channel=test&seconds=60", READ_TOKEN, ""), 200);
    assert_eq!(ask("get", transactions, "?rows=true", READ_TOKEN, ""), 403);
    std::thread::scope(|scope| {
        let header = format!("Bearer {READ_TOKEN}");
        let daemon = &daemon;
        let first = scope.spawn(move || {
            let header = [("authorization", header.as_str())];
            daemon.request("GET", "/channels/test/trace?seconds=3", &header, "").0
        });
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(ask("get", trace, "?seconds=1", READ_TOKEN, ""), 409);
        assert_eq!(first.join().expect("it ends"), 200);
    });
    assert_eq!(ask("get", transactions, "?rows=true", TOKEN, ""), 200);
    let never = "?gtid_set=00000000-0000-0000-0000-000000000001:1";
    let mut others = Vec::new();
    let deadline = Instant::now() + DRAIN;
    while ask("get", wait, &format!("{never}&timeout_seconds=0"), READ_TOKEN, "") != 503 {
        assert!(Instant::now() < deadline, "all may wait");
        // The one that asks may have taken the place of one that came to stay.
        others.extend((0..5).map(|_| waiting(&daemon, never)));
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(others);
    let settings = [
        ("worker_count", "4"),
        ("event_memory_limit", "64MiB"),
        ("source_delay", "0s"),
        ("throttle", "0"),
        ("until", "{}"),
    ]
    .map(|(setting, value)| (format!("/channels/{{name}}/{setting}"), value));
    let log_filter = ("/log_filter".to_owned(), "info");
    for (path, value) in settings.iter().chain([&log_filter]) {
        assert_eq!(ask("put", path, "", TOKEN, value), 200, "{path}");
        assert_eq!(ask("put", path, "", TOKEN, "=,="), 400, "{path}");
        assert_eq!(ask("put", path, "", READ_TOKEN, value), 403, "{path}");
        assert_eq!(ask("put", path, "", "", value), 401, "{path}");
    }
    let command = |command: &str| format!("/channels/{{name}}/{command}");
    let past = format!(r#"{{"sql_after_gtids": "{}"}}"#, source.gtid_executed().await);
    assert_eq!(ask("put", &command("until"), "", TOKEN, &past), 409);
    for wrong in [r#"{"sql_after_gtids": 1}"#, r#"{"gtids": "x"}"#, r#"{"sql_before_time": "x"}"#] {
        assert_eq!(ask("put", &command("until"), "", TOKEN, wrong), 400);
    }
    for name in ["pause", "resume", "restart", "stop"] {
        assert_eq!(ask("post", &command(name), "", TOKEN, ""), 200, "{name}");
    }
    for name in ["pause", "resume", "stop", "skip"] {
        let body = if name == "skip" {
            r#"{"gtid": "00000000-0000-0000-0000-000000000001:1"}"#
        } else {
            ""
        };
        assert_eq!(ask("post", &command(name), "", TOKEN, body), 409, "{name}");
    }
    for name in ["pause", "resume", "restart", "stop", "skip"] {
        assert_eq!(ask("post", &command(name), "", READ_TOKEN, ""), 403, "{name}");
        assert_eq!(ask("post", &command(name), "", "", ""), 401, "{name}");
        if !["pause", "resume"].contains(&name) {
            assert_eq!(ask("post", &command(name), "", TOKEN, r#"{"what": 1}"#), 400, "{name}");
        }
    }
    assert_eq!(ask("get", "/readyz", "", READ_TOKEN, ""), 503);
    assert_eq!(ask("post", "/reload", "", TOKEN, ""), 200);
    assert_eq!(ask("post", "/reload", "", READ_TOKEN, ""), 403);
    assert_eq!(ask("post", "/reload", "", "", ""), 401);
    let drain = "/fleet/drain";
    for (token, body, code) in
        [(TOKEN, "", 409), (READ_TOKEN, "", 403), ("", "", 401), (TOKEN, r#"{"what": 1}"#, 400)]
    {
        assert_eq!(ask("post", drain, "", token, body), code);
    }
    let kept = std::fs::read_to_string(daemon.config_path()).expect("readable");
    std::fs::write(daemon.config_path(), "[[channel").expect("writable");
    assert_eq!(ask("post", "/reload", "", TOKEN, ""), 422);
    std::fs::write(daemon.config_path(), kept).expect("writable");

    // A skip that the target refuses, one that it accepts, and the views of a channel with an error.
    let restart = command("restart");
    assert_eq!(ask("post", &restart, "", TOKEN, r#"{"timeout_seconds": 5}"#), 200);
    target.exec("DELETE FROM d.t").await;
    let before = source.gtid_executed().await;
    source.exec("UPDATE d.t SET v = 2").await;
    let gtid: String =
        source.value(&format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{before}')")).await;
    wait_state_with(&daemon, TOKEN, "failed").await;
    assert_eq!(ask("get", "/status", "", READ_TOKEN, ""), 200);
    eventually("the error is in the history", DRAIN, async || {
        let header = [("authorization", &*format!("Bearer {READ_TOKEN}"))];
        daemon.request("GET", "/history", &header, "").1.contains("ways_on")
    })
    .await;
    assert_eq!(ask("get", "/history", "", READ_TOKEN, ""), 200);
    let skip = format!(r#"{{"gtid": "{gtid}"}}"#);
    target.exec("SET GLOBAL super_read_only=ON").await;
    assert_eq!(ask("post", &command("skip"), "", TOKEN, &skip), 502);
    target.exec("SET GLOBAL read_only=OFF").await;
    wait_state_with(&daemon, TOKEN, "failed").await;
    assert_eq!(ask("post", &command("skip"), "", TOKEN, &skip), 200);
    daemon.wait_drained(&source, &target, DRAIN).await;
    target.exec("INSERT INTO d.t VALUES (1, 2)").await;
    compare(&source, &target).await;

    let header = [("authorization", format!("Bearer {TOKEN}"))];
    let header = header.each_ref().map(|(name, value)| (*name, value.as_str()));
    let mut unknown = |method: &str, path: &str, body: &str| {
        let url = path.replace("{name}", "nobody");
        let (status, answer) = daemon.request(&method.to_uppercase(), &url, &header, body);
        assert_eq!(status, 404, "{method} {path}: {answer}");
        api.check(method, path, status, &answer);
    };
    for path in ["status", "incidents", "wait", "relay", "relay/transactions", "trace"] {
        unknown("get", &command(path), "");
    }
    for path in ["pause", "resume", "stop", "restart", "skip"] {
        unknown("post", &command(path), "");
    }
    for (path, value) in &settings {
        unknown("put", path, value);
    }
    // A daemon of a fleet whose engine does not answer. Who has the channel is not known there.
    let once = format!("{never}&timeout_seconds=0");
    let fleet = Daemon::builder(&source, &target)
        .set("claims.engine", "etcd")
        .set("claims.endpoints", vec!["http://127.0.0.1:1"])
        .start();
    let own = format!("Bearer {}", fleet.own_token());
    let own = [("authorization", own.as_str())];
    for (method, path, query, code) in [
        ("get", "/fleet", "", 200),
        ("post", &*restart, "", 409),
        ("post", drain, "", 200),
        ("get", wait, &*once, 200),
    ] {
        let url = path.replace("{name}", "test") + query;
        let (status, answer) = fleet.request(&method.to_uppercase(), &url, &own, "");
        assert_eq!(status, code, "{answer}");
        api.check(method, path, status, &answer);
    }
    // A wait that begins while a daemon joins ends once it knows that the channel is not for it.
    let etcd = Etcd::start();
    let shareless = Daemon::builder(&source, &target)
        .set("claims.engine", "etcd")
        .set("claims.endpoints", vec![etcd.endpoint()])
        .set("claims.weight", 0)
        .start();
    let authorization = format!("Bearer {}", shareless.own_token());
    let url = wait.replace("{name}", "test") + never;
    let (status, answer) = shareless.request("GET", &url, &[("authorization", &authorization)], "");
    assert_eq!(status, 409, "{answer}");
    api.check("get", wait, status, &answer);
    // A channel that only archives has nothing to set.
    let archive = tempfile::tempdir().expect("a temporary directory");
    let alone = Daemon::builder(&source, &source)
        .unset("target")
        .unset("applier")
        .set("archive.url", format!("file://{}", archive.path().display()))
        .start();
    let bearer = format!("Bearer {}", alone.own_token());
    let bearer = [("authorization", bearer.as_str())];
    for (path, value) in &settings {
        let url = path.replace("{name}", "test");
        let (status, answer) = alone.request("PUT", &url, &bearer, value);
        assert_eq!(status, 409, "{path}: {answer}");
        api.check("put", path, status, &answer);
    }
    // A browser that was led to another name of this address.
    for path in ["/", "/runbook", "/healthz"] {
        let (status, answer) = daemon.request("GET", path, &[("host", "evil.example")], "");
        assert_eq!(status, 403, "{answer}");
        api.check("get", path, status, &answer);
    }
    assert!(api.unseen().is_empty(), "{:#?}", api.unseen());
    // An unknown path is refused in the same form.
    for (method, path, code) in [("GET", "/nowhere", 404), ("DELETE", "/status", 405)] {
        let (status, answer) = daemon.request(method, path, &header, "");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(status, code);
        assert!(answer["error"].is_string() && answer["fix"].is_string(), "{answer}");
    }
}

/// Their ports are on two addresses, so both can listen, but their files would be the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_leaves_the_files_of_the_first_alone() {
    let (source, target) = Server::pair(&[], &[]);
    let first = Daemon::builder(&source, &target).start();
    first.wait_drained(&source, &target, DRAIN).await;
    let before = first.own_token();
    let config = std::fs::read_to_string(first.config_path()).expect("read");
    let other = first.config_path().with_file_name("other.toml");
    std::fs::write(&other, config.replace("127.0.0.1:", "127.0.0.2:")).expect("written");
    let second = std::process::Command::new(Daemon::executable())
        .arg("--config")
        .arg(&other)
        .arg("run")
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && said.contains("another daemon uses it"), "{said}");
    assert_eq!(first.own_token(), before);
    let header = format!("Bearer {before}");
    let path = "/channels/test/resume";
    let (code, body) = first.request("POST", path, &[("authorization", &header)], "");
    assert_eq!(code, 200, "{body}");
}
