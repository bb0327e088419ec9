//! Clients of an application that moves: each write is acknowledged or not, and never repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use csa_tests::Server;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error};
use tokio::task::JoinSet;

/// The account has no privilege by which it could write through a fence.
const APPLICATION: &str = "SET SESSION sql_log_bin = 0; CREATE USER app@'%' IDENTIFIED WITH {} BY 'app_pw'; \
                           GRANT SELECT, INSERT, UPDATE, DELETE ON app.* TO app@'%'";
/// The pause between two writes of all clients together: the moves are the test, not the load.
const PAUSE: Duration = Duration::from_millis(6);
/// The pause after a refusal, which ends the session: to open another takes a server more than a write does.
const REFUSED: Duration = Duration::from_millis(40);
/// Clients that try both servers all the time, whatever they were pointed at: they would find a second open server.
const STUBBORN: u64 = 8;
/// A server that does not answer must not hold up a client.
const PATIENCE: Duration = Duration::from_secs(2);

/// A write that a server has acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    pub(super) id: u64,
    pub(super) port: u16,
    pub(super) sent: Instant,
    pub(super) acked: Instant,
}

#[derive(Debug)]
struct Shared {
    ports: [u16; 2],
    /// The pause of a client between its writes.
    pause: Duration,
    /// The file that the program of the hand-over writes.
    place: PathBuf,
    stop: AtomicBool,
    next: AtomicU64,
}

/// The writes of a client, as it knows them at its end.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) acked: Vec<Write>,
    /// The server may have committed them, or not.
    pub(super) unknown: BTreeSet<u64>,
}

#[derive(Debug)]
pub(super) struct Applications {
    shared: Arc<Shared>,
    running: JoinSet<Written>,
}

/// Creates the account on both servers and the table on the first.
pub(super) async fn prepare(a: &Server, b: &Server) {
    for server in [a, b] {
        let version: String = server.value("SELECT @@version").await;
        let is_old = version.starts_with("5.7") || version.starts_with("8.0.15");
        let plugin = if is_old { "mysql_native_password" } else { "caching_sha2_password" };
        server.exec(&APPLICATION.replace("{}", plugin)).await;
    }
    a.exec(
        "CREATE DATABASE app CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci; \
         CREATE TABLE app.w (pk BIGINT AUTO_INCREMENT PRIMARY KEY, id BIGINT, client INT, KEY (id)); \
         CREATE TABLE app.last (client INT PRIMARY KEY, id BIGINT)",
    )
    .await;
}

impl Applications {
    /// Starts clients, which use the server that the file names.
    pub(super) fn start(ports: [u16; 2], place: &Path, clients: u64) -> Self {
        let shared = Arc::new(Shared {
            ports,
            pause: PAUSE * u32::try_from(clients).expect("few clients"),
            place: place.to_owned(),
            stop: AtomicBool::new(false),
            next: AtomicU64::new(1),
        });
        let mut running = JoinSet::new();
        for client in 0..clients {
            running.spawn(run(Arc::clone(&shared), client));
        }
        Self { shared, running }
    }

    pub(super) async fn stop(mut self) -> Written {
        self.shared.stop.store(true, Ordering::SeqCst);
        let mut all = Written::default();
        while let Some(one) = self.running.join_next().await {
            let one = one.expect("a client");
            all.acked.extend(one.acked);
            all.unknown.extend(one.unknown);
        }
        all.acked.sort_by_key(|write| write.acked);
        all
    }
}

impl Shared {
    fn port(&self, client: u64, attempt: u64) -> u16 {
        if client < STUBBORN {
            return self.ports[(attempt % 2) as usize];
        }
        let text = std::fs::read_to_string(&self.place).unwrap_or_default();
        text.trim().parse().unwrap_or(self.ports[0])
    }
}

