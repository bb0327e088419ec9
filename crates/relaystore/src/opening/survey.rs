//! Reports the transactions that a channel has received before its store is opened, without locking
//! or changing it.

use std::io::ErrorKind;

use csa_provider::binlog::GtidSet;

use crate::disk::directory::SegmentFiles;
use crate::disk::error::{Error, Result};
use crate::disk::options::RelayStoreOptions;
use crate::read::recovery::{Headers, Scan, read_headers};
use crate::state::segments::{holes, passed_over, received_before};

/// The contents of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RelaySurvey {
    /// Everything received up to its last whole transaction, including transactions received or
    /// executed before its first.
    pub received: GtidSet,
    /// True if it follows from the target's transactions, so that opening it keeps its own.
    pub follows: bool,
}

/// The transactions of a store, whatever a target or an archive has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RelayContents {
    /// Transactions that it does not have, before its first one and between others.
    pub before: GtidSet,
    /// `before`, and everything up to its last whole transaction.
    pub received: GtidSet,
}

/// Looks at a store; the target has `executed`. `None` if there is none.
///
/// Blocks on the disk for as long as opening the store does.
///
/// # Errors
/// The disk fails, or a segment is of another version.
pub fn survey(options: &RelayStoreOptions, executed: &GtidSet) -> Result<Option<RelaySurvey>> {
    unless_missing(look(&SegmentFiles::of(options), executed))
}

/// Returns the transactions that a closed store has. `None` if there is none, or if it is in parts, of which somebody
/// else has to say which one counts.
///
/// Blocks on the disk for as long as opening the store does.
///
/// # Errors
/// The disk fails, or a segment is of another version.
pub fn contents(options: &RelayStoreOptions) -> Result<Option<RelayContents>> {
    unless_missing(all(&SegmentFiles::of(options)))
}

fn unless_missing<T>(found: Result<Option<T>>) -> Result<Option<T>> {
    match found {
        // There is no store yet, or a running daemon has just purged the segment.
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        other => other,
    }
}

fn all(files: &SegmentFiles) -> Result<Option<RelayContents>> {
    let Headers { segments, .. } = read_headers(files, None)?;
    let Some((&number, last)) = segments.last_key_value() else { return Ok(None) };
    let before = received_before(&segments, number);
    let received = Scan::run(files, number, last, before)?.received;
    Ok(Some(RelayContents { before: passed_over(&segments), received }))
}

fn look(files: &SegmentFiles, executed: &GtidSet) -> Result<Option<RelaySurvey>> {
    let Headers { mut segments, .. } = read_headers(files, Some(executed))?;
    let Some((_, first)) = segments.first_key_value() else { return Ok(None) };
    let follows = first.grown.is_subset_of(executed);
    if follows {
        let holes = holes(&segments, executed);
        segments.split_off(&holes);
    }
    let Some((&number, last)) = segments.last_key_value() else { return Ok(None) };
    let scan = Scan::run(files, number, last, received_before(&segments, number))?;
    Ok(Some(RelaySurvey { received: scan.received, follows }))
}
