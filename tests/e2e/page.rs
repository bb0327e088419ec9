//! The status page: its parts, and its rendering in a browser.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use csa_tests::{Load, LoadOptions, Server, browse, eventually, prepare};
use serde_json::Value;

use crate::fleet::{Site, write};
use crate::{DRAIN, wait_state};

/// Long enough for the page to have asked twice.
const SHOWN: u32 = 5000;

/// A table whose name is a trap for pages that treat text as markup.
const TRAP: &str = "<img src=x onerror=document.title='trapped'>";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn the_page_shows_load_lag_workers_and_errors() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions::default();
    prepare(&source, &options).await;
    let columns = "id INT PRIMARY KEY, v VARCHAR(30)";
    source.exec(&format!("CREATE TABLE sbtest.`{TRAP}` ({columns})")).await;
    let archive = tempfile::tempdir().expect("a folder");
    let daemon = csa_tests::Daemon::builder(&source, &target)
        .set("archive.url", format!("file://{}", archive.path().display()))
        .set("archive.interval", "1s")
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    Load::run(&source, &options, Duration::from_secs(4)).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    wait_state(&daemon, 0, "running").await;
    let history = || {
        let (code, body) = daemon.get("/history?seconds=300").expect("answers");
        assert_eq!(code, 200, "{body}");
        serde_json::from_str::<Value>(&body).expect("JSON")
    };
    eventually("the last sample has no lag", Duration::from_secs(10), async || {
        history()["channels"][0]["lag_seconds"][299] == 0.0
    })
    .await;
    check_history(&history());
    let (code, why) = daemon.get("/history?seconds=7").expect("answers");
    assert_eq!((code, why.contains("60..3600")), (400, true), "{why}");

    let (code, page) = daemon.get("/").expect("answers");
    assert_eq!(code, 200);
    assert!(page.starts_with("<!doctype html>") && page.contains("--preparing"), "{page}");

    let (document, console) = browse(&daemon.url("/"), SHOWN);
    assert_eq!(console, "");
    assert!(document.contains("<title>The channel is running · csa-daemon</title>"), "{document}");
    assert!(document.contains("has applied everything received"), "{document}");
    assert_eq!(
        document.matches("class=\"line\"").count(),
        3,
        "three charts with a line\n{document}"
    );
    assert!(document.contains("<dd class=\"value\">0 s</dd>"), "lag\n{document}");
    assert!(document.contains("applying "), "what the workers did\n{document}");
    assert!(document.contains(": everything that was received is archived"), "{document}");
    assert!(!document.contains("does not answer"), "{document}");

    // The target has a row that the source then inserts: the channel stops, and the page says why.
    target.exec(&format!("INSERT INTO sbtest.`{TRAP}` VALUES (1, 'there')")).await;
    source.exec(&format!("INSERT INTO sbtest.`{TRAP}` VALUES (1, 'turned\u{202e}')")).await;
    wait_state(&daemon, 0, "failed").await;
    eventually("the error is noted", Duration::from_secs(10), async || {
        let error = &history()["channels"][0]["errors"][0];
        error["number"] == 1062 && error["current"] == true
    })
    .await;
    let (document, console) = browse(&daemon.url("/"), SHOWN);
    assert_eq!(console, "");
    let escaped = TRAP.replace('<', "&lt;").replace('>', "&gt;");
    assert!(document.contains(&escaped), "the name in the error\n{document}");
    assert!(!document.contains("<img"), "{document}");
    assert!(document.contains("<title>! test has failed · csa-daemon</title>"), "{document}");
    assert!(document.contains("The target already has a row with this key"), "{document}");
    assert!(document.contains("aria-label=\"Copy csa-daemon skip "), "{document}");
    // A name that a shell would take apart is not offered.
    assert!(!document.contains("aria-label=\"Copy csa-daemon copy"), "{document}");
    assert!(document.contains("class=\"band failed\""), "{document}");
    // The cause comes first, and the transaction after it.
    assert!(document.contains("<p class=\"message\">Error 1062 in "), "{document}");
    assert!(
        document
            .contains("<a class=\"runbook\" rel=\"noreferrer\" href=\"/runbook#csachannelfailed\"")
    );
    assert!(document.contains("the channel has failed</dd>"), "{document}");
    assert!(document.contains("failed with error 1062 in "), "an incident\n{document}");
    let received = document.split("<dt>Received</dt>").nth(1).expect("received");
    assert!(!received.starts_with("<dd class=\"value\">–"), "it still receives\n{document}");
    // Values are for those who show the token; the page asks for it.
    for text in ["target now</th>", "DELETE FROM `sbtest`", "turned"] {
        assert!(!document.contains(text), "{text} is in {document}");
    }
    assert!(!document.contains("class=\"login\" hidden"), "{document}");
    let (document, _) = browse(&daemon.url(&format!("/#token={}", daemon.own_token())), SHOWN);
    for text in ["target now</th>", "DELETE FROM `sbtest`", "csa-daemon skip ", "turned\\u202e"] {
        assert!(document.contains(text), "{text} is missing in {document}");
    }
    assert!(document.contains("id=\"login\" class=\"login\" hidden"), "{document}");

    // Where a token is needed, the page asks for it and shows nothing without it.
    assert_eq!(daemon.terminate().code(), Some(1), "a channel had failed");
    let token = daemon.state_dir().join("token");
    std::fs::write(&token, "a-token-of-some-length").expect("writable");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).expect("changed");
    daemon.set("daemon.admin_token_file", token.to_string_lossy().into_owned());
    daemon.start_again();
    let (document, _) = browse(&daemon.url("/"), SHOWN);
    assert!(document.contains("The daemon asks for a token"), "{document}");
    assert!(!document.contains("class=\"login\" hidden"), "{document}");
    assert!(!document.contains("class=\"channel\""), "{document}");
}

