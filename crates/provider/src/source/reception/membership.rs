//! The look at a member of a group before it is followed, and from time to time while it is.

use crate::binlog::gtid::GtidSet;
use crate::server::Version;
use crate::server::group::{Address, Candidates, GroupView, MEMBERS_PRIVILEGE, Standing};
use crate::source::connection::{ConnectionError, SourceConnection};
use crate::source::group::GroupDiscovery;

/// `ER_TABLEACCESS_DENIED_ERROR`.
const DENIED: u16 = 1142;

/// Finds out whether the member at `address` follows its group, and has what comes after `received`.
pub(super) async fn check(
    group: &GroupDiscovery,
    connection: &mut SourceConnection,
    address: &Address,
    candidates: &mut Candidates,
    received: &GtidSet,
) -> Result<(), ConnectionError> {
    let view = view(connection).await?;
    let (host, port) = address;
    group
        .admit(&view, address, candidates)
        .map_err(|why| ConnectionError::Protocol(format!("member {host}:{port}: {why}")))?;
    let purged = connection.gtids("SELECT @@GLOBAL.gtid_purged").await?;
    let purged: GtidSet = purged
        .parse()
        .map_err(|error| ConnectionError::Protocol(format!("gtid_purged: {error}")))?;
    let missing = purged.difference(received);
    // A member that joined by a copy has no binary logs from before. If none has them, the server itself says so.
    match !missing.is_empty() && candidates.set_aside(address) {
        true => Err(ConnectionError::Protocol(format!(
            "this member has purged transactions that were not received: {missing}"
        ))),
        false => Ok(()),
    }
}

/// Returns the reason why the member should not be followed any longer; `None` also where it does not answer, which
/// the link shows.
pub(super) async fn fault(connection: &mut SourceConnection) -> Option<String> {
    match view(connection).await.ok()?.standing() {
        Standing::Unfit(why) => Some(why),
        Standing::Healthy { .. } => None,
    }
}

async fn view(connection: &mut SourceConnection) -> Result<GroupView, ConnectionError> {
    let version = Version::parse(connection.server_version());
    GroupView::read(connection, &version).await.map_err(|error| match error.code() {
        Some(DENIED) => ConnectionError::Protocol(format!(
            "source.discover needs GRANT {MEMBERS_PRIVILEGE} for the account on the source: {error}"
        )),
        _ => error,
    })
}
