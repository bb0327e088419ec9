//! Checks that a channel may start where it is about to: nothing must be applied a second time, and
//! nothing left out. Pure. The position itself is read when the channel is claimed (`claim.rs`).
//!
//! With `target_gtids = "own"` the target's `gtid_executed` has little more of the source than its
//! definitions, so it shows where a copy ends and nothing else. It is compared with what else is known:
//! the checkpoints of other channels, the numbers missing in between, and the transactions that this
//! channel's relay store has received.

use std::collections::BTreeSet;
use std::fmt::Display;

use csa_provider::binlog::{GtidSet, Uuid};
use csa_provider::seams::planted::{Bug, is_planted};

use crate::checkpoint::{Checkpoint, StartFrom};
use crate::options::TargetGtids;
use crate::ownership::bookkeeping::{RELOAD_AND_RESTART, RESET_GTIDS, by_hand};
use crate::ownership::channel_record::ChannelRecord;

/// The most intervals of a set that an error spells out.
const SHOWN: usize = 1000;

/// The tables that two channels both write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedTables {
    /// No table of the target is written by both.
    Nothing,
    /// This table, and perhaps others.
    Table(String),
    /// The other channel was last run by a version that did not record its filters.
    Unknown,
}

/// Facts about a channel that is about to start.
#[derive(Debug)]
pub struct StartPosition<'a> {
    pub channel: &'a str,
    /// The target, as errors name it.
    pub address: &'a str,
    pub start: &'a StartFrom,
    /// Nobody said that the target is a copy of the source, whose tables it would lack otherwise.
    pub is_copy_unsaid: bool,
    pub gtids: TargetGtids,
    /// The source's `gtid_executed`; `None` while it is away.
    pub source: Option<&'a GtidSet>,
    pub source_uuid: Option<Uuid>,
    /// The target's `gtid_executed`, and the UUIDs of those that it makes.
    pub target: &'a GtidSet,
    pub target_uuids: &'a BTreeSet<Uuid>,
    /// Every channel of the target, this one included.
    pub channels: &'a [ChannelRecord],
    /// Transactions that this channel's relay store has received.
    pub relayed: &'a GtidSet,
    /// The relay store follows the place where the channel starts, so the transactions in it are applied.
    pub is_relay_kept: bool,
}

