//! Sessions that write a load on the source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use csa_tests::Server;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::shape::{Client, Shape};
use super::sizes::Sizes;

const DEADLOCK: u16 = 1213;
const LOCK_WAIT_TIMEOUT: u16 = 1205;

/// A load and the state of its sessions, which outlives a backlog.
#[derive(Debug)]
pub(super) struct Producer {
    shape: Shape,
    sizes: Sizes,
    clients: Vec<Client>,
}

/// The writes made.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Produced {
    pub(super) transactions: u64,
    pub(super) row_changes: u64,
    pub(super) seconds: f64,
}

impl Produced {
    pub(super) fn rate(&self) -> f64 {
        self.transactions as f64 / self.seconds
    }
}

/// The transactions left to write, and those written.
#[derive(Debug)]
struct Order {
    left: AtomicU64,
    ended: AtomicBool,
    pace: Option<Pace>,
    transactions: AtomicU64,
    row_changes: AtomicU64,
}

#[derive(Debug)]
struct Pace {
    interval: Duration,
    next: Mutex<Instant>,
}

impl Producer {
    pub(super) fn new(shape: Shape, sizes: &Sizes, sessions: u32) -> Self {
        let clients = (1..=sessions).map(|number| Client::new(shape, sizes.seed, number)).collect();
        Self { shape, sizes: *sizes, clients }
    }

    /// Writes a number of transactions as fast as the source takes them.
    pub(super) async fn backlog(&mut self, source: &Server, transactions: u64) -> Result<Produced> {
        let running = self.start(source, transactions, None).await?;
        self.finish(running).await
    }

    /// Writes for a time, at a rate or as fast as the source takes it.
    pub(super) async fn write_for(
        &mut self,
        source: &Server,
        length: Duration,
        rate: Option<f64>,
    ) -> Result<Produced> {
        let running = self.start(source, u64::MAX, rate).await?;
        tokio::time::sleep(length).await;
        running.order.ended.store(true, Ordering::Relaxed);
        self.finish(running).await
    }

    async fn start(&mut self, source: &Server, left: u64, rate: Option<f64>) -> Result<Running> {
        let mut conns = Vec::new();
        for _ in &self.clients {
            let mut conn = source.conn().await;
            // Deletes by parent would lock gaps that other sessions insert into.
            conn.query_drop("SET SESSION transaction_isolation='READ-COMMITTED'").await?;
            conns.push(conn);
        }
        let order = Arc::new(Order {
            left: AtomicU64::new(left),
            ended: AtomicBool::new(false),
            pace: rate.map(|rate| Pace {
                interval: Duration::from_secs_f64(1.0 / rate.max(0.001)),
                next: Mutex::new(Instant::now()),
            }),
            transactions: AtomicU64::new(0),
            row_changes: AtomicU64::new(0),
        });
        let started = Instant::now();
        let mut sessions = JoinSet::new();
        for (client, conn) in self.clients.drain(..).zip(conns) {
            sessions.spawn(write(self.shape, self.sizes, client, conn, Arc::clone(&order)));
        }
        Ok(Running { order, started, sessions })
    }

    async fn finish(&mut self, mut running: Running) -> Result<Produced> {
        while let Some(session) = running.sessions.join_next().await {
            self.clients.push(session.context("a session on the source broke")??);
        }
        Ok(Produced {
            transactions: running.order.transactions.load(Ordering::Relaxed),
            row_changes: running.order.row_changes.load(Ordering::Relaxed),
            seconds: running.started.elapsed().as_secs_f64(),
        })
    }
}

#[derive(Debug)]
struct Running {
    order: Arc<Order>,
    started: Instant,
    sessions: JoinSet<Result<Client>>,
}

impl Order {
    /// Returns true while one more transaction is wanted.
    fn take(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        !self.ended.load(Ordering::Relaxed)
            && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    async fn pace(&self) {
        let Some(pace) = &self.pace else { return };
        let slot = {
            let mut next = pace.next.lock().await;
            let slot = *next;
            // Turns that all sessions missed are not caught up.
            *next = (slot + pace.interval).max(Instant::now());
            slot
        };
        tokio::time::sleep_until(slot.into()).await;
    }
}

async fn write(
    shape: Shape,
    sizes: Sizes,
    mut client: Client,
    mut conn: Conn,
    order: Arc<Order>,
) -> Result<Client> {
    while order.take() {
        order.pace().await;
        let transaction = shape.next(&sizes, &mut client);
        execute(&mut conn, &transaction.text).await.context("writing on the source")?;
        order.transactions.fetch_add(1, Ordering::Relaxed);
        order.row_changes.fetch_add(transaction.row_changes, Ordering::Relaxed);
    }
    conn.disconnect().await?;
    Ok(client)
}

/// Retries until it is committed: the session's next transactions depend on it.
async fn execute(conn: &mut Conn, text: &str) -> Result<(), Error> {
    loop {
        match conn.query_drop(text).await {
            Err(Error::Server(error))
                if error.code == DEADLOCK || error.code == LOCK_WAIT_TIMEOUT =>
            {
                conn.query_drop("ROLLBACK").await?;
            }
            outcome => return outcome,
        }
    }
}
