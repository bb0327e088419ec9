//! Segments that are in memory only, on their way to a file after all.

use bytes::Bytes;
use csa_provider::binlog::GtidSet;
use csa_provider::seams::planted::{Bug, is_planted};

use crate::disk::directory::Directory;
use crate::disk::error::{Result, io};
use crate::disk::fs::{StoredFile, is_full};
use crate::state::shared::StoreState;

/// A segment without a file.
#[derive(Debug)]
pub(super) struct UnwrittenSegment {
    pub(super) number: u64,
    header: Vec<u8>,
    /// All of its frames, in order.
    runs: Vec<Bytes>,
}

/// Returns all segments without a file, in order.
pub(super) fn unwritten(state: &StoreState) -> Vec<UnwrittenSegment> {
    let mut previous = GtidSet::new();
    let mut found = Vec::new();
    for (&number, segment) in &state.segments {
        previous.union(&segment.grown);
        if segment.unwritten.is_some() {
            let header = segment.header.encode(&previous);
            found.push(UnwrittenSegment { number, header, runs: state.tail.runs_of(number) });
        }
    }
    found
}

impl UnwrittenSegment {
    /// Returns the bytes of its frames.
    pub(super) fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.len() as u64).sum()
    }

    /// Writes it to a file, and syncs that unless it is the last segment: recovery scans only the last one. `None`, with no
    /// file left, if the disk is full.
    pub(super) fn write(
        &self,
        directory: &Directory,
        is_last: bool,
    ) -> Result<Option<Box<dyn StoredFile>>> {
        let path = directory.path(self.number);
        let file = match directory.create(self.number, &self.header) {
            Err(error) if is_full(&error) => return Ok(None),
            created => created.map_err(io("creating", &path))?,
        };
        let mut at = self.header.len() as u64;
        for run in self.runs.iter().filter(|_| !is_planted(Bug::UnwrittenForgotten)) {
            if let Err(error) = file.write_all_at(run, at) {
                // Nothing of it counts, so that it is written again, or received again.
                directory.remove(self.number)?;
                return if is_full(&error) { Ok(None) } else { Err(io("writing", &path)(error)) };
            }
            at += run.len() as u64;
        }
        if !is_last && let Err(failed) = file.sync_from(0) {
            // Or the next one to open the file would take it for durable.
            directory.remove(self.number)?;
            return Err(io("syncing", &path)(failed.error));
        }
        directory.sync()?;
        Ok(Some(file))
    }
}
