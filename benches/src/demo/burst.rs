//! The burst: sessions that change one of a few rows in each transaction, such as the stock in a sale.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use csa_tests::Server;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;

use super::options::{Options, SCHEMA};

/// Transactions that a session sends at a time, so that the source's time goes to commits and not to the network.
const PACKET: u32 = 20;

/// Dropping it ends it at once; [`Burst::stop`] lets open transactions finish.
#[derive(Debug)]
pub(super) struct Burst {
    sessions: JoinSet<Result<(), mysql_async::Error>>,
    is_over: Arc<AtomicBool>,
}

impl Burst {
    pub(super) fn start(source: &Server, options: &Options) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let accounts = options.steady_load().accounts;
        let pause = pause(options.burst_rate, options.clients);
        let mut sessions = JoinSet::new();
        for number in 1..=options.clients {
            let random = StdRng::seed_from_u64(number.into());
            sessions.spawn(write(source.opts(), random, accounts, pause, Arc::clone(&is_over)));
        }
        Self { sessions, is_over }
    }

    pub(super) async fn stop(mut self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        while let Some(session) = self.sessions.join_next().await {
            session?.context("writing the burst")?;
        }
        Ok(())
    }
}

/// Returns the time between two packets of a session.
fn pause(rate: f64, sessions: u32) -> Duration {
    match rate > 0.0 {
        true => Duration::from_secs_f64(f64::from(PACKET * sessions) / rate),
        false => Duration::ZERO,
    }
}

async fn write(
    source: Opts,
    mut random: StdRng,
    accounts: u64,
    pause: Duration,
    is_over: Arc<AtomicBool>,
) -> Result<(), mysql_async::Error> {
    let mut conn = Conn::new(source).await?;
    let mut next = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        let statement = |_| {
            let id = random.random_range(1..=accounts);
            format!("UPDATE {SCHEMA}.account SET balance=balance+1 WHERE id={id}")
        };
        let packet: Vec<String> = (0..PACKET).map(statement).collect();
        conn.query_drop(packet.join(";")).await?;
        // Turns that were missed are not caught up.
        next = (next + pause).max(Instant::now());
        tokio::time::sleep_until(next.into()).await;
    }
    conn.disconnect().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sessions_together_have_the_rate() {
        assert_eq!(pause(1_000.0, 10), Duration::from_millis(200));
        assert_eq!(pause(0.0, 10), Duration::ZERO);
    }
}
