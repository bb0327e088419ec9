//! Global transaction identifiers: one, and sets of them.

mod encoding;
mod owned;
mod set;
mod tag;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use encoding::read_tag;
pub use owned::owned_gtids;
pub use set::{GtidSet, Interval};
pub use tag::{InvalidTag, Tag};
pub use text::ParseGtidError;

use std::fmt;

pub use uuid::Uuid;

/// One transaction's identity: `uuid:gno` or, since MySQL 8.3, `uuid:tag:gno`
/// (<https://dev.mysql.com/doc/refman/en/replication-gtids-concepts.html>).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gtid {
    pub uuid: Uuid,
    pub tag: Tag,
    /// 1 to 2^63 - 2.
    pub gno: u64,
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.uuid)?;
        if !self.tag.is_empty() {
            write!(f, "{}:", self.tag)?;
        }
        self.gno.fmt(f)
    }
}
