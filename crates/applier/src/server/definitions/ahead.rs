//! The tables to read beside one that is needed: of a server with thousands, one after the other takes seconds.

use std::collections::HashMap;

use csa_provider::sql_text::quote;

use super::TableName;
use super::keys::Definition;
use crate::error::Result;
use crate::server::session::Session;
use csa_provider::server::Vendor;

/// Names of a schema that are kept at most.
const MOST_NAMES: usize = 100_000;
/// Tables in one question at most.
const MOST_AT_ONCE: usize = 512;
/// Tables that are read for each that was needed so far.
const FOR_EACH: usize = 4;
/// Tables of a schema that are needed before its names are listed.
const BEFORE_LIST: usize = 4;

/// Tables that have not been read, by schema.
///
/// A question names some for each table of the schema that was needed so far: few needless ones where few are
/// needed, and thousands take some dozens of questions.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    schemas: HashMap<String, Schema>,
}

#[derive(Debug, Default)]
struct Schema {
    /// The number of tables needed so far.
    needed: usize,
    /// In the order in which they are read; `None` before they are listed.
    unread: Option<Vec<String>>,
}

impl ReadAhead {
    /// Forgets everything, as definitions are.
    pub(super) fn forget(&mut self) {
        self.schemas.clear();
    }

    /// A table of the schema is needed, read or not.
    pub(super) fn needed(&mut self, schema: &str) {
        self.schemas.entry(schema.to_owned()).or_default().needed += 1;
    }

    /// Returns the tables to read now that `name` is needed: that one, and others except those `known`.
    pub(super) async fn along_with(
        &mut self,
        session: &mut Session,
        (schema, table): &TableName,
        fold: impl Fn(String) -> String,
        known: &HashMap<TableName, Option<Definition>>,
    ) -> Result<Vec<String>> {
        // The others open every table of the schema for a question about several.
        if session.vendor() != Vendor::MySql {
            return Ok(vec![table.clone()]);
        }
        let of_schema = self.schemas.entry(schema.clone()).or_default();
        if of_schema.unread.is_none() && of_schema.needed > BEFORE_LIST {
            let names: Vec<String> = session
                .rows(&format!(
                    "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA={} \
                     AND TABLE_TYPE='BASE TABLE' LIMIT {MOST_NAMES}",
                    quote(schema)
                ))
                .await?;
            of_schema.unread = Some(names.into_iter().map(fold).collect());
        }
        Ok(of_schema.next(table, |table| known.contains_key(&(schema.clone(), table.to_owned()))))
    }
}

impl Schema {
    fn next(&mut self, table: &str, known: impl Fn(&str) -> bool) -> Vec<String> {
        let mut tables = vec![table.to_owned()];
        while tables.len() < (self.needed * FOR_EACH).min(MOST_AT_ONCE)
            && let Some(other) = self.unread.as_mut().and_then(Vec::pop)
        {
            if other != table && !known(&other) {
                tables.push(other);
            }
        }
        tables
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Questions, and tables read, until every `step`-th of so many tables was needed.
    fn questions(tables: usize, step: usize) -> (usize, usize) {
        let mut schema = Schema { needed: 0, unread: Some(names(tables)) };
        let mut read = HashSet::new();
        let mut questions = 0;
        for needed in names(tables).into_iter().step_by(step) {
            schema.needed += 1;
            if read.contains(&needed) {
                continue;
            }
            questions += 1;
            let tables = schema.next(&needed, |name| read.contains(name));
            assert_eq!(tables.first(), Some(&needed));
            for table in tables {
                assert!(read.insert(table), "read twice");
            }
        }
        (questions, read.len())
    }

    fn names(tables: usize) -> Vec<String> {
        (0..tables).map(|n| format!("t{n}")).collect()
    }

    #[test]
    fn thousands_take_dozens_of_questions() {
        assert_eq!(questions(1, 1), (1, 1));
        // The last are read first, so nearly half of them are needed before all are known.
        let (asked, read) = questions(10_000, 1);
        assert!(asked < 100 && read == 10_000, "{asked} questions");
    }

    #[test]
    fn few_are_read_where_few_are_needed() {
        let (asked, read) = questions(100_000, 2_000);
        assert!(asked <= 50 && read < 6_000, "{asked} questions, {read} tables");
    }

    #[test]
    fn nothing_is_read_along_before_the_names_are_listed() {
        let mut schema = Schema { needed: BEFORE_LIST, unread: None };
        assert_eq!(schema.next("t1", |_| false), ["t1"]);
    }
}
