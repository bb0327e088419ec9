use csa_provider::binlog::QueryEvent;
use csa_provider::sql_text::{Dialect, Token};

use super::Filters;
use super::accounts::GRANT_TABLES;
use super::objects::{
    Name, Object, is_about_temporary_tables, may_change_temporary_table, object, qualifiers,
};
use super::tokens::{leading, tokens};
use crate::key_source::KeySourceError;

/// The decision of the filters about a statement that commits implicitly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StatementVerdict {
    Apply,
    Skip,
    /// It is account management, which `replicate_accounts` leaves out.
    LeaveOutAccounts,
    /// It is about the schema in which the target keeps the channels' progress.
    LeaveOutOwn,
    /// Neither applying nor skipping it would be right, for this reason.
    Refuse(String),
}

impl Filters {
    /// Decides about a statement like the server's applier, but refuses it if that would silently
    /// lose or misplace something. `trigger_table` finds a trigger's table on the target by schema and
    /// name; `None` if there is no such trigger.
    ///
    /// # Errors
    /// A trigger's table could not be looked up.
    pub(crate) async fn statement(
        &self,
        query: &QueryEvent<'_>,
        dialect: Dialect,
        trigger_table: impl AsyncFnOnce(&str, &str) -> Result<Option<String>, KeySourceError>,
    ) -> Result<StatementVerdict, KeySourceError> {
        if is_of_temporary_tables(query.statement, dialect) {
            return Ok(StatementVerdict::Skip);
        }
        // These two come before the rules, and hold even without any: a source must change neither
        // the channels' progress nor, unless allowed to, the target's accounts.
        if let Some(verdict) = self.own_statement(query, dialect) {
            return Ok(verdict);
        }
        if self.leaves_out_account_statement(query, dialect) {
            return Ok(StatementVerdict::LeaveOutAccounts);
        }
        let rules = &self.rules;
        if rules.is_empty() {
            return Ok(StatementVerdict::Apply);
        }
        let database = String::from_utf8_lossy(query.database);
        let database = self.schema(&database);
        let database = self.names.fold(&database);
        if !rules.db_ok(&database) {
            return Ok(StatementVerdict::Skip);
        }
        if !rules.has_table_rules() && rules.rewrite_db.is_empty() {
            return Ok(StatementVerdict::Apply);
        }
        let Some(tokens) = tokens(query.statement, dialect) else {
            return Ok(refuse("the names in the statement can't be read"));
        };
        let object = object(&tokens, dialect);
        if let Some(name) = self.renamed_name(&tokens, &object, dialect) {
            return Ok(StatementVerdict::Refuse(format!(
                "the statement names schema {name}, which replicate_rewrite_db renames; names \
                 inside statements are not renamed"
            )));
        }
        if !rules.has_table_rules() {
            return Ok(StatementVerdict::Apply);
        }
        Ok(match object {
            Object::Unfiltered => StatementVerdict::Apply,
            // The default database of such a statement is the schema itself.
            Object::Schema(_) => verdict(rules.has_db_rules() || rules.schema_ok(&database)),
            Object::Accounts => verdict(self.accounts_ok()),
            Object::Tables(tables) => self.tables(&tables, &database),
            Object::Grant(table) => match self.table_named(&table, &database) {
                true => verdict(self.accounts_ok()),
                false => StatementVerdict::Skip,
            },
            Object::TriggerOf(trigger) => {
                let schema = trigger.schema.as_deref().unwrap_or(&database);
                match trigger_table(schema, &trigger.name).await? {
                    Some(table) => {
                        let table = Name { schema: Some(schema.to_owned()), name: table };
                        verdict(self.table_named(&table, &database))
                    }
                    // The trigger was left out when it was created, or never existed.
                    None => StatementVerdict::Skip,
                }
            }
            Object::Unknown => refuse("it is unknown which tables the statement changes"),
        })
    }

    /// Returns a renamed schema that the statement names by its source name.
    fn renamed_name(
        &self,
        tokens: &[Token<'_>],
        object: &Object,
        dialect: Dialect,
    ) -> Option<String> {
        let renamed = |name: &str| {
            // In a GRANT, `%` and `_` may be escaped.
            let name = name.replace('\\', "");
            let folded = self.names.fold(&name).into_owned();
            self.rules.rewrite_db.iter().any(|(from, _)| *from == folded).then_some(name)
        };
        if self.rules.rewrite_db.is_empty() {
            return None;
        }
        if let Object::Schema(Some(schema)) = object
            && let Some(name) = renamed(schema)
        {
            return Some(name);
        }
        qualifiers(tokens).find_map(|token| match dialect.name(token) {
            Some(name) => renamed(&name),
            // Its characters can't be read: it might be any name that is not ASCII.
            None => {
                let mut from = self.rules.rewrite_db.iter().map(|(from, _)| from);
                from.find(|from| !from.is_ascii()).cloned()
            }
        })
    }

    fn accounts_ok(&self) -> bool {
        self.rules.tables_ok(GRANT_TABLES.map(|table| ("mysql", table)))
    }

    fn table_named(&self, table: &Name, database: &str) -> bool {
        let schema = table.schema.as_deref().unwrap_or(database);
        self.rules.table_ok(&self.names.fold(schema), &self.names.fold(&table.name))
    }

    /// MySQL lets the first table that a rule names decide for all of them. If the tables differ,
    /// that would change a table that is left out, or lose the change of another.
    fn tables(&self, tables: &[Name], database: &str) -> StatementVerdict {
        let passes = |table: &&Name| self.table_named(table, database);
        let kept = tables.iter().find(passes);
        let dropped = tables.iter().find(|table| !passes(table));
        match (kept, dropped) {
            (Some(kept), Some(dropped)) => StatementVerdict::Refuse(format!(
                "the statement is about table {}, which is replicated, and {}, which is not",
                kept.text(database),
                dropped.text(database)
            )),
            (kept, _) => verdict(kept.is_some()),
        }
    }
}

/// Returns true if a statement creates or drops temporary tables. On the session that runs all definitions they
/// would stand before the real tables of their names, and rows never need them.
fn is_of_temporary_tables(statement: &[u8], dialect: Dialect) -> bool {
    const WORD: &[u8] = b"TEMPORARY";
    // Few statements have the word, so most need not be split into words.
    let mut places = statement.windows(WORD.len());
    places.any(|place| place.eq_ignore_ascii_case(WORD))
        && is_about_temporary_tables(&leading(statement, dialect), dialect)
}

/// Returns the reason to stop at a statement that the source marked as one that depends on its session, if it
/// may change a temporary table. Here it would change the real table of that name.
pub(crate) fn temporary_table_refusal(query: &QueryEvent<'_>, dialect: Dialect) -> Option<String> {
    may_change_temporary_table(&leading(query.statement, dialect), dialect).then(|| {
        "the statement depends on its session, so the table that it changes is probably a temporary one, which \
         is not here; set binlog_format=ROW for all sessions of the source"
            .to_owned()
    })
}

impl Name {
    fn text(&self, database: &str) -> String {
        format!("{}.{}", self.schema.as_deref().unwrap_or(database), self.name)
    }
}

fn verdict(applies: bool) -> StatementVerdict {
    if applies { StatementVerdict::Apply } else { StatementVerdict::Skip }
}

pub(super) fn refuse(why: &str) -> StatementVerdict {
    StatementVerdict::Refuse(why.to_owned())
}
