//! The definitions of a table's keys on the target. The keys of a row are computed in row_keys.rs.

use std::collections::HashMap;
use std::sync::Arc;

use csa_provider::binlog::TemporalType;

use super::Collation;

/// A table's number in one state of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u32);

/// The keys of a table on the target.
///
/// Only the target's keys decide, because only there can two transactions meet. Definitions are
/// replicated in order, so they match those on the source when the rows were written; a unique
/// index that only the target has is seen too.
#[derive(Debug, Clone, Default)]
pub struct TableKeys {
    /// Columns that row images have: all but those the server hides for its own use.
    pub columns: usize,
    /// The primary key is the first, where there is one.
    pub unique: Vec<UniqueKey>,
    /// There is one, and it has no prefixes of columns.
    pub has_primary: bool,
    /// It has an index of any kind, by which the server may look for a row.
    pub has_index: bool,
    /// It has a unique index with values that are not in row images (functional, multi-valued), or may be wrong
    /// there.
    pub opaque_unique_key: bool,
    pub foreign_keys: Vec<ForeignKey>,
    /// Tables that deleting a row, or changing its key, may reach through CASCADE and SET NULL.
    pub cascades_to: Vec<TableId>,
    /// Other tables that these refer to: a cascade lets go of rows there, or takes hold of them, and no event shows it.
    /// The table itself is one if another refers to it twice.
    pub other_parents: Vec<TableId>,
    /// Columns, as in [`KeyPart::column`], that these tables refer to. InnoDB cascades any change
    /// of their bytes, even to an equal value of the collation, and even without a unique key.
    pub cascading_columns: Vec<usize>,
    /// Parents have a smaller one than their children; `None` in a cycle.
    pub foreign_key_rank: Option<u32>,
    /// The table has a foreign key, or is the parent of one.
    pub has_relations: bool,
    /// The server computes something from a row, here or in a table a change cascades to: checks,
    /// generated columns, indexes of expressions, partitions. The result depends on the session
    /// that writes the row.
    pub computes: bool,
    /// Changes of the table can't be rolled back.
    pub not_transactional: bool,
    /// The server numbers its rows. It also learns the next number from rows that are deleted soon.
    pub has_auto_increment: bool,
}

/// Columns with values that no two rows share, unless one of them is NULL.
#[derive(Debug, Clone, Default)]
pub struct UniqueKey {
    pub parts: Vec<KeyPart>,
}

/// One column of a key.
#[derive(Debug, Clone)]
pub struct KeyPart {
    /// The column, counted from 0 and only among those that row images have.
    pub column: usize,
    pub class: KeyClass,
}

/// How values of a key column are compared.
#[derive(Debug, Clone)]
pub enum KeyClass {
    /// TINYINT to BIGINT.
    Integer,
    Year,
    Float,
    Double,
    Decimal,
    Temporal(TemporalType),
    Enum,
    Set,
    Bit,
    /// CHAR to LONGTEXT and their binary kin; `prefix` in characters (bytes, where binary).
    String {
        collation: Arc<Collation>,
        prefix: Option<usize>,
    },
    /// A type that this version can't hash.
    Unknown,
}

/// A reference to another table's key.
#[derive(Debug, Clone)]
pub struct ForeignKey {
    pub parent: TableId,
    /// The index of the parent's unique key, and this table's columns in its order; `None` if the
    /// reference is not to a unique key.
    pub parent_key: Option<(usize, Vec<KeyPart>)>,
}

/// Ranks tables so that every parent comes before its children. `references` are pairs of child and
/// parent. Tables in a cycle or below one, and those that refer to themselves, have no rank.
#[must_use]
pub fn foreign_key_ranks<T: Eq + std::hash::Hash + Copy>(references: &[(T, T)]) -> HashMap<T, u32> {
    // The number of references of each table to parents that have no rank yet.
    let mut open: HashMap<T, usize> = HashMap::new();
    let mut children: HashMap<T, Vec<T>> = HashMap::new();
    for &(child, parent) in references {
        open.entry(parent).or_default();
        *open.entry(child).or_default() += 1;
        children.entry(parent).or_default().push(child);
    }
    let mut ranks = HashMap::new();
    let is_ready = |(table, open): (&T, &usize)| (*open == 0).then_some(*table);
    let mut ready: Vec<T> = open.iter().filter_map(is_ready).collect();
    for rank in 0.. {
        if ready.is_empty() {
            break;
        }
        let mut next = Vec::new();
        for table in ready {
            ranks.insert(table, rank);
            for child in children.remove(&table).unwrap_or_default() {
                let Some(open) = open.get_mut(&child) else { continue };
                *open -= 1;
                if *open == 0 {
                    next.push(child);
                }
            }
        }
        ready = next;
    }
    ranks
}