impl StartPosition<'_> {
    /// Checks that the channel may start; `shared` names tables that another channel writes too. Returns
    /// warnings.
    ///
    /// # Errors
    /// The reason why it may not, and how to proceed.
    pub fn check(
        &self,
        shared: impl Fn(&ChannelRecord) -> SharedTables,
    ) -> Result<Vec<String>, String> {
        // Only the present target: one before it may be the source now.
        if let Some(server) = self.source_uuid.filter(|uuid| self.target_uuids.contains(uuid)) {
            return Err(same_server(server).join("; "));
        }
        let mut warnings = self.passes_over_nothing(&shared)?;
        let own = self.channels.iter().find(|record| record.channel == self.channel);
        match own.and_then(|record| Some((record, record.checkpoint.as_ref()?))) {
            Some((record, checkpoint)) => {
                // The target's `gtid_executed` was the checkpoint, and may be ahead of the row.
                let follows = record.follows_target || self.gtids == TargetGtids::Source;
                if !follows {
                    self.not_restored(checkpoint)?;
                }
            }
            None => warnings.extend(self.check_first(shared)?),
        }
        Ok(warnings)
    }

    /// Refuses a channel beside another one of this source, with tables of its own, if one of them states as executed what
    /// it leaves out: the other would pass over that. Returns warnings where only a part of the history is the same.
    fn passes_over_nothing(
        &self,
        shared: impl Fn(&ChannelRecord) -> SharedTables,
    ) -> Result<Vec<String>, String> {
        let is_its_own = |uuid: &Uuid| !self.is_own(uuid) && self.has_seen(uuid);
        let mut warnings = Vec::new();
        for (record, _) in self.others() {
            let hides = self.gtids != TargetGtids::Own || record.follows_target;
            let Some(identity) = record.identity.as_ref().filter(|_| hides) else { continue };
            let followed = &identity.source_uuids;
            if !followed.iter().any(is_its_own) || shared(record) != SharedTables::Nothing {
                continue;
            }
            // The server that it reads from is always among them, and this source has seen all of them.
            let is_sure = self.source_uuid.is_some_and(|own| followed.contains(&own))
                && followed.iter().all(|uuid| self.has_seen(uuid));
            if is_sure {
                return Err(self.hidden_beside(&record.channel, "share"));
            }
            warnings.push(self.hidden_beside(&record.channel, "perhaps share"));
        }
        Ok(warnings)
    }

    fn hidden_beside(&self, other: &str, share: &str) -> String {
        let Self { channel, address, .. } = self;
        format!(
            "channels {channel:?} and {other:?} {share} a source and target {address}. With target_gtids = \"mirror\" or \
             \"source\" the transactions that one of them leaves out count as executed there, so the other would pass \
             over its definitions or rows. Set target_gtids = \"own\" for both, or replicate the tables of both with one \
             channel. If {other:?} is used no more, run there: {}DELETE FROM csa.checkpoint WHERE channel='{other}'",
            by_hand(!self.gtids.hides_bookkeeping()),
        )
    }

    fn others(&self) -> impl Iterator<Item = (&ChannelRecord, &Checkpoint)> {
        let others = self.channels.iter().filter(|record| record.channel != self.channel);
        others.filter_map(|record| Some((record, record.checkpoint.as_ref()?)))
    }

    /// Returns the transactions of the source that the target has executed and did not make itself. Another
    /// channel may bring the target's own to the source, and nothing says how many of them this one has read
    /// back. Those that the source itself lacks are of another history of it.
    fn of_source(&self, checkpoint: &GtidSet) -> GtidSet {
        let brought = self.target.of_servers(|uuid| !self.is_own(uuid));
        match self.source {
            Some(source) => {
                let mut of_source = brought.of_servers(|uuid| Some(*uuid) == self.source_uuid);
                of_source.union(&brought.intersection(source));
                of_source
            }
            None => brought.of_servers(|uuid| checkpoint.has_uuid(uuid)),
        }
    }

    /// True for the target's own server, and for those that it has replaced. One of these may have become the
    /// source: a copy of it is the target now.
    fn is_own(&self, server: &Uuid) -> bool {
        let record = self.channels.iter().find(|record| record.channel == self.channel);
        let was_target = record.is_some_and(|record| record.target_uuids.contains(server));
        self.target_uuids.contains(server) || was_target && Some(*server) != self.source_uuid
    }

    /// Returns true for the source itself, and for servers whose transactions it has.
    fn has_seen(&self, server: &Uuid) -> bool {
        Some(*server) == self.source_uuid
            || self.source.is_some_and(|source| source.has_uuid(server))
    }

    /// True if the other channel follows this source too, or may do so; `applied` is the part of its checkpoint that
    /// the source has.
    fn is_followed_by(&self, other: &ChannelRecord, applied: &GtidSet) -> bool {
        match (&other.identity, self.source) {
            (Some(identity), Some(_))
                if !identity.source_uuids.is_empty() || is_planted(Bug::NoServersKnown) =>
            {
                identity.source_uuids.iter().any(|uuid| self.has_seen(uuid))
            }
            // An earlier version recorded no server where the source had no transactions yet. Then the channel has
            // applied what it has and did not begin with.
            (Some(identity), _) => applied
                .uuids()
                .any(|uuid| !identity.foreign_uuids.contains(&uuid) && !self.is_own(&uuid)),
            // The checkpoints of all channels have what the target had before any of them began.
            (None, _) => !applied.is_subset_of(self.target),
        }
    }

    /// Returns the transactions that no other channel has applied, and the number of channels that have applied the rest: each
    /// may have a statement of its own beyond its checkpoint.
    fn not_of_others(&self, mut beyond: GtidSet) -> (GtidSet, u64) {
        let mut of_others = 0;
        for (_, other) in self.others() {
            if beyond.intersects(&other.executed) {
                beyond.subtract(&other.executed);
                of_others += 1;
            }
        }
        (beyond, of_others)
    }

    /// A statement is executed under its source GTID before the checkpoint has it, one at a time. More
    /// than one beyond the checkpoint means that the data was restored and the GTIDs were not.
    fn not_restored(&self, checkpoint: &Checkpoint) -> Result<(), String> {
        let beyond = self.of_source(&checkpoint.executed).difference(&checkpoint.executed);
        let (beyond, of_others) = self.not_of_others(beyond);
        if beyond.count() <= 1 + of_others {
            return Ok(());
        }
        let mut all = checkpoint.executed.clone();
        all.union(&beyond);
        Err(format!(
            "target {} has executed {} of the source that the checkpoint of channel {:?} lacks: {}. Was \
             its data restored from a backup and its GTIDs kept, or was the source reset? Statements \
             among these would be passed over. Restore it with the GTIDs of the backup ({RESET_GTIDS} \
             there, then SET GLOBAL gtid_purged as the backup has it), or copy the source again, after \
             the same RESET (docs/provisioning.md#copy-again); if its data does hold them: \
             csa-daemon stop --channel {}, {}DELETE FROM csa.checkpoint WHERE channel='{}' there, \
             applier.start_from = \"{}\", and then: {RELOAD_AND_RESTART}",
            self.address,
            transactions(beyond.count()),
            self.channel,
            shown(&beyond),
            self.channel,
            by_hand(!self.gtids.hides_bookkeeping()),
            self.channel,
            shown(&all),
        ))
    }

    fn check_first(
        &self,
        shared: impl Fn(&ChannelRecord) -> SharedTables,
    ) -> Result<Vec<String>, String> {
        let Some(source) = self.source else {
            return Err("the first start of a channel needs its source".to_owned());
        };
        let start = match self.start {
            StartFrom::Target => self.target,
            StartFrom::Source => source,
            StartFrom::Executed(set) => set,
        };
        let mut warnings = Vec::new();
        let (mut refusals, mut followers) = (Vec::new(), Vec::new());
        for (other, checkpoint) in self.others() {
            let applied = checkpoint.executed.intersection(source);
            if !self.is_followed_by(other, &applied) {
                continue;
            }
            let both = shared(other);
            // Of several names that a channel has had, the last has applied most.
            let rank = (both != SharedTables::Nothing, applied.count());
            followers.push((rank, other.channel.as_str()));
            let again = applied.difference(start);
            let passed_over = match self.start {
                StartFrom::Source => source.difference(&checkpoint.executed),
                _ => GtidSet::new(),
            };
            if again.is_empty() && passed_over.is_empty() {
                continue;
            }
            let table = match (self.start, both) {
                (StartFrom::Target, _) => None,
                (_, SharedTables::Nothing) => continue,
                (_, SharedTables::Table(table)) => Some(table),
                (_, SharedTables::Unknown) => {
                    warnings.push(format!(
                        "channel {:?} has applied transactions of this source on target {} too; \
                         make sure that the two write different tables",
                        other.channel, self.address
                    ));
                    continue;
                }
            };
            refusals.push((rank, (&other.channel, applied, again, passed_over, table)));
        }
        let last = followers.iter().max().map_or("", |&(_, channel)| channel);
        if let Some((_, (other, applied, again, passed_over, table))) =
            refusals.into_iter().max_by_key(|&(rank, _)| rank)
        {
            return Err(self.beside(other, last, &applied, &again, &passed_over, table));
        }
        self.has_received_this_history(start, source)?;
        if *self.start == StartFrom::Target && self.gtids != TargetGtids::Source {
            self.is_a_copy(source)?;
            self.is_not_behind_the_relay_store(source)?;
        }
        if matches!(self.start, StartFrom::Executed(_)) && self.gtids != TargetGtids::Source {
            let executed = start.clone();
            self.not_restored(&Checkpoint { executed, ..Checkpoint::default() })?;
        }
        // With "target" the source is refused, because it lacks them.
        if *self.start != StartFrom::Target && self.gtids != TargetGtids::Source {
            self.is_of_one_history(source)?;
        }
        if *self.start == StartFrom::Source {
            self.has_not_run(source)?;
        }
        if self.is_copy_unsaid && !source.is_empty() && !source.intersects(self.target) {
            return Err(self.unsaid(source));
        }
        Ok(warnings)
    }

    /// The error if another channel has applied transactions of this source; this one can take the place of `last`.
    fn beside(
        &self,
        other: &str,
        last: &str,
        applied: &GtidSet,
        again: &GtidSet,
        passed_over: &GtidSet,
        table: Option<String>,
    ) -> String {
        let Self { channel, address, .. } = self;
        let what = match again.is_empty() {
            false => format!(
                "{} that it applied would be applied a second time: {}",
                transactions(again.count()),
                shown(again)
            ),
            true => format!(
                "{} that it has not applied would be passed over: {}",
                transactions(passed_over.count()),
                shown(passed_over)
            ),
        };
        let mut all = self.target.clone();
        all.union(applied);
        let beside = match table {
            Some(table) => format!("; both write {table}, so they can't run beside each other"),
            None => format!(
                "; if both are to run, on tables of their own: applier.start_from = the GTID set that \
                 the copy of this channel's tables holds (\"{}\" where it holds all that {other:?} has \
                 applied)",
                shown(&all)
            ),
        };
        format!(
            "channel {channel:?} has no checkpoint on target {address}, and channel {other:?} has \
             applied transactions of the same source there; {what}. If {channel:?} takes the place of \
             {last:?}: csa-daemon adopt --from {last} --channel {channel}{beside}"
        )
    }

    /// A copy holds everything that the source had executed at one moment, so the target has every
    /// number that the source has below the target's highest.
    fn is_a_copy(&self, source: &GtidSet) -> Result<(), String> {
        let holes = source.below_ends_of(self.target).difference(self.target);
        if holes.is_empty() {
            return Ok(());
        }
        let Self { channel, address, .. } = self;
        let executed = self.target.intersection(source);
        Err(format!(
            "channel {channel:?} has no checkpoint on target {address}, and the target's \
             gtid_executed is not that of a copy: {} of the source are missing in between, {}. \
             Another channel has applied there, or the schema csa was dropped, and they would be \
             applied a second time. If nothing but these is missing: applier.start_from = \"{}\"; \
             if everything is there up to some point: applier.start_from = the GTID set up to \
             there; else copy the source again",
            transactions(holes.count()),
            shown(&holes),
            shown(&executed),
        ))
    }

    /// Refuses a relay store of another history, because it is applied before reception compares the two. The target's own
    /// transactions that came back are left out, and no source has to have those.
    fn has_received_this_history(&self, start: &GtidSet, source: &GtidSet) -> Result<(), String> {
        if !self.is_relay_kept {
            return Ok(());
        }
        let lacking = self.relayed.difference(start).difference(source);
        let lacking = lacking.difference(&self.target.of_servers(|uuid| self.is_own(uuid)));
        if lacking.is_empty() {
            return Ok(());
        }
        let Self { channel, address, .. } = self;
        Err(format!(
            "channel {channel:?} has no checkpoint on target {address}, and its relay store has {} that the source does \
             not have: {}. They would be applied there. If the source is a replica that will have them, delete nothing, and \
             restart the channel once it has them. If it was set back or reset, or is another server than the one they are \
             from: csa-daemon stop --channel {channel} --receiving; delete the channel's relay store \
             (state_dir/{channel}/relay); csa-daemon restart --channel {channel}",
            transactions(lacking.count()),
            shown(&lacking),
        ))
    }

    /// Nothing says how much of what the channel has received is applied, and "source" would pass over the rest.
    fn has_not_run(&self, source: &GtidSet) -> Result<(), String> {
        let received = self.relayed.intersection(source);
        if received.is_empty() {
            return Ok(());
        }
        let Self { channel, address, .. } = self;
        Err(format!(
            "channel {channel:?} has no checkpoint on target {address}, and has received {} before: those that were not \
             applied would be passed over with start_from = \"source\". Was the schema csa dropped there? Then: \
             applier.start_from = the GTID set that the target holds; if the target is a new copy that holds all that \
             the source has executed: delete the channel's relay store (docs/provisioning.md#copy-again)",
            transactions(received.count()),
        ))
    }

    /// The target was asked before the source, so what it has executed of this source's history the source has as well.
    fn is_of_one_history(&self, source: &GtidSet) -> Result<(), String> {
        let ahead = ahead_of(self.target, source, self.source_uuid, |uuid| self.is_own(uuid));
        let (ahead, of_others) = self.not_of_others(ahead);
        if ahead.count() <= of_others {
            return Ok(());
        }
        let Self { channel, address, .. } = self;
        Err(format!(
            "channel {channel:?} has no checkpoint on target {address}, which has executed {} under GTIDs that the \
             source has not given yet: {}. Was the source reset or set back, or is it a replica that lags? Definitions \
             that it logs under these GTIDs would be passed over. If it does not lag, run on the target and on its \
             replicas: {RESET_GTIDS} (docs/provisioning.md#copy-again)",
            transactions(ahead.count()),
            shown(&ahead),
        ))
    }

    /// Returns the error if nothing shows that the target is a copy. Without one all changes to the source's older tables
    /// would fail, and nobody would miss tables that do not change.
    fn unsaid(&self, source: &GtidSet) -> String {
        let Self { channel, address, .. } = self;
        format!(
            "channel {channel:?} has no checkpoint on target {address}, and the target's gtid_executed has none of \
             the source's {}, so the daemon can't tell whether the target is a copy of the source. Set \
             start_from in [channel.applier]: \"copy\" copies the source to a target without its tables, a GTID set \
             is that of a copy which was made by other means, and \"target\" applies the source's binary logs from \
             the first transaction on, if they hold all that the source has (docs/provisioning.md)",
            transactions(source.count()),
        )
    }

    /// A channel may have applied everything that it has received.
    fn is_not_behind_the_relay_store(&self, source: &GtidSet) -> Result<(), String> {
        let again = self.relayed.intersection(source).difference(self.target);
        if again.is_empty() {
            return Ok(());
        }
        let Self { channel, address, .. } = self;
        Err(format!(
            "channel {channel:?} has no checkpoint on target {address}, and has received {} before that \
             the target's gtid_executed lacks: {}. Was the schema csa dropped there? Those that \
             were applied would be applied a second time. If the target is a copy that holds none \
             of them: applier.start_from = \"{}\"; if it holds all: applier.start_from = \"{}\"; \
             if the source was set back or reset since: delete the channel's relay store \
             (docs/provisioning.md#copy-again); else copy the source again",
            transactions(again.count()),
            shown(&again),
            shown(&self.target.intersection(source)),
            {
                let mut all = self.target.intersection(source);
                all.union(&again);
                shown(&all)
            },
        ))
    }
}

