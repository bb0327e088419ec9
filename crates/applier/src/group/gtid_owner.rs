//! GTIDs that another session owns. With `target_gtids = "source"`, a session of a dead daemon may have begun
//! the transaction that this one is to apply. It can commit nothing, because the epoch in the checkpoint row is
//! no longer its own. But it owns the GTID until the target notices that its client is gone. `SET gtid_next`
//! waits for it without a limit (`Gtid_state::wait_for_gtid` in the server's sql/rpl_gtid_state.cc). That wait
//! is in no table of locks, and the link is alive meanwhile.

use std::time::Duration;

use csa_scheduler::group::Group;
use tokio::time::Instant;

use crate::error::Result;
use crate::ownership::locks;
use crate::server::session::Session;

/// How often owners are looked up while a group does not proceed.
const INTERVAL: Duration = Duration::from_secs(1);

/// Every GTID in use on the server, with the connections that own it.
const OWNED: &str = "SELECT @@GLOBAL.gtid_owned";

/// Frees the GTIDs that groups wait for.
#[derive(Debug, Default)]
pub(super) struct GtidWatch {
    looked: Option<Instant>,
}

impl GtidWatch {
    /// Ends the sessions that own a GTID of `group`, for which `connection` waits, if they were left behind on
    /// this channel. Returns the other connections that own one; `None` if nothing new is known.
    pub(super) async fn free(
        &mut self,
        session: &mut Session,
        channel: &str,
        group: &Group,
        connection: u32,
    ) -> Result<Option<Vec<u32>>> {
        if self.looked.is_some_and(|looked| looked.elapsed() < INTERVAL) {
            return Ok(None);
        }
        self.looked = Some(Instant::now());
        let owned: Vec<String> = session.rows(OWNED).await?;
        let gtids = group.transactions.iter().map(|one| one.relayed.header.gtid.to_string());
        let gtids: Vec<String> = gtids.collect();
        let owners = owners(owned.first().map_or("", String::as_str), &gtids);
        let mut others = Vec::new();
        for owner in owners.into_iter().filter(|owner| *owner != connection) {
            if !locks::end_worker(session, channel, owner).await? {
                others.push(owner);
            }
        }
        Ok(Some(others))
    }
}

/// Returns the connections that own one of these GTIDs, by the value of `gtid_owned`: for each UUID
/// and tag, `UUID[:TAG]:NUMBER#CONNECTION[:NUMBER#CONNECTION…]`.
fn owners(owned: &str, gtids: &[String]) -> Vec<u32> {
    let mut found = Vec::new();
    for of_server in split_at_uuids(owned) {
        let mut name = String::new();
        for part in of_server.trim_end_matches([',', '\n']).split(':') {
            let mut ids = part.split('#');
            let number = ids.next().unwrap_or_default();
            let ids: Vec<u32> = ids.filter_map(|id| id.parse().ok()).collect();
            if ids.is_empty() {
                // A part of the name: the UUID, or a tag.
                name = if name.is_empty() { part.to_owned() } else { format!("{name}:{part}") };
                continue;
            }
            let owned = format!("{name}:{number}");
            if gtids.iter().any(|gtid| gtid.eq_ignore_ascii_case(&owned)) {
                found.extend(ids);
            }
        }
    }
    found
}

/// Divides the text before each UUID: MySQL 9.7 writes nothing between a connection's number and the next
/// UUID.
fn split_at_uuids(owned: &str) -> impl Iterator<Item = &str> {
    let bytes = owned.as_bytes();
    let is_uuid =
        |&at: &usize| [8, 13, 18, 23].iter().all(|dash| bytes.get(at + dash) == Some(&b'-'));
    let mut starts: Vec<usize> = (0..owned.len()).filter(is_uuid).collect();
    starts.push(owned.len());
    let parts: Vec<&str> =
        starts.windows(2).filter_map(|pair| owned.get(*pair.first()?..*pair.last()?)).collect();
    parts.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_found_by_gtid() {
        const A: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
        const B: &str = "12345678-1234-1234-1234-123456789012";
        // As MySQL 9.7.4 writes it.
        let several = format!("{A}:12#13:1#8{A}:tag:4#15:3#12{B}:1#10#11");
        let separated = format!("{A}:1#8,\n{B}:1#9");
        for (owned, gtid, expected) in [
            ("", format!("{A}:1"), vec![]),
            (several.as_str(), format!("{A}:1"), vec![8]),
            (several.as_str(), format!("{A}:12"), vec![13]),
            (several.as_str(), format!("{A}:2"), vec![]),
            (several.as_str(), format!("{A}:3"), vec![]),
            (several.as_str(), format!("{A}:tag:3"), vec![12]),
            (several.as_str(), format!("{A}:tag:4"), vec![15]),
            (several.as_str(), format!("{B}:1"), vec![10, 11]),
            (separated.as_str(), format!("{A}:1"), vec![8]),
            (separated.as_str(), format!("{B}:1"), vec![9]),
            (several.as_str(), B.to_owned(), vec![]),
        ] {
            assert_eq!(owners(owned, std::slice::from_ref(&gtid)), expected, "{gtid} in {owned}");
        }
    }
}
