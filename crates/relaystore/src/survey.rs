//! What a channel has received, told before its store is opened: without its lock, and without changing
//! anything.

use std::io::ErrorKind;
use std::path::Path;

use csa_provider::GtidSet;

use crate::directory::segment_path;
use crate::error::{Error, Result};
use crate::recovery::{Headers, Scan, holes, read_headers};

/// What a store holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RelaySurvey {
    /// Everything received up to the last whole transaction in it, with what was received or executed
    /// before its first.
    pub received: GtidSet,
    /// Whether it follows on from the target, so that opening it keeps its transactions.
    pub follows: bool,
}

/// Looks at the store in `directory`; `executed` is what the target has. `None` where there is none.
///
/// Blocks on the disk for as long as opening the store does.
///
/// # Errors
/// The disk fails, or a segment is of another version.
pub fn survey(directory: &Path, executed: &GtidSet) -> Result<Option<RelaySurvey>> {
    match look(directory, executed) {
        // There is none yet, or a daemon that runs has just purged what was to be looked at.
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        other => other,
    }
}

fn look(directory: &Path, executed: &GtidSet) -> Result<Option<RelaySurvey>> {
    let Headers { mut segments, .. } = read_headers(directory)?;
    let Some((_, first)) = segments.first_key_value() else { return Ok(None) };
    let follows = first.header.previous.is_subset_of(executed);
    if follows {
        let holes = holes(&segments, executed);
        segments.split_off(&holes);
    }
    let Some((&number, last)) = segments.last_key_value() else { return Ok(None) };
    let scan = Scan::run(&segment_path(directory, number), last)?;
    Ok(Some(RelaySurvey { received: scan.received, follows }))
}
