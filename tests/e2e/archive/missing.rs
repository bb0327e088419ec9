//! A directory whose mount comes after the daemon.

use csa_tests::{compare, eventually};

use super::*;
use crate::fleet::{Site, options};
use crate::wait_state;

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_mounted_late_keeps_no_channel_down() {
    let site = Site::new(&["test", "two"]).await;
    let place = folder();
    let directory = place.path().join("mount/mysql");
    let daemon = site
        .builder()
        .set("archive.url", format!("file://{}", directory.display()))
        .set("archive.interval", "1s")
        .append(&site.channel("two", ""))
        .start();
    for channel in 0..2 {
        wait_state(&daemon, channel, "running").await;
    }
    for channel in ["test", "two"] {
        write_for(&site.source, &options(channel), Duration::from_secs(1)).await;
    }
    site.drained(&daemon, &["test", "two"]).await;
    eventually("the missing directory is named", DRAIN, async || {
        view(&daemon)["error"].to_string().contains("is the directory mounted")
    })
    .await;
    assert_eq!(daemon.commanded(&["reload"]), "nothing has changed\n");
    assert!(!place.path().join("mount").exists(), "nothing is created in the place of the mount");

    std::fs::create_dir_all(&directory).expect("created");
    archived(&daemon, &site.source).await;
    daemon.commanded(&["--channel", "test", "archive", "verify"]);
    compare(&site.source, &site.target).await;
}
