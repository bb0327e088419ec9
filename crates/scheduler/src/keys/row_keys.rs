//! Computes the keys of a row for its writeset: reads the key columns out of its images, and makes of each
//! key a number (`key_number`, hash.rs) with its role beside it.

use std::sync::Arc;

use csa_provider::binlog::{Column, EventError, RowsEvent, RowsKind, TableMap, Value, scan_image};
use csa_provider::seams::planted::{Bug, is_planted};

use super::hash::key_number;
use super::part_bytes::PartBytes;
use super::{KeyPart, KeyRole, KeyUse, TableId, TableKeys};

/// How much of a table a change touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TableUse {
    /// Rows that its keys identify.
    Rows(TableId),
    /// Anything in it.
    Whole(TableId),
}

/// A table's row images joined with its keys: everything needed to find the keys of a row.
#[derive(Debug)]
pub struct TableLayout {
    pub id: TableId,
    pub keys: Arc<TableKeys>,
    /// Body of the source's table map, without the table id.
    pub table_map: Box<[u8]>,
    pub columns: Vec<Column>,
    /// The target's row depends on the session: the target computes something from the row, or
    /// fills columns that images lack.
    pub by_session: bool,
    /// Every row change counts as one of the whole table: images don't show its keys.
    whole: bool,
    /// Key columns to look for in images, in ascending order.
    wanted: Vec<usize>,
    unique: Vec<Vec<WantedKeyPart>>,
    foreign: Vec<Foreign>,
    /// Places in `wanted` of columns with changes that cascade.
    cascading: Vec<usize>,
}

#[derive(Debug)]
struct WantedKeyPart {
    /// Place in `wanted`.
    place: usize,
    /// The bytes of the length before the value.
    length_bytes: usize,
    bytes: PartBytes,
}

#[derive(Debug)]
struct Foreign {
    parent: TableId,
    /// The parent's unique key and the parts in its order.
    key: Option<(usize, Vec<WantedKeyPart>)>,
}

/// The places of the key columns in one row's images; kept between rows to save allocations.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    before: Vec<Value>,
    after: Vec<Value>,
    value: Vec<u8>,
    other: Vec<u8>,
}

/// Ends of a row's images in the bytes that were scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowEnds {
    /// End of the before image, 0 where there is none.
    pub(crate) before: usize,
    pub(crate) row: usize,
    /// Its keys identify all it may touch: its order among rows with other keys does not matter.
    pub(crate) keyed: bool,
}

enum Found {
    Key,
    /// A part is NULL: no other row can be equal.
    Null,
    /// The image lacks a part.
    Absent,
    Unknown,
}

impl TableLayout {
    /// Joins the source's table map with the target's keys; without keys (the table does not exist)
    /// every change counts as one of the whole table.
    pub(crate) fn new(
        id: TableId,
        keys: Option<Arc<TableKeys>>,
        map: &TableMap<'_>,
        body: &[u8],
    ) -> Result<Self, EventError> {
        let columns = map.columns()?;
        let known = keys.is_some();
        let keys = keys.unwrap_or_default();
        let mut layout = Self {
            id,
            by_session: known && (keys.computes || keys.columns != columns.len()),
            // Keys name columns by place, which means nothing where the numbers of columns differ.
            whole: !known || keys.columns != columns.len() || keys.opaque_unique_key,
            keys: Arc::clone(&keys),
            table_map: body.get(TableMap::ID_LEN..).unwrap_or_default().into(),
            columns,
            wanted: Vec::new(),
            unique: Vec::new(),
            foreign: Vec::new(),
            cascading: Vec::new(),
        };
        layout.resolve(&keys);
        Ok(layout)
    }

    /// Returns the columns of the primary key, if rows can be found by it alone and the target computes nothing
    /// from them.
    #[must_use]
    pub fn primary_key(&self) -> Option<Vec<usize>> {
        if !self.keys.has_primary || self.whole || self.by_session {
            return None;
        }
        let primary = self.keys.unique.first()?;
        Some(primary.parts.iter().map(|part| part.column).collect())
    }

