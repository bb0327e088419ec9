//! Decides which of the source's changes are applied, and in which schema, by the rules
//! `replicate_*` as MySQL has them
//! (<https://dev.mysql.com/doc/refman/en/replication-rules.html>).
//!
//! Schemas are renamed first, then the rules look at the new names. Database rules compare the
//! table's schema for rows, and the default database for statements; table rules compare the tables
//! a statement names. A statement that leaves the decision open is refused, never guessed.

mod accounts;
mod emptying;
mod events;
mod objects;
mod own;
mod rules;
mod service_tables;
mod statement;
mod tokens;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub(crate) use events::{KeptEvents, Mapped};
pub use own::{OWN_TABLES, is_own};
pub use rules::{FilterRules, InvalidRule, is_like, lower_case_name};
pub(crate) use service_tables::changed_service_table;
pub use service_tables::{is_change_of_service, service_tables};
pub(crate) use statement::{StatementVerdict, is_of_temporary_tables, temporary_table_refusal};
pub use statement::{altered_tables, model_table};

use rules::Names;

/// The filter rules of a channel, prepared for matching.
#[derive(Debug, Clone, Default)]
pub struct Filters {
    rules: FilterRules,
    names: Names,
    /// Judges names in lower case, if the source alone compares them so.
    folding: Option<Box<Self>>,
}

impl Filters {
    /// `folds_case`: the target's `lower_case_table_names` is not 0.
    #[must_use]
    pub fn new(rules: FilterRules, folds_case: bool) -> Self {
        let names = Names { folds_case };
        Self { rules: rules.map(|text| names.fold(text).into_owned()), names, folding: None }
    }

    /// Refuses statements whose verdict depends on the case of names, if the source compares names in lower case
    /// and the target does not. `folds_case`: the source's `lower_case_table_names` is not 0.
    #[must_use]
    pub fn of_source(self, folds_case: bool) -> Self {
        let is_alone = folds_case && !self.names.folds_case;
        let lower = Names { folds_case: true };
        // Rows have names in lower case and are compared with the rules as they were written.
        let folding =
            is_alone.then(|| Box::new(Self { names: lower, folding: None, ..self.clone() }));
        Self { folding, ..self }
    }

    /// Returns the schema of the target to which rows of this table are written; `None` if left
    /// out.
    #[must_use]
    pub fn table<'a>(&'a self, schema: &'a str, table: &str) -> Option<Cow<'a, str>> {
        if self.is_own_table(schema, table) || self.leaves_out_accounts_of(schema, table) {
            return None;
        }
        if self.rules.is_empty() {
            return Some(schema.into());
        }
        let target = self.schema(schema);
        let (folded, table) = (self.names.fold(&target), self.names.fold(table));
        (self.rules.db_ok(&folded) && self.rules.table_ok(&folded, &table)).then_some(target)
    }

    /// Returns true if rows of some source table are written to this table of the target.
    #[must_use]
    pub fn writes(&self, schema: &str, table: &str) -> bool {
        let renamed = self.rules.rewrite_db.iter();
        let renamed = renamed.filter(|(_, to)| to == schema).map(|(from, _)| from.as_str());
        // A schema that is itself renamed away is dropped below: its rows go elsewhere.
        let mut sources = renamed.chain(std::iter::once(schema));
        sources.any(|source| self.table(source, table).is_some_and(|target| target == schema))
    }

    /// Returns the name of a schema on the target.
    #[must_use]
    pub fn schema<'a>(&'a self, name: &'a str) -> Cow<'a, str> {
        let folded = self.names.fold(name);
        match self.rules.rewrite_db.iter().find(|(from, _)| *from == folded) {
            Some((_, to)) => to.into(),
            None => name.into(),
        }
    }
}
