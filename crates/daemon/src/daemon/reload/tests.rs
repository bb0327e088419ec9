use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::tests::in_folder;
use crate::host::logging::LogFilter;

const FILE: &str = "csa-daemon.toml";

/// Returns the daemon with this configuration, and what stops it.
fn daemon_of(folder: &Path, text: &str) -> (Daemon, CancellationToken) {
    let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
    let config = Config::parse(text).expect("valid");
    let daemon = Daemon::new(config, folder.join(FILE), LogFilter::of_test(), &stop, &kill);
    (daemon, stop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_was_stopped_after_the_plan_stays_stopped() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let text = in_folder(folder.path(), 1);
    let (daemon, stop) = daemon_of(folder.path(), &text);
    let channel = daemon.channel("orders").expect("configured");
    let reload = async |timeout: &str, is_stopped: bool| {
        let changed = format!("{text}connect_timeout = \"{timeout}\"\n");
        let mut config = Config::parse(&changed).expect("valid");
        let channels = std::mem::take(&mut config.channels);
        let mut plan = ReloadPlan::default();
        let how = Reload { restart: true, ..Reload::default() };
        daemon.plan_channels(channels, &config, how, &mut plan);
        assert_eq!(plan.restarted.len(), 1);
        if is_stopped {
            channel.stop(std::time::Duration::from_secs(10), false, false).await.expect("it ran");
        }
        let view = daemon.carry_out(plan, &config.daemon).await;
        let restarted: Vec<_> = view.restarted.iter().map(|one| one.settings.join(",")).collect();
        let pending: Vec<_> = view.pending.iter().map(|one| one.setting.clone()).collect();
        (restarted.concat(), pending.concat())
    };
    let key = "target.connect_timeout".to_owned();

    channel.start().await;
    assert_eq!(reload("5s", false).await, (key.clone(), String::new()));
    assert_eq!(reload("6s", true).await, (String::new(), key));
    assert_eq!(channel.view().state, ChannelState::Stopped);
    assert!(channel.stop(std::time::Duration::ZERO, false, false).await.is_err(), "nothing runs");

    // The next start has the settings that waited for it.
    channel.start().await;
    assert_eq!(channel.started_with().target.connect_timeout.as_secs(), 6);
    stop.cancel();
    channel.finish().await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_panics_is_neither_called_restarted_nor_lost() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let text = in_folder(folder.path(), 1);
    let (daemon, stop) = daemon_of(folder.path(), &text);
    let channel = daemon.channel("orders").expect("configured");
    channel.start().await;
    let changed = format!("{text}connect_timeout = \"5s\"\n");
    let mut config = Config::parse(&changed).expect("valid");
    // No clock shows the time after it, and whoever asks for that panics.
    config.daemon.stop_timeout.0 = std::time::Duration::MAX;
    let channels = std::mem::take(&mut config.channels);
    for (channels, left) in [(channels, "target.connect_timeout"), (Vec::new(), "removed")] {
        let mut plan = ReloadPlan::default();
        let how = Reload { restart: true, ..Reload::default() };
        daemon.plan_channels(channels, &config, how, &mut plan);
        assert_eq!(plan.restarted.len() + plan.removed.len(), 1);
        let view = daemon.carry_out(plan, &config.daemon).await;
        assert!(view.restarted.is_empty() && view.removed.is_empty(), "{view:?}");
        let pending: Vec<_> = view.pending.iter().map(|one| one.setting.as_str()).collect();
        assert_eq!(pending, [left]);
        let kept = daemon.channel("orders").expect("it may still run");
        assert!(Arc::ptr_eq(&kept, &channel));
    }
    // Half of a removal can't be taken back by a file that has the channel again.
    channel.remove(std::time::Duration::ZERO).await;
    let mut plan = ReloadPlan::default();
    let mut config = Config::parse(&text).expect("valid");
    let channels = std::mem::take(&mut config.channels);
    daemon.plan_channels(channels, &config, Reload::default(), &mut plan);
    let pending: Vec<_> = plan.view.pending.iter().map(|one| one.setting.as_str()).collect();
    assert_eq!(pending, ["removed"]);
    stop.cancel();
    channel.finish().await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_whose_file_hangs_does_not_keep_the_process_from_ending() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (daemon, stop) = daemon_of(folder.path(), &in_folder(folder.path(), 1));
    let path = folder.path().join(FILE);
    // Nobody writes to it.
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("it runs");
    assert!(made.success());
    let sender = Sender { peer: "a test".to_owned(), claimed: None };
    let minute = std::time::Duration::from_secs(60);
    let reload = tokio::time::timeout(minute, daemon.reload(Reload::default(), &sender));
    let stopping = async {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        stop.cancel();
    };
    let (reloaded, ()) = tokio::join!(reload, stopping);
    // The runtime waits for the thread that reads it.
    let writer = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("opens");
    std::fs::remove_file(&path).expect("removed");
    drop(writer);
    let refused = reloaded.expect("it ends").expect_err("not reloaded");
    assert!(refused.0.contains("stopping"), "{}", refused.0);
}