    fn resolve(&mut self, keys: &TableKeys) {
        let foreign = |key: &super::ForeignKey| key.parent_key.clone().map(|key| key.1);
        let referring = keys.foreign_keys.iter().filter_map(foreign).flatten();
        let parts = keys.unique.iter().flat_map(|key| key.parts.iter().cloned()).chain(referring);
        let cascading = keys.cascading_columns.iter().copied();
        self.wanted = parts.map(|part| part.column).chain(cascading.clone()).collect();
        // In the order in which images are scanned; places are found by binary search.
        self.wanted.sort_unstable();
        self.wanted.dedup();
        self.cascading = cascading.filter_map(|c| self.wanted.binary_search(&c).ok()).collect();
        let counted = if is_planted(Bug::OtherUniqueKeysIgnored) { 1 } else { usize::MAX };
        for key in keys.unique.iter().take(counted) {
            match self.parts(&key.parts) {
                Some(parts) => self.unique.push(parts),
                None => self.whole = true,
            }
        }
        // Without a unique key the server finds a row by its values, and may take any equal row.
        self.whole |= self.unique.is_empty();
        if is_planted(Bug::ForeignKeysIgnored) {
            return;
        }
        for key in &keys.foreign_keys {
            let resolved = key.parent_key.as_ref();
            let resolved = resolved.and_then(|(key, parts)| Some((*key, self.parts(parts)?)));
            self.foreign.push(Foreign { parent: key.parent, key: resolved });
        }
    }

    fn parts(&self, parts: &[KeyPart]) -> Option<Vec<WantedKeyPart>> {
        parts.iter().map(|part| self.part(part)).collect()
    }

    fn part(&self, part: &KeyPart) -> Option<WantedKeyPart> {
        let column = self.columns.get(part.column)?;
        Some(WantedKeyPart {
            place: self.wanted.binary_search(&part.column).ok()?,
            length_bytes: column.column_type.prefix_len(),
            bytes: PartBytes::of(&part.class, column)?,
        })
    }

    /// Finds the ends of the row at the start of `bytes`, and the keys and tables it touches.
    pub(crate) fn read_row(
        &self,
        event: &RowsEvent<'_>,
        bytes: &[u8],
        scratch: &mut Scratch,
        keys: &mut Vec<KeyUse>,
        tables: &mut Vec<TableUse>,
    ) -> Result<RowEnds, EventError> {
        let wanted: &[usize] = if self.whole { &[] } else { &self.wanted };
        let Scratch { before, after, value, other } = scratch;
        before.clear();
        after.clear();
        let mut ends = RowEnds { before: 0, row: 0, keyed: false };
        if event.kind != RowsKind::Write {
            let found = |_, value| before.push(value);
            ends.before = scan_image(&self.columns, event.before, bytes, wanted, found)?;
            ends.row = ends.before;
        }
        if event.kind != RowsKind::Delete {
            let rest = bytes.get(ends.before..).unwrap_or_default();
            let found = |_, value| {
                // Ranges count from the start of the row, not of the second image.
                after.push(match value {
                    Value::At(range) => {
                        Value::At(range.start + ends.before..range.end + ends.before)
                    }
                    other => other,
                });
            };
            let len = scan_image(&self.columns, event.after, rest, wanted, found)?;
            ends.row = ends.before + len;
        }
        let images = Images { kind: event.kind, bytes, before, after };
        ends.keyed = self.touch(&images, [value, other], keys, tables);
        Ok(ends)
    }