async fn run(shared: Arc<Shared>, client: u64) -> Written {
    let mut written = Written::default();
    let mut sessions: BTreeMap<u16, Conn> = BTreeMap::new();
    let mut attempt = client;
    while !shared.stop.load(Ordering::SeqCst) {
        tokio::time::sleep(shared.pause).await;
        attempt += 1;
        let port = shared.port(client, attempt);
        let id = shared.next.fetch_add(1, Ordering::SeqCst);
        let sent = Instant::now();
        let mut is_sent = false;
        let session = sessions.remove(&port);
        let write = write(port, session, client, id, &mut is_sent);
        match tokio::time::timeout(PATIENCE, write).await {
            Ok(Ok(session)) => {
                written.acked.push(Write { id, port, sent, acked: Instant::now() });
                sessions.insert(port, session);
            }
            // The server has refused it, or has rolled it back.
            Ok(Err(Error::Server(_))) => tokio::time::sleep(REFUSED).await,
            Ok(Err(_)) | Err(_) if is_sent => {
                written.unknown.insert(id);
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }
    for session in sessions.into_values() {
        let _ = session.disconnect().await;
    }
    written
}

/// A transaction whose statements come one after the other, as those of an application.
async fn write(
    port: u16,
    session: Option<Conn>,
    client: u64,
    id: u64,
    is_sent: &mut bool,
) -> Result<Conn, Error> {
    let mut session = match session {
        Some(session) => session,
        None => {
            let opts = mysql_async::OptsBuilder::default()
                .ip_or_hostname("127.0.0.1")
                .tcp_port(port)
                .user(Some("app"))
                .pass(Some("app_pw"))
                .prefer_socket(false);
            Conn::new(opts).await?
        }
    };
    let insert = format!("INSERT INTO app.w (id, client) VALUES ({id}, {client})");
    if id.is_multiple_of(3) {
        *is_sent = true;
        session.query_drop(insert).await?;
        return Ok(session);
    }
    session.query_drop("BEGIN").await?;
    session.query_drop(insert).await?;
    session.query_drop(format!("REPLACE INTO app.last VALUES ({client}, {id})")).await?;
    *is_sent = true;
    session.query_drop("COMMIT").await?;
    Ok(session)
}

impl Written {
    /// Every acknowledged write is on the server once, and nothing that no client has sent.
    pub(super) async fn are_on(&self, server: &Server) {
        let mut conn = server.conn().await;
        let rows: Vec<(u64, u64)> =
            conn.query("SELECT id, COUNT(*) FROM app.w GROUP BY id").await.expect("the rows");
        let there: BTreeMap<u64, u64> = rows.into_iter().collect();
        let twice: Vec<_> = there.iter().filter(|(_, count)| **count != 1).collect();
        assert!(twice.is_empty(), "written twice on {}: {twice:?}", server.name);
        let lost: Vec<_> =
            self.acked.iter().filter(|write| !there.contains_key(&write.id)).collect();
        assert!(
            lost.is_empty(),
            "lost on {}: {} writes, {:?}",
            server.name,
            lost.len(),
            lost.first()
        );
        let acked: BTreeSet<u64> = self.acked.iter().map(|write| write.id).collect();
        let strange: Vec<_> =
            there.keys().filter(|id| !acked.contains(id) && !self.unknown.contains(id)).collect();
        assert!(strange.is_empty(), "refused, and there on {}: {strange:?}", server.name);
    }

    /// No server took a write that was sent after the other one had taken one, between these moments.
    pub(super) fn never_two(&self, from: u16, to: u16, between: [Instant; 2]) {
        let within = |write: &&Write| (between[0]..between[1]).contains(&write.sent);
        let of = |port| self.acked.iter().filter(within).filter(move |write| write.port == port);
        let first_of_new = of(to).map(|write| write.acked).min();
        let last_of_old = of(from).map(|write| write.sent).max();
        let new = first_of_new.expect("a write on the new server");
        let old = last_of_old.expect("a write on the old server");
        assert!(old <= new, "two servers took writes: {from} and {to}, for {:?}", old - new);
    }

    /// Returns the longest time without an acknowledged write between these moments, also if none follows it.
    pub(super) fn longest_gap(&self, between: [Instant; 2]) -> Duration {
        let times: Vec<Instant> = self.acked.iter().map(|write| write.acked).collect();
        let inside = |pair: &&[Instant]| pair[1] >= between[0] && pair[0] <= between[1];
        let closed = times.windows(2).filter(inside).map(|pair| pair[1] - pair[0]).max();
        let open = times.last().map(|last| between[1].saturating_duration_since(*last));
        closed.max(open).expect("acknowledged writes")
    }
}
