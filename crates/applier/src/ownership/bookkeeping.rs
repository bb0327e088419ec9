//! Sessions that write our own tables, or nothing at all.

use std::time::Duration;

use tracing::info;

use crate::error::{Error, Result};
use crate::server::group;
use crate::server::port::Target;
use crate::server::session::Session;

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

/// Creates a table of ours, or the schema, if it is missing. Of several sessions that create the same one at the
/// same time, as the channels of a first start do, the server ends some with a deadlock.
pub(super) async fn create(session: &mut Session, statement: &str) -> Result<()> {
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

/// Returns a session for our bookkeeping, which must not show in a `gtid_executed` that mirrors the
/// source's.
pub(crate) async fn connect(target: &Target) -> Result<Session> {
    let mut session = Session::connect(target).await?;
    prepare(&mut session, target).await.map_err(Error::connecting)?;
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
