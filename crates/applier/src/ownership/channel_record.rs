//! Channels as the target records them: their checkpoints, and `csa.channel`, which has for each channel
//! its filters and the servers whose transactions it follows.
//!
//! `csa.channel` holds no progress. A version that does not know it leaves it alone, and a channel last run by
//! such a version has no row there. A row names every server of which the checkpoint has transactions. At a
//! start these are the source and the servers whose transactions it has. Others join with their first
//! transaction (`keeper.rs`), before anything of it is applied. So after a crash in between, the row names a
//! server of which the target has nothing yet, which is true all the same: the channel follows it.

use std::collections::{BTreeMap, BTreeSet};

use csa_provider::binlog::{GtidSet, Uuid};
use csa_provider::source::Foreign;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::ownership::bookkeeping::{self, has_table};
use crate::ownership::{checkpoint, target_servers};
use crate::server::session::Session;
use csa_provider::sql_text::quote;

const TABLE: &str = "channel";
const CREATE: &str = "CREATE TABLE IF NOT EXISTS csa.channel (\
     channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     source_uuids MEDIUMTEXT CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     foreign_uuids MEDIUMTEXT CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     filters MEDIUMTEXT CHARACTER SET utf8mb4 NOT NULL, \
     updated_at TIMESTAMP(6) NOT NULL, \
     PRIMARY KEY (channel)) ENGINE=InnoDB";

/// A channel on the target, whichever daemon runs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelRecord {
    pub channel: String,
    pub checkpoint: Option<Checkpoint>,
    /// The target's `gtid_executed` was its checkpoint when it last ran.
    pub follows_target: bool,
    /// It last committed out of the source's order there.
    pub out_of_order: bool,
    /// Servers that have been its target, as far as they are recorded.
    pub target_uuids: BTreeSet<Uuid>,
    /// `None`: it was last run by a version that did not record it.
    pub identity: Option<ChannelIdentity>,
}

/// A row of `csa.channel`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelIdentity {
    /// Its sources, and servers whose transactions they had. None: not known, because an earlier version met a source
    /// without transactions.
    pub source_uuids: BTreeSet<Uuid>,
    /// Servers whose transactions the target had when the channel began, but the source had not, and of which no
    /// source has sent any since.
    pub foreign_uuids: BTreeSet<Uuid>,
    /// Its `replicate_*` settings, in the daemon's notation.
    pub filters: String,
}

impl ChannelRecord {
    /// Returns the servers that the channel follows. Without a checkpoint they are those of a channel that had the name
    /// before, and say nothing about this one.
    pub(crate) fn followed(&self) -> Option<&ChannelIdentity> {
        self.identity.as_ref().filter(|_| self.checkpoint.is_some())
    }
}

impl ChannelIdentity {
    /// Returns true if the first transaction of this server that a source sends has to be recorded.
    pub(super) fn is_new(&self, server: &Uuid) -> bool {
        !self.source_uuids.contains(server) || self.foreign_uuids.contains(server)
    }

    /// Records that a source sends transactions of the server. It is foreign no longer: whoever continues its history
    /// has to have all of it. A source that has such transactions and has sent none proves nothing. It may be a
    /// replica that is followed for a while, whose own few transactions the target had from the begin.
    pub(super) fn follow(&mut self, server: Uuid) {
        self.source_uuids.insert(server);
        self.foreign_uuids.remove(&server);
    }
}

/// Returns every channel that the target records; none if it has no such tables.
pub(crate) async fn read_all(session: &mut Session) -> Result<Vec<ChannelRecord>> {
    let mut found: BTreeMap<String, ChannelRecord> = BTreeMap::new();
    if has_table(session, "checkpoint").await? {
        for (channel, worker, row) in checkpoint::read_rows(session).await? {
            let record = entry(&mut found, &channel);
            record.follows_target |= worker == checkpoint::PROGRESS;
            record.out_of_order |= worker == checkpoint::OUT_OF_ORDER;
            record.checkpoint.get_or_insert_default().merge(&row);
        }
    }
    for (channel, server) in target_servers::read_all(session).await? {
        entry(&mut found, &channel).target_uuids.insert(server);
    }
    if has_table(session, TABLE).await? {
        let query = "SELECT channel, source_uuids, foreign_uuids, filters FROM csa.channel";
        let rows: Vec<(String, String, String, String)> = session.rows(query).await?;
        for (channel, source, foreign, filters) in rows {
            let record = entry(&mut found, &channel);
            record.identity = Some(ChannelIdentity {
                source_uuids: parse(&channel, &source)?,
                foreign_uuids: parse(&channel, &foreign)?,
                filters,
            });
        }
    }
    Ok(found.into_values().collect())
}

