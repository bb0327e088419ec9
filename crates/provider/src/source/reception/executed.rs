//! The transactions that a source has executed, or is committing.

use crate::binlog::gtid::{GtidSet, owned_gtids};
use crate::source::connection::{ConnectionError, SourceConnection};

/// Returns the GTIDs that the source has executed.
pub(super) async fn executed(
    connection: &mut SourceConnection,
) -> Result<GtidSet, ConnectionError> {
    global(connection, "gtid_executed").await
}

/// Returns the executed GTIDs whose transactions the source no longer has.
pub(super) async fn purged(connection: &mut SourceConnection) -> Result<GtidSet, ConnectionError> {
    global(connection, "gtid_purged").await
}

async fn global(
    connection: &mut SourceConnection,
    variable: &str,
) -> Result<GtidSet, ConnectionError> {
    let set = connection.gtids(&format!("SELECT @@GLOBAL.{variable}")).await?;
    set.parse().map_err(|error| ConnectionError::Protocol(format!("{variable}: {error}")))
}

/// Returns the part of `missing` that the source is not committing. With `AFTER_SYNC` it sends a transaction and
/// waits for our acknowledgement before it counts it as executed, so refusing it for that would make both wait.
pub(super) async fn not_under_way(
    connection: &mut SourceConnection,
    missing: GtidSet,
) -> Result<GtidSet, ConnectionError> {
    if missing.is_empty() {
        return Ok(missing);
    }
    // In this order, because a commit that ends between the two answers is in the second one.
    let owned = connection.gtids("SELECT @@GLOBAL.gtid_owned").await?;
    let owned: GtidSet = owned_gtids(&owned).into_iter().map(|(gtid, _)| gtid).collect();
    let executed = executed(connection).await?;
    Ok(missing.difference(&owned).difference(&executed))
}