/// A target that was away is an incident, which a restart of the daemon does not hide.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn incidents_outlive_the_daemon() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = csa_tests::Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let incidents = || {
        let (code, body) = daemon.get("/channels/test/incidents").expect("answers");
        assert_eq!(code, 200, "{body}");
        serde_json::from_str::<Value>(&body).expect("JSON")["incidents"].clone()
    };
    assert_eq!(incidents(), Value::Array(Vec::new()));

    target.kill9();
    wait_state(&daemon, 0, "waiting_for_target").await;
    let rows = (1..=300).map(|id| format!("INSERT INTO d.t VALUES ({id});"));
    source.exec(&rows.collect::<String>()).await;
    eventually("it is noted", DRAIN, async || incidents()[0]["began"].is_u64()).await;
    let (document, console) = browse(&daemon.url("/"), SHOWN);
    assert_eq!(console, "");
    for text in [
        "<title>! test is waiting for target · csa-daemon</title>",
        "href=\"/runbook#csatargetunreachable\"",
        "The target is away: what its sessions did last is not known.",
        "target away for ",
        "class=\"node away\"",
    ] {
        assert!(document.contains(text), "{text} is missing in {document}");
    }
    assert!(document.contains(" Next attempt "), "a countdown\n{document}");
    let (code, runbook) = daemon.get("/runbook").expect("answers");
    assert_eq!((code, runbook.contains("<h2 id=\"csatargetunreachable\">")), (200, true));

    target.restart();
    daemon.wait_drained(&source, &target, DRAIN).await;
    eventually("it has caught up", DRAIN, async || incidents()[0]["caught_up_seconds"].is_u64())
        .await;
    let before = incidents();
    assert_eq!(before.as_array().map(Vec::len), Some(1), "{before}");
    assert_eq!(before[0]["state"], "waiting_for_target", "{before}");
    assert_eq!(before[0]["caught_up_transactions"], 300, "{before}");

    let kept = daemon.state_dir().join("test/incidents.jsonl");
    eventually("it is kept", DRAIN, async || {
        fs::read_to_string(&kept).is_ok_and(|text| text.contains("\"caught_up_transactions\":300"))
    })
    .await;
    daemon.terminate();
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    eventually("it is read", DRAIN, async || incidents() == before).await;
    let (document, console) = browse(&daemon.url("/"), SHOWN);
    assert_eq!(console, "");
    assert!(document.contains(", 300 transactions caught up in "), "{document}");
    // Nor are the charts empty: the load was before the restart.
    let (_, body) = daemon.get("/history?seconds=3600").expect("answers");
    let history: Value = serde_json::from_str(&body).expect("JSON");
    let applied = &history["channels"][0]["applied_transactions_per_second"];
    let sum: f64 = applied.as_array().into_iter().flatten().filter_map(Value::as_f64).sum();
    let step = history["step"].as_f64().expect("a number");
    assert!(sum * step > 250.0, "{history}");

    // A damaged file stops nothing, and the next incident replaces it.
    daemon.terminate();
    fs::write(&kept, "{\"state\":").expect("written");
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert_eq!(incidents(), Value::Array(Vec::new()));
    assert!(daemon.log_tail().contains("some earlier incidents are not shown"));
    daemon.commanded(&["pause"]);
    eventually("it is replaced", DRAIN, async || {
        fs::read_to_string(&kept).is_ok_and(|text| text.contains("\"state\":\"paused\""))
    })
    .await;
}

