//! A source's table map joined with the target's table: which values go where, and by which keys
//! rows are found. Pure.

use std::sync::Arc;

use csa_provider::binlog::{Column, Field, RowsEvent, RowsKind, TableMap, ValueColumn, ValueType};

use super::conversion::{self, Strings};
use super::refusal::{Refusal, codes, keeps_no_rows};
use super::warnings::Tolerated;
use crate::server::definitions::table::{Generated, TargetColumn, TargetTable, TargetType};
use csa_provider::server::Vendor;
use csa_provider::sql_text::identifier;

/// How rows of one layout become statements for one table.
#[derive(Debug)]
pub(super) struct TablePlan<'t> {
    pub(super) table: &'t TargetTable,
    /// Schema and name in backticks.
    pub(super) quoted: String,
    /// The columns by which the fields of an image are found.
    pub(super) layout: Vec<Column>,
    /// One for each column of the source.
    pub(super) columns: Vec<PlannedColumn<'t>>,
    /// Columns that only the target has, and does not compute, with their names in backticks.
    pub(super) extra: Vec<(String, &'t TargetColumn)>,
    /// The primary key first.
    pub(super) keys: Vec<PlannedKey>,
    /// Set if the target computes values: on a source that was not strict they may not have fitted, so
    /// statements can't be strict here either.
    pub(super) computed: Option<Arc<Tolerated>>,
    /// The session's time zone, where it is not UTC.
    pub(super) zone: Option<String>,
}

#[derive(Debug)]
pub(super) struct PlannedColumn<'t> {
    /// The name in backticks.
    pub(super) quoted: String,
    pub(super) value_type: ValueType,
    pub(super) unsigned: bool,
    pub(super) strings: Strings,
    pub(super) target: &'t TargetColumn,
}

/// A key that identifies rows; its columns are places in [`TablePlan::columns`].
#[derive(Debug)]
pub(super) struct PlannedKey {
    /// The index in backticks.
    pub(super) index: String,
    pub(super) columns: Vec<usize>,
    /// Its values may stand in a list.
    pub(super) listable: bool,
    /// Index and columns, for error messages.
    pub(super) label: String,
}

impl<'t> TablePlan<'t> {
    /// # Errors
    /// Rows of this layout can't be written faithfully into the table.
    pub(super) fn new(
        map: &TableMap<'_>,
        table: &'t TargetTable,
        years_have_signs: bool,
    ) -> Result<Self, Refusal> {
        if let Some(engine) = &table.not_transactional {
            let what = format!("{} is {engine} on the target.", table.label());
            return Err(Refusal::new(codes::NOT_TRANSACTIONAL, what));
        }
        let unreadable =
            |error| Refusal::new(codes::CONVERSION, format!("{}: {error}", table.label()));
        let layout = map.columns().map_err(unreadable)?;
        let source = map.value_columns(years_have_signs).map_err(unreadable)?;
        // A generated invisible primary key that only the target has is one more column.
        let hidden = table.columns.first().is_some_and(|column| column.hidden_key);
        let skipped = usize::from(hidden && !map.has_generated_primary_key());
        let target = table.columns.get(skipped..).unwrap_or_default();
        if source.len() > target.len() {
            return Err(Refusal::new(
                codes::CONVERSION,
                format!(
                    "{} has {} columns on the source and {} on the target: add the missing \
                     columns there",
                    table.label(),
                    source.len(),
                    target.len()
                ),
            ));
        }
        let columns = source.iter().zip(target).enumerate();
        let columns =
            columns.map(|(place, (source, target))| plan_column(table, place, source, target));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let extra = target.get(source.len()..).unwrap_or_default().iter();
        let extra = extra.filter(|column| column.generated == Generated::No);
        let extra: Vec<_> = extra.map(|column| (identifier(&column.name), column)).collect();
        if let Some((_, missing)) = extra.iter().find(|(_, column)| !column.has_default) {
            return Err(Refusal::new(
                codes::NO_DEFAULT,
                format!(
                    "{}: the source has no column {}; give it a DEFAULT on the target",
                    table.label(),
                    missing.name
                ),
            ));
        }
        let mut plan = Self {
            table,
            quoted: format!("{}.{}", identifier(&table.schema), identifier(&table.name)),
            layout,
            columns,
            extra,
            keys: Vec::new(),
            computed: computed(table),
            zone: None,
        };
        plan.keys = plan.keys(skipped);
        Ok(plan)
    }

    fn keys(&self, skipped: usize) -> Vec<PlannedKey> {
        let key = |index: &crate::server::definitions::table::UniqueIndex| {
            let places = index.columns.iter().map(|column| column.checked_sub(skipped));
            let columns: Vec<usize> = places.collect::<Option<_>>()?;
            let planned = columns.iter().map(|&column| self.columns.get(column));
            let planned: Vec<_> = planned.collect::<Option<_>>()?;
            // The before image of an UPDATE can't be trusted for virtual columns.
            let usable = planned.iter().all(|column| {
                column.target.generated != Generated::Virtual && is_comparable(column.value_type)
            });
            let names: Vec<&str> =
                planned.iter().map(|column| column.target.name.as_str()).collect();
            usable.then(|| PlannedKey {
                index: identifier(&index.name),
                // Others read, and lock, the whole of a small table for a list.
                listable: self.table.vendor == Vendor::MySql
                    && planned.iter().all(|column| is_listable(column.value_type)),
                label: format!("{} ({})", index.name, names.join(", ")),
                columns,
            })
        };
        self.table.unique.iter().filter_map(key).collect()
    }

