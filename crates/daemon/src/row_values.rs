//! Row values as text, for those who inspect a relay store.

use mysql_common::binlog::BinlogCtx;
use mysql_common::binlog::consts::BinlogVersion;
use mysql_common::binlog::events::{
    DeleteRowsEvent, FormatDescriptionEvent, PartialUpdateRowsEvent, RowsEventData, TableMapEvent,
    UpdateRowsEvent, WriteRowsEvent,
};
use mysql_common::binlog::row::BinlogRow;
use mysql_common::binlog::value::BinlogValue;
use mysql_common::io::ParseBuf;
use mysql_common::value::Value;

use csa_provider::{EventType, RawEvent};

/// `column=value` of one row; columns without a name in the event are numbered from `@1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Images {
    pub(crate) before: Option<Vec<String>>,
    pub(crate) after: Option<Vec<String>>,
}

/// Shows every row of an event; returns what is wrong with the event, if anything.
///
/// # Errors
/// `show` failed.
pub(crate) fn for_each(
    table_map: &RawEvent,
    rows: &RawEvent,
    mut show: impl FnMut(Images) -> std::io::Result<()>,
) -> std::io::Result<Option<String>> {
    let format = FormatDescriptionEvent::new(BinlogVersion::Version4);
    let context = |event: &RawEvent| BinlogCtx::new(event.len(), &format, event.event_type().0);
    let map = match ParseBuf(table_map.body()).parse::<TableMapEvent<'_>>(context(table_map)) {
        Ok(map) => map,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let mut body = ParseBuf(rows.body());
    let context = context(rows);
    let data = match rows.event_type() {
        EventType::WRITE_ROWS => {
            body.parse::<WriteRowsEvent<'_>>(context).map(RowsEventData::WriteRowsEvent)
        }
        EventType::UPDATE_ROWS => {
            body.parse::<UpdateRowsEvent<'_>>(context).map(RowsEventData::UpdateRowsEvent)
        }
        EventType::DELETE_ROWS => {
            body.parse::<DeleteRowsEvent<'_>>(context).map(RowsEventData::DeleteRowsEvent)
        }
        EventType::PARTIAL_UPDATE_ROWS => body
            .parse::<PartialUpdateRowsEvent<'_>>(context)
            .map(RowsEventData::PartialUpdateRowsEvent),
        other => return Ok(Some(format!("{} events are not decoded", other.name()))),
    };
    let data = match data {
        Ok(data) => data,
        Err(error) => return Ok(Some(error.to_string())),
    };
    for row in data.rows(&map) {
        match row {
            Ok((before, after)) => {
                show(Images {
                    before: before.as_ref().map(columns),
                    after: after.as_ref().map(columns),
                })?;
            }
            Err(error) => return Ok(Some(error.to_string())),
        }
    }
    Ok(None)
}

fn columns(row: &BinlogRow) -> Vec<String> {
    let columns = row.columns_ref().iter().enumerate();
    columns
        .map(|(index, column)| {
            let value = row.as_ref(index).map_or_else(|| "?".to_owned(), text);
            format!("{}={value}", name(&column.name_str()))
        })
        .collect()
}

/// The library numbers nameless columns from `@0`; mysqlbinlog and everyone else do so from `@1`.
fn name(column: &str) -> String {
    match column.strip_prefix('@').and_then(|number| number.parse::<u32>().ok()) {
        Some(number) => format!("@{}", number + 1),
        None => column.to_owned(),
    }
}

fn text(value: &BinlogValue<'_>) -> String {
    match value {
        BinlogValue::Value(value) => value.as_sql(true),
        BinlogValue::Jsonb(json) => match serde_json::Value::try_from(json.clone()) {
            Ok(json) => Value::from(json.to_string()).as_sql(true),
            Err(_) => "JSON that has no text".to_owned(),
        },
        BinlogValue::JsonDiff(changes) => format!("{} changes of a JSON value", changes.len()),
    }
}