/// Returns what is wrong where source and target have one `server_uuid`, and how to proceed.
#[must_use]
pub fn same_server(server: impl Display) -> [String; 2] {
    [
        format!(
            "source and target have the same server_uuid, {server}, so what the target logs itself gets GTIDs of the \
             source, whose transactions would be left out"
        ),
        format!(
            "if they are one server, correct [channel.source] or [channel.target]; if the target is a copy with the \
             source's auto.cnf, stop it, remove auto.cnf from its data directory, and start it. If it has logged \
             anything since it was copied, then run there: {RESET_GTIDS}, and SET GLOBAL gtid_purged='…' with the \
             GTID set of the copy. Where auto.cnf is out of reach, copy to a new server (docs/provisioning.md)"
        ),
    ]
}

/// Returns the transactions of the source's history, none of them of the target's own servers, that the target has
/// executed and the source lacks.
pub(super) fn ahead_of(
    target: &GtidSet,
    source: &GtidSet,
    source_uuid: Option<Uuid>,
    is_own: impl Fn(&Uuid) -> bool,
) -> GtidSet {
    let is_of_source = |uuid: &Uuid| source.has_uuid(uuid) || Some(*uuid) == source_uuid;
    target.of_servers(|uuid| is_of_source(uuid) && !is_own(uuid)).difference(source)
}

pub(super) fn transactions(count: u64) -> String {
    match count {
        1 => "1 transaction".to_owned(),
        _ => format!("{count} transactions"),
    }
}

/// Returns the set as text, unless it is too long to read.
pub(super) fn shown(set: &GtidSet) -> String {
    match set.intervals().count() {
        0..=SHOWN => set.to_string(),
        many => format!("{many} intervals, too many to list"),
    }
}

#[cfg(test)]
#[path = "start_position_tests.rs"]
mod tests;