/// Columns of equal length in which the load can be seen.
fn check_history(history: &Value) {
    let channel = &history["channels"][0];
    assert_eq!((&history["step"], &channel["channel_name"]), (&1.into(), &"test".into()));
    let columns = channel.as_object().expect("columns").iter();
    let lengths = columns.filter(|(name, _)| !["workers", "errors"].contains(&name.as_str()));
    for (name, column) in lengths.filter(|(_, column)| column.is_array()) {
        assert_eq!(column.as_array().map(Vec::len), Some(300), "{name}");
    }
    let sum = |column: &str| -> f64 {
        channel[column].as_array().into_iter().flatten().filter_map(Value::as_f64).sum()
    };
    // In steps of a second, the rates add up to what was applied since the first sample.
    assert!(sum("applied_transactions_per_second") > 100.0, "{channel}");
    assert!(sum("received_bytes_per_second") > 10_000.0, "{channel}");
    let workers = channel["workers"].as_array().expect("rows");
    assert!(!workers.is_empty(), "{channel}");
    for row in workers {
        assert_eq!(row["states"].as_str().map(str::len), Some(300), "{row}");
    }
    assert_eq!(channel["errors"].as_array().map(Vec::len), Some(0), "{channel}");
}

/// Names in the order of the table's rows.
fn rows(document: &str) -> Vec<&str> {
    let links = document.split("role=\"rowheader\" class=\"name\"><a href=\"#channel=");
    links.skip(1).filter_map(|link| link.split('"').next()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn many_channels_are_a_table_and_one_of_them_a_link_away() {
    let site = Site::new(&["test", "shard_1", "shard_2"]).await;
    let daemon = site.with_files(&["shard_1", "shard_2"]).await;
    daemon.commanded(&["--channel", "shard_2", "pause"]);
    eventually("the lag of each is known", DRAIN, async || {
        let (_, body) = daemon.get("/history/recent").expect("answers");
        let recent: Value = serde_json::from_str(&body).expect("JSON");
        let known = |channel: &Value| channel["lag_seconds"][59].is_number();
        recent["channels"].as_array().is_some_and(|all| all.len() == 3 && all.iter().all(known))
    })
    .await;

    let (document, console) = browse(&daemon.url("/"), SHOWN);
    assert_eq!(console, "");
    assert_eq!(rows(&document), ["shard_2", "shard_1", "test"], "worst first\n{document}");
    assert!(document.contains("! shard_2 is paused · csa-daemon"), "{document}");
    assert!(document.contains(">by tester ("), "{document}");
    assert!(!document.contains("class=\"channel\""), "no channel's charts\n{document}");
    assert_eq!(document.matches("class=\"spark\"").count(), 6, "{document}");
    assert!(document.contains("aria-label=\"Lag in the last 10 minutes: at most "), "{document}");
    for port in [site.source.port, site.target.port] {
        assert!(document.contains(&format!("127.0.0.1:{port}</td>")), "{port}\n{document}");
    }
    let (document, console) = browse(&daemon.url("/#filter=shard&sort=-Channel"), SHOWN);
    assert_eq!((console.as_str(), rows(&document)), ("", vec!["shard_2", "shard_1"]), "{document}");
    assert!(document.contains("2 of 3 channels"), "{document}");
    let (document, _) = browse(&daemon.url("/#state=running&sort=-Channel"), SHOWN);
    assert_eq!(rows(&document), ["test", "shard_1"], "{document}");

    let (document, console) = browse(&daemon.url("/#channel=shard_2"), SHOWN);
    assert_eq!(console, "");
    assert!(document.contains("Paused by tester ("), "{document}");
    assert!(document.contains("<code>csa-daemon --channel shard_2 resume</code>"), "{document}");
    assert_eq!(document.matches("class=\"channel\"").count(), 1, "{document}");
    assert_eq!(rows(&document), [""; 0], "{document}");
    assert!(document.contains("All channels</a>"), "{document}");
    let whole = document.replace("<wbr>", "");
    for (server, port) in [("Source", site.source.port), ("Target", site.target.port)] {
        let shown = format!("<dt>{server}</dt><dd class=\"value\">127.0.0.1:{port}</dd>");
        assert!(whole.contains(&shown), "{shown}\n{document}");
    }

    // 200 channels, most of which have no servers, are 200 rows, and the filter finds one of them.
    let lonely = |number: u32| {
        format!(
            "[[channel]]\nname = \"far_{number:03}\"\n[channel.source]\nport = 1\n\
             server_id = {}\n[channel.target]\nport = 1\n",
            5000 + number
        )
    };
    write(&daemon, "far.toml", &(3..200).map(lonely).collect::<String>());
    daemon.commanded(&["reload"]);
    let (document, console) = browse(&daemon.url("/"), SHOWN);
    assert_eq!((console.as_str(), rows(&document).len()), ("", 200), "{document}");
    assert!(document.contains("all 200"), "{document}");
    let (document, console) = browse(&daemon.url("/#filter=far_123"), SHOWN);
    assert_eq!((console.as_str(), rows(&document)), ("", vec!["far_123"]), "{document}");
    fs::remove_file(daemon.config_path().with_file_name("conf.d").join("far.toml"))
        .expect("removed");
    daemon.commanded(&["reload"]);

    // It is not known what the source has while it is away: no figure says 0.
    site.source.kill9();
    wait_state(&daemon, 0, "waiting_for_source").await;
    let (document, console) = browse(&daemon.url("/#channel=test"), SHOWN);
    assert_eq!(console, "");
    let away = format!("The source 127.0.0.1:{} is away", site.source.port);
    assert!(document.contains(&away), "{document}");
    assert!(document.contains("the source may have more"), "{document}");
    assert!(!document.contains("<dd class=\"value\">0"), "{document}");
}

/// A copy has a bar for all rows and one for each table that moves, and then the result of the comparison.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn the_page_shows_a_copy_and_its_comparison() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions { tables: 2, rows: 30_000, ..LoadOptions::default() };
    prepare(&source, &options).await;
    source.exec("ANALYZE TABLE sbtest.sbtest1, sbtest.sbtest2").await;
    let daemon = csa_tests::Daemon::builder(&source, &target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("applier.start_from", "copy")
        .set("copy.snapshot_limit", "0MiB")
        // A browser takes its time on a busy machine.
        .set("copy.rows_per_second", 400)
        .start();
    eventually("tables move", DRAIN, async || {
        let copy = daemon.status()["channels"][0]["copy"].clone();
        copy["moving"].as_array().is_some_and(|tables| !tables.is_empty())
    })
    .await;
    let (document, console) = browse(&daemon.url("/"), SHOWN);
    assert_eq!(console, "");
    assert!(
        document.contains("Copying rows: ") && document.contains("held to 400 rows/s"),
        "{document}"
    );
    assert!(document.contains("Rows of sbtest.sbtest"), "a bar for a table\n{document}");
    daemon.terminate();
    daemon.set("copy.rows_per_second", 0);
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    eventually("it is compared", DRAIN, async || {
        daemon.status()["channels"][0]["copy_check"]["outcome"] == "equal"
    })
    .await;
    let (document, console) = browse(&daemon.url("/"), SHOWN);
    assert_eq!(console, "");
    assert!(document.contains("The copy equals the source."), "{document}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_address_permits_commands() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = csa_tests::Daemon::builder(&source, &target).start();
    wait_state(&daemon, 0, "running").await;
    let base = daemon.url("/");
    let token = daemon.own_token();
    let own = format!("token={}", token.trim());
    assert_eq!(daemon.commanded(&["page"]), format!("{base}#{own}\n"));
    assert_eq!(
        daemon.commanded(&["--channel", "test", "page"]),
        format!("{base}#channel=test&{own}\n")
    );
    assert_eq!(daemon.commanded(&["page", "--without-token"]), format!("{base}\n"));
    let (document, console) = browse(&format!("{base}#channel=test&{own}"), SHOWN);
    assert!(!document.contains("asks for a token"), "{console}\n{document}");
    daemon.terminate();
    daemon.command(&["page"]).refused(1, &["is csa-daemon running"]);
}
