//! Functions, procedures, views, triggers and events: read from the source, made on the target.

use csa_provider::server::Vendor;
use csa_provider::sql_text::{identifier, quote};

use crate::copy::error::Result;
use crate::copy::writer::TargetWriter;
use crate::verify::{REPAIR_SESSION, TableName, VerifyError, VerifySession};

/// The kind of a program, in the order in which a copy makes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::copy) enum ProgramKind {
    Function,
    Procedure,
    View,
    Trigger,
    Event,
}

impl ProgramKind {
    /// The kind's name in statements.
    const fn word(self) -> &'static str {
        match self {
            Self::Function => "FUNCTION",
            Self::Procedure => "PROCEDURE",
            Self::View => "VIEW",
            Self::Trigger => "TRIGGER",
            Self::Event => "EVENT",
        }
    }
}

/// A stored program, and the settings of the session that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::copy) struct Program {
    kind: ProgramKind,
    schema: String,
    name: String,
    settings: Vec<(&'static str, String)>,
    text: String,
}

impl Program {
    /// Makes the program; with `again` in place of one that an earlier copy made.
    pub(in crate::copy) async fn make(&self, writer: &mut TargetWriter, again: bool) -> Result<()> {
        let (kind, schema) = (self.kind.word(), identifier(&self.schema));
        // Names in its text are of this schema.
        writer.run(&format!("USE {schema}")).await?;
        if again {
            let name = identifier(&self.name);
            writer.run(&format!("DROP {kind} IF EXISTS {schema}.{name}")).await?;
        }
        if !self.settings.is_empty() {
            let is_57 = writer.vendor() == Vendor::MySql57;
            let set = |(name, value): &(&str, String)| match *name {
                "sql_mode" if !is_57 => format!("{name}={}", quote(&present_modes(value))),
                _ => format!("{name}={}", quote(value)),
            };
            let settings: Vec<String> = self.settings.iter().map(set).collect();
            writer.run(&format!("SET SESSION {}", settings.join(", "))).await?;
        }
        let made = writer.run(&self.text).await;
        for statement in REPAIR_SESSION {
            writer.run(statement).await?;
        }
        made
    }
}

/// Reads the programs of these schemas, and the triggers of these tables.
pub(super) async fn read(
    session: &mut VerifySession,
    schemas: &[String],
    tables: &[TableName],
) -> std::result::Result<Vec<Program>, VerifyError> {
    let list = schemas.iter().map(|schema| quote(schema)).collect::<Vec<String>>().join(",");
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let mut programs = Vec::new();
    let mut found: Vec<(ProgramKind, String, String)> = Vec::new();
    let routines: Vec<(String, String, String)> = session
        .rows(&format!(
            "SELECT ROUTINE_TYPE, ROUTINE_SCHEMA, ROUTINE_NAME FROM information_schema.ROUTINES \
             WHERE ROUTINE_SCHEMA IN ({list}) AND ROUTINE_TYPE IN ('FUNCTION','PROCEDURE') ORDER BY 1, 2, 3"
        ))
        .await?;
    found.extend(routines.into_iter().map(|(kind, schema, name)| match kind.as_str() {
        "FUNCTION" => (ProgramKind::Function, schema, name),
        _ => (ProgramKind::Procedure, schema, name),
    }));
    for (kind, query) in [
        (
            ProgramKind::View,
            format!(
                "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.VIEWS WHERE TABLE_SCHEMA IN ({list}) \
                 ORDER BY 1, 2"
            ),
        ),
        (
            ProgramKind::Event,
            format!(
                "SELECT EVENT_SCHEMA, EVENT_NAME FROM information_schema.EVENTS WHERE EVENT_SCHEMA IN ({list}) \
                 ORDER BY 1, 2"
            ),
        ),
    ] {
        let names: Vec<(String, String)> = session.rows(&query).await?;
        found.extend(names.into_iter().map(|(schema, name)| (kind, schema, name)));
    }
    // Triggers of a table and time fire in the order in which they are made.
    let triggers: Vec<(String, String, String)> = session
        .rows(&format!(
            "SELECT TRIGGER_SCHEMA, TRIGGER_NAME, EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS \
             WHERE TRIGGER_SCHEMA IN ({list}) ORDER BY EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, \
             EVENT_MANIPULATION, ACTION_TIMING, ACTION_ORDER"
        ))
        .await?;
    for (schema, name, table) in triggers {
        let table = TableName { schema: schema.clone(), table };
        if tables.contains(&table) {
            found.push((ProgramKind::Trigger, schema, name));
        }
    }
    for (kind, schema, name) in found {
        programs.push(program(session, kind, schema, name).await?);
    }
    Ok(programs)
}

