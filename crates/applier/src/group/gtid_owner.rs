//! GTIDs that another session owns. With `target_gtids = "source"`, a session of a dead daemon may have begun
//! the transaction that this one is to apply. It can commit nothing, because the epoch in the checkpoint row is
//! no longer its own. But it owns the GTID until the target notices that its client is gone. `SET gtid_next`
//! waits for it without a limit (`Gtid_state::wait_for_gtid` in the server's sql/rpl_gtid_state.cc). That wait
//! is in no table of locks, and the link is alive meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use csa_provider::binlog::{Gtid, owned_gtids};
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
        let gtids = group.transactions.iter().map(|one| &one.relayed.header.gtid).collect();
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

/// Returns the connections that own one of the group's GTIDs, by the value of `gtid_owned`.
fn owners(owned: &str, gtids: &BTreeSet<&Gtid>) -> Vec<u32> {
    let of_group = owned_gtids(owned).into_iter().filter(|(gtid, _)| gtids.contains(gtid));
    of_group.flat_map(|(_, connections)| connections).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_found_by_gtid() {
        const A: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
        let owned = format!("{A}:12#13:1#8{A}:tag:4#15:3#12");
        let cases: [(&[&str], &[u32]); 4] = [
            (&["1"], &[8]),
            (&["2"], &[]),
            (&["tag:3"], &[12]),
            (&["1", "12", "tag:4"], &[13, 8, 15]),
        ];
        for (gtids, expected) in cases {
            let gtids: Vec<Gtid> =
                gtids.iter().map(|gtid| format!("{A}:{gtid}").parse().unwrap()).collect();
            assert_eq!(owners(&owned, &gtids.iter().collect()), expected, "{gtids:?}");
        }
    }
}
