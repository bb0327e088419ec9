//! The wait for a target that has everything.

use std::time::{Duration, Instant};

use csa_provider::binlog::GtidSet;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use super::{Daemon, guard};
use crate::{Server, until_next_look};

impl Daemon {
    /// Waits until everything that the source has executed at the call is in the checkpoint of the
    /// first channel. The target may be away in between.
    ///
    /// # Panics
    /// With log and status after `deadline`, or when the daemon ends.
    pub async fn wait_drained(&self, source: &Server, target: &Server, deadline: Duration) {
        let channel = guard(&self.builder).channel_name();
        self.wait_channel_drained(&channel, source, target, deadline).await;
    }

    /// [`Daemon::wait_drained`] for the channel named.
    ///
    /// # Panics
    /// It panics with log and status after `deadline`, or when the daemon ends.
    pub async fn wait_channel_drained(
        &self,
        channel: &str,
        source: &Server,
        target: &Server,
        deadline: Duration,
    ) {
        let wanted = source.gtid_executed().await;
        let started = Instant::now();
        let mut conn = None;
        let mut checkpoint = None;
        loop {
            match is_applied(&mut conn, target, channel, &wanted).await {
                Ok((true, _)) => return,
                Ok((false, at)) => checkpoint = at,
                // The target or the table is not there (yet): use a new session next time.
                Err(_) => conn = None,
            }
            let ended = if self.pid().is_some() { self.exited() } else { None };
            if ended.is_some() || self.has_failed(channel) || started.elapsed() > deadline {
                panic!(
                    "channel {channel} not drained in {:?} (daemon: {})\nsource: {wanted}\n\
                     checkpoint: {}\nstatus: {:#}\n{}",
                    started.elapsed(),
                    ended.map_or("running".into(), |status| status.to_string()),
                    checkpoint.as_deref().unwrap_or("none"),
                    self.try_status().unwrap_or_default(),
                    self.log_tail()
                );
            }
            tokio::time::sleep(until_next_look(started.elapsed())).await;
        }
    }

    /// A failed channel applies nothing more.
    fn has_failed(&self, channel: &str) -> bool {
        let status = self.try_status().unwrap_or_default();
        let channels = status["channels"].as_array().cloned().unwrap_or_default();
        channels.iter().any(|view| view["channel_name"] == channel && view["state"] == "failed")
    }
}

/// Returns true if the channel's checkpoint rows together cover `wanted`; and the rows.
async fn is_applied(
    conn: &mut Option<Conn>,
    target: &Server,
    channel: &str,
    wanted: &str,
) -> Result<(bool, Option<String>), mysql_async::Error> {
    let mut session = match conn.take() {
        Some(session) => session,
        None => Conn::new(target.opts()).await?,
    };
    // Out of commit order only all rows together have the whole set.
    let rows: Vec<String> = session
        .exec("SELECT gtid_executed FROM csa.checkpoint WHERE channel = ?", (channel,))
        .await?;
    let executed = rows.join(",");
    *conn = Some(session);
    // Not every target can compute with GTID sets.
    let set = |text: &str| text.parse::<GtidSet>().expect("a GTID set");
    let applied = set(wanted).is_subset_of(&set(&executed));
    Ok((applied && !rows.is_empty(), Some(executed)))
}
