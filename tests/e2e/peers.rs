//! Channels of several daemons on one page, whatever the other daemons do.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use csa_tests::{Daemon, browse, eventually};
use serde_json::Value;

use crate::fleet::Site;
use crate::{DRAIN, wait_state};

/// Long enough for the page to have asked twice.
const SHOWN: u32 = 6000;
const TOKEN: &str = "a-token-of-some-length";

/// Returns a server that treats every connection alike.
fn server(answer: impl Fn(&mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            let mut request = [0; 4096];
            let _ = connection.read(&mut request);
            answer(&mut connection);
        }
    });
    address
}

fn says(body: String) -> impl Fn(&mut TcpStream) + Send + 'static {
    move |connection| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = connection.write_all(format!("{head}{body}").as_bytes());
    }
}

fn peers(daemon: &Daemon) -> Vec<Value> {
    let (code, body) = daemon.get("/peers").expect("answers");
    assert_eq!(code, 200, "{body}");
    let view: Value = serde_json::from_str(&body).expect("JSON");
    view["peers"].as_array().expect("peers").clone()
}

fn names_of(peer: &Value) -> Vec<&str> {
    let channels = peer["channels"].as_array().expect("channels");
    channels.iter().filter_map(|view| view["channel_name"].as_str()).collect()
}

