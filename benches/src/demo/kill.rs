//! `kill -9` of csa-daemon and of the target's mysqld, and the recovery.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::spawn_blocking;

use super::site::Site;
use super::text::{count, seconds};
use super::watch::{Phase, Watch};

/// A replica with less lag is called level.
pub(super) const LEVEL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub(super) struct Killed {
    pub(super) phase: Phase,
    /// The time from the kill until the target was level again.
    pub(super) recovered: Duration,
    /// The time from the kill until the mysqld of the target took connections.
    pub(super) target_back: Duration,
}

/// Kills both at once and starts both again, as a supervisor would, while the load continues.
pub(super) async fn kill(site: &Site, watch: &mut Watch, patience: Duration) -> Result<Killed> {
    let killed_at = Instant::now();
    let victims = site.clone();
    let work = spawn_blocking(move || {
        let daemon = victims.daemon.pid().unwrap_or_default();
        let target = victims.target.pid();
        victims.daemon.kill9();
        victims.target.kill9();
        (daemon, target)
    });
    let (daemon, target) = work.await.context("killing csa-daemon and its target")?;
    println!(
        "kill -9 {daemon} {target}: csa-daemon and the mysqld of its target; both start again"
    );
    let had = watch.transactions();
    let target = Arc::clone(&site.target);
    let target = spawn_blocking(move || {
        target.restart();
        let back = killed_at.elapsed();
        println!("the target takes connections {} after the kill", seconds(back));
        back
    });
    let daemon = Arc::clone(&site.daemon);
    let daemon = spawn_blocking(move || {
        daemon.start_again();
        println!("csa-daemon answers {} after the kill", seconds(killed_at.elapsed()));
    });
    let phase = watch.follow("killed", |look| {
        let is_back = target.is_finished() && daemon.is_finished() && look.csa.is_reachable;
        is_back && look.csa_has >= had && look.csa.lag < LEVEL || look.elapsed > patience
    });
    let phase = phase.await?;
    let recovered = killed_at.elapsed();
    ensure!(phase.elapsed <= patience, "csa-daemon did not recover within {}", seconds(patience));
    let target_back = target.await.context("starting the target again")?;
    daemon.await.context("starting csa-daemon again")?;
    println!(
        "recovered after {}: lag is below {}, and the target has all {} transactions from before",
        seconds(recovered),
        seconds(LEVEL),
        count(had)
    );
    Ok(Killed { phase, recovered, target_back })
}
