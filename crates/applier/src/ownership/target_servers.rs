//! `csa.target_server`: the servers that have been a channel's target. Where a replica of the target takes
//! over, its table has the servers before it. Their own transactions are the target's own, and may come back
//! from a source to which another channel has brought them.
//!
//! A server is recorded before the channel applies anything there. One that was a target only with a version that
//! does not know the table is not recorded.

use std::collections::BTreeSet;

use csa_provider::binlog::Uuid;
use csa_provider::sql_text::quote;

use crate::error::{Error, Result};
use crate::ownership::bookkeeping;
use crate::server::session::Session;

const TABLE: &str = "target_server";
const CREATE: &str = "CREATE TABLE IF NOT EXISTS csa.target_server (\
     channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     server_uuid VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     PRIMARY KEY (channel, server_uuid)) ENGINE=InnoDB";

/// Returns each channel with a server that has been its target.
pub(crate) async fn read_all(session: &mut Session) -> Result<Vec<(String, Uuid)>> {
    if !bookkeeping::has_table(session, TABLE).await? {
        return Ok(Vec::new());
    }
    let query = "SELECT channel, server_uuid FROM csa.target_server";
    let rows: Vec<(String, String)> = session.rows(query).await?;
    let server = |(channel, text): (String, String)| match Uuid::parse_str(&text) {
        Ok(server) => Ok((channel, server)),
        Err(_) => {
            let what = format!("csa.target_server: {text:?} is not a UUID");
            Err(Error::Checkpoint { channel, what })
        }
    };
    rows.into_iter().map(server).collect()
}

/// Removes the source of a channel that begins. An earlier channel of this name had it as a target, and what it makes is
/// not the target's own any more: whoever takes its place as the source has to have that.
pub(crate) async fn forget(
    session: &mut Session,
    channel: &str,
    source: Option<Uuid>,
) -> Result<()> {
    if let Some(source) = source
        && bookkeeping::has_table(session, TABLE).await?
    {
        let channel = quote(channel);
        session
            .run(format!(
                "DELETE FROM csa.target_server WHERE channel={channel} AND server_uuid='{source}'"
            ))
            .await?;
    }
    Ok(())
}

/// Adds the present server, and its group, to those that `known` names, and to the table.
pub(crate) async fn note(
    session: &mut Session,
    channel: &str,
    present: BTreeSet<Uuid>,
    known: &mut BTreeSet<Uuid>,
) -> Result<()> {
    let new: Vec<Uuid> = present.difference(known).copied().collect();
    if new.is_empty() {
        return Ok(());
    }
    bookkeeping::create(session, TABLE, &[CREATE]).await?;
    let channel = quote(channel);
    for server in new {
        session
            .run(format!(
                "INSERT IGNORE INTO csa.target_server (channel, server_uuid) VALUES ({channel},'{server}')"
            ))
            .await?;
        known.insert(server);
    }
    Ok(())
}
