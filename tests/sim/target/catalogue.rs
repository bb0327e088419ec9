//! Definitions as `information_schema` and SHOW CREATE show them, and the binary log; all columns are integers.

use std::hash::Hasher as _;

use csa_provider::binlog::Gtid;

use super::core::{Answered, Core, Step, refused};
use super::sql::CatalogueQuery;
use super::state::{NULL, State, Table, TableName, Value};

/// Name, type and properties of each column.
pub(super) fn types(table: &Table) -> Vec<Vec<String>> {
    let column = |(place, column): (usize, &super::state::Column)| {
        let is_nullable = column.default == Value::Null;
        // NOT NULL without a default is like 0 here.
        let has_default = !is_nullable && column.default != Value::Number(0);
        let key = if table.primary.contains(&place) { "PRI" } else { "" };
        let flag = |is_set: bool| if is_set { "1" } else { "0" };
        let (nullable, default) = (flag(is_nullable), flag(has_default));
        let row = ["int", "int", "", "0", "0", "10", "0", "0", "", nullable, default, "0", key];
        let name = [column.name.as_str()].into_iter();
        name.chain(row).map(str::to_owned).collect()
    };
    table.columns.iter().enumerate().map(column).collect()
}

/// Index and column; an index without a name has that of its first column.
pub(super) fn unique_keys(table: &Table) -> Vec<Vec<String>> {
    let name = |column: usize| table.columns[column].name.clone();
    let primary = table.primary.iter().map(|&part| vec!["PRIMARY".to_owned(), name(part)]);
    let others = table
        .unique
        .iter()
        .flat_map(|parts| parts.iter().map(|&part| vec![name(parts[0]), name(part)]));
    primary.chain(others).collect()
}

/// Bytes of a transaction in the log.
const LOGGED: u64 = 100;
/// The first position in the log.
const LOG_BEGIN: u64 = 4;
/// The average row, in bytes.
const ROW: u64 = 20;

/// The binary log of a source, as statements show it.
#[derive(Debug, Default)]
pub(crate) struct ShownLog {
    transactions: Vec<Gtid>,
    /// Distributed transactions that are prepared.
    pub(crate) prepared: usize,
}

impl ShownLog {
    pub(crate) fn add(&mut self, gtid: &Gtid) {
        self.transactions.push(gtid.clone());
    }

    fn end(&self) -> u64 {
        LOG_BEGIN + LOGGED * self.transactions.len() as u64
    }

    /// Name, place, type, server, end and text of each transaction's first event.
    fn events_from(&self, from: u64) -> Vec<Vec<String>> {
        let places = (0..).map(|number| LOG_BEGIN + LOGGED * number).zip(&self.transactions);
        let event = |(place, gtid): (u64, &Gtid)| {
            let text = format!("SET @@SESSION.GTID_NEXT= '{gtid}'");
            let (place, end) = (place.to_string(), (place + LOGGED).to_string());
            ["binlog.000001", &place, "Gtid", "1", &end, &text].map(str::to_owned).to_vec()
        };
        places.filter(|(place, _)| *place >= from).map(event).collect()
    }
}

