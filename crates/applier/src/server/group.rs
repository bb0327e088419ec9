//! The group of a server that a session has reached.

use std::time::Duration;

use csa_provider::server::Version;
use csa_provider::server::group::{GroupView, Member};

use super::session::Session;
use crate::error::{Error, Result};

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

/// Waits until a node of a Galera cluster has applied what the cluster has committed so far. Other servers lack the
/// variable, or have it OFF.
pub(crate) async fn catch_up_in_galera(session: &mut Session) -> Result<()> {
    const QUERY: &str = "SHOW SESSION VARIABLES WHERE Value='ON' AND Variable_name IN ('wsrep_on')";
    let found: Option<(String, String)> = session.setting(QUERY).await?;
    if found.is_none() {
        return Ok(());
    }
    let wait = "SET SESSION wsrep_sync_wait=1;BEGIN;COMMIT;SET SESSION wsrep_sync_wait=DEFAULT";
    session.run(wait).await.map(drop)
}
