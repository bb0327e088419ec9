use csa_provider::binlog::QueryEvent;
use csa_provider::sql_text::{Dialect, Token};

use super::Filters;
use super::objects::{
    Name, Object, is_about_instance, is_about_privileges, is_about_temporary_tables, is_flushing,
    may_use_temporary_table, model, object, qualifiers,
};
use super::rules::OWN_SCHEMA;
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

/// The reason why a statement is refused whose names in lower case would be treated otherwise.
const CASE_MATTERS: &str = "the rules replicate_* decide otherwise about its names than about the same names in \
     lower case; the source compares names in lower case (lower_case_table_names), and the target does not; write \
     names in lower case, in statements and in the rules";

/// The decision of the rules, as far as the words of a statement show it.
enum Decision {
    Made(StatementVerdict),
    /// It is that of the trigger's table.
    OfTrigger {
        schema: String,
        name: String,
    },
    /// The trigger is in the schema of the daemon's own tables. The second decision is for one of another table there.
    OfOwnTrigger {
        schema: String,
        name: String,
        otherwise: Box<Self>,
    },
}

impl Decision {
    /// Returns the schema and the name of the trigger whose table decides.
    fn trigger(&self) -> Option<(&str, &str)> {
        match self {
            Self::Made(_) => None,
            Self::OfTrigger { schema, name } | Self::OfOwnTrigger { schema, name, .. } => {
                Some((schema, name))
            }
        }
    }
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
        if is_of_temporary_tables(query.statement, dialect)
            || self.is_of_its_server(query.statement, dialect)
        {
            return Ok(StatementVerdict::Skip);
        }
        let written = self.decision(query, dialect);
        let folded = self.folding.as_ref().map(|folding| folding.decision(query, dialect));
        // In lower case first: a source that folds names has no other ones.
        let decisions = folded.iter().chain([&written]);
        let table = match decisions.filter_map(Decision::trigger).next() {
            Some((schema, trigger)) => trigger_table(schema, trigger).await?,
            None => None,
        };
        let verdict = self.verdict(written, table.as_deref());
        let (Some(folding), Some(folded)) = (&self.folding, folded) else { return Ok(verdict) };
        let database = String::from_utf8_lossy(query.database);
        let is_same = verdict == folding.verdict(folded, table.as_deref())
            && self.schema(&database) == folding.schema(&database)
            && self.emptying(query.statement, dialect)
                == folding.emptying(query.statement, dialect);
        Ok(match verdict {
            refusal @ StatementVerdict::Refuse(_) => refusal,
            same if is_same => same,
            _ => refuse(CASE_MATTERS),
        })
    }

    /// Returns true if a statement is about its own server: it empties caches, reads files again or makes another key
    /// for encryption. It changes no content, and takes privileges that an account for replication need not have.
    ///
    /// Replicated rows of the grant tables count only after FLUSH PRIVILEGES.
    fn is_of_its_server(&self, statement: &[u8], dialect: Dialect) -> bool {
        if !contains(statement, b"FLUSH") && !contains(statement, b"INSTANCE") {
            return false;
        }
        let words = leading(statement, dialect);
        let is_needed = self.rules.accounts && is_about_privileges(&words);
        is_about_instance(&words) || is_flushing(&words, dialect) && !is_needed
    }

    fn decision(&self, query: &QueryEvent<'_>, dialect: Dialect) -> Decision {
        let decision = self.decided(query, dialect).unwrap_or_else(Decision::Made);
        match self.own_trigger(query, dialect) {
            Some(Name { name, .. }) => {
                let (schema, otherwise) = (OWN_SCHEMA.to_owned(), Box::new(decision));
                Decision::OfOwnTrigger { schema, name, otherwise }
            }
            None => decision,
        }
    }

    /// Returns a verdict as an error where it comes before the objects of the statement.
    fn decided(
        &self,
        query: &QueryEvent<'_>,
        dialect: Dialect,
    ) -> Result<Decision, StatementVerdict> {
        // These two come before the rules, and hold even without any: a source must change neither
        // the channels' progress nor, unless allowed to, the target's accounts.
        if let Some(verdict) = self.own_statement(query, dialect) {
            return Err(verdict);
        }
        if let Some(verdict) = self.account_statement(query, dialect) {
            return Err(verdict);
        }
        let rules = &self.rules;
        if rules.is_empty() {
            return Err(StatementVerdict::Apply);
        }
        let database = String::from_utf8_lossy(query.database);
        let database = self.schema(&database);
        let database = self.names.fold(&database);
        if !rules.db_ok(&database) {
            return Err(StatementVerdict::Skip);
        }
        if !rules.has_table_rules() && rules.rewrite_db.is_empty() {
            return Err(StatementVerdict::Apply);
        }
        let emptying = self.emptying(query.statement, dialect);
        let Some(tokens) = tokens(emptying.as_deref().unwrap_or(query.statement), dialect) else {
            return Err(refuse("the names in the statement can't be read"));
        };
        let object = object(&tokens, dialect);
        if emptying.is_none()
            && let Some(name) = self.renamed_name(&tokens, &object, dialect)
        {
            return Err(StatementVerdict::Refuse(format!(
                "the statement names schema {name}, which replicate_rewrite_db renames; names \
                 inside statements are not renamed"
            )));
        }
        if !rules.has_table_rules() {
            return Err(StatementVerdict::Apply);
        }
        Ok(self.decision_on(object, &database))
    }

    /// Decides by the table rules.
    fn decision_on(&self, object: Object, database: &str) -> Decision {
        Decision::Made(match object {
            Object::Unfiltered => StatementVerdict::Apply,
            // The default database of such a statement is the schema itself.
            Object::Schema(_) => {
                verdict(self.rules.has_db_rules() || self.rules.schema_ok(database))
            }
            Object::Accounts => verdict(self.accounts_ok()),
            Object::Tables(tables) => self.tables(&tables, database),
            Object::Grant(table) => match self.table_named(&table, database) {
                true => verdict(self.accounts_ok()),
                false => StatementVerdict::Skip,
            },
            Object::TriggerOf(trigger) => {
                let schema = trigger.schema.as_deref().unwrap_or(database);
                let schema = self.names.fold(schema).into_owned();
                return Decision::OfTrigger { schema, name: trigger.name };
            }
            Object::Unknown => refuse("it is unknown which tables the statement changes"),
        })
    }

    /// Returns the verdict by a decision; `table` is that of the trigger.
    fn verdict(&self, decision: Decision, table: Option<&str>) -> StatementVerdict {
        match (decision, table) {
            (Decision::Made(verdict), _) => verdict,
            (Decision::OfTrigger { schema, .. }, Some(table)) => {
                let table = Name { schema: Some(schema), name: table.to_owned() };
                verdict(self.table_named(&table, ""))
            }
            // The trigger was left out when it was created, or never existed.
            (Decision::OfTrigger { .. }, None) => StatementVerdict::Skip,
            (Decision::OfOwnTrigger { schema, otherwise, .. }, Some(table))
                if !self.is_own_table(&schema, table) =>
            {
                self.verdict(*otherwise, Some(table))
            }
            (Decision::OfOwnTrigger { .. }, _) => StatementVerdict::LeaveOutOwn,
        }
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
pub(crate) fn is_of_temporary_tables(statement: &[u8], dialect: Dialect) -> bool {
    contains(statement, b"TEMPORARY")
        && is_about_temporary_tables(&leading(statement, dialect), dialect)
}

/// Returns the tables, by schema and name, that a RENAME TABLE or ALTER TABLE names: several if it renames one or exchanges a
/// partition. None for other statements.
#[must_use]
pub fn altered_tables(statement: &[u8], dialect: Dialect, database: &str) -> Vec<(String, String)> {
    let words = tokens(statement, dialect).unwrap_or_default();
    let alters = words.first().is_some_and(|verb| verb.is("RENAME") || verb.is("ALTER"));
    match object(&words, dialect) {
        Object::Tables(tables) if alters => {
            tables.into_iter().map(|table| table.qualified(database)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the table, by schema and name, whose definition a CREATE TABLE … LIKE takes.
#[must_use]
pub fn model_table(statement: &[u8], dialect: Dialect, database: &str) -> Option<(String, String)> {
    Some(model(&tokens(statement, dialect)?, dialect)?.qualified(database))
}

/// Returns true if the letters are somewhere in a statement. In most they are not, so that it need not be split into
/// words.
fn contains(statement: &[u8], letters: &[u8]) -> bool {
    statement.windows(letters.len()).any(|place| place.eq_ignore_ascii_case(letters))
}

/// Returns the reason to stop at a statement that may use a temporary table of its session. Here it would use the
/// real table of that name. The source has marked it as dependent on the session.
pub(crate) fn temporary_table_refusal(query: &QueryEvent<'_>, dialect: Dialect) -> Option<String> {
    may_use_temporary_table(&leading(query.statement, dialect), dialect).then(|| {
        "its session has temporary tables, which are not here, and the statement may use one of them; set \
         binlog_format=ROW for all sessions of the source"
            .to_owned()
    })
}

impl Name {
    fn qualified(self, database: &str) -> (String, String) {
        (self.schema.unwrap_or_else(|| database.to_owned()), self.name)
    }

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
