//! The group of a server that a session has reached.

use std::time::Duration;

use csa_provider::server::Version;
use csa_provider::server::group::{GroupView, Member};

use super::session::Session;
use crate::error::{Error, Result};
use crate::options::Route;

/// Returns the server's group as the server sees it.
pub(crate) async fn of(session: &mut Session) -> Result<GroupView> {
    let version = Version::parse(session.version());
    GroupView::read(session, &version).await
}

/// Waits until the server has applied what its group has committed so far. A new primary may answer before that
/// (<https://dev.mysql.com/doc/refman/en/group-replication-consistency-guarantees.html>); one that has lost its
/// majority does not answer at all.
///
/// # Errors
/// Returns [`Error::Unfit`] after `patience`; the session can't be used any more.
pub(crate) async fn catch_up(session: &mut Session, patience: Duration) -> Result<()> {
    let is_online = |member: &Member| member.is_asked && member.state == "ONLINE";
    // A server that left its group takes no such wait (3796).
    if !of(session).await?.members.iter().any(is_online) {
        return Ok(());
    }
    session.run("SET SESSION group_replication_consistency='BEFORE'").await?;
    let waited = tokio::time::timeout(patience, session.run("BEGIN;COMMIT")).await;
    let Ok(waited) = waited else {
        // Its answer would be taken for the next one's.
        session.hang_up().await;
        let address = session.address().to_owned();
        let why =
            "it has not applied what its group committed, or has lost the majority".to_owned();
        return Err(Error::Unfit { address, why });
    };
    waited?;
    session.run("SET SESSION group_replication_consistency=DEFAULT").await.map(drop)
}

/// Waits until a node of a Galera cluster has applied what the cluster has committed so far, and returns true. Other servers
/// lack the variable, or have it OFF; those that were seen to are not asked.
///
/// # Errors
/// Returns [`Error::Unfit`] after the node's own patience.
pub(crate) async fn catch_up_in_galera(session: &mut Session, route: &Route) -> Result<bool> {
    const QUERY: &str = "SHOW SESSION VARIABLES WHERE Value='ON' AND Variable_name IN ('wsrep_on')";
    if !route.may_be_galera() {
        return Ok(false);
    }
    let found: Option<(String, String)> = session.setting(QUERY).await?;
    if found.is_none() {
        return Ok(false);
    }
    let wait = "SET SESSION wsrep_sync_wait=1;BEGIN;COMMIT;SET SESSION wsrep_sync_wait=DEFAULT";
    match session.run(wait).await {
        Err(error) if error.is_lock_timeout() => {
            let address = session.address().to_owned();
            let why = "it has not applied what its Galera cluster committed".to_owned();
            Err(Error::Unfit { address, why })
        }
        waited => waited.map(|_| true),
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::server::ServerFacts;

    use super::*;
    use crate::server::scripted::{Fate, Scripted};

    #[tokio::test]
    async fn a_server_that_was_seen_to_be_in_no_galera_cluster_is_not_asked() {
        let scripted = Scripted::default();
        scripted.state().is_galera = true;
        let target = scripted.target();
        let mut session = Session::connect(&target).await.expect("connected");
        for (seen, waits) in [(None, true), (Some("OFF"), false), (Some("ON"), true)] {
            if let Some(value) = seen {
                let variables = [("wsrep_on".to_owned(), value.to_owned())].into();
                target.route.note(&ServerFacts { variables, ..ServerFacts::default() });
            }
            let waited = catch_up_in_galera(&mut session, &target.route).await;
            assert_eq!(waited.expect("level"), waits, "{seen:?}");
        }
        scripted.state().fates.push_back(Fate::Refused(1205));
        let late = catch_up_in_galera(&mut session, &target.route).await.expect_err("it is late");
        assert!(matches!(late, Error::Unfit { .. }), "{late}");
    }
}
