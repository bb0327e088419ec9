//! The end of an archive: where a channel without a target continues to receive.

use std::path::Path;

use csa_provider::binlog::GtidSet;

use super::marker::MarkerFile;
use super::{ArchiveOptions, ArchiveStatus};
use crate::archive::store::{Archive, HistoryEnd, Result};

/// The end of an archive, and whether it was written from here.
#[derive(Debug)]
pub(crate) struct ArchiveEnd {
    /// Everything up to the end of the last history; `None` for an archive without one.
    pub(crate) archived: Option<GtidSet>,
    /// Everything up to the last file, without that one.
    pub(crate) before_last: GtidSet,
    /// The channel's folder on this host remembers that the archive was written from here.
    pub(crate) is_known_here: bool,
}

/// Looks for the end of the archive of a channel whose state is kept in `directory`.
///
/// # Errors
/// The archive does not answer, is damaged, or is not the one that was written from here.
pub(crate) async fn archive_end(
    options: &ArchiveOptions,
    channel: &str,
    directory: &Path,
    status: &ArchiveStatus,
) -> Result<ArchiveEnd> {
    let archive = Archive::open(&options.location, channel)?;
    // Whoever watches the archive sees that it is away.
    if !status.is_of(archive.url()) {
        status.begins(archive.url(), options.interval);
    }
    let found = find(&archive, &MarkerFile::in_directory(directory)).await;
    found.inspect_err(|error| {
        status.failed(&error.to_string());
    })
}

async fn find(archive: &Archive, marker: &MarkerFile) -> Result<ArchiveEnd> {
    let mut histories = marker.histories(archive).await?;
    let mut end = ArchiveEnd {
        archived: None,
        before_last: GtidSet::new(),
        is_known_here: marker.is_of(archive)?,
    };
    let Some(last) = histories.pop() else { return Ok(end) };
    let HistoryEnd { archived, before_last, .. } = archive.history(&last).end().await?;
    (end.archived, end.before_last) = (Some(archived), before_last);
    Ok(end)
}