fn entry<'a>(
    found: &'a mut BTreeMap<String, ChannelRecord>,
    channel: &str,
) -> &'a mut ChannelRecord {
    found.entry(channel.to_owned()).or_insert_with(|| ChannelRecord {
        channel: channel.to_owned(),
        ..ChannelRecord::default()
    })
}

/// Creates the table if it is missing.
pub(crate) async fn create(session: &mut Session) -> Result<()> {
    bookkeeping::create(session, TABLE, &[CREATE]).await
}

/// Removes the row that a channel without a checkpoint has. It is that of an earlier channel of this name: its servers
/// would decide which transactions the new one's source need not have.
pub(crate) async fn forget(session: &mut Session, channel: &str) -> Result<()> {
    if has_table(session, TABLE).await? {
        let channel = quote(channel);
        session.run(format!("DELETE FROM csa.channel WHERE channel={channel}")).await?;
    }
    Ok(())
}

/// Records the servers whose transactions the channel follows, and its filters.
pub(crate) async fn note(
    session: &mut Session,
    channel: &str,
    identity: &ChannelIdentity,
) -> Result<()> {
    let values = format!(
        "source_uuids='{}',foreign_uuids='{}',filters={},updated_at=NOW(6)",
        list(&identity.source_uuids),
        list(&identity.foreign_uuids),
        quote(&identity.filters)
    );
    session
        .run(format!(
            "INSERT INTO csa.channel SET channel={},{values} ON DUPLICATE KEY UPDATE {values}",
            quote(channel)
        ))
        .await
        .map(drop)
}

/// Returns the record for a channel that has `executed` and is about to follow a source with the servers
/// `source`: itself, and those whose transactions it has. `None` if neither a record nor the source is known.
pub(crate) fn identity(
    known: Option<&ChannelIdentity>,
    executed: &GtidSet,
    source: Option<&BTreeSet<Uuid>>,
    filters: &str,
) -> Option<ChannelIdentity> {
    let mut identity = match (known, source) {
        (Some(known), _) => known.clone(),
        (None, Some(source)) => ChannelIdentity {
            foreign_uuids: executed.uuids().filter(|uuid| !source.contains(uuid)).collect(),
            ..ChannelIdentity::default()
        },
        (None, None) => return None,
    };
    identity.source_uuids.extend(source.into_iter().flatten());
    filters.clone_into(&mut identity.filters);
    Some(identity)
}

/// Returns the servers whose transactions a source of `channel` need not have. These are the servers that the
/// channel began with, the target's own, now and before, and those of other channels. Their transactions are in
/// the checkpoint if that is the target's `gtid_executed`. The source is not among them, also where it was the target
/// before: whoever takes over from it must have its transactions.
pub(crate) fn foreign(
    channel: &str,
    identity: Option<&ChannelIdentity>,
    target_uuids: &BTreeSet<Uuid>,
    source_uuid: Option<Uuid>,
    all: &[ChannelRecord],
) -> Foreign {
    let record = all.iter().find(|record| record.channel == channel);
    let mut own = target_uuids.clone();
    let were_target = record.into_iter().flat_map(|record| &record.target_uuids);
    own.extend(were_target.filter(|server| Some(**server) != source_uuid));
    let Some(identity) = identity else {
        return Foreign { own, is_undecided: true, ..Foreign::default() };
    };
    let mut servers = identity.foreign_uuids.clone();
    let others = all.iter().filter(|record| record.channel != channel);
    for other in others.filter_map(|record| record.identity.as_ref()) {
        // Of a server that this channel follows itself, its source must have everything.
        servers.extend(other.source_uuids.difference(&identity.source_uuids));
    }
    Foreign { own, servers, ..Foreign::default() }
}

fn list(uuids: &BTreeSet<Uuid>) -> String {
    uuids.iter().map(Uuid::to_string).collect::<Vec<_>>().join(",")
}

