//! Row values as text, for those who inspect a relay store.

use csa_provider::binlog::{
    ColumnValue, EventError, Field, JsonDiff, RawEvent, RowsEvent, TableMap, ValueColumn, ValueType,
};
use csa_provider::sql_text::quote;

/// `column=value` of one row; columns without a name in the event are numbered from `@1`, as
/// mysqlbinlog does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Images {
    pub(crate) before: Option<Vec<String>>,
    pub(crate) after: Option<Vec<String>>,
}

/// Shows every row of an event; returns what is wrong with the event, if anything. `years_have_signs`
/// is that of the source's format.
///
/// # Errors
/// `show` failed.
pub(crate) fn for_each(
    map: &TableMap<'_>,
    event: &RawEvent,
    years_have_signs: bool,
    mut show: impl FnMut(Images) -> std::io::Result<()>,
) -> std::io::Result<Option<String>> {
    let described = || -> Result<_, EventError> {
        let rows = RowsEvent::parse_any(event.event_type(), event.body())?;
        Ok((map.columns()?, map.value_columns(years_have_signs)?, rows))
    };
    let (layout, columns, rows) = match described() {
        Ok((layout, columns, Some(rows))) => (layout, columns, rows),
        Ok((_, _, None)) => {
            return Ok(Some(format!("{} events are not decoded", event.event_type().name())));
        }
        Err(error) => return Ok(Some(error.to_string())),
    };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut images = rows.images;
    while !images.is_empty() {
        let read = match rows.read_row(&layout, images, &mut before, &mut after) {
            // A row without columns has no bytes; there is one at most.
            Ok(read) => read.max(1),
            Err(error) => return Ok(Some(error.to_string())),
        };
        show(Images { before: shown(&columns, &before), after: shown(&columns, &after) })?;
        images = images.get(read..).unwrap_or_default();
    }
    Ok(None)
}

/// Returns `None` if the kind of change has no such image.
fn shown(columns: &[ValueColumn], fields: &[Field<'_>]) -> Option<Vec<String>> {
    let columns = columns.iter().zip(fields).enumerate();
    let texts = columns.filter_map(|(index, (column, field))| {
        let value = text(column, field)?;
        Some(match &column.name {
            Some(name) => format!("{name}={value}"),
            None => format!("@{}={value}", index + 1),
        })
    });
    (!fields.is_empty()).then(|| texts.collect())
}

/// Returns `None` for a column that the image leaves out.
fn text(column: &ValueColumn, field: &Field<'_>) -> Option<String> {
    const BINARY: u16 = 63;
    let bytes = match *field {
        Field::Absent => return None,
        Field::Null => return Some("NULL".to_owned()),
        Field::JsonDiff(bytes) => {
            return Some(match JsonDiff::parse(bytes) {
                Ok(changes) => format!("{} changes of a JSON value", changes.len()),
                Err(error) => format!("({error})"),
            });
        }
        Field::Bytes(bytes) => bytes,
    };
    let value = match ColumnValue::read(column.value_type, false, bytes) {
        Ok(value) => value,
        Err(error) => return Some(format!("({error})")),
    };
    let is_text = !matches!(column.value_type, ValueType::Geometry | ValueType::Vector)
        && column.collation != Some(BINARY);
    let shown = value.shown(is_text, usize::MAX);
    Some(match value {
        ColumnValue::Signed(_)
        | ColumnValue::Unsigned(_)
        | ColumnValue::Number(_)
        | ColumnValue::Float(_)
        | ColumnValue::Double(_)
        | ColumnValue::Decimal(_)
        | ColumnValue::Year(_) => shown,
        ColumnValue::Bytes(bytes) if !is_text || std::str::from_utf8(bytes).is_err() => shown,
        _ => quote(&shown),
    })
}
