//! Row changes as INSERT, UPDATE and DELETE, for targets that don't take row images. Pure.
//!
//! The events that the row-image executor would send as one BINLOG statement become packets of
//! statements that write the images' values into the columns of the target's tables, strictly.

mod conditions;
mod conversion;
mod fixed_point;
mod json;
mod literal;
mod lookup;
mod packets;
mod plan;
mod refusal;
mod statements;
mod values;
mod warnings;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use csa_provider::binlog::{
    ChecksumAlgorithm, EventHeader, EventType, RawEvent, RowsEvent, TableMap,
};
use csa_scheduler::filter::is_own;

use crate::server::definitions::TableName;
use crate::server::definitions::table::TargetTable;

use packets::{PacketWriter, Settings};
use plan::TablePlan;
use refusal::unreadable;
use statements::RowStatements;

pub(crate) use lookup::{RowFacts, describe, shown};
pub(crate) use packets::{Packet, SESSION};
pub(crate) use refusal::{Refusal, codes, keeps_no_rows};

/// A session's settings before the next statements, as far as they are known.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SessionSettings(Option<Settings>);

/// Returns the tables whose rows the events change. `images`: whole events without checksums.
///
/// # Errors
/// Malformed events.
pub(crate) fn tables_in(images: &Bytes) -> Result<Vec<TableName>, Refusal> {
    let mut maps = HashMap::new();
    let mut tables = Vec::new();
    for event in events(images) {
        let event = event?;
        match event.event_type() {
            EventType::TABLE_MAP => {
                let map = TableMap::parse(event.body()).map_err(unreadable)?;
                maps.insert(map.table_id, name_of(&map));
            }
            _ => {
                let name = maps.get(&rows_of(&event)?.table_id);
                if let Some(name) = name.filter(|name| !tables.contains(*name)) {
                    tables.push(name.clone());
                }
            }
        }
    }
    Ok(tables)
}

/// Makes statements of row events, in their order: packets of about `limit` bytes, which is half of what the target
/// takes, or less; and the settings that the session has after them.
/// `zone` is the session's, where it is not UTC. `years_have_signs` is the source's
/// ([`csa_provider::binlog::FormatDescription::years_have_signs`]).
///
/// # Errors
/// Changes that can't be written faithfully; none of the packets must be sent then.
pub(crate) fn statements(
    images: &Bytes,
    tables: &HashMap<TableName, Option<Arc<TargetTable>>>,
    limit: usize,
    settings: SessionSettings,
    zone: Option<&str>,
    years_have_signs: bool,
) -> Result<(Vec<Packet>, SessionSettings), Refusal> {
    let mut writer = PacketWriter::new(limit, settings.0);
    let mut maps: HashMap<u64, Option<TablePlan<'_>>> = HashMap::new();
    // A source statement may have its maps repeated before every part of it.
    let events: Vec<RawEvent> = events(images).collect::<Result<_, _>>()?;
    let written: Vec<u64> = events
        .iter()
        .filter(|event| event.event_type().is_rows())
        .map(|event| rows_of(event).map(|rows| rows.table_id))
        .collect::<Result<_, _>>()?;
    for event in &events {
        if event.event_type() == EventType::TABLE_MAP {
            let map = TableMap::parse(event.body()).map_err(unreadable)?;
            if !written.contains(&map.table_id) {
                continue;
            }
            let plan = match is_own(map.schema, map.table) {
                true => None,
                false => Some(TablePlan {
                    zone: zone.map(str::to_owned),
                    ..TablePlan::new(&map, table_of(&map, tables)?, years_have_signs)?
                }),
            };
            maps.insert(map.table_id, plan);
            continue;
        }
        let rows = rows_of(event)?;
        let plan = maps.get(&rows.table_id).ok_or_else(|| {
            Refusal::new(codes::CONVERSION, "rows event without its table map".to_owned())
        })?;
        if let Some(plan) = plan {
            RowStatements::new(plan, &rows, event.header().timestamp)?.write(&rows, &mut writer)?;
        }
    }
    let (packets, settings) = writer.finish();
    Ok((packets, SessionSettings(settings)))
}

fn table_of<'t>(
    map: &TableMap<'_>,
    tables: &'t HashMap<TableName, Option<Arc<TargetTable>>>,
) -> Result<&'t TargetTable, Refusal> {
    let name = name_of(map);
    match tables.get(&name) {
        Some(Some(table)) => Ok(table),
        _ => Err(Refusal::new(
            codes::NO_SUCH_TABLE,
            format!("table {}.{} doesn't exist on the target", name.0, name.1),
        )),
    }
}

/// Returns the rows of the last event, and the map of their table.
///
/// # Errors
/// Malformed events.
pub(crate) fn last_rows(events: &[RawEvent]) -> Result<(TableMap<'_>, RowsEvent<'_>), Refusal> {
    let event = events.last().ok_or_else(|| unreadable("no event"))?;
    let rows = rows_of(event)?;
    let maps = events.iter().filter(|event| event.event_type() == EventType::TABLE_MAP);
    let map = maps
        .filter_map(|event| TableMap::parse(event.body()).ok())
        .find(|map| map.table_id == rows.table_id)
        .ok_or_else(|| unreadable("rows event without its table map"))?;
    Ok((map, rows))
}

pub(crate) fn name_of(map: &TableMap<'_>) -> TableName {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(map.schema), text(map.table))
}

/// Splits a run of events.
pub(crate) fn events(images: &Bytes) -> impl Iterator<Item = Result<RawEvent, Refusal>> + use<> {
    let mut rest = images.clone();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let event = EventHeader::parse(&rest).ok().and_then(|header| {
            let size = header.event_size as usize;
            let whole = (EventHeader::LEN..=rest.len()).contains(&size);
            whole.then(|| rest.split_to(size))
        });
        let Some(event) = event else {
            rest.clear();
            return Some(Err(Refusal::new(codes::CONVERSION, "an event is cut short")));
        };
        Some(RawEvent::trusted(event, ChecksumAlgorithm::Off).map_err(unreadable))
    })
}

pub(crate) fn rows_of(event: &RawEvent) -> Result<RowsEvent<'_>, Refusal> {
    let rows = RowsEvent::parse_any(event.event_type(), event.body()).map_err(unreadable)?;
    rows.ok_or_else(|| {
        let name = event.event_type().name();
        Refusal::new(
            codes::UNSUPPORTED,
            format!("{name} event can't be applied by executor = \"sql\""),
        )
    })
}