    fn touch(
        &self,
        images: &Images<'_>,
        [value, other]: [&mut Vec<u8>; 2],
        keys: &mut Vec<KeyUse>,
        tables: &mut Vec<TableUse>,
    ) -> bool {
        let first = keys.len();
        let mut whole = self.whole;
        // Cascades follow a deleted row and a changed key.
        let mut moved = images.kind == RowsKind::Delete;
        if !whole {
            for (index, parts) in self.unique.iter().enumerate() {
                let before = images.find(images.before, parts, value);
                let after = images.find(images.after, parts, other);
                let number = |value: &[u8]| key_number(self.id, index, value);
                let rewritten = self.is_rewritten(images, parts, value, other);
                let change = KeyChange { kind: images.kind, before, after, rewritten };
                whole |= !push(change, number, [value, other], keys, &mut moved);
            }
            whole |= !identify_every_image(images.kind, keys.iter().skip(first));
            moved |= images.kind == RowsKind::Update
                && self.cascading.iter().any(|&place| images.changes(place));
        }
        if whole {
            keys.truncate(first);
        }
        // Without a rank no order of tables puts every parent before its children.
        let mut keyed = !whole && self.keys.foreign_key_rank.is_some();
        for foreign in &self.foreign {
            let read = match &foreign.key {
                Some((key, parts)) if !self.whole => {
                    let number = |value: &[u8]| key_number(foreign.parent, *key, value);
                    images.read(parts, number, value, keys)
                }
                _ => false,
            };
            keyed &= read;
            tables.push(if read {
                TableUse::Rows(foreign.parent)
            } else {
                TableUse::Whole(foreign.parent)
            });
        }
        // Rows that a cascade changes are in no image: their keys are unknown.
        if (moved || whole) && images.kind != RowsKind::Write {
            keyed &= self.keys.cascades_to.is_empty();
            // Two deletes in this table meet in the tables that they reach.
            let others = self.keys.other_parents.iter();
            let others = others.filter(|&&id| id != self.id || images.kind != RowsKind::Delete);
            let reached = self.keys.cascades_to.iter().chain(others);
            tables.extend(reached.map(|&table| TableUse::Whole(table)));
        }
        tables.push(if whole { TableUse::Whole(self.id) } else { TableUse::Rows(self.id) });
        keyed
    }

    /// Returns true if an update puts an equal value of other bytes in the place of a key, as 'DE' in the place of 'de'.
    /// InnoDB compares bytes (`row_upd_changes_first_fields_binary`): while rows refer to the key, it refuses that
    /// update as it does any other change of the key. Nothing refers to a table without relations.
    fn is_rewritten(
        &self,
        images: &Images<'_>,
        parts: &[WantedKeyPart],
        value: &[u8],
        other: &[u8],
    ) -> bool {
        self.keys.has_relations
            && images.kind == RowsKind::Update
            && value == other
            && parts.iter().any(|part| images.changes(part.place))
    }
}

/// Returns true if each image of a row change has one of its keys. The server finds an image without any, where every
/// unique key has a NULL, by its values: another change may have left it, and shares no key with this one.
fn identify_every_image<'a>(
    kind: RowsKind,
    keys: impl Iterator<Item = &'a KeyUse> + Clone,
) -> bool {
    let has = |role| keys.clone().any(|key| key.role() == role || key.role() == KeyRole::Kept);
    (kind == RowsKind::Write || has(KeyRole::Removed))
        && (kind == RowsKind::Delete || has(KeyRole::Added))
}

/// The change of one unique key, except for its values.
struct KeyChange {
    kind: RowsKind,
    before: Found,
    after: Found,
    /// See [`TableLayout::is_rewritten`].
    rewritten: bool,
}

