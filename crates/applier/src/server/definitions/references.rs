use std::collections::{BTreeSet, HashMap};

use csa_scheduler::keys::foreign_key_ranks;

use super::{TableName, folding};
use crate::error::Result;
use crate::server::session::Session;

/// All foreign keys of the target.
#[derive(Debug, Default)]
pub(super) struct References {
    by_child: HashMap<TableName, Vec<Reference>>,
    ranks: HashMap<TableName, u32>,
    related: BTreeSet<TableName>,
}

/// One foreign key.
#[derive(Debug, Clone)]
pub(super) struct Reference {
    pub(super) name: String,
    pub(super) parent: TableName,
    /// Own column, and the parent's it refers to.
    pub(super) columns: Vec<(String, String)>,
    /// Deleting the parent's row, or changing its key, changes this table's rows.
    pub(super) cascades: bool,
}

type ReferenceRow = (String, String, String, String, String, String, String, String, String);

/// Reads all foreign keys.
pub(super) async fn read(session: &mut Session, folds_case: bool) -> Result<References> {
    let rows: Vec<ReferenceRow> = session
        .rows(
            "SELECT k.TABLE_SCHEMA, k.TABLE_NAME, k.CONSTRAINT_NAME, k.COLUMN_NAME, \
             k.REFERENCED_TABLE_SCHEMA, k.REFERENCED_TABLE_NAME, k.REFERENCED_COLUMN_NAME, \
             r.DELETE_RULE, r.UPDATE_RULE FROM information_schema.KEY_COLUMN_USAGE k \
             JOIN information_schema.REFERENTIAL_CONSTRAINTS r \
             ON r.CONSTRAINT_SCHEMA=k.CONSTRAINT_SCHEMA AND r.CONSTRAINT_NAME=k.CONSTRAINT_NAME \
             AND r.TABLE_NAME=k.TABLE_NAME WHERE k.REFERENCED_TABLE_NAME IS NOT NULL \
             ORDER BY k.TABLE_SCHEMA, k.TABLE_NAME, k.CONSTRAINT_NAME, k.ORDINAL_POSITION",
        )
        .await?;
    let fold = folding(folds_case);
    let mut by_child: HashMap<TableName, Vec<Reference>> = HashMap::new();
    for (schema, table, name, column, to_schema, to_table, to_column, on_delete, on_update) in rows
    {
        let references = by_child.entry((fold(schema), fold(table))).or_default();
        let passive = |rule: &str| matches!(rule, "RESTRICT" | "NO ACTION");
        match references.last_mut() {
            Some(last) if last.name == name => last.columns.push((column, to_column)),
            _ => references.push(Reference {
                name,
                parent: (fold(to_schema), fold(to_table)),
                columns: vec![(column, to_column)],
                cascades: !passive(&on_delete) || !passive(&on_update),
            }),
        }
    }
    Ok(References::new(by_child))
}

impl References {
    fn new(by_child: HashMap<TableName, Vec<Reference>>) -> Self {
        let edges: Vec<(&TableName, &TableName)> = by_child
            .iter()
            .flat_map(|(child, references)| references.iter().map(move |r| (child, &r.parent)))
            .collect();
        let ranks = foreign_key_ranks(&edges);
        let ranks = ranks.into_iter().map(|(table, rank)| (table.clone(), rank)).collect();
        let related = edges.iter().flat_map(|&(child, parent)| [child.clone(), parent.clone()]);
        let related = related.collect();
        Self { ranks, related, by_child }
    }

    /// A table's own foreign keys.
    pub(super) fn of(&self, table: &TableName) -> &[Reference] {
        self.by_child.get(table).map_or(&[], Vec::as_slice)
    }

    pub(super) fn parents_of(&self, table: &TableName) -> Vec<TableName> {
        self.of(table).iter().map(|reference| reference.parent.clone()).collect()
    }

    pub(super) fn has_relations(&self, table: &TableName) -> bool {
        self.related.contains(table)
    }

    /// Returns the rank of a table, by which parents come before children; 0 without relations,
    /// `None` in a cycle.
    pub(super) fn rank(&self, table: &TableName) -> Option<u32> {
        if self.has_relations(table) { self.ranks.get(table).copied() } else { Some(0) }
    }

