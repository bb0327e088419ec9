//! The notes of a copy in chunks on the target, by which an interrupted one continues.

use serde::{Deserialize, Serialize};

use csa_applier::{CopyRange, locked_range, moved_range};

use super::rows::Part;
use crate::verify::{KeyRange, RowKey, TableName};

/// The channel, and the turn in which this copy has its ranges.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub(super) channel: String,
    pub(super) epoch: u64,
    /// The channel runs between two rounds, and may have written rows of later chunks.
    pub(super) has_rounds: bool,
    /// Rows of the range are on the target; each chunk deletes them.
    pub(super) deletes: bool,
}

/// The keys that are left of a range, as the target keeps them.
#[derive(Debug, Serialize, Deserialize)]
struct Left {
    after: Option<RowKey>,
    through: Option<RowKey>,
}

/// The statements that make a chunk part of the copy, in the chunk's own transaction.
#[derive(Debug)]
pub(super) struct ChunkNote {
    /// Returns a row, unless another copy has the range or the channel by now, or the channel was started.
    pub(super) lock: String,
    /// `None` in a snapshot: the lock is asked for after the rows, since it locks nothing.
    pub(super) update: Option<String>,
}

impl Turn {
    /// Returns the note for a chunk of so many rows, after which `part` is left; `is_last` if nothing is.
    pub(super) fn note(
        &self,
        table: &TableName,
        part: &Part,
        rows: u64,
        is_last: bool,
    ) -> ChunkNote {
        let mut range = noted(table, part);
        if is_last {
            range.left = None;
        }
        ChunkNote {
            lock: locked_range(&self.channel, &range, self.epoch),
            update: Some(moved_range(&self.channel, &range, rows, self.epoch)),
        }
    }
}

/// Returns a range as the target keeps it.
pub(super) fn noted(table: &TableName, part: &Part) -> CopyRange {
    let KeyRange { after, through } = part.range.clone();
    CopyRange {
        table: table.clone().into(),
        number: part.number,
        left: Some(serde_json::json!(Left { after, through }).to_string()),
        rows: 0,
    }
}

/// Returns what is left of a range; `None` if it is copied, an error if its text can't be read.
pub(super) fn left(range: &CopyRange) -> Result<Option<Part>, serde_json::Error> {
    let Some(text) = &range.left else { return Ok(None) };
    let Left { after, through } = serde_json::from_str(text)?;
    Ok(Some(Part { number: range.number, range: KeyRange { after, through } }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_what_it_was_when_it_is_read_again() {
        let table = TableName { schema: "d".to_owned(), table: "t".to_owned() };
        let key = |text: &str| Some(vec![text.to_owned(), "7".to_owned()]);
        for range in [
            KeyRange::default(),
            KeyRange { after: key("it's \"a\" \\ \u{1F600}"), through: None },
            KeyRange { after: key("\0"), through: key("b") },
        ] {
            let part = Part { number: 3, range };
            assert_eq!(left(&noted(&table, &part)).unwrap(), Some(part));
        }
        let turn = Turn { channel: "shop".to_owned(), epoch: 4, has_rounds: false, deletes: false };
        let note = turn.note(&table, &Part::default(), 10, true);
        let update = note.update.unwrap();
        assert!(update.contains("left_to_copy=NULL") && update.contains("epoch=4"));
    }
}