/// Adds the effect of a change on one unique key; `false` if it is unknown.
fn push(
    change: KeyChange,
    number: impl Fn(&[u8]) -> u64,
    [value, other]: [&[u8]; 2],
    keys: &mut Vec<KeyUse>,
    moved: &mut bool,
) -> bool {
    let removed = |keys: &mut Vec<KeyUse>| keys.push(KeyUse::new(number(value), KeyRole::Removed));
    let added = |keys: &mut Vec<KeyUse>| keys.push(KeyUse::new(number(other), KeyRole::Added));
    match (change.kind, change.before, change.after) {
        (_, Found::Unknown, _) | (_, _, Found::Unknown) => return false,
        (RowsKind::Write, _, Found::Key) => added(keys),
        (RowsKind::Delete, Found::Key, _) => removed(keys),
        (RowsKind::Write, _, Found::Null) | (RowsKind::Delete, Found::Null, _) => {}
        // The target fills in a default that is not known here, or the image lacks the old value.
        (RowsKind::Write, _, Found::Absent) | (RowsKind::Delete, Found::Absent, _) => return false,
        (RowsKind::Update, Found::Key, Found::Key) if change.rewritten => {
            removed(keys);
            added(keys);
        }
        (RowsKind::Update, Found::Key, Found::Key) if value == other => {
            keys.push(KeyUse::new(number(value), KeyRole::Kept));
        }
        // A partial image leaves out unchanged columns.
        (RowsKind::Update, Found::Key, Found::Absent) => {
            keys.push(KeyUse::new(number(value), KeyRole::Kept));
        }
        // With binlog_row_image=MINIMAL both images leave out a key that did not change.
        (RowsKind::Update, Found::Absent, Found::Absent)
        | (RowsKind::Update, Found::Null, Found::Null | Found::Absent) => {}
        (RowsKind::Update, Found::Absent, _) => return false,
        (RowsKind::Update, before, after) => {
            *moved = true;
            if matches!(before, Found::Key) {
                removed(keys);
            }
            if matches!(after, Found::Key) {
                added(keys);
            }
        }
    }
    true
}

/// One row change's images, scanned.
struct Images<'a> {
    kind: RowsKind,
    bytes: &'a [u8],
    before: &'a [Value],
    after: &'a [Value],
}

impl Images<'_> {
    /// Puts the bytes of a key that count in a comparison into `out`.
    fn find(&self, image: &[Value], parts: &[WantedKeyPart], out: &mut Vec<u8>) -> Found {
        out.clear();
        let (mut absent, mut present) = (false, false);
        for part in parts {
            match image.get(part.place) {
                None | Some(Value::Absent) => absent = true,
                Some(Value::Null) => return Found::Null,
                Some(Value::At(range)) => {
                    present = true;
                    let value = self.bytes.get(range.clone()).unwrap_or_default();
                    let value = value.get(part.length_bytes..).unwrap_or_default();
                    if !part.bytes.append(value, out) {
                        return Found::Unknown;
                    }
                }
            }
        }
        // Some parts changed and some are left out: a key needs all of its parts.
        match (absent, present) {
            (true, true) => Found::Unknown,
            (true, false) => Found::Absent,
            (false, _) => Found::Key,
        }
    }

    /// Returns true if an update may change the bytes of the column at this place.
    fn changes(&self, place: usize) -> bool {
        let bytes = |range: &std::ops::Range<usize>| self.bytes.get(range.clone());
        match (self.before.get(place), self.after.get(place)) {
            // A partial image leaves out unchanged columns.
            (_, None | Some(Value::Absent)) => false,
            (Some(Value::At(before)), Some(Value::At(after))) => bytes(before) != bytes(after),
            (Some(Value::Null), Some(Value::Null)) => false,
            _ => true,
        }
    }

    /// Adds the parent's keys that the images refer to; `false` if they are unknown.
    fn read(
        &self,
        parts: &[WantedKeyPart],
        number: impl Fn(&[u8]) -> u64,
        value: &mut Vec<u8>,
        keys: &mut Vec<KeyUse>,
    ) -> bool {
        let mut last = None;
        let mut left_out = false;
        for image in [self.before, self.after].into_iter().filter(|image| !image.is_empty()) {
            match self.find(image, parts, value) {
                // Partial images leave out unchanged columns, in both images or in the second.
                Found::Absent if self.kind == RowsKind::Update => left_out = true,
                Found::Absent | Found::Unknown => return false,
                // The parent that the row referred to before is unknown.
                Found::Key | Found::Null if left_out => return false,
                Found::Key => {
                    let key = number(value);
                    if last != Some(key) {
                        keys.push(KeyUse::new(key, KeyRole::Read));
                    }
                    last = Some(key);
                }
                Found::Null => {}
            }
        }
        true
    }
}
