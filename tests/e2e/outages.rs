//! The log while a server is away: each line names its channel, and an outage has one line for its begin and
//! one for its end in every channel.

use std::time::Duration;

use csa_tests::{Daemon, Load, compare};
use serde_json::Value;

use crate::fleet::{Site, options};
use crate::wait_state;

const CHANNELS: [&str; 3] = ["test", "shard_1", "shard_2"];
/// Attempts to reach the target fail so long: several of every session.
const AWAY: Duration = Duration::from_secs(6);

/// Returns the level, the channel and the message of a line.
fn parts(line: &str, is_json: bool) -> (String, Option<String>, String) {
    if is_json {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let text = |value: &Value| value.as_str().map(str::to_owned);
        assert_eq!(line["channel"], line["fields"]["channel"], "{line}");
        let message = text(&line["fields"]["message"]).unwrap_or_default();
        return (text(&line["level"]).unwrap_or_default(), text(&line["channel"]), message);
    }
    let level = line.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let channel = line.split_once(" channel=\"").and_then(|(_, rest)| rest.split_once('"'));
    (level, channel.map(|(name, _)| name.to_owned()), line.to_owned())
}

async fn outage_of_the_target(format: &str) {
    let site = Site::new(&CHANNELS).await;
    let daemon = site.builder().set("daemon.log_format", format).start();
    site.add_files(&daemon, &["shard_1", "shard_2"]).await;
    let loads = CHANNELS.map(|name| Load::start(&site.source, &options(name)));
    for channel in 0..3 {
        wait_state(&daemon, channel, "running").await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = daemon.log().len();
    site.target.kill9();
    for channel in 0..3 {
        wait_state(&daemon, channel, "waiting_for_target").await;
    }
    tokio::time::sleep(AWAY).await;
    site.target.restart();
    for load in loads {
        load.stop().await;
    }
    site.drained(&daemon, &CHANNELS).await;
    compare(&site.source, &site.target).await;

    let log = daemon.log();
    let lines = || log[before..].lines().map(|line| parts(line, format == "json"));
    for (line, (level, channel, message)) in log[before..].lines().zip(lines()) {
        assert!(channel.is_some(), "no channel: {line}");
        assert!(level != "ERROR", "{line}");
        let is_about_it =
            message.contains("target unavailable") || message.contains("available again");
        assert!(level != "WARN" || is_about_it, "{line}");
    }
    for name in CHANNELS {
        let count = |level: &str, text: &str| {
            let is_it = |(of, channel, message): &(String, Option<String>, String)| {
                of == level && channel.as_deref() == Some(name) && message.contains(text)
            };
            lines().filter(is_it).count()
        };
        assert_eq!(count("WARN", ""), 1, "{name}\n{}", &log[before..]);
        assert_eq!(count("WARN", "target unavailable, waiting for it"), 1, "{name}");
        assert_eq!(count("INFO", "target available again"), 1, "{name}\n{}", &log[before..]);
        assert_eq!(count("INFO", ""), 1, "{name}\n{}", &log[before..]);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn an_outage_of_the_target_is_two_lines_of_each_channel() {
    outage_of_the_target("text").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_target_is_two_lines_of_each_channel_in_json() {
    outage_of_the_target("json").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn an_outage_of_the_source_is_two_lines_and_so_is_one_at_the_start() {
    let site = Site::new(&["test"]).await;
    let daemon: Daemon = site.builder().start();
    wait_state(&daemon, 0, "running").await;
    let before = daemon.log().len();
    site.source.kill9();
    wait_state(&daemon, 0, "waiting_for_source").await;
    tokio::time::sleep(AWAY).await;
    site.source.restart();
    wait_state(&daemon, 0, "running").await;
    let log = daemon.log()[before..].to_owned();
    let count = |log: &str, text: &str| {
        log.lines().filter(|line| line.contains(text) && line.contains("channel=\"test\"")).count()
    };
    assert_eq!(log.lines().count(), 2, "{log}");
    assert_eq!(count(&log, " WARN link to the source lost"), 1, "{log}");
    assert_eq!(count(&log, " INFO receiving from the source"), 1, "{log}");

    // The target is away when the daemon starts.
    daemon.terminate();
    let before = daemon.log().len();
    site.target.kill9();
    daemon.start_again();
    wait_state(&daemon, 0, "waiting_for_target").await;
    tokio::time::sleep(AWAY).await;
    site.target.restart();
    wait_state(&daemon, 0, "running").await;
    let log = daemon.log()[before..].to_owned();
    assert_eq!(count(&log, " WARN "), 1, "{log}");
    assert_eq!(count(&log, " INFO target available again"), 1, "{log}");
}
