use std::cmp::Reverse;
use std::sync::Arc;

use csa_provider::binlog::{RowsKind, SessionContext};
use csa_scheduler::changes::{RowChanges, RowsBlock};
use csa_scheduler::keys::{KeyMap, KeyRole, KeyUse};
use csa_scheduler::sequence::Sequence;

use super::late::LateRows;
use super::minimal::MinimalImages;
use super::writer::{EventHead, StatementWriter};
use crate::error::{Error, Invariant, Result};
use crate::options::RowImageColumns;

/// Net changes of rows that touch no common key.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    entries: Vec<Entry<'a>>,
    keys: KeyMap<KeyRows>,
    columns: RowImageColumns,
}

/// A row's change, by its place in its transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChangedRow<'a> {
    pub(super) changes: &'a RowChanges,
    pub(super) block: &'a RowsBlock,
    pub(super) row: usize,
    pub(super) session: RowSession<'a>,
}

/// The session that wrote a row, if what the target computes from the row depends on it.
type RowSession<'a> = Option<&'a Arc<SessionContext>>;

/// The net change of one row.
#[derive(Debug, Clone, Copy)]
struct Entry<'a> {
    block: &'a RowsBlock,
    session: RowSession<'a>,
    net: Net,
    before: &'a [u8],
    after: &'a [u8],
    keys: &'a [KeyUse],
    /// A key's value changed.
    moved: bool,
    /// An update that stands for a delete and a write: every column is the source's afterwards, also one
    /// that the target had changed on its own.
    rewritten: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Net {
    Write,
    Update,
    Delete,
    Nothing,
}

/// The rows that touch a key in the stage.
#[derive(Debug, Clone, Copy, Default)]
struct KeyRows {
    /// Its entry's number plus one.
    writer: u32,
    /// Kinds of the rows that refer to it.
    readers: u8,
}

const READ_BY_WRITE: u8 = 1;
const READ_BY_UPDATE: u8 = 2;
const READ_BY_DELETE: u8 = 4;

/// One row change as it stands in the stream.
#[derive(Debug, Clone, Copy)]
struct StreamRow<'a> {
    block: &'a RowsBlock,
    session: RowSession<'a>,
    before: &'a [u8],
    after: &'a [u8],
    keys: &'a [KeyUse],
    moved: bool,
}

impl<'a> StreamRow<'a> {
    /// Returns `None` if the row does not lie in its event.
    fn of(changed: &ChangedRow<'a>) -> Option<Self> {
        let &ChangedRow { changes, block, row, session } = changed;
        let place = changes.rows.get(row)?;
        let image = |start: u32, end: u32| block.body.get(start as usize..end as usize);
        let keys = changes.keys_of(row);
        let moved = block.kind == RowsKind::Update
            && keys.iter().any(|key| matches!(key.role(), KeyRole::Removed | KeyRole::Added));
        Some(Self {
            block,
            session,
            before: image(place.start, place.middle)?,
            after: image(place.middle, place.end)?,
            keys,
            moved,
        })
    }

    fn net(&self) -> Net {
        match self.block.kind {
            RowsKind::Write => Net::Write,
            RowsKind::Update => Net::Update,
            RowsKind::Delete => Net::Delete,
        }
    }

    const fn as_reader(&self) -> u8 {
        match self.block.kind {
            RowsKind::Write => READ_BY_WRITE,
            RowsKind::Update => READ_BY_UPDATE,
            RowsKind::Delete => READ_BY_DELETE,
        }
    }
}

/// How a row fits into a stage.
enum Fit {
    /// No other row of the stage changes its keys.
    New,
    /// It changes the row of this entry again.
    Same(usize),
    Conflict,
}

impl<'a> Stage<'a> {
    /// Makes an empty stage that writes these `columns`, with memory for `rows`.
    pub(super) fn new(rows: usize, columns: RowImageColumns) -> Self {
        let mut stage = Self { columns, entries: Vec::new(), keys: KeyMap::default() };
        stage.entries.reserve(rows);
        stage.keys.reserve(rows);
        stage
    }

    /// Returns true if it has rows of a table without a primary key.
    pub(super) fn has_keyless_rows(&self) -> bool {
        self.entries.iter().any(|entry| !entry.block.layout.keys.has_primary)
    }

