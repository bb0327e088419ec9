//! Statements that only empty one table. After a restart of the source, its server logs one for each MEMORY table that
//! is used, with the name of the schema. Nobody can write these without it, so here a renamed schema gets its new
//! name in the text.

use csa_provider::sql_text::{Dialect, emptied_schema, identifier};

use super::Filters;

impl Filters {
    /// Returns the text of such a statement with the target's name of its schema; `None` for others, and if the
    /// schema has the same name there.
    #[must_use]
    pub fn emptying(&self, statement: &[u8], dialect: Dialect) -> Option<Vec<u8>> {
        if self.rules.rewrite_db.is_empty() {
            return None;
        }
        let schema = emptied_schema(statement, dialect)?;
        let name = dialect.name(&schema)?;
        let renamed = self.schema(&name);
        // The new name is written in the character set of the text.
        if renamed == name || !renamed.is_ascii() && !dialect.is_utf8() {
            return None;
        }
        let place = schema.range();
        let before = statement.get(..place.start)?;
        let after = statement.get(place.end..)?;
        Some([before, identifier(&renamed).as_bytes(), after].concat())
    }
}
