//! Facts about the target that its GTIDs state.

use std::collections::BTreeSet;

use csa_provider::binlog::{GtidSet, Uuid};

use super::session::Session;
use crate::error::Result;
use crate::options::Route;
use csa_provider::server::Vendor;

/// The server's `server_uuid`; MariaDB has none.
pub(crate) async fn server_uuid(session: &mut Session) -> Result<Option<Uuid>> {
    if session.vendor() == Vendor::MariaDb {
        return Ok(None);
    }
    let rows: Vec<String> = session.rows("SELECT @@GLOBAL.server_uuid").await?;
    Ok(rows.first().and_then(|text| text.parse().ok()))
}

/// Returns the UUIDs of the GTIDs that the target makes: the server's, and those of its group.
pub(crate) fn own_uuids(server: Option<Uuid>, route: &Route) -> BTreeSet<Uuid> {
    server.into_iter().chain(route.group_uuids()).collect()
}

/// The target's `gtid_executed`; empty on MariaDB, which has no MySQL GTIDs.
pub(crate) async fn executed(session: &mut Session) -> Result<GtidSet> {
    if session.vendor() == Vendor::MariaDb {
        return Ok(GtidSet::default());
    }
    csa_provider::server::facts::gtids(session, "gtid_executed").await
}
