//! A replica of MySQL's own, as a witness.

use csa_tests::{Compare, Server};

/// Follows the source until it is dropped.
pub(super) struct Replica(Server);

impl Replica {
    pub(super) async fn start_if_wanted(source: &Server) -> Option<Self> {
        std::env::var_os("CSA_ROUNDTRIP_REPLICA")?;
        let server = Server::start("replica", &["--replica-parallel-workers=1"]);
        server.follow(source).await;
        Some(Self(server))
    }

    /// Waits until it has everything, and reports its state.
    pub(super) async fn report(&self, source: &Server) {
        let Self(server) = self;
        let wanted = source.gtid_executed().await;
        let wait = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{wanted}', 15)");
        let waited: u64 = server.value(&wait).await;
        let error = "SELECT GROUP_CONCAT(LAST_ERROR_MESSAGE) FROM \
            performance_schema.replication_applier_status_by_worker WHERE LAST_ERROR_NUMBER <> 0";
        let error: Option<String> = server.value(error).await;
        let what = match Compare::new().run(source, server).await {
            Ok(_) => "is equal".to_owned(),
            Err(difference) => format!("has {difference}"),
        };
        eprintln!("MySQL's own replica: timed out {waited}, error {error:?}, {what}");
    }
}
