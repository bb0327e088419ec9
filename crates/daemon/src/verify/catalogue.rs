//! The tables of a server and their definitions, read from `information_schema`.

use std::collections::{BTreeMap, BTreeSet};

use csa_applier::{CollationMap, current_collation};
use csa_provider::server::Vendor;
use csa_provider::sql_text::quote;
use sha2::{Digest as _, Sha256};

use super::error::Result;
use super::session::VerifySession;
use super::table_name::TableName;

/// A column, as far as its values and their order depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// The type's first word, in lower case.
    pub(crate) data_type: String,
    pub(super) charset: Option<String>,
    /// The length limit of a string type, in bytes.
    pub(super) octets: Option<u64>,
    full_type: String,
    /// The target has another collation in its place, and with it another order.
    pub(super) is_mapped: bool,
}

/// An index that tells every row from every other: unique, NOT NULL, visible, on whole columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UniqueKey {
    pub(crate) index: String,
    pub(crate) columns: Vec<String>,
    /// The index has these places in descending order.
    pub(crate) descending: BTreeSet<usize>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) columns: Vec<Column>,
    pub(crate) keys: Vec<UniqueKey>,
    /// The server stores a JSON column as LONGTEXT.
    pub(super) keeps_json_as_text: bool,
}

/// A table as each side defines it; `None` where it does not exist.
#[derive(Debug)]
pub(super) struct PairedDefinitions {
    pub(super) source: Option<Definition>,
    pub(super) target: Option<Definition>,
}

impl PairedDefinitions {
    /// Returns a digest that differs whenever a definition does.
    pub(super) fn digest(&self) -> String {
        let Self { source, target } = self;
        format!("{:x}", Sha256::digest(format!("{source:?} {target:?}")))
    }
}

/// Base tables with the server's guess at their rows and bytes per row.
pub(crate) type Tables = BTreeMap<TableName, Estimate>;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Estimate {
    pub(crate) rows: u64,
    pub(crate) average_row: u64,
}

/// MySQL's own schemas, and the one of the checkpoints.
pub(crate) const LEFT_OUT: &str = "'mysql','sys','performance_schema','information_schema','csa'";

const COLLATE: &str = " COLLATE ";

impl Column {
    pub(crate) fn new(
        name: &str,
        column_type: &str,
        collation: Option<&str>,
        charset: Option<&str>,
        octets: Option<u64>,
    ) -> Self {
        // The name until 8.0.11, and MariaDB's.
        let column_type = &column_type.replace("geometrycollection", "geomcollection");
        let data_type = column_type.split([' ', '(']).next().unwrap_or_default().to_lowercase();
        let mut full_type = without_width(column_type, &data_type);
        if let Some(collation) = collation {
            full_type.push_str(&format!("{COLLATE}{}", current_collation(collation)));
        }
        let charset = charset.map(str::to_owned);
        let name = name.to_owned();
        Self { name, data_type, charset, octets, full_type, is_mapped: false }
    }

    /// Type and collation as the newest version would write them.
    pub(super) fn full_type(&self) -> &str {
        &self.full_type
    }

    /// Numbers that the server fills up with zeros to the column's width.
    pub(super) fn has_leading_zeros(&self) -> bool {
        self.data_type == "year" || self.full_type.contains("zerofill")
    }

    /// Returns the same with the collation that takes the place of its own, if one does.
    pub(super) fn mapped(&self, map: &CollationMap) -> Option<Self> {
        let (column_type, collation) = self.full_type.split_once(COLLATE)?;
        let full_type = format!("{column_type}{COLLATE}{}", map.get(collation)?);
        Some(Self { full_type, is_mapped: true, ..self.clone() })
    }

    /// Returns true for integers of any size.
    pub(super) fn is_integer(&self) -> bool {
        matches!(self.data_type.as_str(), "tinyint" | "smallint" | "mediumint" | "int" | "bigint")
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name.to_lowercase() == name.to_lowercase()
    }
}