    /// Returns the columns of this table that cascading references are to.
    pub(super) fn cascading_columns(&self, table: &TableName) -> BTreeSet<&str> {
        let references = self.by_child.values().flatten();
        let cascading = references.filter(|r| r.cascades && r.parent == *table);
        cascading.flat_map(|r| r.columns.iter().map(|(_, theirs)| theirs.as_str())).collect()
    }

    /// Tables whose rows a change of this one's may change too, by CASCADE, SET NULL or SET DEFAULT.
    pub(super) fn cascades_from(&self, table: &TableName) -> BTreeSet<TableName> {
        let mut reached = BTreeSet::new();
        let mut open = vec![table.clone()];
        while let Some(parent) = open.pop() {
            for (child, references) in &self.by_child {
                let cascades = |r: &Reference| r.cascades && r.parent == parent;
                if references.iter().any(cascades) && reached.insert(child.clone()) {
                    open.push(child.clone());
                }
            }
        }
        reached
    }

    /// Returns the tables to which those that a cascade from this one has `reached` refer, except for these themselves.
    pub(super) fn other_parents<'a>(
        &'a self,
        table: &TableName,
        reached: &BTreeSet<TableName>,
    ) -> BTreeSet<&'a TableName> {
        let mut others = BTreeSet::new();
        for child in reached {
            let parents = || self.of(child).iter().map(|reference| &reference.parent);
            // The row that a single reference is to is the one that changes.
            let is_twice = parents().filter(|parent| *parent == table).count() > 1;
            let is_other =
                |parent: &&TableName| !reached.contains(*parent) && (is_twice || *parent != table);
            others.extend(parents().filter(is_other));
        }
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> TableName {
        ("d".to_owned(), name.to_owned())
    }

    fn references(edges: &[(&str, &str, bool)]) -> References {
        let mut by_child: HashMap<TableName, Vec<Reference>> = HashMap::new();
        for &(child, parent, cascades) in edges {
            by_child.entry(table(child)).or_default().push(Reference {
                name: format!("{child}_{parent}"),
                parent: table(parent),
                columns: vec![("p".to_owned(), "id".to_owned())],
                cascades,
            });
        }
        References::new(by_child)
    }

    #[test]
    fn parents_rank_before_children_and_cycles_have_no_rank() {
        let tree = references(&[
            ("b", "a", false),
            ("c", "b", false),
            ("x", "y", false),
            ("y", "x", false),
        ]);
        let ranks = ["a", "b", "c", "x", "lonely"].map(|name| tree.rank(&table(name)));
        assert_eq!(ranks, [Some(0), Some(1), Some(2), None, Some(0)]);
    }

    #[test]
    fn cascades_reach_grandchildren() {
        let tree = references(&[("b", "a", true), ("c", "b", true), ("e", "c", false)]);
        let reached: Vec<_> = tree.cascades_from(&table("a")).into_iter().map(|t| t.1).collect();
        assert_eq!(reached, ["b", "c"]);
        let columns = ["a", "b", "c"].map(|name| tree.cascading_columns(&table(name)).len());
        assert_eq!(columns, [1, 1, 0], "nothing cascades from c");
    }

    #[test]
    fn a_cascade_lets_go_of_the_other_parents_of_the_rows_it_reaches() {
        let tree = references(&[
            ("b", "a", true),
            ("b", "p", false),
            ("c", "b", true),
            ("c", "q", true),
            ("not_reached", "r", true),
            ("twice", "t", true),
            ("twice", "t", false),
            ("loop", "loop", true),
            ("loop", "p", false),
        ]);
        for (name, expected) in [
            ("a", vec!["p", "q"]),
            ("p", vec![]),
            ("q", vec!["b"]),
            ("t", vec!["t"]),
            ("loop", vec!["p"]),
        ] {
            let reached = tree.cascades_from(&table(name));
            let others = tree.other_parents(&table(name), &reached);
            let others: Vec<_> = others.into_iter().map(|table| table.1.as_str()).collect();
            assert_eq!(others, expected, "{name}");
        }
    }
}