fn parse(channel: &str, text: &str) -> Result<BTreeSet<Uuid>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            Uuid::parse_str(part).map_err(|_| Error::Checkpoint {
                channel: channel.to_owned(),
                what: format!("csa.channel: {part:?} is not a UUID"),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use csa_provider::source::Known;

    use super::*;

    const A: Uuid = Uuid::from_bytes([0xaa; 16]);
    const B: Uuid = Uuid::from_bytes([0xbb; 16]);
    const C: Uuid = Uuid::from_bytes([0xcc; 16]);
    const OWN: Uuid = Uuid::from_bytes([0x01; 16]);
    const EARLIER: Uuid = Uuid::from_bytes([0x02; 16]);

    fn set(uuids: &[Uuid]) -> GtidSet {
        let texts: Vec<String> = uuids.iter().map(|uuid| format!("{uuid}:1-5")).collect();
        texts.join(",").parse().expect("a set")
    }

    #[test]
    fn what_a_channel_began_with_stays_foreign_to_its_source() {
        let identity = |known, executed: &[Uuid], source: Option<&[Uuid]>, filters| {
            let source = source.map(|servers| servers.iter().copied().collect());
            identity(known, &set(executed), source.as_ref(), filters)
        };
        assert_eq!(identity(None, &[A, B], None, "x"), None);
        let first = identity(None, &[A, B], Some(&[A]), "x").expect("known");
        assert_eq!((&first.source_uuids, &first.foreign_uuids), (&[A].into(), &[B].into()));
        assert_eq!(identity(Some(&first), &[A, B], None, "x"), Some(first.clone()));
        // After a failover: C is new, and nothing becomes foreign any more.
        let next = identity(Some(&first), &[A, B, C], Some(&[A, C]), "y").expect("known");
        assert_eq!((&next.source_uuids, &next.foreign_uuids), (&[A, C].into(), &[B].into()));
        assert_eq!(next.filters, "y");
        // Another source has transactions of B, and sends none.
        let visited = identity(Some(&first), &[A, B], Some(&[A, B]), "x").expect("known");
        assert_eq!((&visited.source_uuids, &visited.foreign_uuids), (&[A, B].into(), &[B].into()));
        assert_eq!(parse("c", &list(&next.source_uuids)).expect("UUIDs"), next.source_uuids);
        assert_eq!(parse("c", "").expect("none"), BTreeSet::new());
        assert!(parse("c", "what").is_err());
    }

    #[test]
    fn other_channels_sources_are_foreign_unless_shared() {
        let of = |channel: &str, sources: &[Uuid]| ChannelRecord {
            channel: channel.to_owned(),
            identity: Some(ChannelIdentity {
                source_uuids: sources.iter().copied().collect(),
                ..ChannelIdentity::default()
            }),
            ..ChannelRecord::default()
        };
        let mut all = [of("one", &[A]), of("two", &[A, B]), of("three", &[C])];
        all[1].target_uuids = [EARLIER].into();
        let foreign = |n: usize| {
            let channel = &all[n].channel;
            foreign(channel, all[n].identity.as_ref(), &[OWN].into(), None, &all)
        };
        let of = |own: &[Uuid], servers: &[Uuid]| Foreign {
            own: own.iter().copied().collect(),
            servers: servers.iter().copied().collect(),
            ..Foreign::default()
        };
        assert_eq!(foreign(0), of(&[OWN], &[B, C]));
        assert_eq!(foreign(1), of(&[OWN, EARLIER], &[C]));
        assert_eq!(foreign(2), of(&[OWN], &[A, B]));
    }

    #[test]
    fn a_source_that_was_the_target_must_be_continued() {
        let record = ChannelRecord {
            channel: "one".to_owned(),
            target_uuids: [OWN, EARLIER].into(),
            ..ChannelRecord::default()
        };
        let identity = identity(None, &set(&[A]), Some(&[A, EARLIER].into()), "");
        let lacking = |source| {
            let foreign =
                foreign("one", identity.as_ref(), &[OWN].into(), source, from_ref(&record));
            let known = Known { received: set(&[A, OWN, EARLIER]), foreign };
            // One of its replicas that lags.
            known.lacking(&set(&[A]))
        };
        assert_eq!(lacking(Some(EARLIER)), set(&[EARLIER]));
        for source in [None, Some(A)] {
            assert_eq!(lacking(source), GtidSet::new());
        }
    }

    #[test]
    fn a_server_is_foreign_until_a_source_sends_something_of_it() {
        let servers = |record: &ChannelIdentity| {
            foreign("one", Some(record), &[OWN].into(), None, &[]).servers
        };
        let source = [A].into();
        let mut record = identity(None, &set(&[A, B]), Some(&source), "").expect("known");
        assert!(record.is_new(&B) && record.is_new(&C) && !record.is_new(&A));
        assert_eq!(servers(&record), [B].into());
        // B takes the place of A for a while, and a start of the daemon finds it there.
        let both = [A, B].into();
        record = identity(Some(&record), &set(&[A, B]), Some(&both), "").expect("known");
        assert!(record.is_new(&B));
        assert_eq!(servers(&record), [B].into());
        // It is promoted.
        record.follow(B);
        assert!(!record.is_new(&B));
        assert_eq!(servers(&record), [].into());
        record.follow(C);
        assert_eq!(record.source_uuids, [A, B, C].into());
    }

    #[test]
    fn a_row_without_a_checkpoint_is_of_an_earlier_channel() {
        let identity = Some(ChannelIdentity::default());
        let mut record = ChannelRecord { identity, ..ChannelRecord::default() };
        assert_eq!(record.followed(), None);
        record.checkpoint = Some(Checkpoint::default());
        assert_eq!(record.followed(), record.identity.as_ref());
    }
}