    pub(super) fn clear(&mut self) {
        let used = self.keys.len();
        self.entries.clear();
        self.keys.clear();
        // A map is read and cleared in the time that its memory takes, and the next stage may be as small.
        self.keys.shrink_to(8 * used);
    }

    /// Takes a row's change; returns `false` and takes nothing if it conflicts with the stage.
    ///
    /// # Errors
    /// The row does not lie in its event, so it must not be left out.
    pub(super) fn take(&mut self, changed: &ChangedRow<'a>) -> Result<bool> {
        let Some(row) = StreamRow::of(changed) else {
            return Err(Error::Broken(Invariant::RowLiesInItsEvent));
        };
        Ok(self.add(&row))
    }

    fn add(&mut self, row: &StreamRow<'a>) -> bool {
        let block = row.block;
        // The flags (foreign_key_checks, unique_checks) hold for a whole statement.
        if self.entries.first().is_some_and(|first| first.block.flags != block.flags) {
            return false;
        }
        let entry = match self.fit(row) {
            Fit::New => {
                self.entries.push(Entry {
                    block,
                    session: row.session,
                    net: row.net(),
                    before: row.before,
                    after: row.after,
                    keys: row.keys,
                    moved: row.moved,
                    rewritten: false,
                });
                self.entries.len() - 1
            }
            Fit::Same(entry) => {
                let Some(folded) = self.entries.get(entry).and_then(|entry| fold(entry, row))
                else {
                    return false;
                };
                if let Some(entry) = self.entries.get_mut(entry) {
                    *entry = folded;
                }
                entry
            }
            Fit::Conflict => return false,
        };
        for key in row.keys {
            let holder = self.keys.entry(key.key()).or_default();
            match key.role() {
                KeyRole::Read => holder.readers |= row.as_reader(),
                _ => holder.writer = entry as u32 + 1,
            }
        }
        true
    }

    fn fit(&self, row: &StreamRow<'_>) -> Fit {
        let mut same = None;
        for key in row.keys {
            let Some(holder) = self.keys.get(&key.key()) else { continue };
            let writer = holder.writer.checked_sub(1).map(|entry| entry as usize);
            if key.role() == KeyRole::Read {
                if writer.is_some_and(|entry| !self.may_refer(row, entry)) {
                    return Fit::Conflict;
                }
                continue;
            }
            if !may_touch(key.role(), row, holder.readers) {
                return Fit::Conflict;
            }
            match (writer, same) {
                (None, _) => {}
                (Some(entry), None) => same = Some(entry),
                (Some(entry), Some(other)) if entry == other => {}
                (Some(_), Some(_)) => return Fit::Conflict,
            }
        }
        same.map_or(Fit::New, Fit::Same)
    }

    /// True if a row may refer to a key that the entry touches in the order that the stage is written:
    /// deletes before updates before writes; children first among deletes, parents first among writes.
    fn may_refer(&self, row: &StreamRow<'_>, entry: usize) -> bool {
        let Some(entry) = self.entries.get(entry) else { return false };
        match entry.net {
            Net::Update => !entry.moved,
            Net::Write => row.block.kind == RowsKind::Write,
            Net::Delete | Net::Nothing => false,
        }
    }

    /// Writes the events of the stage: deletes, updates, writes, each table's together.
    ///
    /// In a stage rows have no order but that of their phases, so late ones can be held back. Once
    /// one is, everything after the stage is late; and where tables refer to each other, the phases
    /// must not be torn apart.
    pub(super) fn write(
        &self,
        free: &mut StatementWriter,
        late: &mut LateRows,
        in_the_way: &impl Fn(u64) -> Option<Sequence>,
    ) {
        let earlier = self.earlier_groups(in_the_way);
        if !late.is_empty() {
            let last = earlier.iter().flatten().max().copied().unwrap_or_default();
            write_entries(self.entries.iter(), self.columns, &mut late.rest(last).writer);
            return;
        }
        let entries = || self.entries.iter().zip(&earlier);
        let is_free = entries().filter(|(_, earlier)| earlier.is_none());
        write_entries(is_free.map(|(entry, _)| entry), self.columns, free);
        for near in [false, true] {
            let in_part =
                |earlier: &Option<Sequence>| earlier.is_some_and(|it| late.is_near(it) == near);
            let entries: Vec<_> = entries().filter(|(_, earlier)| in_part(earlier)).collect();
            let Some(last) = entries.iter().filter_map(|(_, earlier)| **earlier).max() else {
                continue;
            };
            let entries = entries.into_iter().map(|(entry, _)| entry);
            write_entries(entries, self.columns, &mut late.part(last).writer);
        }
    }

