//! Pairs of tables that are compared.

use std::collections::{BTreeMap, BTreeSet};

use csa_scheduler::filter::lower_case_name;

use super::catalogue::Tables;
use super::table_name::TableName;

/// The channel's treatment of a table.
pub trait TableSelection: Sync {
    /// Returns the table on the target to which a table of the source is replicated, if it is.
    /// `folds_case`: the target's `lower_case_table_names` is not 0.
    fn target_of(&self, source: &TableName, folds_case: bool) -> Option<TableName>;
}

impl<F> TableSelection for F
where
    F: Fn(&TableName) -> Option<TableName> + Sync,
{
    fn target_of(&self, source: &TableName, _: bool) -> Option<TableName> {
        self(source)
    }
}

/// A channel without filters and renames.
#[derive(Debug, Clone, Copy, Default)]
pub struct EveryTable;

impl TableSelection for EveryTable {
    fn target_of(&self, source: &TableName, _: bool) -> Option<TableName> {
        Some(source.clone())
    }
}

/// The requested part, by names on the source; empty: everything.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    pub schemas: Vec<String>,
    pub tables: Vec<TableName>,
    /// A table that is on neither side is passed over, because it was dropped; otherwise its name is misspelt.
    pub may_be_dropped: bool,
}

impl Scope {
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.schemas.is_empty() && self.tables.is_empty()
    }

    fn holds(&self, table: &TableName) -> bool {
        self.is_everything() || self.schemas.contains(&table.schema) || self.tables.contains(table)
    }

    fn lowercase(&self) -> Self {
        Self {
            schemas: self.schemas.iter().map(|schema| lower_case_name(schema)).collect(),
            tables: self.tables.iter().map(lowercase).collect(),
            ..*self
        }
    }
}

/// A table of the source and its place on the target. It need not exist on both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TablePair {
    pub(crate) source: TableName,
    pub(crate) target: TableName,
    /// Other tables of the source are replicated to the same one.
    pub(crate) is_shared: bool,
}

/// Both servers' tables, and whether each keeps names of tables in lower case.
pub(crate) struct ListedTables<'a> {
    pub(crate) source: &'a Tables,
    pub(crate) target: &'a Tables,
    pub(crate) source_folds_case: bool,
    pub(crate) target_folds_case: bool,
}

impl ListedTables<'_> {
    /// Returns the pairs in scope: every replicated table of the source, and every table of the
    /// target that a table of the source would be replicated to.
    ///
    /// # Errors
    /// A name in the scope that matches nothing.
    pub(crate) fn pairs(
        &self,
        scope: &Scope,
        selection: &dyn TableSelection,
    ) -> Result<Vec<TablePair>, String> {
        let folded = if self.source_folds_case { &scope.lowercase() } else { scope };
        let target_of = |source: &TableName| {
            let target = selection.target_of(source, self.target_folds_case)?;
            Some(if self.target_folds_case { lowercase(&target) } else { target })
        };
        let mut by_target: BTreeMap<TableName, Vec<&TableName>> = BTreeMap::new();
        for source in self.source.keys() {
            if let Some(target) = target_of(source) {
                by_target.entry(target).or_default().push(source);
            }
        }
        let mut pairs = BTreeSet::new();
        for (target, sources) in &by_target {
            let is_shared = sources.len() > 1;
            pairs.extend(sources.iter().map(|&source| TablePair {
                source: source.clone(),
                target: target.clone(),
                is_shared,
            }));
        }
        let schemas: BTreeSet<&String> = self.source.keys().map(|table| &table.schema).collect();
        for target in self.target.keys().filter(|target| !by_target.contains_key(*target)) {
            // Renames concern the schema: its own name first, then the schemas of the source.
            let source = std::iter::once(&target.schema)
                .chain(schemas.iter().copied())
                .map(|schema| TableName { schema: schema.clone(), table: target.table.clone() })
                .find(|source| target_of(source).as_ref() == Some(target));
            let target = target.clone();
            pairs.extend(source.map(|source| TablePair { source, target, is_shared: false }));
        }
        pairs.retain(|pair| folded.holds(&pair.source));
        check_names(folded, &pairs)?;
        Ok(pairs.into_iter().collect())
    }
}

/// A misspelt name must not end in "equal".
fn check_names(scope: &Scope, pairs: &BTreeSet<TablePair>) -> Result<(), String> {
    if scope.may_be_dropped {
        return Ok(());
    }
    let nothing = "no such table is replicated, or there is none on either side";
    for schema in &scope.schemas {
        if !pairs.iter().any(|pair| pair.source.schema == *schema) {
            return Err(format!("--schema {schema}: {nothing}"));
        }
    }
    for table in &scope.tables {
        if !pairs.iter().any(|pair| pair.source == *table) {
            return Err(format!("--table {table}: {nothing}"));
        }
    }
    Ok(())
}

