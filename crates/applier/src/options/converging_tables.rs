//! The tables whose rows a copy read while they were changed (`rows/converging.rs` applies their changes).

use std::collections::HashSet;

/// Tables by schema and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConvergingTables {
    pub(crate) converging: HashSet<(String, String)>,
    /// Tables whose foreign keys are not checked: rows that they refer to may not be there yet.
    pub(crate) related: HashSet<(String, String)>,
}

impl ConvergingTables {
    pub fn new(
        converging: impl IntoIterator<Item = (String, String)>,
        related: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let (converging, related) =
            (converging.into_iter().collect(), related.into_iter().collect());
        Self { converging, related }
    }

    /// Returns the first of these tables whose rows converge. Some servers write names in lower case.
    pub(crate) fn first_of<'a>(
        &self,
        tables: &'a [(String, String)],
    ) -> Option<&'a (String, String)> {
        let lower =
            |(schema, table): &(String, String)| (schema.to_lowercase(), table.to_lowercase());
        let is_of = |table: &&(String, String)| {
            self.converging.iter().any(|name| lower(name) == lower(table))
        };
        tables.iter().find(is_of)
    }
}
