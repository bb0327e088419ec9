//! The keys that a row touches: writesets and the net effect of a group are made of them.

mod collation;
mod hash;
mod layout;
mod table_keys;

pub use collation::{Collation, Weights};
pub use hash::{KeyHasher, KeyMap, KeyRole, KeyUse};
pub(crate) use layout::{RowEnds, Scratch};
pub use layout::{TableLayout, TableUse};
pub use table_keys::{
    ForeignKey, KeyClass, KeyPart, TableId, TableKeys, UniqueKey, foreign_key_ranks,
};

#[cfg(test)]
mod tests;
