//! The tables whose rows a copy read while they were changed (`rows/converging.rs` applies their changes).

use std::collections::HashSet;

/// Tables by schema and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConvergingTables {
    pub(crate) converging: HashSet<(String, String)>,
    /// Tables whose foreign keys are not checked: rows that they refer to may not be there yet.
    pub(crate) related: HashSet<(String, String)>,
    /// Tables that the target lacked when they were copied again. They have the definition that the source had then, of
    /// which the channel may still have parts to apply.
    pub(crate) absent: HashSet<(String, String)>,
    /// Tables that get keys once they have converged.
    pub(crate) keyless: HashSet<(String, String)>,
}

impl ConvergingTables {
    pub fn new(
        converging: impl IntoIterator<Item = (String, String)>,
        related: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let (converging, related) =
            (converging.into_iter().collect(), related.into_iter().collect());
        Self { converging, related, ..Self::default() }
    }

    #[must_use]
    pub fn with_absent(mut self, absent: impl IntoIterator<Item = (String, String)>) -> Self {
        self.absent.extend(absent);
        self
    }

    #[must_use]
    pub fn with_keyless(mut self, keyless: impl IntoIterator<Item = (String, String)>) -> Self {
        self.keyless.extend(keyless);
        self
    }
}

/// Returns the first of these tables that is among the known ones. Some servers write names in lower case.
pub(crate) fn first_of<'a>(
    known: &HashSet<(String, String)>,
    tables: &'a [(String, String)],
) -> Option<&'a (String, String)> {
    let lower = |(schema, table): &(String, String)| (schema.to_lowercase(), table.to_lowercase());
    tables.iter().find(|table| known.iter().any(|name| lower(name) == lower(table)))
}
