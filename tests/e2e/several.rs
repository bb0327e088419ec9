//! Commands to several channels at once: `--all`, and patterns in `--channel`.

use csa_tests::{Daemon, Load, compare};
use serde_json::Value;

use crate::fleet::{Site, options};

/// In the order of the files; `test` is in the main file.
const CHANNELS: [&str; 3] = ["test", "shard_1", "shard_2"];

fn of(daemon: &Daemon, channel: &str, field: &str) -> Value {
    let status = daemon.status();
    let channels = status["channels"].as_array().cloned().unwrap_or_default();
    let view = channels.into_iter().find(|view| view["channel_name"] == channel);
    view.expect("the channel").pointer(field).cloned().expect("the field")
}

fn states(daemon: &Daemon) -> [Value; 3] {
    CHANNELS.map(|name| of(daemon, name, "/state"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_acts_on_all_channels_or_on_those_that_match() {
    let site = Site::new(&CHANNELS).await;
    let daemon = site.with_files(&["shard_1", "shard_2"]).await;
    let loads = CHANNELS.map(|name| Load::start(&site.source, &options(name)));

    // Nothing is done where it is not clear to which channels, and the names are given.
    let names = "test, shard_1, shard_2";
    daemon.command(&["pause"]).refused(2, &["--all", "'shard-*'", names]);
    daemon.command(&["--channel", "chard-*", "pause"]).refused(2, &["no channel matches", names]);
    daemon.command(&["--channel", "x?", "status"]).refused(2, &["no channel matches", names]);
    daemon.command(&["--channel", "x", "status"]).refused(2, &["no channel \"x\"", names]);
    daemon.command(&["--channel", "x", "pause"]).refused(2, &["no channel \"x\"", names]);
    daemon.command(&["set", "--all", "log_filter", "info"]).refused(2, &["leave --all"]);
    assert_eq!(states(&daemon), ["running"; 3]);

    let said = daemon.commanded(&["--channel", "shard_*", "pause"]);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("CHANNEL  RESULT"), "{said}");
    assert!(lines[1].starts_with("shard_1  paused: paused, "), "{said}");
    assert!(lines[2].starts_with("shard_2  paused: paused, "), "{said}");
    assert_eq!(lines[3..], ["2 channels: 2 done, 0 failed"], "{said}");
    assert_eq!(states(&daemon), ["running", "paused", "paused"]);
    for (pattern, chosen) in [("shard_*", vec!["shard_1", "shard_2"]), ("test", vec!["test"])] {
        let said = daemon.command(&["--channel", pattern, "status", "--json"]);
        let status: Value = serde_json::from_str(&said.out).expect("JSON");
        let channels = status["channels"].as_array().expect("channels");
        let names: Vec<&str> =
            channels.iter().filter_map(|view| view["channel_name"].as_str()).collect();
        assert_eq!(names, chosen, "{pattern}");
        assert!(status["daemon"]["pid"].is_u64() && channels[0]["applier"].is_object());
    }
    let said = daemon.command(&["--channel", "shard_*", "status"]);
    assert!(!said.out.contains("\ntest "), "{said:?}");
    said.refused(1, &["not well: shard_1 ("]);

    let said = daemon.commanded(&["set", "--all", "throttle", "900"]);
    assert!(said.contains("test     throttle: 0 -> 900  -\n"), "{said}");
    assert!(said.ends_with("3 channels: 3 done, 0 failed\n"), "{said}");
    for name in CHANNELS {
        assert_eq!(of(&daemon, name, "/settings/throttle"), 900, "{name}");
    }
    daemon.command(&["set", "--all", "throttle", "fast"]).refused(1, &["failed for test, shard_1"]);

    // One can't be paused: the others are, and the exit code says that it was not all.
    daemon.commanded(&["--channel", "shard_1", "stop"]);
    let said = daemon.command(&["pause", "--all"]);
    assert!(said.out.contains("shard_1  failed"), "{said:?}");
    assert!(said.out.contains("channel shard_1 is stopped; restart it first"), "{said:?}");
    assert!(said.out.ends_with("3 channels: 2 done, 1 failed\n"), "{said:?}");
    said.refused(1, &["failed for shard_1"]);
    assert_eq!(states(&daemon), ["paused", "stopped", "paused"]);

    let audited: String = site
        .target
        .value("SELECT GROUP_CONCAT(DISTINCT channel ORDER BY channel) FROM csa.audit WHERE action = 'pause'")
        .await;
    assert_eq!(audited, "shard_1,shard_2,test");

    let said = daemon.commanded(&["stop", "--all", "--receiving"]);
    assert!(said.ends_with("3 channels: 3 done, 0 failed\n"), "{said}");
    for name in CHANNELS {
        assert_eq!(of(&daemon, name, "/connection/service_state"), "OFF", "{name}");
    }
    daemon.commanded(&["restart", "--all"]);
    daemon.commanded(&["resume", "--all"]);
    daemon.commanded(&["set", "--all", "throttle", "0"]);
    for load in loads {
        load.stop().await;
    }
    site.drained(&daemon, &CHANNELS).await;
    compare(&site.source, &site.target).await;
}
