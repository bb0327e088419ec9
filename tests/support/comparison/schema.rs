//! Definitions: schemas, tables, views, routines, triggers, events, accounts.

use std::collections::BTreeMap;

use mysql_async::{Row, Value};

use super::{Compare, Side, literal, quote};

/// Definition by the name of the object.
pub(super) type Definitions = BTreeMap<String, String>;

/// Objects inside schemas: kind as SHOW CREATE names it, and the query for schema and name.
const OBJECTS: [(&str, &str); 6] = [
    (
        "TABLE",
        "SELECT table_schema, table_name FROM information_schema.tables \
         WHERE table_type='BASE TABLE'",
    ),
    (
        "VIEW",
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type='VIEW'",
    ),
    (
        "PROCEDURE",
        "SELECT routine_schema, routine_name FROM information_schema.routines \
         WHERE routine_type='PROCEDURE'",
    ),
    (
        "FUNCTION",
        "SELECT routine_schema, routine_name FROM information_schema.routines \
         WHERE routine_type='FUNCTION'",
    ),
    ("TRIGGER", "SELECT trigger_schema, trigger_name FROM information_schema.triggers"),
    ("EVENT", "SELECT event_schema, event_name FROM information_schema.events"),
];

/// The base tables to compare, by schema and name.
pub(super) async fn tables(side: &mut Side, what: &Compare) -> Vec<(String, String)> {
    let mut tables: Vec<(String, String)> = side.rows(OBJECTS[0].1).await;
    tables.retain(|(schema, table)| {
        !what.ignores_schema(schema) && !what.ignores_table(schema, table)
    });
    tables.sort();
    tables
}

/// Returns all objects that have a definition.
pub(super) async fn definitions(side: &mut Side, what: &Compare) -> Definitions {
    let mut found = Definitions::new();
    let schemas: Vec<String> =
        side.rows("SELECT schema_name FROM information_schema.schemata").await;
    for schema in schemas.iter().filter(|schema| !what.ignores_schema(schema)) {
        let text = show(side, &format!("SHOW CREATE DATABASE {}", quote(schema))).await;
        found.insert(format!("schema {schema}"), text);
    }
    for (kind, list) in OBJECTS {
        let names: Vec<(String, String)> = side.rows(list).await;
        for (schema, name) in names {
            if what.ignores_schema(&schema) || what.ignores_table(&schema, &name) {
                continue;
            }
            let statement = format!("SHOW CREATE {kind} {}.{}", quote(&schema), quote(&name));
            let text = show(side, &statement).await;
            let text = match kind {
                "TABLE" => without_auto_increment(&text),
                "EVENT" => without_status(&text),
                _ => text,
            };
            found.insert(format!("{} {schema}.{name}", kind.to_lowercase()), text);
        }
    }
    if what.users {
        accounts(side, &mut found).await;
    }
    found
}

/// Returns the columns of every table, in their order.
pub(super) async fn names_of_columns(side: &mut Side, what: &Compare) -> Definitions {
    let mut found = Definitions::new();
    for (schema, table) in tables(side, what).await {
        let query = format!(
            "SELECT column_name FROM information_schema.columns WHERE table_schema={} \
             AND table_name={} ORDER BY ordinal_position",
            literal(&schema),
            literal(&table)
        );
        let columns: Vec<String> = side.rows(&query).await;
        found.insert(format!("table {schema}.{table}"), columns.join(", "));
    }
    found
}

async fn accounts(side: &mut Side, found: &mut Definitions) {
    let accounts: Vec<(String, String)> = side
        .rows(
            "SELECT CAST(user AS CHAR), CAST(host AS CHAR) FROM mysql.user \
             WHERE user NOT LIKE 'mysql.%' AND user NOT IN ('root', 'repl', 'csa', 'admin')",
        )
        .await;
    for (user, host) in accounts {
        let account = format!("{}@{}", literal(&user), literal(&host));
        let text = show(side, &format!("SHOW CREATE USER {account}")).await;
        found.insert(format!("user {account}"), text);
        let mut grants: Vec<String> = side.rows(&format!("SHOW GRANTS FOR {account}")).await;
        grants.sort();
        found.insert(format!("grants of {account}"), grants.join("\n"));
    }
}

/// Returns all columns of the one row except the time of creation, which is each server's own.
async fn show(side: &mut Side, statement: &str) -> String {
    let rows: Vec<Row> = side.rows(statement).await;
    let Some(row) = rows.into_iter().next() else {
        panic!("on {}: no row\n{statement}", side.name);
    };
    let columns = row.columns();
    let values = columns.iter().zip(row.unwrap_raw());
    let text: Vec<String> = values
        .filter(|(column, _)| column.name_str() != "Created")
        .map(|(_, value)| match value {
            Some(Value::Bytes(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Some(value) => value.as_sql(true),
            None => String::new(),
        })
        .collect();
    text.join("\n")
}

/// Removes the first ` AUTO_INCREMENT=n` after the columns: it is a hint, not content.
fn without_auto_increment(text: &str) -> String {
    const OPTION: &str = " AUTO_INCREMENT=";
    // Options follow the last line that begins with a parenthesis.
    let Some(options) = text.rfind("\n)") else {
        return text.to_owned();
    };
    let (columns, options) = text.split_at(options);
    match options.split_once(OPTION) {
        Some((before, after)) => {
            let after = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
            format!("{columns}{before}{after}")
        }
        None => text.to_owned(),
    }
}

/// Removes an event's status: a replica does not run events.
fn without_status(text: &str) -> String {
    const STATES: [&str; 3] = [" DISABLE ON REPLICA", " DISABLE", " ENABLE"];
    let Some((before, after)) = text.split_once(" PRESERVE") else { return text.to_owned() };
    let after = STATES.iter().find_map(|state| after.strip_prefix(state)).unwrap_or(after);
    format!("{before} PRESERVE{after}")
}

/// Lists objects that only one side has and those that are defined differently.
pub(super) fn diff(source: &Definitions, target: &Definitions, differences: &mut Vec<String>) {
    for (name, text) in source {
        match target.get(name) {
            None => differences.push(format!("{name}: only on the source")),
            Some(other) if other != text => {
                differences.push(format!("{name}:\nsource: {text}\ntarget: {other}"));
            }
            Some(_) => {}
        }
    }
    for name in target.keys().filter(|name| !source.contains_key(*name)) {
        differences.push(format!("{name}: only on the target"));
    }
}
