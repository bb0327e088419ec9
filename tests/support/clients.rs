//! Sessions on a source that run a test's own transactions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinSet;

use crate::Server;

const DEADLOCK: u16 = 1213;
const LOCK_WAIT_TIMEOUT: u16 = 1205;

/// Makes the statements of one transaction for the client with this number.
pub type MakeTransaction = fn(u32, &mut StdRng) -> Vec<String>;

/// Running clients. A transaction continues without a statement that the server refuses (duplicates,
/// foreign keys).
#[derive(Debug)]
pub struct Clients {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<u64>,
}

impl Clients {
    /// Starts this many clients, numbered from 0. Each runs `session` first.
    #[must_use]
    pub fn start(
        server: &Server,
        count: u32,
        session: fn(u32) -> &'static str,
        transaction: MakeTransaction,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for client in 0..count {
            let (opts, stop) = (server.opts(), Arc::clone(&stop));
            tasks.spawn(run(opts, client, session(client), transaction, stop));
        }
        Self { stop, tasks }
    }

    /// Ends them after their current transactions; returns how many they committed.
    ///
    /// # Panics
    /// If a client panicked.
    pub async fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let mut committed = 0;
        while let Some(ended) = self.tasks.join_next().await {
            committed += ended.expect("a client");
        }
        committed
    }

    /// Starts, waits, stops.
    pub async fn run(
        server: &Server,
        count: u32,
        session: fn(u32) -> &'static str,
        transaction: MakeTransaction,
        length: std::time::Duration,
    ) -> u64 {
        let clients = Self::start(server, count, session, transaction);
        tokio::time::sleep(length).await;
        clients.stop().await
    }
}

async fn run(
    opts: Opts,
    client: u32,
    session: &'static str,
    transaction: MakeTransaction,
    stop: Arc<AtomicBool>,
) -> u64 {
    let mut random = StdRng::seed_from_u64(u64::from(client));
    let mut conn = Conn::new(opts).await.expect("connects");
    conn.query_drop(session).await.expect("sets the session up");
    let mut committed = 0;
    while !stop.load(Ordering::Relaxed) {
        committed += u64::from(execute(&mut conn, transaction(client, &mut random)).await);
    }
    let _ = conn.disconnect().await;
    committed
}

/// Returns `false` when the server rolled it back.
async fn execute(conn: &mut Conn, statements: Vec<String>) -> bool {
    conn.query_drop("BEGIN").await.expect("begins");
    for statement in statements {
        match conn.query_drop(&statement).await {
            Ok(()) => {}
            Err(Error::Server(error)) if [DEADLOCK, LOCK_WAIT_TIMEOUT].contains(&error.code) => {
                conn.query_drop("ROLLBACK").await.expect("rolls back");
                return false;
            }
            Err(Error::Server(error)) => {
                let is_mistake = [1054, 1064].contains(&error.code);
                assert!(!is_mistake, "{statement}: {error}");
            }
            Err(error) => panic!("{statement}: {error}"),
        }
    }
    conn.query_drop("COMMIT").await.is_ok()
}
