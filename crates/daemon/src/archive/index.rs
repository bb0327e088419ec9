//! The contents of small objects: what a file holds, where a history began, what a backup needs. Pure.

use csa_provider::binlog::GtidSet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The only format so far; a reader refuses a later one.
pub(crate) const FORMAT: u32 = 1;

/// The form in which a file is stored.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Compression {
    /// As mysqlbinlog reads it.
    #[default]
    None,
    /// Compressed; `csa-daemon archive export` writes plain files.
    Zstd,
}

impl Compression {
    pub(super) const fn extension(self) -> &'static str {
        match self {
            Self::None => "binlog",
            Self::Zstd => "binlog.zst",
        }
    }
}

/// One binary log file of the archive. It exists from the moment at which its index does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileIndex {
    pub(crate) format: u32,
    /// The place in the history, from 1 and without holes. Old files are deleted at its beginning.
    pub(crate) number: u64,
    /// The object's name in the folder of the history.
    pub(crate) file: String,
    pub(crate) compression: Compression,
    /// Bytes of the binary log file, and of the object that holds it.
    pub(crate) bytes: u64,
    pub(crate) stored_bytes: u64,
    /// The digest of the object, in hexadecimal digits.
    pub(crate) sha256: String,
    /// Everything before the file: what the file before it ends with, and `missing`.
    #[serde(with = "gtid_set")]
    pub(crate) before: GtidSet,
    #[serde(with = "gtid_set")]
    pub(crate) added: GtidSet,
    /// Transactions right before the file that the archive lacks.
    #[serde(with = "gtid_set", default, skip_serializing_if = "GtidSet::is_empty")]
    pub(crate) missing: GtidSet,
    pub(crate) transactions: u64,
    /// Commits on the source, in RFC 3339.
    pub(crate) first_committed: String,
    pub(crate) last_committed: String,
    /// The server that wrote the events, as far as it is known.
    pub(crate) source_uuid: String,
    pub(crate) source_version: String,
    /// The daemon that wrote it: the UUID in the channel's folder on its host.
    pub(crate) writer: String,
    pub(crate) written: String,
}

impl FileIndex {
    /// Returns everything up to the end of the file.
    pub(crate) fn end(&self) -> GtidSet {
        let mut end = self.before.clone();
        end.union(&self.added);
        end
    }
}

/// The beginning of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HistoryMark {
    pub(crate) format: u32,
    pub(crate) channel: String,
    /// The name of the history, and of its folder.
    pub(crate) history: String,
    #[serde(with = "gtid_set")]
    pub(crate) begins_after: GtidSet,
    pub(crate) written: String,
    /// The reason the one before it was not continued; empty for the first.
    pub(crate) reason: String,
    /// The names of all histories before it. They outlive them, and tell an archive whose old histories were deleted from
    /// another one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) earlier: Vec<String>,
}

/// A backup that needs every file after its GTID set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pin {
    pub(crate) format: u32,
    #[serde(with = "gtid_set")]
    pub(crate) gtid_set: GtidSet,
    pub(crate) written: String,
}

/// A GTID set as the text that servers show.
mod gtid_set {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        set: &GtidSet,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(set)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<GtidSet, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Finds what is wrong in the order of two files that follow each other; `None` if nothing is.
pub(crate) fn follows(before: &FileIndex, after: &FileIndex) -> Option<String> {
    if after.number != before.number + 1 {
        return Some(format!("file {} follows file {}", after.number, before.number));
    }
    let mut expected = before.end();
    expected.union(&after.missing);
    if after.before != expected {
        let (lost, more) = (expected.difference(&after.before), after.before.difference(&expected));
        return Some(format!(
            "file {} begins after another set than file {} ends with; lost {lost}, added {more}",
            after.number, before.number
        ));
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::archive) fn index(number: u64, before: &str, added: &str) -> FileIndex {
        FileIndex {
            format: FORMAT,
            number,
            file: format!("{number:08}-00000000.binlog"),
            compression: Compression::None,
            bytes: 1,
            stored_bytes: 1,
            sha256: String::new(),
            before: before.parse().expect("a set"),
            added: added.parse().expect("a set"),
            missing: GtidSet::new(),
            transactions: 1,
            first_committed: "2026-11-26T08:00:00Z".to_owned(),
            last_committed: format!("2026-11-26T08:{number:02}:00Z"),
            source_uuid: String::new(),
            source_version: String::new(),
            writer: String::new(),
            written: String::new(),
        }
    }

    /// Returns the mark of a history that begins with the source's first transaction.
    pub(in crate::archive) fn mark(history: &str) -> HistoryMark {
        HistoryMark {
            format: FORMAT,
            channel: "shop".to_owned(),
            history: history.to_owned(),
            begins_after: GtidSet::new(),
            written: String::new(),
            reason: String::new(),
            earlier: Vec::new(),
        }
    }

    const UUID: &str = "07070707-0707-0707-0707-070707070707";

    #[test]
    fn an_index_is_read_as_it_was_written() {
        let index = index(3, &format!("{UUID}:1-9"), &format!("{UUID}:10-12"));
        let text = serde_json::to_string(&index).expect("json");
        assert!(text.contains(&format!("\"added\":\"{UUID}:10-12\"")), "{text}");
        assert!(!text.contains("missing"), "{text}");
        assert_eq!(serde_json::from_str::<FileIndex>(&text).expect("json"), index);
    }

    #[test]
    fn files_follow_each_other_or_say_what_is_missing() {
        let first = index(1, "", &format!("{UUID}:1-9"));
        let second = index(2, &format!("{UUID}:1-9"), &format!("{UUID}:10"));
        assert_eq!(follows(&first, &second), None);
        let hole = index(2, &format!("{UUID}:1-11"), &format!("{UUID}:12"));
        assert!(follows(&first, &hole).is_some_and(|why| why.contains(":10-11")));
        let said = FileIndex { missing: format!("{UUID}:10-11").parse().expect("a set"), ..hole };
        assert_eq!(follows(&first, &said), None);
        assert!(follows(&first, &FileIndex { number: 3, ..second }).is_some());
    }
}
