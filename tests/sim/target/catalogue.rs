//! Definitions as `information_schema` shows them; all columns are integers.

use super::state::{Table, Value};

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
