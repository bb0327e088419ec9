//! The daemon's own bookkeeping on the target: the schema `csa` and its tables. A source that is
//! itself the target of a daemon has such tables too, for other channels, and a former target may
//! drop them. A source must not change those of the target.

use csa_provider::binlog::QueryEvent;
use csa_provider::sql_text::Dialect;

use super::Filters;
use super::objects::{Name, Object, object, qualifiers};
use super::rules::OWN_SCHEMA;
use super::statement::{StatementVerdict, refuse};
use super::tokens::tokens;

/// The tables that a daemon makes in the schema `csa`.
pub const OWN_TABLES: [&str; 10] = [
    "checkpoint",
    "channel",
    "statement",
    "audit",
    "target_server",
    "status",
    "copy",
    "copy_range",
    "copy_state",
    "move",
];

/// The view that docs/monitoring.md has.
const OWN_VIEW: &str = "heartbeat";

/// True for the daemon's own bookkeeping. A source that is itself the target of a daemon has such
/// tables in its stream, and they describe other channels.
#[must_use]
pub fn is_own(schema: &[u8], table: &[u8]) -> bool {
    let names = OWN_TABLES.iter().chain([&OWN_VIEW]);
    schema == b"csa" && names.map(|name| name.as_bytes()).any(|name| name == table)
}

impl Filters {
    /// Returns true if this schema is the daemon's own on the target.
    fn is_own_schema(&self, schema: &str) -> bool {
        self.names.fold(schema) == OWN_SCHEMA
    }

    /// Returns true if this table is the daemon's own on the target.
    pub(super) fn is_own_table(&self, schema: &str, table: &str) -> bool {
        is_own(self.names.fold(schema).as_bytes(), self.names.fold(table).as_bytes())
    }

    /// Returns the trigger that a statement drops in the schema of these tables. One of a table that was left out is
    /// not on the target, and one that is there is the target's own.
    pub(super) fn own_trigger(&self, query: &QueryEvent<'_>, dialect: Dialect) -> Option<Name> {
        let database = String::from_utf8_lossy(query.database);
        if !self.may_be_own(query, &database) {
            return None;
        }
        let Object::TriggerOf(trigger) = object(&tokens(query.statement, dialect)?, dialect) else {
            return None;
        };
        let is_own = self.is_own_schema(trigger.schema.as_deref().unwrap_or(&database));
        is_own.then_some(trigger)
    }

    /// Returns true if a statement may be about these tables. Most don't contain the name anywhere, so they need not be
    /// split into words.
    fn may_be_own(&self, query: &QueryEvent<'_>, database: &str) -> bool {
        let name = OWN_SCHEMA.as_bytes();
        let mut places = query.statement.windows(name.len());
        self.is_own_schema(database) || places.any(|place| place.eq_ignore_ascii_case(name))
    }

    /// Decides about a statement that changes them; `None` for other statements.
    pub(super) fn own_statement(
        &self,
        query: &QueryEvent<'_>,
        dialect: Dialect,
    ) -> Option<StatementVerdict> {
        let database = String::from_utf8_lossy(query.database);
        if !self.may_be_own(query, &database) {
            return None;
        }
        let is_default = self.is_own_schema(&database);
        let Some(tokens) = tokens(query.statement, dialect) else {
            return Some(refuse("its names can't be read, so it may change schema csa"));
        };
        let left_out = match object(&tokens, dialect) {
            Object::Schema(schema) => {
                schema.map_or(is_default, |schema| self.is_own_schema(&schema))
            }
            Object::Tables(tables) => {
                let own = tables.iter().filter(|table| {
                    self.is_own_table(table.schema.as_deref().unwrap_or(&database), &table.name)
                });
                let count = own.count();
                if count > 0 && count < tables.len() {
                    return Some(refuse(
                        "the statement changes tables in which the target keeps the channels' \
                         progress, and others",
                    ));
                }
                count > 0
            }
            // For triggers see `own_trigger`.
            Object::TriggerOf(_) | Object::Unfiltered | Object::Accounts | Object::Grant(_) => {
                false
            }
            Object::Unknown => {
                let mut names = qualifiers(&tokens).filter_map(|token| dialect.name(token));
                if is_default || names.any(|name| self.is_own_schema(&name)) {
                    return Some(refuse(
                        "it is unknown if the statement changes schema csa, where the target keeps \
                         the channels' progress",
                    ));
                }
                false
            }
        };
        left_out.then_some(StatementVerdict::LeaveOutOwn)
    }
}
