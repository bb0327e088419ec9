//! The tables that a channel replicates.

use csa_scheduler::filter::{FilterRules, Filters};

use super::scope::TableSelection;
use super::table_name::TableName;

/// A channel's `replicate_*`, for targets that compare names with case and for others.
#[derive(Debug)]
pub(crate) struct Replicated {
    exact: Filters,
    folding: Filters,
}

impl Replicated {
    pub(crate) fn new(rules: &FilterRules) -> Self {
        let filters = |folds_case| Filters::new(rules.clone(), folds_case);
        Self { exact: filters(false), folding: filters(true) }
    }
}

impl TableSelection for Replicated {
    fn target_of(&self, source: &TableName, folds_case: bool) -> Option<TableName> {
        let filters = if folds_case { &self.folding } else { &self.exact };
        let schema = filters.table(&source.schema, &source.table)?.into_owned();
        Some(TableName { schema, table: source.table.clone() })
    }
}
