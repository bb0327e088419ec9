//! Settings of an address that its server does not judge itself before it sends a stream.

use crate::server::Version;
use crate::server::facts::{ServerFacts, Upstream, named_values};
use crate::server::link::{Limits, LinkError};
use crate::source::connection::{ConnectionError, SourceConnection};

/// The answer has both values, with a blank between them.
pub(in crate::source) const SETTINGS: &str =
    "SELECT CONCAT(@@GLOBAL.binlog_format, ' ', @@GLOBAL.server_id)";
const UNKNOWN_VARIABLE: u16 = 1193;

/// Asks for the variable by both of its names, of which a server has one at least. The version that a connection shows may
/// be a proxy's.
pub(in crate::source) const LOGS_APPLIED: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
     ('version', 'log_replica_updates', 'log_slave_updates', 'wsrep_on', 'wsrep_provider')";

/// Refuses an address that would send changes as statements, or lacks what it applies as a replica, or is taken for
/// this replica, where another one may serve. A start has warned of the first address only.
pub(super) async fn check(
    connection: &mut SourceConnection,
    server_id: u32,
) -> Result<(), ConnectionError> {
    let settings = match connection.setting(SETTINGS).await {
        // A later server may have no other format.
        Err(ConnectionError::Link(LinkError::Server { code: UNKNOWN_VARIABLE, .. })) => {
            String::new()
        }
        other => other?,
    };
    match unfit(&settings, server_id) {
        Some(why) => Err(ConnectionError::Protocol(why)),
        None => logs_applied(connection).await,
    }
}

/// Refuses a replica whose binary log lacks what it applies: that would never arrive, and nothing would show it.
async fn logs_applied(connection: &mut SourceConnection) -> Result<(), ConnectionError> {
    let variables = named_values(connection.query(LOGS_APPLIED, Limits::LIST).await?);
    let facts = ServerFacts { variables, ..ServerFacts::default() };
    if !facts.leaves_out_applied() {
        return Ok(());
    }
    let version = Version::parse(facts.text("version"));
    let what = if facts.is_galera_node() {
        "a node of a Galera cluster"
    } else if Upstream::read(connection, &version).await == Upstream::Known {
        "a replica"
    } else {
        return Ok(());
    };
    let is_new = facts.variables.contains_key("log_replica_updates");
    let name = if is_new { "log_replica_updates" } else { "log_slave_updates" };
    let option = name.replace('_', "-");
    Err(ConnectionError::Protocol(format!(
        "it is {what} with {name}=OFF, so what it applies is not in its binary log and would never arrive; start \
         it with --{option}"
    )))
}

fn unfit(settings: &str, server_id: u32) -> Option<String> {
    let (format, id) = settings.split_once(' ')?;
    if !format.eq_ignore_ascii_case("ROW") {
        return Some(format!(
            "its binlog_format is {format}, and a change logged as a statement stops the channel; run SET PERSIST \
             binlog_format=ROW there"
        ));
    }
    (id == server_id.to_string()).then(|| {
        format!("its server_id is {id}, like source.server_id of the channel; give each its own")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::connection::fake_source::{FakeSource, Wires};

    #[tokio::test]
    async fn a_replica_behind_a_proxy_is_asked_in_the_words_of_its_own_version() {
        let (options, mut ends) = Wires::options();
        let script = tokio::spawn(async move {
            let mut source = FakeSource::new(ends.recv().await.expect("a connection"));
            (source.of_proxy, source.leaves_out_applied) = (Some("8.0.20-router"), true);
            source.accept_look().await;
        });
        let mut connection =
            SourceConnection::connect(&options, "source", 3306).await.expect("logs in");
        let error = check(&mut connection, 7).await.expect_err("unfit").to_string();
        assert!(error.contains("a replica with log_replica_updates=OFF"), "{error}");
        script.abort();
    }

    #[test]
    fn statements_and_the_replicas_own_number_are_unfit() {
        for (settings, word) in [
            ("ROW 1", None),
            ("", None),
            ("MIXED 1", Some("MIXED")),
            ("STATEMENT 1", Some("binlog_format=ROW")),
            ("ROW 7", Some("server_id")),
        ] {
            let found = unfit(settings, 7);
            assert_eq!(found.is_some(), word.is_some(), "{settings}");
            assert!(found.unwrap_or_default().contains(word.unwrap_or_default()), "{settings}");
        }
    }
}
