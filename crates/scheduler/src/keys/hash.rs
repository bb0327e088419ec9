//! A key as a number, and what a change does to it.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hasher};

use foldhash::fast::FixedState;

use super::TableId;

/// The effect of a row change on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyRole {
    /// The row has it before and after.
    Kept,
    /// The row had it before the change only.
    Removed,
    /// The row has it after the change only.
    Added,
    /// A foreign key refers to it.
    Read,
}

/// A key and its role, in eight bytes.
///
/// Keys that are equal on the target have the same number; different keys may share one, which
/// costs time and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyUse(u64);

impl KeyUse {
    #[must_use]
    pub const fn new(key: u64, role: KeyRole) -> Self {
        Self(key << 2 | role as u64)
    }

    /// The key's number.
    #[must_use]
    pub const fn key(self) -> u64 {
        self.0 >> 2
    }

    #[must_use]
    pub const fn role(self) -> KeyRole {
        match self.0 & 3 {
            0 => KeyRole::Kept,
            1 => KeyRole::Removed,
            2 => KeyRole::Added,
            _ => KeyRole::Read,
        }
    }
}

/// Returns the 62-bit number of `value` in the table's unique key with this index.
pub(super) fn key_number(table: TableId, unique_key: usize, value: &[u8]) -> u64 {
    let mut hasher = FixedState::with_seed(0x6373_612d).build_hasher();
    hasher.write_u64(u64::from(table.0) << 32 | unique_key as u64);
    hasher.write(value);
    // Two bits are left for the role.
    hasher.finish() >> 2
}

/// Passes keys through: they are hashes already.
#[derive(Debug, Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_u64(&mut self, key: u64) {
        // The hash table takes its tag from the upper bits, and keys have 62.
        self.0 = key << 2;
    }
}

/// A map by key number.
pub type KeyMap<V> = HashMap<u64, V, BuildHasherDefault<KeyHasher>>;