    /// Returns the last group that each entry has to wait for.
    fn earlier_groups(
        &self,
        in_the_way: &impl Fn(u64) -> Option<Sequence>,
    ) -> Vec<Option<Sequence>> {
        let mut groups = vec![None; self.entries.len()];
        let (mut related, mut last) = (false, None);
        for (&key, holder) in &self.keys {
            let Some(earlier) = in_the_way(key) else { continue };
            last = last.max(Some(earlier));
            if let Some(entry) = holder.writer.checked_sub(1) {
                if let Some(group) = groups.get_mut(entry as usize) {
                    *group = earlier.max(group.unwrap_or_default()).into();
                }
                related |= self.is_related(entry as usize);
            }
            // Which rows refer to the key is not recorded, so all of related tables go with it.
            related |= holder.readers != 0;
        }
        if related {
            for (index, group) in groups.iter_mut().enumerate() {
                if self.is_related(index) {
                    *group = last;
                }
            }
        }
        groups
    }

    fn is_related(&self, entry: usize) -> bool {
        self.entries.get(entry).is_some_and(|entry| entry.block.layout.keys.has_relations)
    }
}

fn write_entries<'a>(
    entries: impl Iterator<Item = &'a Entry<'a>>,
    columns: RowImageColumns,
    writer: &mut StatementWriter,
) {
    let mut buckets: Vec<Bucket<'_>> = Vec::new();
    let mut known: foldhash::HashMap<BucketKey<'_>, usize> = foldhash::HashMap::default();
    let mut sessions: Vec<RowSession<'_>> = vec![None];
    for entry in entries {
        if entry.net == Net::Nothing {
            continue;
        }
        let session = place_of(entry.session, &mut sessions);
        let key = BucketKey::of(entry, session);
        let bucket = *known.entry(key).or_insert_with(|| {
            let phase = phase(entry);
            buckets.push(Bucket { phase, session, first: entry, images: Vec::new() });
            buckets.len() - 1
        });
        if let Some(bucket) = buckets.get_mut(bucket) {
            bucket.images.push((entry.before, entry.after));
        }
    }
    buckets.sort_by_key(|bucket| (bucket.phase, bucket.session));
    for bucket in &buckets {
        let head = bucket.head();
        let is_full =
            columns == RowImageColumns::Full || head.columns.is_some() || bucket.first.rewritten;
        let minimal =
            if is_full { None } else { MinimalImages::of(head.layout, head.kind, &bucket.images) };
        match &minimal {
            Some(minimal) => {
                let head = EventHead { columns: Some(&minimal.columns), ..head };
                writer.rows(&head, &minimal.images());
            }
            None => writer.rows(&head, &bucket.images),
        }
    }
}

/// A session's number in the stage; 0 for none.
fn place_of<'a>(session: RowSession<'a>, sessions: &mut Vec<RowSession<'a>>) -> usize {
    if session.is_none() {
        return 0;
    }
    let known = sessions.iter().position(|known| *known == session);
    known.unwrap_or_else(|| {
        sessions.push(session);
        sessions.len() - 1
    })
}

/// Returns true if a row may touch its key in this way although others in the stage refer to it.
fn may_touch(role: KeyRole, row: &StreamRow<'_>, readers: u8) -> bool {
    match role {
        _ if readers == 0 => true,
        KeyRole::Kept | KeyRole::Read => true,
        KeyRole::Added => false,
        KeyRole::Removed => row.block.kind == RowsKind::Delete && readers == READ_BY_DELETE,
    }
}

