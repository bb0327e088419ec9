//! The archive, or a directory of binary logs, in the place of a source.

mod archived;
mod choice;
mod directory;
mod file;
mod histories;

use std::path::PathBuf;

use csa_provider::binlog::{GtidSet, RawEvent};
use csa_provider::source::{Recording, RecordingError};

use super::store::{Archive, ArchiveError, ArchiveLocation};
#[cfg(test)]
pub(crate) use archived::RecordedGap;
use archived::choose_history;
pub(crate) use archived::{ArchivedStream, Extent};
pub(super) use choice::Bisection;
pub(crate) use directory::DirectoryStream;
pub(crate) use file::FileReader;
pub(crate) use histories::Goal;

/// The place of a recording, as the command line or the configuration names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordedPlace {
    /// The archive of a channel.
    Archive {
        location: ArchiveLocation,
        channel: String,
        /// The name of a history; `None` for the newest that suits the target.
        history: Option<String>,
    },
    /// A directory with binary log files of a server.
    Binlogs(PathBuf),
}

/// A recording, which stays the same while it is applied. Chosen again in the middle, another history of an archive could
/// follow a part of the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordedSource {
    /// One history of a channel's archive.
    Archive {
        location: ArchiveLocation,
        channel: String,
        history: String,
    },
    Binlogs(PathBuf),
}

/// The recording that a place has for a target.
#[derive(Debug)]
pub(crate) struct FoundRecording {
    pub(crate) source: RecordedSource,
    /// The history that was chosen among several, which has to be named when an interrupted restore continues.
    pub(crate) one_of_several: Option<String>,
}

/// A recording up to the end that it had when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedUpTo {
    pub(crate) source: RecordedSource,
    /// Everything that it has.
    pub(crate) end: GtidSet,
}

impl RecordedPlace {
    /// Finds the recording for a target that has `received`.
    ///
    /// # Errors
    /// The place is wrong or does not answer, or it is in doubt which history is wanted.
    pub(crate) async fn find(
        self,
        received: &GtidSet,
        goal: Goal<'_>,
    ) -> Result<FoundRecording, RecordingError> {
        let (location, channel, wanted) = match self {
            Self::Archive { location, channel, history } => (location, channel, history),
            Self::Binlogs(directory) => {
                let source = RecordedSource::Binlogs(directory);
                return Ok(FoundRecording { source, one_of_several: None });
            }
        };
        let archive = Archive::open(&location, &channel)?;
        let chosen = choose_history(&archive, wanted.as_deref(), received, goal).await?;
        let history = chosen.name;
        let one_of_several = chosen.is_one_of_several.then(|| history.clone());
        let source = RecordedSource::Archive { location, channel, history };
        Ok(FoundRecording { source, one_of_several })
    }
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
                RecordedStream::Archive(ArchivedStream::new(archive.history(history)))
            }
            Self::Binlogs(directory) => {
                RecordedStream::Binlogs(Box::new(DirectoryStream::new(directory.clone())))
            }
        })
    }
}

/// A recording that a channel receives.
#[derive(Debug)]
pub(crate) enum RecordedStream {
    Archive(ArchivedStream),
    Binlogs(Box<DirectoryStream>),
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
