//! Replicas of MySQL's own, as witnesses.

use std::time::{Duration, Instant};

use csa_tests::{Compare, Server};

/// Follows the source until it is dropped.
pub(crate) struct Replica(pub(crate) Server);

/// The error of the replica's own applier; empty if it has none.
const ERROR: &str = "SELECT COALESCE(GROUP_CONCAT(LAST_ERROR_MESSAGE), '') FROM \
    performance_schema.replication_applier_status_by_worker WHERE LAST_ERROR_NUMBER <> 0";

impl Replica {
    pub(super) async fn start_if_wanted(source: &Server) -> Option<Self> {
        std::env::var_os("CSA_ROUNDTRIP_REPLICA")?;
        let replica = Self(Server::start("replica", &["--replica-parallel-workers=1"]));
        replica.0.follow(source).await;
        Some(replica)
    }

    /// Replicates from `source` under these rules of CHANGE REPLICATION FILTER, if any.
    pub(super) async fn follow(&self, source: &Server, filter: &str) {
        if !filter.is_empty() {
            self.0.exec(&format!("CHANGE REPLICATION FILTER {filter}")).await;
        }
        self.0.follow(source).await;
    }

    /// Waits until it has executed everything.
    ///
    /// # Errors
    /// The reason why it does not.
    pub(crate) async fn wait(&self, wanted: &str, deadline: Duration) -> Result<(), String> {
        let Self(server) = self;
        let wait = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{wanted}', 1)");
        let started = Instant::now();
        while server.value::<u64>(&wait).await != 0 {
            let error: String = server.value(ERROR).await;
            if !error.is_empty() || started.elapsed() > deadline {
                return Err(format!("MySQL's own replica is not level: {error}"));
            }
        }
        Ok(())
    }

    /// Waits until it has everything, and reports its state.
    pub(super) async fn report(&self, source: &Server) {
        let Self(server) = self;
        let waited = self.wait(&source.gtid_executed().await, Duration::from_secs(15)).await;
        let what = match Compare::new().run(source, server).await {
            Ok(_) => "is equal".to_owned(),
            Err(difference) => format!("has {difference}"),
        };
        eprintln!("MySQL's own replica: {waited:?}, {what}");
    }
}
