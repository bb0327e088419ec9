//! Sessions that write our own tables, or nothing at all.

use crate::error::Result;
use crate::ownership::locks;
use crate::server::port::Target;
use crate::server::session::Session;

/// A session for our bookkeeping, which must not show in a `gtid_executed` that mirrors the source's.
pub(crate) async fn connect(target: &Target) -> Result<Session> {
    let mut session = Session::connect(target).await?;
    session.end_when_idle(locks::IDLE_LIMIT).await?;
    if target.gtids.hides_bookkeeping() {
        session.log(false).await?;
    }
    Ok(session)
}