/// Returns a name as a server keeps it that folds case.
pub(crate) fn lowercase(name: &TableName) -> TableName {
    TableName { schema: lower_case_name(&name.schema), table: lower_case_name(&name.table) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::catalogue::Estimate;

    fn tables(names: &[&str]) -> Tables {
        names.iter().map(|name| (table(name), Estimate::default())).collect()
    }

    fn table(name: &str) -> TableName {
        name.parse().expect("a table")
    }

    fn scope(schemas: &[&str], names: &[&str]) -> Scope {
        Scope {
            schemas: schemas.iter().map(|&schema| schema.to_owned()).collect(),
            tables: names.iter().map(|name| table(name)).collect(),
            ..Scope::default()
        }
    }

    fn pairs(
        sides: [&[&str]; 2],
        folds: [bool; 2],
        scope: &Scope,
        selection: &dyn TableSelection,
    ) -> Result<Vec<String>, String> {
        let listed = ListedTables {
            source: &tables(sides[0]),
            target: &tables(sides[1]),
            source_folds_case: folds[0],
            target_folds_case: folds[1],
        };
        let pairs = listed.pairs(scope, selection)?;
        let text = |pair: &TablePair| {
            format!("{}>{}{}", pair.source, pair.target, if pair.is_shared { "!" } else { "" })
        };
        Ok(pairs.iter().map(text).collect())
    }

    #[test]
    fn tables_of_either_side_are_paired() {
        let sides: [&[&str]; 2] = [&["d.a", "d.b", "e.c"], &["d.b", "e.c", "e.x"]];
        let all = pairs(sides, [false; 2], &Scope::default(), &EveryTable);
        assert_eq!(all.expect("pairs"), ["d.a>d.a", "d.b>d.b", "e.c>e.c", "e.x>e.x"]);
        let part = pairs(sides, [false; 2], &scope(&["e"], &["d.b"]), &EveryTable);
        assert_eq!(part.expect("pairs"), ["d.b>d.b", "e.c>e.c", "e.x>e.x"]);
    }

    #[test]
    fn filtered_tables_are_left_out_and_renamed_ones_found() {
        let rename = |source: &TableName| match source.schema.as_str() {
            "d" => Some(TableName { schema: "copy".to_owned(), table: source.table.clone() }),
            "private" => None,
            _ => Some(source.clone()),
        };
        let sides: [&[&str]; 2] =
            [&["d.a", "private.p"], &["copy.a", "copy.x", "private.p", "d.old"]];
        let found = pairs(sides, [false; 2], &Scope::default(), &rename);
        // Nothing is replicated to the target's d and private.
        assert_eq!(found.expect("pairs"), ["copy.x>copy.x", "d.a>copy.a"]);
    }

    #[test]
    fn tables_that_are_replicated_into_one_are_marked() {
        let merge = |source: &TableName| {
            Some(TableName { schema: "all".to_owned(), table: source.table.clone() })
        };
        let sides: [&[&str]; 2] = [&["s1.t", "s2.t", "s2.u"], &["all.t", "all.u"]];
        let found = pairs(sides, [false; 2], &Scope::default(), &merge);
        assert_eq!(found.expect("pairs"), ["s1.t>all.t!", "s2.t>all.t!", "s2.u>all.u"]);
    }

    #[test]
    fn names_fold_where_a_server_folds_them() {
        let sides: [&[&str]; 2] = [&["D.Orders"], &["d.orders"]];
        let found = pairs(sides, [false, true], &scope(&["D"], &[]), &EveryTable);
        assert_eq!(found.expect("pairs"), ["D.Orders>d.orders"]);
        let sides: [&[&str]; 2] = [&["d.orders"], &["d.orders"]];
        let found = pairs(sides, [true, true], &scope(&[], &["D.Orders"]), &EveryTable);
        assert_eq!(found.expect("pairs"), ["d.orders>d.orders"]);
        // A server folds one letter after another, whatever follows in the word.
        let sides: [&[&str]; 2] = [&["d.ΠΙΝΑΚΑΣ", "d.SİPARİŞ"], &["d.πινακασ", "d.sipariş"]];
        let found = pairs(sides, [false, true], &Scope::default(), &EveryTable);
        let expected = ["d.SİPARİŞ>d.sipariş", "d.ΠΙΝΑΚΑΣ>d.πινακασ"];
        assert_eq!(found.expect("pairs"), expected);
    }

    #[test]
    fn a_name_that_stands_for_nothing_is_refused() {
        let sides: [&[&str]; 2] = [&["d.a"], &["d.a"]];
        for (scope, word) in
            [(scope(&["dd"], &[]), "--schema dd"), (scope(&["d"], &["d.b"]), "--table d.b")]
        {
            let error = pairs(sides, [false; 2], &scope, &EveryTable).expect_err("refused");
            assert!(error.contains(word), "{error}");
        }
    }
}
