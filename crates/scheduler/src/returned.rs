//! Recognizes transactions that the target's own server made and that come back to it, where two
//! channels replicate in opposite directions.
//!
//! Such a transaction has the GTID of the target, or of a server that the target has replaced, if a daemon or a replica kept it. Otherwise a daemon
//! wrote it under the GTID of the channel's source, together with its row of `csa.checkpoint`: the
//! set there, less the set before, names the transactions that it brought. Those that the
//! target has executed under these GTIDs need not come back.

use std::collections::BTreeSet;

use csa_provider::binlog::{
    Column, EventType, Field, Gtid, GtidSet, RawEvent, RowsEvent, TableMap, Uuid,
};

use crate::key_source::{KeySource, KeySourceError};

/// The most intervals of a set that an error spells out.
const SHOWN: usize = 100;
/// The place of `gtid_executed` in `csa.checkpoint`.
const EXECUTED: usize = 3;
const COLUMNS: usize = 6;
/// The names in the body of a table map, after table id and flags: `csa` and `checkpoint`, each with its
/// length before it and a zero after it.
const NAMES: &[u8] = b"\x03csa\0\x0acheckpoint\0";
const NAMES_AT: usize = TableMap::ID_LEN + 2;

/// The decision about a transaction, as far as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Not the target's, or not known yet.
    Other,
    /// The rows of this event are those of the daemon's checkpoint.
    Checkpoint,
    /// The target made it.
    Target,
    /// The target made it and has lost a part of it.
    Torn(String),
}

/// Decides for one transaction after the other.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    /// The table map of `csa.checkpoint` in the current transaction.
    map: Option<(u64, Vec<Column>)>,
    /// Servers whose transactions were brought to the source and were missing on the target: these
    /// are a chain of channels, and asking about each of them would cost a round trip.
    foreign: BTreeSet<Uuid>,
}

type Result<T> = std::result::Result<T, KeySourceError>;

impl Origins {
    pub(crate) fn next_transaction(&mut self) {
        self.map = None;
    }

    /// Decides by the transaction's GTID.
    pub(crate) async fn of_gtid(&self, target: &mut impl KeySource, gtid: &Gtid) -> Result<Origin> {
        if !target.is_own(&gtid.uuid).await? {
            return Ok(Origin::Other);
        }
        let mut one = GtidSet::new();
        one.add(gtid);
        // One that the target has lost is applied again.
        Ok(match target.executed(&one).await?.is_empty() {
            true => Origin::Other,
            false => Origin::Target,
        })
    }

    /// Decides by the next event of a row transaction.
    pub(crate) async fn of_event(
        &mut self,
        target: &mut impl KeySource,
        event: &RawEvent,
    ) -> Result<Origin> {
        let body = event.body();
        if event.event_type() == EventType::TABLE_MAP {
            // Nearly every map is of another table, and is not parsed for this.
            if !body.get(NAMES_AT..).is_some_and(|names| names.starts_with(NAMES)) {
                return Ok(Origin::Other);
            }
            let columns = TableMap::parse(body)?.columns()?;
            // Somebody else's table may have this name.
            if columns.len() != COLUMNS {
                return Ok(Origin::Other);
            }
            self.map = Some((crate::changes::table_id(body), columns));
            return Ok(Origin::Checkpoint);
        }
        let Some((id, columns)) = &self.map else { return Ok(Origin::Other) };
        if !event.event_type().is_rows() || crate::changes::table_id(body) != *id {
            return Ok(Origin::Other);
        }
        let brought = brought(columns, event)?;
        self.of_transactions(target, &brought).await
    }

    async fn of_transactions(
        &mut self,
        target: &mut impl KeySource,
        brought: &GtidSet,
    ) -> Result<Origin> {
        // An empty set, as of a row that only got a new epoch, ends here too.
        if brought.uuids().all(|uuid| self.foreign.contains(&uuid)) {
            return Ok(Origin::Other);
        }
        let executed = target.executed(brought).await?;
        let missing = brought.difference(&executed);
        if missing.is_empty() {
            return Ok(Origin::Target);
        }
        let mut own = BTreeSet::new();
        for server in missing.uuids() {
            if target.is_own(&server).await? {
                own.insert(server);
            }
        }
        let lost = missing.of_servers(|uuid| own.contains(uuid));
        // If the target has none of them, nothing is torn: all of it is applied again.
        if !lost.is_empty() && !executed.is_empty() {
            return Ok(Origin::Torn(torn(&executed, &lost)));
        }
        self.foreign.extend(missing.uuids().filter(|uuid| !own.contains(uuid)));
        Ok(Origin::Other)
    }
}

/// Returns the transactions that a change of the daemon's checkpoint adds.
fn brought(columns: &[Column], event: &RawEvent) -> Result<GtidSet> {
    let mut all = GtidSet::new();
    // A new row states what was there before.
    if event.event_type() != EventType::UPDATE_ROWS {
        return Ok(all);
    }
    let Some(rows) = RowsEvent::parse(event.event_type(), event.body())? else { return Ok(all) };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut rest = rows.images;
    while !rest.is_empty() {
        let length = rows.read_row(columns, rest, &mut before, &mut after)?;
        let set = set_in(&after)?;
        // Absent with binlog_row_image=MINIMAL; then the whole set is looked at.
        all.union(&set.difference(&set_in(&before)?));
        match rest.get(length..) {
            Some(next) if length > 0 => rest = next,
            _ => break,
        }
    }
    Ok(all)
}

fn set_in(image: &[Field<'_>]) -> Result<GtidSet> {
    match image.get(EXECUTED) {
        Some(Field::Bytes(text)) => Ok(std::str::from_utf8(text)?.parse()?),
        _ => Ok(GtidSet::new()),
    }
}

fn torn(executed: &GtidSet, lost: &GtidSet) -> String {
    let shown = |set: &GtidSet| match set.intervals().count() {
        0..=SHOWN => set.to_string(),
        many => format!("{many} intervals"),
    };
    format!(
        "it brings back transactions of the target's own server, or of one that it has replaced, of which \
         the target has {} and has lost {}: it was restored to an earlier state; copy the source to the target again",
        shown(executed),
        shown(lost)
    )
}

#[cfg(test)]
#[path = "returned_tests.rs"]
mod tests;