/// Reads one program.
async fn program(
    session: &mut VerifySession,
    kind: ProgramKind,
    schema: String,
    name: String,
) -> std::result::Result<Program, VerifyError> {
    let full = format!("{}.{}", identifier(&schema), identifier(&name));
    let rows = session.texts(&format!("SHOW CREATE {} {full}", kind.word())).await?;
    let row = rows.into_iter().next().unwrap_or_default();
    let value = |place: usize| row.get(place).cloned().flatten();
    // Name, then: sql_mode, (time_zone,) text, character set, collation, (the schema's collation).
    let (mode, zone, text, charset) = match kind {
        ProgramKind::View => (None, None, value(1), 2),
        ProgramKind::Event => (value(1), value(2), value(3), 4),
        _ => (value(1), None, value(2), 3),
    };
    let Some(text) = text else {
        let purpose = format!("read the definition of {} {full}", kind.word());
        return Err(session.may_not("SHOW_ROUTINE", &purpose));
    };
    let mut settings = Vec::new();
    settings.extend(mode.map(|mode| ("sql_mode", mode)));
    settings.extend(zone.map(|zone| ("time_zone", zone)));
    // We send utf8mb4: another character set can be claimed only for what is the same in both.
    if text.is_ascii() {
        settings.extend(value(charset).map(|name| ("character_set_client", name)));
    }
    settings.extend(value(charset + 1).map(|name| ("collation_connection", name)));
    let text = if kind == ProgramKind::Event { as_on_replica(&text) } else { text };
    Ok(Program { kind, schema, name, settings, text })
}

/// Returns the modes without those that MySQL 8.0 no longer has. They change nothing in a program that exists.
fn present_modes(modes: &str) -> String {
    const REMOVED: [&str; 11] = [
        "DB2",
        "MAXDB",
        "MSSQL",
        "MYSQL323",
        "MYSQL40",
        "NO_AUTO_CREATE_USER",
        "NO_FIELD_OPTIONS",
        "NO_KEY_OPTIONS",
        "NO_TABLE_OPTIONS",
        "ORACLE",
        "POSTGRESQL",
    ];
    let present: Vec<&str> = modes.split(',').filter(|mode| !REMOVED.contains(mode)).collect();
    present.join(",")
}

/// Returns the statement for an event that is not to run on the target, as a replica makes it.
fn as_on_replica(text: &str) -> String {
    const ENABLED: &str = "PRESERVE ENABLE";
    // The server writes this clause before the event's own comment and statements.
    match text.find(ENABLED) {
        Some(at) => {
            let (head, tail) = text.split_at(at);
            format!(
                "{head}PRESERVE DISABLE ON SLAVE{}",
                tail.get(ENABLED.len()..).unwrap_or_default()
            )
        }
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_older_servers_are_left_out() {
        assert_eq!(present_modes("ANSI_QUOTES,NO_AUTO_CREATE_USER"), "ANSI_QUOTES");
        assert_eq!(present_modes("ORACLE"), "");
        assert_eq!(present_modes(""), "");
    }

    #[test]
    fn events_do_not_run_on_the_target() {
        let text = "CREATE DEFINER=`r`@`%` EVENT `e` ON SCHEDULE EVERY 1 DAY STARTS '2026-01-01 00:00:00' \
            ON COMPLETION NOT PRESERVE ENABLE COMMENT 'PRESERVE ENABLE' DO SELECT 1";
        assert_eq!(
            as_on_replica(text),
            "CREATE DEFINER=`r`@`%` EVENT `e` ON SCHEDULE EVERY 1 DAY STARTS '2026-01-01 00:00:00' \
             ON COMPLETION NOT PRESERVE DISABLE ON SLAVE COMMENT 'PRESERVE ENABLE' DO SELECT 1"
        );
        let disabled =
            "CREATE EVENT `e` ON SCHEDULE EVERY 1 DAY ON COMPLETION PRESERVE DISABLE DO SELECT 1";
        assert_eq!(as_on_replica(disabled), disabled);
    }
}