    /// Returns the first key whose columns are all in the image, and none of them NULL.
    pub(super) fn key_for(&self, image: &[Field<'_>]) -> Option<&PlannedKey> {
        let has = |&column: &usize| matches!(image.get(column), Some(Field::Bytes(_)));
        self.keys.iter().find(|key| key.columns.iter().all(has))
    }

    /// # Errors
    /// The change needs a row, and the target's table keeps none.
    pub(super) fn check_rows_are_kept(&self, kind: RowsKind) -> Result<(), Refusal> {
        match self.table.discards_rows && kind != RowsKind::Write {
            true => Err(keeps_no_rows(&self.table.schema, &self.table.name)),
            false => Ok(()),
        }
    }

    /// # Errors
    /// The source's storage engine has deleted rows that no event names, and the target would miss some.
    pub(super) fn check_cascades(&self, rows: &RowsEvent<'_>) -> Result<(), Refusal> {
        let has = |flag| rows.flags & flag != 0;
        let is_left_to_target = rows.kind == RowsKind::Delete
            && !has(RowsEvent::LOGS_CASCADES)
            && !has(RowsEvent::NO_FOREIGN_KEY_CHECKS);
        let Some(tables) = self.table.missed_cascade.as_ref().filter(|_| is_left_to_target) else {
            return Ok(());
        };
        Err(Refusal::new(
            codes::UNSUPPORTED,
            format!(
                "a DELETE in {} cascades through {tables}, which the source does not log, and the target's own \
                 cascades may miss rows of them; permit executor = \"row-image\" (GRANT \
                 REPLICATION_APPLIER), or start the target with innodb_native_foreign_keys=ON",
                self.table.label()
            ),
        ))
    }

    /// # Errors
    /// A trigger of the target would change more than the source changed.
    pub(super) fn check_triggers(&self, kind: RowsKind) -> Result<(), Refusal> {
        let operation = match kind {
            RowsKind::Write => "INSERT",
            RowsKind::Update => "UPDATE",
            RowsKind::Delete => "DELETE",
        };
        let Some(trigger) = self.table.trigger_on(operation) else { return Ok(()) };
        let or_images = match self.table.vendor {
            Vendor::MySql => ", or permit executor = \"row-image\" (GRANT REPLICATION_APPLIER)",
            Vendor::MySql57 | Vendor::MariaDb => "",
        };
        Err(Refusal::new(
            codes::UNSUPPORTED,
            format!(
                "trigger {trigger} of {} on the target would fire a second time for changes that \
                 the source's already made; run there: DROP TRIGGER {}.{}{or_images}",
                self.table.label(),
                identifier(&self.table.schema),
                identifier(trigger)
            ),
        ))
    }
}

fn computed(table: &TargetTable) -> Option<Arc<Tolerated>> {
    let generated = table.columns.iter().filter(|column| column.generated != Generated::No);
    let columns: Vec<String> = generated.map(|column| column.name.clone()).collect();
    let computes = table.functional_index || !columns.is_empty();
    computes.then(|| Arc::new(Tolerated { columns, computes }))
}

fn plan_column<'t>(
    table: &TargetTable,
    place: usize,
    source: &ValueColumn,
    target: &'t TargetColumn,
) -> Result<PlannedColumn<'t>, Refusal> {
    let refused = |what: String| {
        let name = format!("column {} of {} ({})", place + 1, table.label(), target.name);
        Refusal::new(codes::CONVERSION, format!("{name}: {what}"))
    };
    if let Some(name) = &source.name
        && name.to_lowercase() != target.name.to_lowercase()
    {
        return Err(refused(format!(
            "the source has {name} in this place; columns must have the same order on both"
        )));
    }
    let strings = conversion::strings_of(source, &target.target_type).map_err(refused)?;
    conversion::check(source, &strings, target).map_err(refused)?;
    Ok(PlannedColumn {
        quoted: identifier(&target.name),
        value_type: source.value_type,
        unsigned: matches!(target.target_type, TargetType::Integer { unsigned: true, .. }),
        strings,
        target,
    })
}

/// Returns true if comparing with an equal value finds the row.
const fn is_comparable(value_type: ValueType) -> bool {
    !matches!(value_type, ValueType::Json | ValueType::Geometry | ValueType::Vector)
}

/// Returns true if values of the type mean the same in an IN list as alone.
const fn is_listable(value_type: ValueType) -> bool {
    matches!(
        value_type,
        ValueType::Integer { .. }
            | ValueType::Decimal { .. }
            | ValueType::Char { .. }
            | ValueType::Varchar { .. }
            | ValueType::Blob { .. }
    )
}
