//! Sessions that write our own tables, or nothing at all.

use std::time::Duration;

use csa_provider::server::by_hand::UNLOGGED;
use csa_provider::sql_text::quote;
use tracing::info;

use crate::error::{Error, Result};
use crate::server::group;
use crate::server::session::Session;
use crate::server::target::Target;

/// The server ends an idle control session after this time, which frees the lock of a daemon whose host
/// is gone; a living one pings far more often.
pub(crate) const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// The idle limit where another daemon stands by: so late that daemon takes over from one that hangs or lost
/// the target.
pub(crate) const IDLE_LIMIT_WITH_STANDBY: Duration = Duration::from_secs(6);

/// ER_LOCK_DEADLOCK.
const DEADLOCK: u16 = 1213;
const PAUSE_AFTER_DEADLOCK: Duration = Duration::from_millis(100);
const MAX_DEADLOCKS: u32 = 20;

/// Creates a table of ours by these statements if it is missing. A look waits for no backup lock, as CREATE TABLE IF NOT
/// EXISTS does; and that is logged as one more transaction of the target's own. An account that does not see the table
/// sends the statements, which do nothing then.
pub(crate) async fn create(session: &mut Session, table: &str, statements: &[&str]) -> Result<()> {
    if has_table(session, table).await? {
        return Ok(());
    }
    for statement in statements {
        define(session, statement).await?;
    }
    Ok(())
}

/// Runs a definition. Of several sessions that create the same table at the same time, as the channels of a first start
/// do, the server ends some with a deadlock.
async fn define(session: &mut Session, statement: &str) -> Result<()> {
    for _ in 0..MAX_DEADLOCKS {
        match session.run(statement).await {
            Err(error) if error.code() == Some(DEADLOCK) => {
                info!(%error, "another channel creates the same table; creating it again");
                tokio::time::sleep(PAUSE_AFTER_DEADLOCK).await;
            }
            other => return other.map(drop),
        }
    }
    session.run(statement).await.map(drop)
}

/// Returns the beginning of a statement on our tables that an operator is to run by hand. Where the target's binary log
/// has nothing of these tables, a change of their rows there would stop each replica of the target (1146).
pub(crate) fn by_hand(is_logged: bool) -> &'static str {
    if is_logged { "" } else { UNLOGGED }
}

/// The statement by which an operator makes a server forget its GTIDs.
pub(crate) const RESET_GTIDS: &str = "RESET BINARY LOGS AND GTIDS (before MySQL 8.2: RESET MASTER)";

/// The commands after which a channel begins as its file says by now: a restart alone reads no file.
pub const RELOAD_AND_RESTART: &str = "csa-daemon reload; csa-daemon restart";

/// Looks for a table of ours without touching it.
pub(crate) async fn has_table(session: &mut Session, name: &str) -> Result<bool> {
    let query = format!(
        "SELECT COUNT(*) FROM information_schema.tables \
         WHERE table_schema='csa' AND table_name={}",
        quote(name)
    );
    let found: Vec<u64> = session.rows(&query).await?;
    Ok(found.first().is_some_and(|&count| count > 0))
}

/// Returns a session for our bookkeeping, which must not show in a `gtid_executed` that mirrors the
/// source's.
pub(crate) async fn connect(target: &Target) -> Result<Session> {
    let mut session = Session::connect(target).await?;
    prepare(&mut session, target).await.map_err(Error::connecting)?;
    Ok(session)
}

/// Does what [`connect`] does, for what reads the progress of a channel: a node of a Galera cluster catches up first.
pub(crate) async fn connect_level(target: &Target) -> Result<Session> {
    let mut session = connect(target).await?;
    let level = group::catch_up_in_galera(&mut session, &target.route).await;
    level.map_err(Error::connecting)?;
    Ok(session)
}

async fn prepare(session: &mut Session, target: &Target) -> Result<()> {
    session.end_when_idle(IDLE_LIMIT).await?;
    if target.route.is_of_group() {
        Box::pin(group::catch_up(session, target.net_timeout)).await?;
    }
    match target.gtids.hides_bookkeeping() {
        true => session.log(false).await,
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::scripted::Scripted;

    #[tokio::test]
    async fn only_what_reads_progress_waits_for_a_galera_cluster() {
        let scripted = Scripted::default();
        scripted.state().is_galera = true;
        let waits = || {
            let state = scripted.state();
            state.sent.iter().filter(|sent| sent.contains("wsrep_sync_wait=1")).count()
        };
        connect(&scripted.target()).await.expect("connected");
        assert_eq!(waits(), 0);
        connect_level(&scripted.target()).await.expect("connected");
        assert_eq!(waits(), 1);
    }

    #[tokio::test]
    async fn only_a_missing_table_is_created() {
        let scripted = Scripted::default();
        let mut session = Session::connect(&scripted.target()).await.expect("connected");
        let statements =
            ["CREATE DATABASE IF NOT EXISTS csa", "CREATE TABLE IF NOT EXISTS csa.audit (i INT)"];
        for (has_tables, created) in [(false, 2), (true, 2), (false, 4)] {
            scripted.state().has_tables = has_tables;
            create(&mut session, "audit", &statements).await.expect("there");
            assert_eq!(scripted.state().created, created);
        }
    }
}
