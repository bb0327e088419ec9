//! The three servers and the daemon.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use csa_tests::{Daemon, Server, prepare};
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::try_join;

use super::options::{Options, SCHEMA};
use super::text::{Steps, count};

/// Shared with blocking work: what is dropped last ends daemon and servers, and removes their files.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) daemon: Arc<Daemon>,
    pub(super) source: Arc<Server>,
    /// Written by csa-daemon.
    pub(super) target: Arc<Server>,
    /// Follows the source with the server's own applier.
    pub(super) native: Arc<Server>,
}

impl Site {
    /// Starts everything, until both replicas have what the source has.
    pub(super) async fn set_up(options: &Options, admin_port: u16) -> Result<Self> {
        let mut steps = Steps::default();
        let work = start_servers();
        let text = "start three MySQL servers: source, target of csa-daemon, native replica";
        let (source, target, native) = steps.step(text, work).await?;
        let version: String = source.value("SELECT VERSION()").await;
        ensure!(
            can_follow(&version),
            "MySQL {version} has no START REPLICA; name a server of version 8.0.23 or newer with CSA_MYSQLD"
        );
        // All three share a disk here.
        source.exec("SET GLOBAL sync_binlog=0; SET GLOBAL innodb_flush_log_at_trx_commit=2").await;
        println!("   MySQL {version}; both replicas sync every commit to the disk, as by default;");
        println!("   the source does not, as if it had a faster disk of its own");
        let load = options.steady_load();
        let rows = count(options.rows);
        let text = format!("fill {} tables of {rows} rows on the source", options.tables);
        let work = async {
            prepare(&source, &load).await;
            let mark =
                format!("CREATE TABLE {SCHEMA}.mark (id INT PRIMARY KEY, n BIGINT NOT NULL)");
            source.exec(&format!("{mark}; INSERT INTO {SCHEMA}.mark VALUES (1, 0)")).await;
        };
        steps.step(text, work).await;
        let builder = Daemon::builder(&source, &target)
            .admin_port(admin_port)
            .set("source.user", "admin")
            .set("source.password", "admin_pw")
            .set("applier.start_from", "copy")
            .set("target.connect_retry_max", "1s");
        let daemon = Arc::new(builder.build());
        let site = Self { daemon, source, target, native };
        let text = "start csa-daemon, which copies the source and compares all rows";
        let checked = steps.step(text, site.copy(options.patience())).await?;
        println!("   {checked}");
        println!("   target.connect_retry_max is 1 s: it looks for a lost target every second");
        let text = "start the native replica, which replays the source's binary log from its start";
        steps.step(text, site.start_native(options.patience())).await?;
        let workers: u64 = site.native.value("SELECT @@GLOBAL.replica_parallel_workers").await;
        println!("   its applier has {workers} workers, by default");
        Ok(site)
    }

    async fn copy(&self, patience: Duration) -> Result<String> {
        let daemon = Arc::clone(&self.daemon);
        spawn_blocking(move || daemon.start_again()).await.context("starting csa-daemon")?;
        let started = Instant::now();
        loop {
            let status = self.status().await?;
            let channel = &status["channels"][0];
            if channel["state"] == "failed" {
                bail!("csa-daemon's channel failed: {}", channel["state_detail"]);
            }
            let check = &channel["copy_check"];
            match check["outcome"].as_str() {
                None | Some("comparing") => {}
                Some("equal") => return Ok(copied(check)),
                Some(_) => bail!("csa-daemon's copy: {}", check["text"]),
            }
            ensure!(started.elapsed() < patience, "csa-daemon's copy took too long: {channel:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn start_native(&self, patience: Duration) -> Result<()> {
        self.native.follow(&self.source).await;
        let wanted = self.source.gtid_executed().await;
        let seconds = patience.as_secs();
        let wait = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{wanted}', {seconds})");
        let is_late: u8 = self.native.value(&wait).await;
        ensure!(is_late == 0, "the native replica did not catch up within {seconds} s");
        Ok(())
    }

    /// Returns `/status`; null while the daemon does not answer.
    pub(super) async fn status(&self) -> Result<Value> {
        let daemon = Arc::clone(&self.daemon);
        let status = spawn_blocking(move || daemon.try_status()).await;
        Ok(status.context("asking csa-daemon for its status")?.unwrap_or_default())
    }
}

/// Blocking work stays off the runtime, so that Ctrl-C is noticed.
async fn start_servers() -> Result<(Arc<Server>, Arc<Server>, Arc<Server>)> {
    let start = |name| spawn_blocking(move || Arc::new(Server::start(name, &[])));
    let servers = try_join!(start("source"), start("target"), start("replica"));
    servers.context("starting the servers")
}

fn copied(check: &Value) -> String {
    let number = |key: &str| count(check[key].as_u64().unwrap_or_default());
    format!("copied and found equal: {} tables, {} rows", number("tables"), number("rows"))
}

/// Returns true if a server of this version knows the statements that start a native replica.
fn can_follow(version: &str) -> bool {
    let numbers = version.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    numbers.take(3).collect::<Vec<_>>() >= vec![8, 0, 23]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_before_8_0_23_are_too_old() {
        for old in ["5.7.44-log", "8.0.15", "8.0.22-debug", ""] {
            assert!(!can_follow(old), "{old}");
        }
        for new in ["8.0.23", "8.0.44-0ubuntu0.24.04.1", "8.4.0", "9.7.4-1"] {
            assert!(can_follow(new), "{new}");
        }
    }
}