fn reload(daemon: &Daemon, addresses: Vec<String>) {
    daemon.set("daemon.admin_peers", addresses);
    daemon.write_config();
    daemon.commanded(&["reload"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_of_several_daemons_are_on_one_page() {
    let site = Site::new(&["test", "two", "three"]).await;
    let of = |name: &str| {
        site.builder()
            .set("name", name)
            .set("applier.replicate_wild_do_table", vec![format!("{name}.%")])
    };
    let secrets = tempfile::tempdir().expect("a folder");
    let token = secrets.path().join("token");
    std::fs::write(&token, TOKEN).expect("writable");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).expect("changed");
    let token = token.display().to_string();
    let two = of("two").start();
    let three = of("three").set("daemon.admin_token_file", token.as_str()).start();
    let all = vec![two.url(""), three.url("")];
    // Those that name each other do not ask in circles.
    let first = of("test").set("daemon.admin_peers", all.clone()).start();
    reload(&two, vec![first.url(""), two.url("")]);
    wait_state(&first, 0, "running").await;
    wait_state(&two, 0, "running").await;

    let shown = peers(&first);
    assert_eq!(shown.len(), 2);
    assert_eq!(names_of(&shown[0]), ["two"], "{shown:#?}");
    assert_eq!(shown[0]["channels"][0]["state"], "running", "{shown:#?}");
    let why = shown[1]["error"].as_str().expect("three needs a token");
    assert!(why.contains("401") && why.contains("admin_peers_token_file"), "{why}");
    let own = peers(&two);
    assert_eq!(names_of(&own[0]), ["test"]);
    assert!(own[1]["error"].as_str().is_some_and(|why| why.contains("leads to this daemon")));

    first.set("daemon.admin_peers_token_file", token.as_str());
    reload(&first, all.clone());
    eventually("three runs", DRAIN, async || peers(&first)[1]["channels"][0]["state"] == "running")
        .await;
    assert_eq!(names_of(&peers(&first)[1]), ["three"]);
    // The values that only a token shows stay where they are.
    assert!(peers(&first)[1]["channels"][0].get("last_error").is_none());
    let said = first.command(&["status", "--peers"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for text in [two.url(""), three.url(""), "\ntwo ".to_owned(), "\nthree ".to_owned()] {
        assert!(said.out.contains(&text), "{text}: {}", said.out);
    }

    two.commanded(&["pause"]);
    eventually("the pause is seen", DRAIN, async || {
        peers(&first)[0]["channels"][0]["state"] == "paused"
    })
    .await;
    let (document, console) = browse(&first.url("/"), SHOWN);
    assert_eq!(console, "");
    let host = |daemon: &Daemon| daemon.url("").trim_start_matches("http://").to_owned();
    for text in [
        "<title>! two is paused · csa-daemon</title>".to_owned(),
        format!("href=\"{}/#channel=two\"", two.url("")),
        format!("href=\"{}/#channel=three\"", three.url("")),
        format!("title=\"{}\">{}</span>", two.url(""), host(&two)),
        "href=\"#channel=test\"".to_owned(),
        "all 3".to_owned(),
    ] {
        assert!(document.contains(&text), "{text} is missing in {document}");
    }
    assert!(!document.contains("does not answer"), "{document}");
    // Its own channel still has a page.
    let (document, _) = browse(&first.url("/#channel=test"), SHOWN);
    assert!(document.contains("id=\"channel-test\""), "{document}");

    // A daemon that is away leaves no gap.
    three.kill9();
    eventually("the loss is seen", DRAIN, async || peers(&first)[1]["error"].is_string()).await;
    let (document, _) = browse(&first.url("/"), SHOWN);
    for text in [format!("{} does not answer", host(&three)), "no answer".to_owned()] {
        assert!(document.contains(&text), "{text} is missing in {document}");
    }
    let said = first.command(&["status", "--peers"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains(&format!("{}: NO ANSWER: ", three.url(""))), "{said:?}");
    assert!(said.error.contains("two of http://"), "{said:?}");
    assert_eq!(first.command(&["status"]).code, Some(0), "its own run");
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_that_are_slow_old_or_malicious_hurt_nobody() {
    let site = Site::new(&["test"]).await;
    let old = r#"{"channels":[{"channel_name":"old<b>","state":"resting","future":{"a":[1]}}]}"#;
    let slow = |connection: &mut TcpStream| {
        let _ = connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(250));
            if connection.write_all(b" ").is_err() {
                return;
            }
        }
    };
    let huge = |connection: &mut TcpStream| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 1_u64 << 40);
        let _ = connection.write_all(head.as_bytes());
        let part = vec![b'['; 1 << 20];
        while connection.write_all(&part).is_ok() {}
    };
    let elsewhere = server(says("{\"channels\":[]}".to_owned()));
    let redirects = move |connection: &mut TcpStream| {
        let head =
            format!("HTTP/1.1 302 Found\r\nlocation: {elsewhere}/\r\ncontent-length: 0\r\n\r\n");
        let _ = connection.write_all(head.as_bytes());
    };
    let addresses = vec![
        server(says(old.to_owned())),
        server(slow),
        server(huge),
        server(says("no JSON".to_owned())),
        server(says("[".repeat(1 << 20))),
        server(|_| {}),
        server(redirects),
        "http://127.0.0.1:1".to_owned(),
    ];
    let daemon = site.builder().set("daemon.admin_peers", addresses.clone()).start();
    wait_state(&daemon, 0, "running").await;
    for _ in 0..3 {
        let started = Instant::now();
        let shown = peers(&daemon);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        assert_eq!(names_of(&shown[0]), ["old<b>"]);
        let errors: Vec<&str> =
            shown.iter().skip(1).filter_map(|peer| peer["error"].as_str()).collect();
        assert_eq!(errors.len(), 7, "{shown:#?}");
        for (error, why) in errors.iter().zip([
            "no answer within 2 s",
            "",
            "not that of",
            "not that of",
            "io: ",
            "302",
            "refused",
        ]) {
            assert!(error.contains(why) && error.len() < 600, "{why}: {errors:?}");
        }
        assert!(errors[1].contains("too long") || errors[1].contains("no answer"), "{errors:?}");
        // The channel's own figures do not wait.
        let started = Instant::now();
        assert_eq!(daemon.status()["channels"][0]["state"], "running");
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        tokio::time::sleep(Duration::from_millis(1200)).await;
    }
    let (document, console) = browse(&daemon.url("/"), SHOWN);
    assert_eq!(console, "");
    assert!(document.contains("old&lt;b&gt;") && document.contains("resting"), "{document}");
    assert!(document.contains("7 daemons do not answer"), "{document}");
    for (peers, why) in [
        (vec!["https://db8:9104"], "admin_peers_ca"),
        (vec!["javascript:alert(1)"], "http://HOST:PORT"),
    ] {
        daemon.set(
            "daemon.admin_peers",
            peers.iter().map(|&peer| peer.to_owned()).collect::<Vec<_>>(),
        );
        daemon.write_config();
        daemon.command(&["reload"]).refused(2, &["daemon.admin_peers", why]);
    }
}