/// Without the display width, which servers since 8.0.19 no longer show; with ZEROFILL it is part
/// of the value.
fn without_width(column_type: &str, data_type: &str) -> String {
    let has_width =
        matches!(data_type, "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year");
    match column_type.split_once('(').zip(column_type.split_once(')')) {
        Some(((word, _), (_, rest))) if has_width && !rest.contains("zerofill") => {
            format!("{word}{rest}")
        }
        _ => column_type.to_owned(),
    }
}

/// Returns the base tables that can be replicated.
pub(crate) async fn tables(session: &mut VerifySession) -> Result<Tables> {
    let rows: Vec<(String, String, Option<u64>, Option<u64>)> = session
        .rows(&format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_ROWS, AVG_ROW_LENGTH \
             FROM information_schema.TABLES WHERE TABLE_TYPE='BASE TABLE' \
             AND TABLE_SCHEMA NOT IN ({LEFT_OUT})"
        ))
        .await?;
    let tables = rows.into_iter().map(|(schema, table, rows, average_row)| {
        let estimate = Estimate {
            rows: rows.unwrap_or_default(),
            average_row: average_row.unwrap_or_default(),
        };
        (TableName { schema, table }, estimate)
    });
    Ok(tables.collect())
}

/// Returns true where names of tables that differ only in case are the same table
/// (`lower_case_table_names`).
pub(crate) async fn folds_case(session: &mut VerifySession) -> Result<bool> {
    let rows: Vec<u8> = session.rows("SELECT @@GLOBAL.lower_case_table_names").await?;
    Ok(rows.first().is_some_and(|&mode| mode != 0))
}

/// Returns a table's definition; `None` where the table does not exist.
pub(crate) async fn definition(
    session: &mut VerifySession,
    name: &TableName,
) -> Result<Option<Definition>> {
    let named =
        format!("TABLE_SCHEMA={} AND TABLE_NAME={}", quote(&name.schema), quote(&name.table));
    type ColumnRow = (String, String, Option<String>, Option<String>, Option<u64>);
    let columns: Vec<ColumnRow> = session
        .rows(&format!(
            "SELECT COLUMN_NAME, COLUMN_TYPE, COLLATION_NAME, CHARACTER_SET_NAME, \
             CHARACTER_OCTET_LENGTH FROM information_schema.COLUMNS WHERE {named} \
             ORDER BY ORDINAL_POSITION"
        ))
        .await?;
    if columns.is_empty() {
        return Ok(None);
    }
    let usable = session.vendor().usable_index();
    let parts: Vec<(String, Option<String>, bool)> = session
        .rows(&format!(
            "SELECT INDEX_NAME, IF(SUB_PART IS NULL AND NULLABLE<>'YES' AND {usable}, \
             COLUMN_NAME, NULL), COALESCE(COLLATION,'')='D' FROM information_schema.STATISTICS \
             WHERE {named} AND NON_UNIQUE=0 ORDER BY INDEX_NAME, SEQ_IN_INDEX"
        ))
        .await?;
    let mut keys: BTreeMap<String, Vec<(Option<String>, bool)>> = BTreeMap::new();
    for (index, column, is_descending) in parts {
        keys.entry(index).or_default().push((column, is_descending));
    }
    let keys = keys.into_iter().filter_map(|(index, parts)| {
        let descending = (0..).zip(&parts).filter(|(_, part)| part.1).map(|(place, _)| place);
        let descending = descending.collect();
        let columns: Option<Vec<String>> = parts.into_iter().map(|(column, _)| column).collect();
        Some(UniqueKey { index, columns: columns?, descending })
    });
    let columns = columns.iter().map(|(name, column_type, collation, charset, octets)| {
        Column::new(name, column_type, collation.as_deref(), charset.as_deref(), *octets)
    });
    Ok(Some(Definition {
        columns: columns.collect(),
        keys: keys.collect(),
        keeps_json_as_text: session.vendor() == Vendor::MariaDb,
    }))
}
