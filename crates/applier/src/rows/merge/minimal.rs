//! Leaves out of row images what the target does not need: a before image keeps the primary key, an after
//! image the columns that changed. Pure.
//!
//! The same as `binlog_row_image=MINIMAL` on the source
//! (<https://dev.mysql.com/doc/refman/en/replication-options-binary-log.html#sysvar_binlog_row_image>), but
//! all rows of an event have the same columns: those that changed in any of them. The target's own binary
//! log does not depend on it: the server reads the rows and logs them by its own `binlog_row_image`.

use std::ops::Range;

use csa_provider::binlog::{RowsKind, Value, scan_image};
use csa_scheduler::keys::TableLayout;

use super::writer::length_encoded;

/// Rows with the columns that they need.
#[derive(Debug)]
pub(super) struct MinimalImages {
    /// The column count and the bitmaps of a rows event.
    pub(super) columns: Vec<u8>,
    bytes: Vec<u8>,
    /// The ends in `bytes` of each before image and each after image.
    ends: Vec<(usize, usize)>,
}

impl MinimalImages {
    /// `None` if nothing can be left out of these full images, or it is not known to be safe: the table has
    /// no primary key, or the target computes something from its rows.
    pub(super) fn of(
        layout: &TableLayout,
        kind: RowsKind,
        images: &[(&[u8], &[u8])],
    ) -> Option<Self> {
        let primary = layout.primary_key()?;
        let width = layout.columns.len();
        let before: Vec<bool> = (0..width).map(|column| primary.contains(&column)).collect();
        let mut scan = Scan::new(layout);
        let after: Vec<bool> = match kind {
            RowsKind::Write => return None,
            RowsKind::Delete => Vec::new(),
            RowsKind::Update => {
                let mut changed = vec![false; width];
                for (before, after) in images {
                    scan.mark_changed(before, after, &mut changed)?;
                }
                // An event has at least one column: repeated changes of a row may have undone each other.
                match changed.contains(&true) {
                    true => changed,
                    false => before.clone(),
                }
            }
        };
        // More than is needed; memory that is not written costs nothing.
        let most = images.iter().map(|(old, new)| old.len() + new.len()).sum();
        let mut minimal = Self {
            columns: [length_encoded(width), bits(&before), bits(&after)].concat(),
            bytes: Vec::with_capacity(most),
            ends: Vec::with_capacity(images.len()),
        };
        for (old, new) in images {
            scan.append(old, &before, &mut minimal.bytes)?;
            let middle = minimal.bytes.len();
            if kind == RowsKind::Update {
                scan.append(new, &after, &mut minimal.bytes)?;
            }
            minimal.ends.push((middle, minimal.bytes.len()));
        }
        Some(minimal)
    }

    /// Returns the before and after image of each row.
    pub(super) fn images(&self) -> Vec<(&[u8], &[u8])> {
        let mut start = 0;
        let image = |range: Range<usize>| self.bytes.get(range).unwrap_or_default();
        let of = |&(middle, end): &(usize, usize)| {
            let row = (image(start..middle), image(middle..end));
            start = end;
            row
        };
        self.ends.iter().map(of).collect()
    }
}

/// Finds the values in full images; keeps its memory between rows.
struct Scan<'a> {
    layout: &'a TableLayout,
    /// Numbers and a bitmap of all columns.
    all: Vec<usize>,
    full: Vec<u8>,
    values: Vec<Value>,
    others: Vec<Value>,
}

impl<'a> Scan<'a> {
    fn new(layout: &'a TableLayout) -> Self {
        let width = layout.columns.len();
        let full = vec![0xff; width.div_ceil(8)];
        Self { layout, all: (0..width).collect(), full, values: Vec::new(), others: Vec::new() }
    }

    /// Sets the columns that differ between a row's images; `None` if an image is malformed.
    fn mark_changed(&mut self, before: &[u8], after: &[u8], changed: &mut [bool]) -> Option<()> {
        let (mut old, mut new) =
            (std::mem::take(&mut self.values), std::mem::take(&mut self.others));
        self.find(before, &mut old)?;
        self.find(after, &mut new)?;
        for ((old, new), changed) in old.iter().zip(&new).zip(changed) {
            *changed |= bytes_of(old, before) != bytes_of(new, after);
        }
        (self.values, self.others) = (old, new);
        Some(())
    }

    /// Appends the image with only these columns.
    fn append(&mut self, image: &[u8], wanted: &[bool], out: &mut Vec<u8>) -> Option<()> {
        let mut values = std::mem::take(&mut self.values);
        self.find(image, &mut values)?;
        let nulls = out.len();
        out.resize(nulls + wanted.iter().filter(|wanted| **wanted).count().div_ceil(8), 0);
        let sent = values.iter().zip(wanted).filter(|(_, wanted)| **wanted);
        for (bit, (value, _)) in sent.enumerate() {
            match bytes_of(value, image) {
                Some(bytes) => out.extend_from_slice(bytes),
                None => *out.get_mut(nulls + bit / 8)? |= 1 << (bit % 8),
            }
        }
        self.values = values;
        Some(())
    }

    fn find(&self, image: &[u8], values: &mut Vec<Value>) -> Option<()> {
        values.clear();
        let take = |_, value| values.push(value);
        let end = scan_image(&self.layout.columns, &self.full, image, &self.all, take).ok()?;
        (end == image.len()).then_some(())
    }
}

/// Returns the bytes of a value with those of its length; `None` for NULL.
fn bytes_of<'a>(value: &Value, image: &'a [u8]) -> Option<&'a [u8]> {
    match value {
        Value::At(place) => image.get(place.clone()),
        Value::Null | Value::Absent => None,
    }
}

fn bits(columns: &[bool]) -> Vec<u8> {
    let byte = |eight: &[bool]| {
        eight.iter().enumerate().fold(0, |byte, (bit, set)| byte | u8::from(*set) << bit)
    };
    columns.chunks(8).map(byte).collect()
}
