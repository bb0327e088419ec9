//! GTIDs that another history of the source has left on the target.
//!
//! A source that was reset or set back gives the same GTIDs to other transactions. The target executes a statement under
//! its source's GTID, and passes over one whose GTID it has executed. So a copy of the new history must not begin
//! below any of them.

use std::collections::BTreeSet;

use csa_provider::binlog::{GtidSet, Uuid};

use super::CopyClaim;
use crate::error::{Error, Result};
use crate::ownership::bookkeeping::RESET_GTIDS;
use crate::ownership::channel_record::{self, ChannelRecord};
use crate::ownership::start_position::{ahead_of, same_server, shown, transactions};
use crate::server::facts;
use crate::server::target::Target;

/// The transactions that the target has executed, and the servers that they may be of. Read before the copy's snapshot: what
/// other channels bring from this source is in the snapshot then.
#[derive(Debug, Default)]
pub struct ExecutedBefore {
    channel: String,
    address: String,
    executed: GtidSet,
    /// The UUIDs of GTIDs that the target makes.
    own: BTreeSet<Uuid>,
    channels: Vec<ChannelRecord>,
}

impl CopyClaim {
    /// Reads what the target has executed.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn executed_before(&mut self, target: &Target) -> Result<ExecutedBefore> {
        let Self { session, channel } = self;
        let server = facts::server_uuid(session).await?;
        Ok(ExecutedBefore {
            channel: channel.clone(),
            address: target.address(),
            executed: facts::executed(session).await?,
            own: facts::own_uuids(server, &target.route),
            channels: channel_record::read_all(session).await?,
        })
    }
}

impl ExecutedBefore {
    /// Checks that the source is another server. After the transactions of a snapshot, it must never give another
    /// transaction a GTID of the target's.
    ///
    /// # Errors
    /// It will, or it is not; the error says how to proceed.
    pub fn check(&self, source_uuid: Option<Uuid>, snapshot: &GtidSet) -> Result<()> {
        if let Some(server) = source_uuid.filter(|uuid| self.own.contains(uuid)) {
            let what = format!("nothing is copied: {}", same_server(server).join("; "));
            return Err(Error::Checkpoint { channel: self.channel.clone(), what });
        }
        let ahead = self.ahead(source_uuid, snapshot);
        if ahead.is_empty() {
            return Ok(());
        }
        Err(Error::Checkpoint {
            channel: self.channel.clone(),
            what: format!(
                "nothing is copied: target {} has executed {} under GTIDs that the source has not given yet: {}. \
                 The source was reset or set back, or is a replica that lags. Definitions that it logs under these \
                 GTIDs would be passed over. If it does not lag, run on the target and on its replicas: \
                 {RESET_GTIDS}, which also deletes their binary logs (docs/provisioning.md#copy-again), then copy again",
                self.address,
                transactions(ahead.count()),
                shown(&ahead),
            ),
        })
    }

    fn ahead(&self, source_uuid: Option<Uuid>, snapshot: &GtidSet) -> GtidSet {
        let was_target =
            |server: &Uuid| self.channels.iter().any(|one| one.target_uuids.contains(server));
        let is_own = |server: &Uuid| {
            self.own.contains(server) || was_target(server) && Some(*server) != source_uuid
        };
        let mut ahead = ahead_of(&self.executed, snapshot, source_uuid, is_own);
        for other in self.channels.iter().filter(|one| one.channel != self.channel) {
            // This source may be a replica, lagging, of the one that the other channel follows.
            if let (Some(identity), Some(checkpoint)) = (&other.identity, &other.checkpoint)
                && source_uuid.is_none_or(|source| !identity.source_uuids.contains(&source))
            {
                ahead.subtract(&checkpoint.executed);
            }
        }
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Checkpoint;
    use crate::ownership::channel_record::ChannelIdentity;

    const A: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
    const B: &str = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb";
    const OWN: &str = "01010101-0101-0101-0101-010101010101";

    fn set(text: &str) -> GtidSet {
        let text = text.replace("A:", &format!("{A}:")).replace("B:", &format!("{B}:"));
        text.replace("T:", &format!("{OWN}:")).parse().expect("a set")
    }

    fn uuid(text: &str) -> Uuid {
        text.parse().expect("a UUID")
    }

    fn before(executed: &str) -> ExecutedBefore {
        ExecutedBefore {
            channel: "new".to_owned(),
            address: "target:3306".to_owned(),
            executed: set(executed),
            own: [uuid(OWN)].into(),
            channels: Vec::new(),
        }
    }

    fn other(follows: &str, executed: &str) -> ChannelRecord {
        ChannelRecord {
            channel: "other".to_owned(),
            checkpoint: Some(Checkpoint { executed: set(executed), ..Checkpoint::default() }),
            identity: Some(ChannelIdentity {
                source_uuids: [uuid(follows)].into(),
                ..ChannelIdentity::default()
            }),
            ..ChannelRecord::default()
        }
    }

    #[test]
    fn a_target_with_another_history_of_the_source_is_refused() {
        for (executed, snapshot) in [("A:1-8", "A:1-2"), ("A:8", ""), ("A:1-8,B:9", "A:1-8,B:1-5")]
        {
            let why = before(executed).check(Some(uuid(A)), &set(snapshot)).expect_err("refused");
            let why = why.to_string();
            for words in
                ["RESET BINARY LOGS AND GTIDS", "RESET MASTER", "target:3306", "copy-again"]
            {
                assert!(why.contains(words), "{words} is missing in {why}");
            }
        }
        let why =
            before("").check(Some(uuid(OWN)), &set("T:1-9")).expect_err("refused").to_string();
        assert!(why.contains("nothing is copied") && why.contains("auto.cnf"), "{why}");
        // Its own, those of the same history, and those of a server whose transactions the source does not have.
        for executed in ["", "T:1-9", "A:1-50", "A:41:80,T:3", "A:1-100,B:1-9"] {
            let snapshot = set("A:1-100,T:1-2");
            before(executed).check(Some(uuid(A)), &snapshot).expect("copied");
        }
    }

    #[test]
    fn servers_that_were_the_target_have_more_than_the_source() {
        let mut replaced = before("A:1-50,B:1-900");
        let snapshot = set("A:1-100,B:1-3");
        assert!(replaced.check(Some(uuid(A)), &snapshot).is_err());
        let mut record = other(A, "A:1-50");
        record.target_uuids = [uuid(B)].into();
        replaced.channels = vec![record];
        replaced.check(Some(uuid(A)), &snapshot).expect("copied");
        // It is the source now.
        assert!(replaced.check(Some(uuid(B)), &snapshot).is_err());
    }

    #[test]
    fn another_channel_may_be_ahead_of_a_source_that_has_the_same_transactions() {
        let (snapshot, source) = (set("A:1-100,B:1-90"), Some(uuid(A)));
        let mut beside = before("B:1-95");
        assert!(beside.check(source, &snapshot).is_err());
        beside.channels = vec![other(B, "B:1-95")];
        beside.check(source, &snapshot).expect("copied");
        // It follows this source, as it was before.
        beside.channels = vec![other(A, "B:1-95")];
        assert!(beside.check(source, &snapshot).is_err());
    }
}
