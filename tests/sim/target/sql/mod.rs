//! The statements that the server understands: all that the applier sends, and the definitions of the simulated
//! source. A statement that is not among them is a panic with its text, so that none is passed over.

mod catalogue;
mod ddl;
mod dml;
mod expression;
mod parser;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub(crate) use catalogue::CatalogueQuery;
pub(crate) use dml::{Condition, Conflict, Insert, Scalar, Select};
pub(crate) use expression::Expression;
use parser::Parser;

pub(crate) use ddl::AddedKey;

use super::state::{Column, Table, TableName};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum XaStep {
    Start,
    End,
    Prepare,
    Commit,
    Rollback,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Statement {
    Begin,
    Commit,
    Rollback,
    Savepoint(String),
    /// A step of a distributed transaction, and its xid as it is written.
    Xa(XaStep, String),
    RollbackTo(String),
    /// Variables of the session, as text.
    Set(Vec<(String, String)>),
    AddPurged(String),
    Use(String),
    /// Changes and shows nothing.
    Nothing,
    Release(String),
    Kill(u32),
    Insert(Insert),
    Update {
        table: TableName,
        set: Vec<(String, Scalar)>,
        conditions: Vec<Condition>,
    },
    Delete {
        table: TableName,
        conditions: Vec<Condition>,
    },
    Select(Select),
    /// A question about definitions or the binary log, as a copy asks it.
    Catalogue(CatalogueQuery),
    /// A transaction that reads what is committed now.
    Snapshot,
    /// A row as long as the session of this connection has the lock.
    IsHeld(String, u32),
    /// One row of expressions.
    Show(Vec<Expression>),
    /// A row of texts, or none.
    Fixed(Option<Vec<&'static str>>),
    /// Those of the named variables that the server has, as SHOW writes them.
    Variables(Vec<String>),
    LockWaits,
    /// The line of a connection in the process list.
    Process(u32),
    HasTable(TableName),
    /// As statements for rows need them.
    TypesOf(TableName),
    UniqueKeysOf(TableName),
    /// All tables but the daemon's own.
    Tables,
    CreateSchema(String),
    CreateTable {
        name: TableName,
        table: Table,
        if_missing: bool,
    },
    DropTable {
        name: TableName,
        if_exists: bool,
    },
    AddColumn(TableName, Column),
    AddKeys(TableName, Vec<AddedKey>),
    /// Events without checksums.
    Binlog(Vec<u8>),
}

impl Statement {
    /// Returns the definitions, which commit implicitly.
    pub(crate) fn is_definition(&self) -> bool {
        matches!(
            self,
            Self::CreateSchema(_)
                | Self::CreateTable { .. }
                | Self::DropTable { .. }
                | Self::AddColumn(..)
                | Self::AddKeys(..)
        )
    }

    /// Steps that use up a GTID.
    pub(crate) const fn is_step(&self) -> bool {
        matches!(self, Self::Xa(step, _) if !matches!(step, XaStep::End))
    }

    /// Changes that a read-only server refuses.
    pub(crate) fn is_write(&self) -> bool {
        let is_row_change = matches!(
            self,
            Self::Insert(_) | Self::Update { .. } | Self::Delete { .. } | Self::Binlog(_)
        );
        is_row_change || self.is_definition()
    }
}

/// Returns the statements of a packet.
pub(crate) fn split(packet: &str) -> Vec<&str> {
    let bytes = packet.as_bytes();
    let (mut statements, mut start, mut at) = (Vec::new(), 0, 0);
    let mut quote = None;
    while let Some(&byte) = bytes.get(at) {
        match (quote, byte) {
            (Some(_), b'\\') => at += 1,
            (Some(open), _) if open == byte => quote = None,
            (None, b'\'' | b'`') => quote = Some(byte),
            (None, b';') => {
                statements.push(packet[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    statements.push(packet[start..].trim());
    statements
}

/// Reads a statement; `database` is the session's default one.
pub(crate) fn parse(text: &str, database: &str) -> Statement {
    let fixed = FIXED.iter().find(|(beginning, _)| text.starts_with(beginning));
    if let Some((_, row)) = fixed {
        return Statement::Fixed(row.map(<[_]>::to_vec));
    }
    if let Some(query) = catalogue::known(text) {
        return Statement::Catalogue(query);
    }
    if let Some(names) = text.strip_prefix("SHOW GLOBAL VARIABLES WHERE Variable_name IN (") {
        let names = names.trim_end_matches(')').split(',');
        return Statement::Variables(
            names.map(|name| name.trim().trim_matches('\'').to_owned()).collect(),
        );
    }
    if let Some(events) = text.strip_prefix("BINLOG '").and_then(|rest| rest.strip_suffix('\'')) {
        return Statement::Binlog(STANDARD.decode(events).expect("BASE64 in BINLOG"));
    }
    if let Some(assignments) = text.strip_prefix("SET SESSION ") {
        return Statement::Set(parser::assignments(assignments));
    }
    let mut parser = Parser::new(text, database);
    let statement = statement(&mut parser).filter(|_| parser.is_at_end());
    statement.unwrap_or_else(|| panic!("the simulated target does not know: {text}"))
}

/// Statements whose answer never changes, by their beginning.
const FIXED: [(&str, Option<&[&str]>); 17] = [
    (
        "SELECT CURRENT_USER(), @@GLOBAL.gtid_mode, @@SESSION.max_allowed_packet",
        Some(&["csa@%", "ON", "67108864"]),
    ),
    // Who holds a row is only shown.
    ("SELECT DISTINCT CONCAT(l.OBJECT_SCHEMA, ", None),
    (
        "SELECT @@SESSION.explicit_defaults_for_timestamp, ",
        Some(&["1", "0", "0", "255", "1", "1", "0"]),
    ),
    ("SHOW SESSION VARIABLES WHERE Value='ON' AND Variable_name IN ", None),
    (
        "SHOW SESSION VARIABLES LIKE 'default_collation_for_utf8mb4'",
        Some(&["default_collation_for_utf8mb4", "utf8mb4_0900_ai_ci"]),
    ),
    ("SELECT s.WORK_COMPLETED, s.WORK_ESTIMATED FROM performance_schema.", None),
    ("SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES ", None),
    (
        "SHOW GRANTS",
        Some(&[
            "GRANT SELECT, REPLICATION CLIENT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, \
             CREATE VIEW, SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, TRIGGER, EVENT, REPLICATION_APPLIER, \
             SYSTEM_VARIABLES_ADMIN ON *.* TO `csa`@`%`",
        ]),
    ),
    ("SELECT CURRENT_USER()", Some(&["csa@%"])),
    ("SELECT TRIGGER_NAME, EVENT_MANIPULATION FROM information_schema.TRIGGERS ", None),
    ("SELECT EXISTS (SELECT 1 FROM information_schema.triggers ", Some(&["0"])),
    ("SELECT COUNT(*) FROM information_schema.REFERENTIAL_CONSTRAINTS ", Some(&["0"])),
    (
        "SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'",
        Some(&["innodb_native_foreign_keys", "OFF"]),
    ),
    ("SELECT CONCAT_WS(', ', a.TABLE_NAME, b.TABLE_NAME, c.TABLE_NAME) ", None),
    ("SELECT ENGINE FROM information_schema.TABLES ", None),
    // An abandoned query ends with its link here.
    ("SELECT LEFT(INFO,", None),
    ("SELECT COUNT(*) FROM information_schema.STATISTICS ", Some(&["0"])),
];

fn statement(parser: &mut Parser<'_>) -> Option<Statement> {
    let first = parser.word()?;
    match first.to_ascii_uppercase().as_str() {
        "BEGIN" => Some(Statement::Begin),
        "COMMIT" => Some(Statement::Commit),
        "ROLLBACK" if parser.has("TO") => {
            parser.has("SAVEPOINT");
            parser.name().map(Statement::RollbackTo)
        }
        "ROLLBACK" => Some(Statement::Rollback),
        "SAVEPOINT" => parser.name().map(Statement::Savepoint),
        "USE" => parser.name().map(Statement::Use),
        "KILL" => parser.number()?.try_into().ok().map(Statement::Kill),
        "SET" => set(parser),
        "XA" => xa(parser),
        "DO" if parser.has("1") || parser.has("0") => Some(Statement::Nothing),
        "START" => {
            parser.words(&["TRANSACTION", "WITH", "CONSISTENT", "SNAPSHOT"])?;
            parser.skip_all();
            Some(Statement::Snapshot)
        }
        "REPLACE" => dml::replace(parser),
        "DO" => {
            parser.words(&["RELEASE_LOCK"])?;
            parser.symbol(b'(')?;
            let name = parser.text()?;
            parser.symbol(b')')?;
            Some(Statement::Release(name))
        }
        "SELECT" => select(parser),
        "INSERT" => dml::insert(parser),
        "UPDATE" => dml::update(parser),
        "DELETE" => dml::delete(parser),
        "CREATE" | "DROP" | "ALTER" => ddl::definition(&first, parser),
        _ => None,
    }
}

fn xa(parser: &mut Parser<'_>) -> Option<Statement> {
    let step = match parser.word()?.to_ascii_uppercase().as_str() {
        "START" => XaStep::Start,
        "END" => XaStep::End,
        "PREPARE" => XaStep::Prepare,
        "COMMIT" => XaStep::Commit,
        "ROLLBACK" => XaStep::Rollback,
        _ => return None,
    };
    let xid = parser.whole().splitn(3, ' ').nth(2)?.to_owned();
    parser.skip_all();
    Some(Statement::Xa(step, xid))
}

fn set(parser: &mut Parser<'_>) -> Option<Statement> {
    if parser.has("NAMES") {
        parser.words(&["utf8mb4"])?;
        return Some(Statement::Nothing);
    }
    parser.words(&["GLOBAL", "gtid_purged"])?;
    parser.symbol(b'=')?;
    let added = parser.text()?;
    added.strip_prefix('+').map(|set| Statement::AddPurged(set.to_owned()))
}

/// Queries of the server's own tables have a place each; the others are of expressions, or of a table.
fn select(parser: &mut Parser<'_>) -> Option<Statement> {
    let text = parser.whole();
    if let Some(lock) = text.strip_prefix("SELECT 1 FROM DUAL WHERE IS_USED_LOCK('") {
        let (name, id) = lock.split_once("') <=> ")?;
        parser.skip_all();
        return Some(Statement::IsHeld(name.to_owned(), id.parse().ok()?));
    }
    if text.starts_with("SELECT DISTINCT r.PROCESSLIST_ID, b.PROCESSLIST_ID FROM ") {
        parser.skip_all();
        return Some(Statement::LockWaits);
    }
    let after = |beginning: &str| text.strip_prefix(beginning);
    let found = if let Some(session) = after(
        "SELECT HOST, COMMAND, CAST(TIME AS SIGNED), COALESCE(STATE, '') \
         FROM information_schema.PROCESSLIST WHERE ID=",
    ) {
        session.parse().ok().map(Statement::Process)
    } else if let Some(name) = after(
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='csa' AND table_name=",
    ) {
        Some(Statement::HasTable(own(name.trim_matches('\''))))
    } else if after("SELECT c.COLUMN_NAME, c.DATA_TYPE, ").is_some() {
        named(text).map(Statement::TypesOf)
    } else if after("SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS ").is_some()
    {
        named(text).map(Statement::UniqueKeysOf)
    } else if after("SELECT table_schema, table_name FROM information_schema.tables WHERE ")
        .is_some()
    {
        Some(Statement::Tables)
    } else {
        None
    };
    if found.is_some() {
        parser.skip_all();
        return found;
    }
    match dml::select(parser) {
        Some(select) => Some(Statement::Select(select)),
        None => {
            let expressions = expression::list(parser)?;
            if parser.has("LIMIT") {
                parser.words(&["1"])?;
            }
            Some(Statement::Show(expressions))
        }
    }
}

/// Returns the table that a query of definitions names.
fn named(query: &str) -> Option<TableName> {
    let (_, rest) = query.split_once("TABLE_SCHEMA='")?;
    let (schema, rest) = rest.split_once("' AND TABLE_NAME='")?;
    let (table, _) = rest.split_once('\'')?;
    Some((schema.to_owned(), table.to_owned()))
}

fn own(table: &str) -> TableName {
    ("csa".to_owned(), table.to_owned())
}

#[cfg(test)]
mod tests;
