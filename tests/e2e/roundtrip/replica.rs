//! A replica of MySQL's own, as a witness.

use std::time::Duration;

use csa_tests::Server;
use mysql_async::prelude::Queryable as _;
use tokio::task::JoinHandle;

/// Follows the source until it is dropped; says when it can't.
pub(super) struct Replica {
    watching: JoinHandle<()>,
}

impl Replica {
    pub(super) async fn start_if_wanted(source: &Server) -> Option<Self> {
        std::env::var_os("CSA_ROUNDTRIP_REPLICA")?;
        let server = Server::start("replica", &["--replica-parallel-workers=1"]);
        server
            .exec(&format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={}, \
                 SOURCE_USER='repl', SOURCE_PASSWORD='repl_pw', SOURCE_AUTO_POSITION=1, \
                 GET_SOURCE_PUBLIC_KEY=1",
                source.port
            ))
            .await;
        server.exec("START REPLICA").await;
        Some(Self { watching: tokio::spawn(watch(server)) })
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

async fn watch(server: Server) {
    let error = "SELECT LAST_ERROR_MESSAGE FROM \
        performance_schema.replication_applier_status_by_worker WHERE LAST_ERROR_NUMBER <> 0";
    let mut conn = server.conn().await;
    loop {
        if let Some(error) = conn.query_first::<String, _>(error).await.unwrap_or_default() {
            eprintln!("MySQL's own replica stopped: {error}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