/// One change instead of two, where the effect is the same.
///
/// The second must begin with the image that the first ended with, compared byte by byte: two keys may
/// have the same hash.
fn fold<'a>(entry: &Entry<'a>, row: &StreamRow<'a>) -> Option<Entry<'a>> {
    let (first, second) = (entry.block, row.block);
    let alike = std::sync::Arc::ptr_eq(&first.layout, &second.layout)
        // A partial image lacks what the other one has.
        && first.full
        && second.full
        && first.server_id == second.server_id
        && entry.session == row.session;
    if !alike || entry.moved || row.moved {
        return None;
    }
    let continues = entry.after == row.before;
    let folded = Entry { after: row.after, ..*entry };
    let net = match (entry.net, row.block.kind) {
        (Net::Update, RowsKind::Update) if continues => return Some(folded),
        (Net::Write, RowsKind::Update) if continues => return Some(folded),
        // The target must not give the number of a committed row again, should it become a source.
        (Net::Write, RowsKind::Delete) if continues && !first.layout.keys.has_auto_increment => {
            Net::Nothing
        }
        (Net::Update, RowsKind::Delete) if continues => Net::Delete,
        // The images need not be equal here: the update writes all columns of the new one.
        (Net::Delete, RowsKind::Write) if same_keys(entry.keys, row.keys) => Net::Update,
        _ => return None,
    };
    // References were judged by the entry's old kind of change, so a new kind might break them.
    if first.layout.keys.has_relations {
        return None;
    }
    let rewritten = entry.rewritten || (entry.net, net) == (Net::Delete, Net::Update);
    Some(Entry { net, rewritten, ..folded })
}

fn same_keys(removed: &[KeyUse], added: &[KeyUse]) -> bool {
    removed.len() == added.len() && removed.iter().zip(added).all(|(a, b)| a.key() == b.key())
}

/// Returns the place of an entry's events in the stage.
fn phase(entry: &Entry<'_>) -> (u8, Reverse<u32>, u32) {
    let rank = entry.block.layout.keys.foreign_key_rank.unwrap_or_default();
    match entry.net {
        Net::Delete => (0, Reverse(rank), 0),
        Net::Update | Net::Nothing => (1, Reverse(0), 0),
        Net::Write => (2, Reverse(0), rank),
    }
}

/// Rows that can share an event.
#[derive(Debug, PartialEq, Eq, Hash)]
struct BucketKey<'a> {
    layout: usize,
    net: u8,
    rewritten: bool,
    server_id: u32,
    session: usize,
    /// Column bitmaps; empty if the images have all columns.
    columns: &'a [u8],
}

impl<'a> BucketKey<'a> {
    fn of(entry: &Entry<'a>, session: usize) -> Self {
        let block = entry.block;
        Self {
            layout: std::sync::Arc::as_ptr(&block.layout) as usize,
            net: entry.net as u8,
            rewritten: entry.rewritten,
            server_id: block.server_id,
            session,
            columns: if block.full { &[] } else { columns(block) },
        }
    }
}

fn columns(block: &RowsBlock) -> &[u8] {
    let (start, end) = block.columns;
    block.body.get(start as usize..end as usize).unwrap_or_default()
}

#[derive(Debug)]
struct Bucket<'a> {
    phase: (u8, Reverse<u32>, u32),
    session: usize,
    first: &'a Entry<'a>,
    images: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Bucket<'a> {
    /// Returns true if every row ends as it began. Images without all columns don't show it.
    fn is_undone(&self) -> bool {
        let is_update = matches!(self.first.net, Net::Update | Net::Nothing);
        is_update
            && self.first.block.full
            && self.images.iter().all(|(before, after)| before == after)
    }

    fn head(&self) -> EventHead<'a> {
        let block = self.first.block;
        EventHead {
            layout: &block.layout,
            kind: match self.first.net {
                Net::Write => RowsKind::Write,
                Net::Update | Net::Nothing => RowsKind::Update,
                Net::Delete => RowsKind::Delete,
            },
            flags: block.flags,
            server_id: block.server_id,
            timestamp: block.timestamp,
            session: self.first.session,
            columns: (!block.full).then(|| columns(block)),
            is_undone: self.is_undone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_stage_leaves_no_memory_for_a_large_one() {
        let mut stage = Stage::new(100_000, RowImageColumns::Full);
        stage.keys.insert(1, KeyRows::default());
        stage.clear();
        assert!(stage.keys.capacity() < 100);
    }
}