impl Core {
    /// Answers a question about definitions or the log; `seen` is what the session sees of the rows.
    pub(crate) fn catalogue(&self, query: &CatalogueQuery, seen: &State) -> Step {
        let tables = || self.state.tables.iter().filter(|((schema, _), _)| schema != "csa");
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let rows: Vec<Vec<String>> = match query {
            CatalogueQuery::Nothing => Vec::new(),
            CatalogueQuery::Sizes => {
                let size = |((schema, name), table): (&TableName, &Table)| {
                    let rows = table.rows.len();
                    // Statistics need not know it.
                    let average = if rows.is_multiple_of(2) { 0 } else { ROW };
                    vec![schema.clone(), name.clone(), rows.to_string(), average.to_string()]
                };
                tables().map(size).collect()
            }
            CatalogueQuery::Schemas => {
                let schemas = self.state.schemas.iter().filter(|schema| *schema != "csa");
                schemas.map(|schema| vec![schema.clone()]).collect()
            }
            CatalogueQuery::SchemaCollations => {
                let schemas = self.state.schemas.iter();
                schemas.map(|schema| texts(&[schema, "utf8mb4_0900_ai_ci"])).collect()
            }
            CatalogueQuery::ColumnTypes(name) => {
                let columns = self.state.tables.get(name).map(|table| &table.columns);
                let columns = columns.into_iter().flatten();
                columns.map(|column| texts(&[&column.name, "int", NULL, NULL, NULL])).collect()
            }
            CatalogueQuery::UsableKeys(name) => {
                self.state.tables.get(name).map_or_else(Vec::new, usable_keys)
            }
            CatalogueQuery::CreateTable(name) => match self.state.tables.get(name) {
                Some(table) => vec![vec![name.1.clone(), created(name, table)]],
                None => return Step::Failed(refused(1146, "Table doesn't exist")),
            },
            CatalogueQuery::CreateSchema(name) => {
                vec![texts(&[name, &format!("CREATE DATABASE IF NOT EXISTS `{name}`")])]
            }
            CatalogueQuery::References => {
                let of_table = |(name, table): (&TableName, &Table)| {
                    let references = table.references.iter().map(|reference| {
                        let (schema, parent) = &reference.parent;
                        texts(&[&name.0, &name.1, schema, parent, "0"])
                    });
                    references.collect::<Vec<Vec<String>>>()
                };
                tables().flat_map(of_table).collect()
            }
            CatalogueQuery::CharacterSets => vec![texts(&["utf8mb4", "utf8mb4_0900_ai_ci"])],
            CatalogueQuery::LogEnd => {
                let (end, executed) = (self.log.end().to_string(), self.state.executed.to_string());
                vec![texts(&["binlog.000001", &end, "", "", &executed])]
            }
            CatalogueQuery::LogEventsFrom(from) => self.log.events_from(*from),
            CatalogueQuery::Prepared => {
                vec![texts(&["1", "1", "0", "x"]); self.log.prepared]
            }
            CatalogueQuery::Digest(name) => {
                let Some(table) = seen.tables.get(name) else {
                    return Step::Failed(refused(1146, "Table doesn't exist"));
                };
                let number = table.rows.len().to_string();
                let mut sum = std::hash::DefaultHasher::new();
                sum.write(format!("{:?}", table.rows).as_bytes());
                vec![texts(&[&number, &sum.finish().to_string()])]
            }
            CatalogueQuery::Ends(name, column) => {
                let Some(table) = seen.tables.get(name) else {
                    return Step::Failed(refused(1146, "Table doesn't exist"));
                };
                let place = table.column(column);
                let values = || table.rows.values().map(|row| &row[place]);
                let shown = |value: Option<&Value>| value.map_or(NULL.to_owned(), Value::shown);
                vec![vec![shown(values().min()), shown(values().max())]]
            }
        };
        Step::Done(Answered { rows: 0, shown: rows })
    }
}

/// Index and column, NULL for one that may be NULL, and that it ascends.
fn usable_keys(table: &Table) -> Vec<Vec<String>> {
    let name = |column: usize| table.columns[column].name.clone();
    let usable = |column: usize| match table.columns[column].default {
        Value::Null => NULL.to_owned(),
        _ => name(column),
    };
    let others = table.unique.iter();
    let key = |index: String, column: String| vec![index, column, "0".to_owned()];
    let mut keys: Vec<Vec<String>> = others
        .flat_map(|parts| parts.iter().map(|&part| key(name(parts[0]), usable(part))))
        .collect();
    keys.extend(table.primary.iter().map(|&part| key("PRIMARY".to_owned(), name(part))));
    keys
}

/// Returns the text of SHOW CREATE TABLE.
fn created(name: &TableName, table: &Table) -> String {
    let column = |column: &super::state::Column| {
        let rest = match &column.default {
            Value::Null => "DEFAULT NULL".to_owned(),
            Value::Number(0) => "NOT NULL".to_owned(),
            other => format!("NOT NULL DEFAULT {}", other.shown()),
        };
        format!("`{}` int {rest}", column.name)
    };
    let list = |columns: &[usize]| {
        let names = columns.iter().map(|&column| format!("`{}`", table.columns[column].name));
        names.collect::<Vec<String>>().join(",")
    };
    let mut parts: Vec<String> = table.columns.iter().map(column).collect();
    parts.push(format!("PRIMARY KEY ({})", list(&table.primary)));
    for columns in &table.unique {
        let key = &table.columns[columns[0]].name;
        parts.push(format!("UNIQUE KEY `{key}` ({})", list(columns)));
    }
    for (number, reference) in (1..).zip(&table.references) {
        parts.push(format!(
            "CONSTRAINT `{}_ibfk_{number}` FOREIGN KEY ({}) REFERENCES `{}` (`id`)",
            name.1,
            list(&[reference.column]),
            reference.parent.1
        ));
    }
    let tail = "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci";
    format!("CREATE TABLE `{}` (\n  {}\n) {tail}", name.1, parts.join(",\n  "))
}
