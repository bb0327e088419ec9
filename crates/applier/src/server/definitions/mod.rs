//! Definitions of the target's tables: keys for the scheduler, columns for rows written as SQL.

mod ahead;
pub(crate) mod catalogue;
mod collations;
mod keys;
mod known;
mod references;
pub(crate) mod table;
pub(crate) mod tables;

/// A table's schema and name. The keys' side has them in lower case if the target ignores case.
pub(crate) type TableName = (String, String);
