//! Reads the programs of schemas.

use std::collections::{BTreeMap, BTreeSet};

use csa_provider::server::link::Row;
use csa_provider::sql_text::{identifier, quote};

use super::event::{disabled_on_replica, mixes_character_sets};
use super::program::{Program, ProgramKind, ProgramSettings, SchemaCollations};
use super::view_order;
use crate::verify::{LEFT_OUT, Result, TableName, VerifySession};

/// The answers of SHOW CREATE, column by column.
type ViewRow = (String, Vec<u8>, String, String);
type RoutineRow = (String, String, Option<Vec<u8>>, String, String, String);
type TriggerRow = (String, String, Vec<u8>, String, String, String, Option<String>);
type LibraryRow = (String, String, Vec<u8>);
type EventRow = (String, String, String, Vec<u8>, String, String, String);

/// The kind of a program, its schema and its name.
type Listed = (ProgramKind, String, String);

/// Reads the programs, and names those that can't be made. They come in the order of use: functions after libraries, views
/// after the functions that they call, and triggers, whose text nothing needs, after them. The names of schemas and tables
/// are compared here, where letters have a case.
pub(super) async fn read(
    session: &mut VerifySession,
    schemas: &BTreeSet<&str>,
    tables: &[TableName],
) -> Result<(Vec<Program>, Vec<String>)> {
    let mut listed = libraries(session).await?;
    listed.extend(routines(session).await?);
    listed.extend(pairs(session, ProgramKind::View, "TABLE_SCHEMA, TABLE_NAME", "VIEWS").await?);
    listed.extend(triggers(session, tables).await?);
    listed.extend(pairs(session, ProgramKind::Event, "EVENT_SCHEMA, EVENT_NAME", "EVENTS").await?);
    listed.retain(|(_, schema, _)| schemas.contains(schema.as_str()));
    let collations = schema_collations(session).await?;
    // A text comes in the character set it was sent in, in which it has to be sent again.
    set(session, "character_set_results=NULL").await?;
    let shown = show(session, listed, &collations).await;
    set(session, "character_set_results=utf8mb4").await?;
    let (shown, not_copied) = shown?;
    let (views, others): (Vec<_>, Vec<_>) =
        shown.into_iter().partition(|program| program.kind == ProgramKind::View);
    let (used, later): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|program| program.kind.is_used_by_others());
    let programs = used.into_iter().chain(view_order::ordered(views)).chain(later).collect();
    Ok((programs, not_copied))
}

/// Returns true if the server's `information_schema` has this view, which older servers lack.
pub(super) async fn has_list(session: &mut VerifySession, name: &str) -> Result<bool> {
    let views = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA='information_schema'";
    let found: Vec<u8> = session.rows(&format!("{views} AND TABLE_NAME={}", quote(name))).await?;
    Ok(!found.is_empty())
}

/// Returns the default collation of each schema.
pub(in crate::copy) async fn schema_collations(
    session: &mut VerifySession,
) -> Result<BTreeMap<String, String>> {
    let rows: Vec<(String, String)> = session
        .rows("SELECT SCHEMA_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA")
        .await?;
    Ok(rows.into_iter().collect())
}

async fn set(session: &mut VerifySession, assignment: &str) -> Result<()> {
    session.rows::<Row>(&format!("SET SESSION {assignment}")).await.map(drop)
}

/// Returns none of a server before 9.2, which has no list of them.
async fn libraries(session: &mut VerifySession) -> Result<Vec<Listed>> {
    if !has_list(session, "LIBRARIES").await? {
        return Ok(Vec::new());
    }
    pairs(session, ProgramKind::Library, "LIBRARY_SCHEMA, LIBRARY_NAME", "LIBRARIES").await
}

async fn routines(session: &mut VerifySession) -> Result<Vec<Listed>> {
    let rows: Vec<(String, String, String)> = session
        .rows(&format!(
            "SELECT ROUTINE_TYPE, ROUTINE_SCHEMA, ROUTINE_NAME FROM information_schema.ROUTINES \
             WHERE ROUTINE_SCHEMA NOT IN ({LEFT_OUT}) \
             ORDER BY ROUTINE_TYPE, ROUTINE_SCHEMA, ROUTINE_NAME"
        ))
        .await?;
    let listed = rows.into_iter().filter_map(|(kind, schema, name)| match kind.as_str() {
        "FUNCTION" => Some((ProgramKind::Function, schema, name)),
        "PROCEDURE" => Some((ProgramKind::Procedure, schema, name)),
        _ => None,
    });
    Ok(listed.collect())
}

async fn pairs(
    session: &mut VerifySession,
    kind: ProgramKind,
    columns: &str,
    table: &str,
) -> Result<Vec<Listed>> {
    let schema = columns.split(',').next().unwrap_or_default();
    let rows: Vec<(String, String)> = session
        .rows(&format!(
            "SELECT {columns} FROM information_schema.{table} WHERE {schema} NOT IN ({LEFT_OUT}) \
             ORDER BY {columns}"
        ))
        .await?;
    Ok(rows.into_iter().map(|(schema, name)| (kind, schema, name)).collect())
}

