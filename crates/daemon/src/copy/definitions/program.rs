//! One library, function, procedure, view, trigger or event, with the settings it was created under. Pure.

use std::fmt;

use csa_provider::sql_text::{identifier, quote};
use serde::{Deserialize, Serialize};

/// `sql_mode` values of MySQL before 8.0, which later versions refuse and MariaDB may take for another language.
/// They are combinations whose members are listed beside them, or concern GRANT and SHOW CREATE only.
const FORMER_MODES: [&str; 11] = [
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

/// The time zone of sessions that read and write, as in their prelude.
const UTC: &str = "+00:00";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::copy) enum ProgramKind {
    Function,
    Procedure,
    View,
    Trigger,
    Event,
    /// Code that routines in the same language import (MySQL 9.2).
    Library,
}

impl ProgramKind {
    /// Returns true if others may use it, so that it comes before them.
    pub(in crate::copy) fn is_used_by_others(self) -> bool {
        matches!(self, Self::Library | Self::Function | Self::Procedure)
    }
}

/// An object that the server keeps as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::copy) struct Program {
    pub(in crate::copy) kind: ProgramKind,
    /// The text may leave it out, so that it has to be the current schema.
    pub(in crate::copy) schema: String,
    pub(in crate::copy) name: String,
    pub(in crate::copy) settings: ProgramSettings,
    /// The statement that creates it, in the character set `settings.character_set_client`.
    pub(in crate::copy) text: Vec<u8>,
}

/// The session variables that the server keeps with a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::copy) struct ProgramSettings {
    /// A view has none: the server writes its text in one form under all.
    pub(in crate::copy) sql_mode: String,
    pub(in crate::copy) character_set_client: String,
    pub(in crate::copy) collation_connection: String,
    /// Events only.
    pub(in crate::copy) time_zone: Option<String>,
    /// The collation that the schema had, and the one it has now, if they differ: strings that are declared
    /// without a character set have the former.
    pub(in crate::copy) schema_collations: Option<SchemaCollations>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::copy) struct SchemaCollations {
    pub(in crate::copy) then: String,
    pub(in crate::copy) now: String,
}

impl Program {
    /// Returns the statements, in UTF-8, that prepare a session for the text. Afterwards the session reads texts
    /// in the program's character set, until the next of these lists or `SET NAMES`.
    /// `on_57`: the target is MySQL 5.7, which knows all modes.
    pub(in crate::copy) fn preparation(&self, on_57: bool) -> Vec<String> {
        let ProgramSettings {
            sql_mode, character_set_client, collation_connection, time_zone, ..
        } = &self.settings;
        let modes = sql_mode.split(',').filter(|mode| on_57 || !FORMER_MODES.contains(mode));
        let settings = [
            ("sql_mode", modes.collect::<Vec<_>>().join(",")),
            ("character_set_client", character_set_client.clone()),
            ("collation_connection", collation_connection.clone()),
            ("time_zone", time_zone.clone().unwrap_or_else(|| UTC.to_owned())),
        ];
        let settings = settings.map(|(name, value)| format!("{name}={}", quote(&value)));
        // A text of ours in UTF-8, and without backslashes as escapes, has to be read so.
        let mut statements = vec![
            "SET NAMES utf8mb4".to_owned(),
            "SET SESSION sql_mode=''".to_owned(),
            format!("USE {}", identifier(&self.schema)),
        ];
        if let Some(collations) = &self.settings.schema_collations {
            statements.push(self.alter_schema(&collations.then));
        }
        statements.push(format!("SET SESSION {}", settings.join(", ")));
        statements
    }

    /// Returns the statement that has to run after the text, even if that failed. It is ASCII unless the name of
    /// the schema is not, and `SET NAMES utf8mb4` comes before it.
    pub(in crate::copy) fn restoration(&self) -> Vec<String> {
        let collations = self.settings.schema_collations.iter();
        let restore = |collations: &SchemaCollations| {
            ["SET NAMES utf8mb4".to_owned(), self.alter_schema(&collations.now)]
        };
        collations.flat_map(restore).collect()
    }

    /// Returns the statement that removes it, if it is there.
    pub(in crate::copy) fn removal(&self) -> String {
        let kind = self.kind.to_string().to_uppercase();
        format!("DROP {kind} IF EXISTS {}.{}", identifier(&self.schema), identifier(&self.name))
    }

    fn alter_schema(&self, collation: &str) -> String {
        format!("ALTER DATABASE {} COLLATE {}", identifier(&self.schema), quote(collation))
    }

    #[cfg(test)]
    pub(super) fn named(kind: ProgramKind, schema: &str, name: &str) -> Self {
        let (schema, name) = (schema.to_owned(), name.to_owned());
        Self { kind, schema, name, settings: ProgramSettings::default(), text: Vec::new() }
    }
}

impl SchemaCollations {
    /// Returns both if they differ.
    pub(super) fn if_changed(then: String, now: &str) -> Option<Self> {
        (then != now).then(|| Self { then, now: now.to_owned() })
    }
}

impl fmt::Display for ProgramKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Function => "function",
            Self::Procedure => "procedure",
            Self::View => "view",
            Self::Trigger => "trigger",
            Self::Event => "event",
            Self::Library => "library",
        })
    }
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}.{}", self.kind, self.schema, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> ProgramSettings {
        ProgramSettings {
            sql_mode: "PIPES_AS_CONCAT,ANSI_QUOTES,ORACLE,NO_AUTO_CREATE_USER".to_owned(),
            character_set_client: "latin1".to_owned(),
            collation_connection: "latin1_swedish_ci".to_owned(),
            ..ProgramSettings::default()
        }
    }

    #[test]
    fn a_session_is_prepared_from_any_state() {
        let mut event =
            Program { settings: settings(), ..Program::named(ProgramKind::Event, "s`x", "e") };
        event.settings.time_zone = Some("Europe/Vienna".to_owned());
        assert_eq!(
            event.preparation(false),
            [
                "SET NAMES utf8mb4",
                "SET SESSION sql_mode=''",
                "USE `s``x`",
                "SET SESSION sql_mode='PIPES_AS_CONCAT,ANSI_QUOTES', character_set_client='latin1', \
                 collation_connection='latin1_swedish_ci', time_zone='Europe/Vienna'",
            ]
        );
        assert!(event.restoration().is_empty());
        assert_eq!(event.to_string(), "event s`x.e");
    }

    #[test]
    fn a_schema_has_its_former_collation_for_a_moment() {
        let mut function =
            Program { settings: settings(), ..Program::named(ProgramKind::Function, "s", "f") };
        function.settings.schema_collations =
            SchemaCollations::if_changed("latin1_bin".to_owned(), "utf8mb4_bin");
        let prepared = function.preparation(true);
        assert!(prepared[4].contains("ORACLE"));
        assert_eq!(prepared[3], "ALTER DATABASE `s` COLLATE 'latin1_bin'");
        assert!(prepared[4].ends_with(", time_zone='+00:00'"));
        assert_eq!(
            function.restoration(),
            ["SET NAMES utf8mb4", "ALTER DATABASE `s` COLLATE 'utf8mb4_bin'"]
        );
        assert_eq!(SchemaCollations::if_changed("a".to_owned(), "a"), None);
    }
}
