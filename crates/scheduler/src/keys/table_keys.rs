use std::collections::HashMap;
use std::sync::Arc;

use super::Collation;

/// A table's number in one state of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u32);

/// The keys of a table on the target.
///
/// The target's alone decide: only there can two transactions meet. Definitions are replicated in
/// order, so they are what they were on the source when the rows were written, and a unique index
/// that only the target has is seen too.
#[derive(Debug, Clone, Default)]
pub struct TableKeys {
    /// Columns that row images have: all but those the server hides for its own use.
    pub columns: usize,
    /// The primary key is the first, where there is one.
    pub unique: Vec<UniqueKey>,
    /// A unique index whose values can't be found in row images (functional, multi-valued).
    pub opaque_unique_key: bool,
    pub foreign_keys: Vec<ForeignKey>,
    /// Tables that deleting a row, or changing its key, may reach through CASCADE and SET NULL.
    pub cascades_to: Vec<TableId>,
    /// Columns, as in [`KeyPart::column`], that they refer to. InnoDB cascades any change of their
    /// bytes, also to a value that the collation calls equal, and of columns without a unique key.
    pub cascading_columns: Vec<usize>,
    /// Parents have a smaller one than their children; `None` in a cycle.
    pub foreign_key_rank: Option<u32>,
    /// Whether any foreign key begins or ends here.
    pub has_relations: bool,
    /// The server computes something from a row, here or where a change cascades to: checks, generated
    /// columns, indexes of expressions, partitions. It depends on the session that writes the row.
    pub computes: bool,
    /// Changes of the table can't be rolled back.
    pub not_transactional: bool,
}

/// Columns whose values, if none is NULL, no two rows share.
#[derive(Debug, Clone, Default)]
pub struct UniqueKey {
    pub parts: Vec<KeyPart>,
}

/// One column of a key.
#[derive(Debug, Clone)]
pub struct KeyPart {
    /// From 0, among those that row images have.
    pub column: usize,
    pub class: KeyClass,
}

/// How values of a key column are compared.
#[derive(Debug, Clone)]
pub enum KeyClass {
    Integer,
    Float,
    Double,
    Decimal,
    Temporal,
    Choice,
    Bit,
    /// CHAR to LONGTEXT and their binary kin; `prefix` in characters (bytes, where binary).
    String {
        collation: Arc<Collation>,
        prefix: Option<usize>,
    },
    /// Nothing this version can hash.
    Unknown,
}

/// A reference to another table's key.
#[derive(Debug, Clone)]
pub struct ForeignKey {
    pub parent: TableId,
    /// Which of the parent's unique keys is referred to, with this table's columns in its order;
    /// `None` where it is not one.
    pub parent_key: Option<(usize, Vec<KeyPart>)>,
}

/// Ranks tables so that every parent comes before its children. `references`: child and parent.
/// Tables in a cycle, and those that refer to themselves, have no rank.
#[must_use]
pub fn foreign_key_ranks<T: Eq + std::hash::Hash + Copy>(references: &[(T, T)]) -> HashMap<T, u32> {
    let mut ranks = HashMap::new();
    let mut open: Vec<T> = references.iter().flat_map(|&(child, parent)| [child, parent]).collect();
    let mut rank = 0;
    loop {
        let is_ready = |table: &T| {
            references
                .iter()
                .filter(|(child, _)| child == table)
                .all(|(_, parent)| ranks.contains_key(parent))
        };
        let ready: Vec<T> = open.iter().copied().filter(is_ready).collect();
        if ready.is_empty() {
            return ranks;
        }
        open.retain(|table| !ready.contains(table));
        ranks.extend(ready.into_iter().map(|table| (table, rank)));
        rank += 1;
    }
}