/// Triggers of one table, time and event come in the order in which they fire, so that each new one fires last.
async fn triggers(session: &mut VerifySession, tables: &[TableName]) -> Result<Vec<Listed>> {
    let tables: BTreeSet<&TableName> = tables.iter().collect();
    let rows: Vec<(String, String, String)> = session
        .rows(&format!(
            "SELECT TRIGGER_SCHEMA, TRIGGER_NAME, EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS \
             WHERE TRIGGER_SCHEMA NOT IN ({LEFT_OUT}) ORDER BY EVENT_OBJECT_SCHEMA, \
             EVENT_OBJECT_TABLE, ACTION_TIMING, EVENT_MANIPULATION, ACTION_ORDER"
        ))
        .await?;
    let listed = rows.into_iter().filter_map(|(schema, name, table)| {
        let table = TableName { schema, table };
        tables.contains(&table).then_some((ProgramKind::Trigger, table.schema, name))
    });
    Ok(listed.collect())
}

async fn show(
    session: &mut VerifySession,
    listed: Vec<Listed>,
    collations: &BTreeMap<String, String>,
) -> Result<(Vec<Program>, Vec<String>)> {
    let (mut programs, mut not_copied) = (Vec::with_capacity(listed.len()), Vec::new());
    for (kind, schema, name) in listed {
        let object = format!("{}.{}", identifier(&schema), identifier(&name));
        let query = format!("SHOW CREATE {} {object}", kind.to_string().to_uppercase());
        let found = match kind {
            ProgramKind::Library => library(session, &query).await?,
            ProgramKind::View => view(session, &query).await?,
            ProgramKind::Function | ProgramKind::Procedure => routine(session, &query).await?,
            ProgramKind::Trigger => trigger(session, &query).await?,
            ProgramKind::Event => event(session, &query).await?,
        };
        let Some(Found { mut settings, text, schema_collation }) = found else {
            return Err(session.refused(&format!("{query} returns no text")));
        };
        let client = &settings.character_set_client;
        if kind == ProgramKind::Event && mixes_character_sets(&text, client) {
            not_copied.push(format!(
                "event {object}: its name, definer or comment is not ASCII and its body is in {client}; create it by \
                 hand on the target, disabled, in a session in UTF-8"
            ));
            continue;
        }
        let now = collations.get(&schema).zip(schema_collation);
        settings.schema_collations =
            now.and_then(|(now, then)| SchemaCollations::if_changed(then, now));
        programs.push(Program { kind, schema, name, settings, text });
    }
    Ok((programs, not_copied))
}

struct Found {
    settings: ProgramSettings,
    text: Vec<u8>,
    /// The schema's when the program was created. A view needs none: its columns have collations of their own.
    schema_collation: Option<String>,
}

async fn view(session: &mut VerifySession, query: &str) -> Result<Option<Found>> {
    let rows: Vec<ViewRow> = session.rows(query).await?;
    let found = rows.into_iter().next().map(|(_, text, client, connection)| {
        let settings = settings(String::new(), client, connection);
        Found { settings, text, schema_collation: None }
    });
    Ok(found)
}

/// Its text comes in UTF-8, whatever its session had.
async fn library(session: &mut VerifySession, query: &str) -> Result<Option<Found>> {
    let rows: Vec<LibraryRow> = session.rows(query).await?;
    let found = rows.into_iter().next().map(|(_, mode, text)| {
        let settings = settings(mode, "utf8mb4".to_owned(), "utf8mb4_general_ci".to_owned());
        Found { settings, text, schema_collation: None }
    });
    Ok(found)
}

async fn routine(session: &mut VerifySession, query: &str) -> Result<Option<Found>> {
    let rows: Vec<RoutineRow> = session.rows(query).await?;
    let found = rows.into_iter().next().and_then(|(_, mode, text, client, connection, schema)| {
        let settings = settings(mode, client, connection);
        Some(Found { settings, text: text?, schema_collation: Some(schema) })
    });
    Ok(found)
}

async fn trigger(session: &mut VerifySession, query: &str) -> Result<Option<Found>> {
    let rows: Vec<TriggerRow> = session.rows(query).await?;
    let found = rows.into_iter().next().map(|(_, mode, text, client, connection, schema, _)| {
        let settings = settings(mode, client, connection);
        Found { settings, text, schema_collation: Some(schema) }
    });
    Ok(found)
}

async fn event(session: &mut VerifySession, query: &str) -> Result<Option<Found>> {
    let rows: Vec<EventRow> = session.rows(query).await?;
    let found =
        rows.into_iter().next().and_then(|(_, mode, zone, text, client, connection, schema)| {
            let text = disabled_on_replica(&text)?;
            let settings =
                ProgramSettings { time_zone: Some(zone), ..settings(mode, client, connection) };
            Some(Found { settings, text, schema_collation: Some(schema) })
        });
    Ok(found)
}

fn settings(sql_mode: String, client: String, connection: String) -> ProgramSettings {
    ProgramSettings {
        sql_mode,
        character_set_client: client,
        collation_connection: connection,
        ..ProgramSettings::default()
    }
}
