//! The archive, or a directory of binary logs, in the place of a source.

mod archived;
mod choice;
mod directory;
mod file;

use csa_provider::binlog::{GtidSet, RawEvent};
use csa_provider::source::{Recording, RecordingError};

use super::store::{Archive, ArchiveError, ArchiveLocation};
pub(crate) use archived::{ArchivedStream, Extent};
pub(super) use choice::Bisection;
pub(crate) use directory::DirectoryStream;
pub(crate) use file::FileReader;

/// The place of a recording, from the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordedSource {
    /// The archive of a channel.
    Archive {
        location: ArchiveLocation,
        channel: String,
        /// The name of a history; `None` for the newest that suits the target.
        history: Option<String>,
    },
    /// A directory with binary log files of a server.
    Binlogs(std::path::PathBuf),
}

/// A recording up to the end that it had when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedUpTo {
    pub(crate) source: RecordedSource,
    /// Everything that it has.
    pub(crate) end: GtidSet,
}

impl RecordedSource {
    /// Returns the place for people.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Archive { location, channel, .. } => {
                format!("{}/{channel}", location.url.trim_end_matches('/'))
            }
            Self::Binlogs(directory) => directory.display().to_string(),
        }
    }

    /// Opens the recording.
    ///
    /// # Errors
    /// The place is wrong.
    pub(crate) fn open(&self) -> Result<RecordedStream, ArchiveError> {
        Ok(match self {
            Self::Archive { location, channel, history } => {
                let archive = Archive::open(location, channel)?;
                RecordedStream::Archive(ArchivedStream::new(archive, history.clone()))
            }
            Self::Binlogs(directory) => {
                RecordedStream::Binlogs(DirectoryStream::new(directory.clone()))
            }
        })
    }
}

/// A recording that a channel receives.
#[derive(Debug)]
pub(crate) enum RecordedStream {
    Archive(ArchivedStream),
    Binlogs(DirectoryStream),
}

impl RecordedStream {
    /// Returns what the recording has for a target that has `received`.
    pub(crate) async fn extent(&mut self, received: &GtidSet) -> Result<Extent, RecordingError> {
        match self {
            Self::Archive(stream) => stream.extent(received).await,
            Self::Binlogs(stream) => stream.extent(received).await,
        }
    }
}

impl Recording for RecordedStream {
    fn name(&self) -> String {
        match self {
            Self::Archive(stream) => stream.name(),
            Self::Binlogs(stream) => stream.name(),
        }
    }

    fn server(&self) -> (String, String) {
        match self {
            Self::Archive(stream) => stream.server(),
            Self::Binlogs(stream) => stream.server(),
        }
    }

    async fn open(&mut self, received: &GtidSet) -> Result<(), RecordingError> {
        match self {
            Self::Archive(stream) => stream.open(received).await,
            Self::Binlogs(stream) => stream.open(received).await,
        }
    }

    async fn next(&mut self) -> Result<Option<RawEvent>, RecordingError> {
        match self {
            Self::Archive(stream) => stream.next().await,
            Self::Binlogs(stream) => stream.next().await,
        }
    }
}

impl From<ArchiveError> for RecordingError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Away { .. } => Self::Away(error.to_string()),
            error => Self::Final(error.to_string()),
        }
    }
}
