//! Sources that take over from each other, and a target.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use csa_tests::{Server, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;

/// Time that a source may take to have what the other has.
const PATIENCE: Duration = Duration::from_secs(60);

/// Each of the sources can be the primary; the other replicates from it.
pub(crate) struct Servers {
    pub(crate) sources: Vec<Server>,
    primary: AtomicUsize,
    pub(crate) target: Server,
}

impl Servers {
    /// The first of the sources is the primary.
    pub(crate) fn start(sources: &[&'static str]) -> Self {
        let options = ["--binlog-row-event-max-size=8192"];
        let mut servers: Vec<Server> = std::thread::scope(|scope| {
            let names = sources.iter().copied().chain(["target"]);
            let started: Vec<_> =
                names.map(|name| scope.spawn(move || Server::start(name, &options))).collect();
            let started = started.into_iter().map(std::thread::ScopedJoinHandle::join);
            started.map(|server| server.unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
        });
        let target = servers.pop().expect("the target");
        Self { sources: servers, primary: AtomicUsize::new(0), target }
    }

    pub(crate) fn primary(&self) -> &Server {
        &self.sources[self.primary.load(Ordering::SeqCst)]
    }

    /// The other source takes over, without losing a transaction; returns the old primary.
    pub(crate) async fn promote_other(&self) -> &Server {
        let at = self.primary.load(Ordering::SeqCst);
        let (old, new) = (&self.sources[at], &self.sources[1 - at]);
        old.exec("SET GLOBAL super_read_only=ON").await;
        let executed = old.gtid_executed().await;
        let caught_up = format!("SELECT GTID_SUBSET('{executed}', @@GLOBAL.gtid_executed)");
        eventually("the peer catches up", PATIENCE, async || {
            new.value::<u8>(&caught_up).await == 1
        })
        .await;
        new.exec("STOP REPLICA; RESET REPLICA ALL; SET GLOBAL super_read_only=OFF, read_only=OFF")
            .await;
        self.primary.store(1 - at, Ordering::SeqCst);
        old
    }
}

/// Makes `replica` replicate from `source`, read-only.
pub(crate) async fn follow(replica: &Server, source: &Server) {
    replica
        .exec(&format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={}, \
             SOURCE_USER='repl', SOURCE_PASSWORD='repl_pw', GET_SOURCE_PUBLIC_KEY=1, \
             SOURCE_AUTO_POSITION=1, SOURCE_CONNECT_RETRY=1, SOURCE_HEARTBEAT_PERIOD=1; \
             START REPLICA; SET GLOBAL super_read_only=ON",
            source.port
        ))
        .await;
}

/// Ends the sessions that the condition selects.
pub(crate) async fn kill_sessions(server: &Server, condition: &str) {
    let mut conn = server.conn().await;
    let list = format!("SELECT id FROM performance_schema.processlist WHERE {condition}");
    let sessions: Vec<u64> = conn.query(list).await.expect("a list");
    for session in sessions {
        // It may have ended on its own.
        let _ = conn.query_drop(format!("KILL {session}")).await;
    }
    let _ = conn.disconnect().await;
}

/// Runs one query in the session, with a new one after a failure; the first value.
pub(crate) async fn run(
    conn: &mut Option<Conn>,
    server: &Server,
    sql: &str,
) -> Result<Option<u64>, String> {
    let attempt = async {
        let mut session = match conn.take() {
            Some(session) => session,
            None => Conn::new(server.opts()).await?,
        };
        let value = session.query_first::<u64, _>(sql).await?;
        *conn = Some(session);
        Ok::<_, mysql_async::Error>(value)
    };
    match tokio::time::timeout(Duration::from_secs(5), attempt).await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(_) => Err("no answer in 5 s".into()),
    }
}
