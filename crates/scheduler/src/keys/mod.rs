//! The keys that a row touches: writesets and the net effect of a group are made of them. They are
//! found in `row_keys.rs` (called for each transaction in changes.rs) out of the bytes of `part_bytes.rs`, by the definitions in
//! `table_keys.rs`, which the applier reads from the target (crates/applier/src/server/definitions).

mod collation;
mod hash;
mod part_bytes;
mod row_keys;
mod table_keys;

pub use collation::{Collation, Weights};
pub use hash::{KeyHasher, KeyMap, KeyRole, KeyUse};
pub(crate) use row_keys::{RowEnds, Scratch};
pub use row_keys::{TableLayout, TableUse};
pub use table_keys::{
    ForeignKey, KeyClass, KeyPart, TableId, TableKeys, UniqueKey, foreign_key_ranks,
};

#[cfg(test)]
mod tests;
