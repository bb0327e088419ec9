//! Strangers at the admin port get neither rows nor commands, and can't use up the descriptors of
//! replication.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use csa_tests::{Daemon, Server, compare, eventually};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use crate::{DRAIN, wait_state};

/// The value in the row that stops the channel: a secret, and a fake log line with terminal control
/// characters.
const SECRET: &str = "dup.secret@example.com";
const FORGED: &str = "2026-01-01T00:00:00.000000Z ERROR forged";

fn connect(daemon: &Daemon) -> TcpStream {
    let url = daemon.url("");
    let stream = TcpStream::connect(url.trim_start_matches("http://")).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("has a time limit");
    stream
}

/// Returns the answer to these bytes, until the daemon closes.
fn answer(daemon: &Daemon, request: &str) -> String {
    let mut stream = connect(daemon);
    stream.write_all(request.as_bytes()).expect("is sent");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn get(daemon: &Daemon, path: &str, headers: &str) -> String {
    answer(daemon, &format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n"))
}

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).expect("is there").permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_get_neither_rows_nor_commands() {
    let (source, target) = Server::pair(&[], &[]);
    source
        .exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, mail VARCHAR(200) UNIQUE)")
        .await;
    let daemon = Daemon::builder(&source, &target).set("daemon.admin_hosts", admin_hosts()).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    wait_state(&daemon, 0, "running").await;
    let columns: u64 = target
        .value("SELECT COUNT(*) FROM information_schema.columns WHERE table_schema='csa' AND table_name='audit'")
        .await;
    assert_eq!(columns, 8, "the table is there and whole before the first command");

    names_of_others_are_refused(&daemon);
    tokens_and_the_socket_permit(&daemon);
    values_stay_with_those_who_may_see_them(&daemon, &source, &target).await;
    commands_are_audited(&daemon, &target).await;
    the_port_speaks_tls(&daemon);
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

fn admin_hosts() -> Vec<toml::Value> {
    vec!["db1.example".into()]
}

fn names_of_others_are_refused(daemon: &Daemon) {
    for host in ["127.0.0.1", "localhost:1", "[::1]", "db1.example:9104"] {
        let answer = get(daemon, "/status", &format!("Host: {host}\r\n"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{host}: {answer}");
    }
    let token = format!("Authorization: Bearer {}\r\n", daemon.own_token());
    for path in ["/status", "/", "/metrics", "/channels/test/relay/transactions?rows=true", "/x"] {
        for headers in ["Host: evil.example\r\n", "Host: localhost\r\nHost: evil.example\r\n"] {
            let answer = get(daemon, path, &format!("{headers}{token}"));
            let refused = answer.starts_with("HTTP/1.1 403") || answer.starts_with("HTTP/1.1 400");
            assert!(refused, "{path}: {answer}");
            assert!(!answer.contains("channel_name"), "{path}: {answer}");
        }
    }
    let answer = get(daemon, "/status", "Host: evil.example\r\n");
    assert!(answer.contains("evil.example") && answer.contains("daemon.admin_hosts"), "{answer}");
    let answer = get(daemon, "http://evil.example/status", "Host: localhost\r\n");
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

fn tokens_and_the_socket_permit(daemon: &Daemon) {
    let (token, socket) = (daemon.token_path(), daemon.socket_path());
    assert_eq!((mode(&token), mode(&socket)), (0o600, 0o660));
    let bearer = format!("Bearer {}", daemon.own_token());
    let rows = "/channels/test/relay/transactions?rows=true";
    let pause = "/channels/test/pause";
    for (method, path) in [("GET", rows), ("POST", pause), ("POST", "/reload")] {
        for headers in [&[][..], &[("authorization", "Bearer guessed-at-random")]] {
            let (code, text) = daemon.request(method, path, headers, "");
            assert_eq!(code, 401, "{path}: {text}");
            for named in [&token, &socket] {
                assert!(text.contains(&*named.to_string_lossy()), "{text}");
            }
        }
    }
    let with = |method: &str, path: &str, header: (&str, &str)| {
        daemon.request(method, path, &[("authorization", &bearer), header], "").0
    };
    let none = ("accept", "*/*");
    assert_eq!(with("GET", rows, none), 200);
    assert_eq!(with("GET", rows, ("sec-fetch-site", "cross-site")), 403);
    assert_eq!(with("POST", pause, ("origin", "http://127.0.0.1")), 403);
    assert_eq!(with("POST", pause, ("sec-fetch-site", "same-origin")), 403);
    assert_eq!(with("POST", pause, none), 200);
    // The command line finds the socket, and the token where there is none.
    daemon.commanded(&["resume"]);
    std::fs::remove_file(&socket).expect("removed");
    daemon.commanded(&["pause"]);
    daemon.commanded(&["resume", "--token-file", &token.to_string_lossy()]);
    let address = daemon.url("");
    daemon.commanded(&["status", "--admin", &address]);
    daemon.command(&["pause", "--admin", &address]).refused(2, &[&*token.to_string_lossy()]);
}

async fn values_stay_with_those_who_may_see_them(
    daemon: &Daemon,
    source: &Server,
    target: &Server,
) {
    let mail = format!("{SECRET}\\n{FORGED}\u{1b}[31m\u{1b}]0;pwned\u{7}\u{85}\u{202e}");
    target.exec(&format!("INSERT INTO d.t VALUES (7, '{mail}')")).await;
    let before = source.gtid_executed().await;
    source.exec(&format!("INSERT INTO d.t VALUES (1, '{mail}')")).await;
    wait_state(daemon, 0, "failed").await;
    let answers = |headers: &[(&str, &str)]| {
        ["/status", "/history", "/readyz", "/metrics", "/channels/test/status"]
            .map(|path| daemon.request("GET", path, headers, "").1)
            .concat()
    };
    eventually("the error is in the history", DRAIN, async || answers(&[]).contains("ways_on"))
        .await;
    let looked = answers(&[]);
    assert!(looked.contains("Duplicate entry '…' for key 't.mail'"), "{looked}");
    for value in [SECRET, "forged", "DELETE FROM `"] {
        assert!(!looked.contains(value), "{value} is in {looked}");
    }
    let bearer = format!("Bearer {}", daemon.own_token());
    let permitted = answers(&[("authorization", &bearer)]);
    assert!(permitted.contains(SECRET) && permitted.contains("forged"), "{permitted}");

    let log = daemon.log();
    assert!(log.contains("Duplicate entry '…' for key 't.mail'"), "{log}");
    assert!(!log.contains(SECRET) && !log.contains("forged"), "{log}");
    let controls =
        |text: &str| text.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}');
    assert!(!controls(&log), "{log:?}");
    for form in [&["status"][..], &["status", "--vertical"], &["status", "--json"]] {
        let said = daemon.command(form);
        assert!(said.out.contains(SECRET) && said.out.contains("\\u001b[31m"), "{said:?}");
        assert!(!controls(&said.out) && !controls(&said.error), "{said:?}");
        assert!(!said.out.lines().any(|line| line.starts_with(FORGED)), "{said:?}");
    }
    let dump = daemon.commanded(&["relay", "dump", "--rows"]);
    assert!(dump.contains(SECRET) && !controls(&dump), "{dump:?}");
    let gtid: String =
        source.value(&format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{before}')")).await;
    daemon.commanded(&["skip", &gtid]);
    target.exec("UPDATE d.t SET id = 1").await;
    wait_state(daemon, 0, "running").await;
}

async fn commands_are_audited(daemon: &Daemon, target: &Server) {
    daemon.commanded(&["set", "throttle", "1000"]);
    daemon.commanded(&["until", "--clear"]);
    daemon.commanded(&["reload"]);
    daemon.commanded(&["stop"]);
    daemon.commanded(&["restart"]);
    wait_state(daemon, 0, "running").await;
    let bearer = format!("Bearer {}", daemon.own_token());
    let headers = [("authorization", &*bearer), ("csa-by", "dba.lead from 10.0.0.7")];
    assert_eq!(daemon.request("PUT", "/channels/test/throttle", &headers, "500").0, 200);
    daemon.signal("HUP");
    let rows = async || -> Vec<String> {
        let rows = "SELECT GROUP_CONCAT(CONCAT_WS('|', action, `by`, peer, detail) ORDER BY id SEPARATOR '\\n') FROM csa.audit";
        let text: String = target.value(rows).await;
        text.lines().map(str::to_owned).collect()
    };
    eventually("the reload by signal is audited", DRAIN, async || {
        rows().await.iter().any(|row| row.starts_with("reload||SIGHUP|"))
    })
    .await;
    let rows = rows().await;
    let has = |start: &str, end: &str| {
        assert!(
            rows.iter().any(|row| row.starts_with(start) && row.ends_with(end)),
            "{start}…{end}: {rows:#?}"
        );
    };
    has("pause||127.0.0.1|", "");
    has("pause|tester|127.0.0.1|", "");
    has("resume|tester|uid ", "|");
    has("skip|tester|", "|");
    has("set|tester|", "|throttle: 0 -> 1000");
    has("set|dba.lead from 10.0.0.7|127.0.0.1|", "throttle: 0 -> 500");
    has("until|tester|", "|until: none -> none");
    has("reload|tester|", "");
    has("stop|tester|", "|");
    has("restart|tester|", "|");

    // The target is read-only: the command takes effect, and its row follows.
    target.exec("SET GLOBAL super_read_only=ON").await;
    daemon.commanded(&["set", "throttle", "77"]);
    assert_eq!(daemon.status()["channels"][0]["settings"]["throttle"], 77);
    assert!(daemon.log().contains("not in csa.audit yet"), "{}", daemon.log_tail());
    target.exec("SET GLOBAL read_only=OFF").await;
    eventually("the row follows", DRAIN, async || {
        target.value::<u64>("SELECT COUNT(*) FROM csa.audit WHERE detail LIKE '%-> 77'").await == 1
    })
    .await;
}

fn the_port_speaks_tls(daemon: &Daemon) {
    let file = |name: &str| daemon.state_dir().join(name).display().to_string();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=admin"])
        .args([
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .args(["-keyout", &file("key.pem"), "-out", &file("cert.pem")])
        .output()
        .expect("running openssl");
    assert!(made.status.success(), "{made:?}");
    daemon.set("daemon.admin_tls_cert", file("cert.pem"));
    daemon.write_config();
    daemon.command(&["check"]).refused(2, &["admin_tls_key"]);
    daemon.set("daemon.admin_tls_key", file("key.pem"));
    daemon.write_config();
    daemon.signal("HUP");
    let deadline = Instant::now() + DRAIN;
    // Only new connections use TLS: an open one stays as it is.
    let is_plain = || get(daemon, "/healthz", "Host: localhost\r\n").contains("200 OK");
    while is_plain() {
        assert!(Instant::now() < deadline, "plain HTTP is still spoken\n{}", daemon.log_tail());
        std::thread::sleep(Duration::from_millis(50));
    }
    // The command finds it by the configuration, and by address.
    daemon.commanded(&["status"]);
    let address = daemon.url("").replace("http://", "https://");
    daemon.commanded(&["status", "--admin", &address, "--admin-ca", &file("cert.pem")]);
    let said = daemon.command(&["status", "--admin", &address]);
    said.refused(2, &["--admin-ca"]);
    let token = daemon.token_path().display().to_string();
    daemon.commanded(&["pause", "--token-file", &token]);
    daemon.commanded(&["resume"]);
    daemon.unset("daemon.admin_tls_cert");
    daemon.unset("daemon.admin_tls_key");
    daemon.write_config();
    daemon.signal("HUP");
    while !is_plain() {
        assert!(Instant::now() < deadline, "plain HTTP is not back\n{}", daemon.log_tail());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Descriptors that a process has open.
fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn limit_descriptors(pid: u32, limit: &str) {
    let arguments = [format!("--pid={pid}"), format!("--nofile={limit}")];
    let limited = Command::new("prlimit").args(arguments).output().expect("running prlimit");
    assert!(limited.status.success(), "{limited:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn half_sent_requests_do_not_stop_replication() {
    const CLIENTS: usize = 1000;
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    wait_state(&daemon, 0, "running").await;
    let pid = daemon.pid().expect("runs");
    limit_descriptors(pid, "256:256");
    limit_descriptors(std::process::id(), "4096:");

    let mut slow = connect(&daemon);
    let half = format!(
        "POST /channels/test/pause HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Length: 9\r\n\r\n",
        daemon.own_token()
    );
    slow.write_all(half.as_bytes()).expect("is sent");
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = connect(&daemon);
        // A client that was closed to make room gets a reset.
        let _ = client.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\nX-Half: ");
        clients.push(client);
        if number % 100 == 0 {
            source.exec("INSERT INTO d.t VALUES ()").await;
            assert_eq!(daemon.get("/healthz").map(|answer| answer.0), Some(200), "at {number}");
        }
    }
    assert!(descriptors(pid) < 200, "{}", descriptors(pid));
    // Port and socket still answer requests, and everything is applied.
    assert_eq!(daemon.get("/metrics").map(|answer| answer.0), Some(200));
    daemon.commanded(&["set", "worker_count", "9"]);
    source.exec("INSERT INTO d.t SELECT NULL FROM d.t").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;

    // In time all are closed, even the one with half a body.
    let mut said = String::new();
    let _ = slow.read_to_string(&mut said);
    assert!(said.starts_with("HTTP/1.1 408"), "{said}");
    eventually("nobody holds a place", Duration::from_secs(60), async || descriptors(pid) < 60)
        .await;
    assert_ne!(daemon.status()["channels"][0]["state"], "paused");
    let log = daemon.log();
    assert!(!log.contains("Too many open files") && !log.contains("takes no connection"), "{log}");
    drop(clients);
    let status: Value = daemon.status();
    assert_eq!(status["channels"][0]["state"], "running", "{status:#}");
}

/// A request for transactions that never come.
const WAIT: &str = "/channels/test/wait?gtid_set=00000000-0000-0000-0000-000000000001:1";

#[tokio::test(flavor = "multi_thread")]
async fn clients_without_rights_and_clients_that_wait_keep_nobody_out() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = Daemon::builder(&source, &target).start();
    wait_state(&daemon, 0, "running").await;

    // More than there are places, from so many addresses that none has too many.
    let port: u16 =
        daemon.url("").rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let mut strangers = Vec::new();
    for number in 0..120 {
        let socket = TcpSocket::new_v4().expect("a socket");
        let from = Ipv4Addr::new(127, 0, 0, 1 + number % 3);
        socket.bind((from, 0).into()).expect("an address of the loopback");
        let connected = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await;
        let mut stream = connected.expect("connects");
        stream.write_all(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("is sent");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.expect("is answered");
        assert_eq!(&answer, b"HTTP/1.1 404", "at {number}");
        strangers.push(stream);
    }
    for path in ["/healthz", "/metrics"] {
        let answer = get(&daemon, path, "Host: localhost\r\n");
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }

    // As many as may wait on the socket.
    let wait = |more: &str| {
        let mut stream = UnixStream::connect(daemon.socket_path()).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("has a time limit");
        let request = format!("GET {WAIT}{more} HTTP/1.1\r\nHost: localhost\r\n");
        // A connection that is refused may be closed by now.
        let _ = stream.write_all(format!("{request}Connection: close\r\n\r\n").as_bytes());
        stream
    };
    let mut waiting = Vec::new();
    eventually("half of the places wait", DRAIN, async || {
        // The one that asks may have taken the place of one that came to stay.
        waiting.extend((0..5).map(|_| wait("")));
        let mut answer = String::new();
        let _ = wait("&timeout_seconds=0").read_to_string(&mut answer);
        answer.starts_with("HTTP/1.1 503") && answer.contains("too many clients wait")
    })
    .await;
    daemon.commanded(&["pause"]);
    daemon.commanded(&["resume"]);
    drop(waiting);
    eventually("others may wait", DRAIN, async || {
        let said =
            daemon.command(&["wait", "00000000-0000-0000-0000-000000000001:1", "--timeout", "0s"]);
        said.code == Some(1) && said.error.contains("not applied in time")
    })
    .await;
}
