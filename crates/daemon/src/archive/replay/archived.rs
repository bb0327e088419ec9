//! The files of an archive, one after the other.

use csa_provider::binlog::{GtidSet, RawEvent};
use csa_provider::source::{Recording, RecordingError};

use super::FileReader;
use super::choice::{Bisection, gap};
use crate::archive::index::FileIndex;
use crate::archive::store::{Archive, ArchivedHistory};

type Result<T> = std::result::Result<T, RecordingError>;

/// The end of a recording, as far as a target needs to know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Everything at its end, including what lies before it.
    pub(crate) end: GtidSet,
    /// The last commit in it, in RFC 3339; empty if nothing follows the target's transactions.
    pub(crate) last_committed: String,
    pub(crate) server_uuid: String,
    pub(crate) server_version: String,
}

/// An archive as a recording.
#[derive(Debug)]
pub(crate) struct ArchivedStream {
    archive: Archive,
    /// The history that is wanted.
    wanted: Option<String>,
    at: Option<Place>,
}

/// The file that is read.
#[derive(Debug)]
struct Place {
    history: ArchivedHistory,
    /// Its number, or that of the next one if none is open.
    number: u64,
    reader: Option<Box<FileReader>>,
    server: (String, String),
}

impl ArchivedStream {
    pub(super) const fn new(archive: Archive, wanted: Option<String>) -> Self {
        Self { archive, wanted, at: None }
    }

    /// Returns what the archive has for a target that has `received`.
    pub(super) async fn extent(&mut self, received: &GtidSet) -> Result<Extent> {
        let (history, _) = choose(&self.archive, self.wanted.as_deref(), received).await?;
        let numbers = history.objects().await?.numbers;
        let mut extent = Extent::default();
        if let Some(&last) = numbers.last()
            && let Some(index) = history.index(last).await?
        {
            extent.end = index.end();
            extent.server_uuid = index.source_uuid;
            extent.server_version = index.source_version;
            if !extent.end.is_subset_of(received) {
                extent.last_committed = index.last_committed;
            }
        }
        Ok(extent)
    }
}

/// Returns the history whose files follow what the target has: the wanted one, or the newest that suits.
async fn choose(
    archive: &Archive,
    wanted: Option<&str>,
    received: &GtidSet,
) -> Result<(ArchivedHistory, FileIndex)> {
    let names = archive.histories().await?;
    let url = archive.url();
    if names.is_empty() {
        return Err(RecordingError::Final(format!("{url}: there is no archive")));
    }
    let mut refused = None;
    for candidate in names.iter().rev() {
        if wanted.is_some_and(|wanted| wanted != candidate) {
            continue;
        }
        let history = archive.history(candidate);
        match first_file(&history, received).await? {
            Ok(index) => return Ok((history, index)),
            Err(why) => drop(refused.get_or_insert(why)),
        }
    }
    let refused = refused.unwrap_or_else(|| {
        let wanted = wanted.unwrap_or_default();
        format!("{url}: there is no history {wanted}; it has {}", names.join(", "))
    });
    Err(RecordingError::Final(refused))
}

/// Returns the last file of a history that begins with nothing that `received` lacks, or why there is none.
async fn first_file(
    history: &ArchivedHistory,
    received: &GtidSet,
) -> Result<std::result::Result<FileIndex, String>> {
    let numbers = history.objects().await?.numbers;
    let name = format!("{} history {}", history.archive().url(), history.name);
    let mut search = Bisection::new(numbers.len());
    let mut best = None;
    while let Some(at) = search.next() {
        let number = numbers.get(at).copied().unwrap_or_default();
        let index = history.index(number).await?;
        // Retention deletes from the beginning, so one that has vanished was before.
        search.answer(index.as_ref().is_none_or(|index| index.before.is_subset_of(received)));
        best = index.filter(|index| index.before.is_subset_of(received)).or(best);
    }
    if let Some(best) = best {
        return Ok(Ok(best));
    }
    Ok(Err(match numbers.first() {
        None => format!("{name} has no files yet"),
        Some(&first) => match history.index(first).await? {
            Some(index) => gap(&name, &index.file, &index.before.difference(received)),
            None => format!("{name} loses files to archive.keep while it is read"),
        },
    }))
}

impl Recording for ArchivedStream {
    fn name(&self) -> String {
        self.archive.url().to_owned()
    }

    fn server(&self) -> (String, String) {
        self.at.as_ref().map(|place| place.server.clone()).unwrap_or_default()
    }

    async fn open(&mut self, received: &GtidSet) -> Result<()> {
        self.at = None;
        let (history, index) = choose(&self.archive, self.wanted.as_deref(), received).await?;
        let server = (index.source_uuid.clone(), index.source_version.clone());
        let number = index.number;
        let reader = Box::new(FileReader::open(&history, index).await?);
        self.at = Some(Place { history, number, reader: Some(reader), server });
        Ok(())
    }

    async fn next(&mut self) -> Result<Option<RawEvent>> {
        let Some(place) = &mut self.at else { return Ok(None) };
        loop {
            if let Some(reader) = &mut place.reader {
                if let Some(event) = reader.next().await? {
                    return Ok(Some(event));
                }
                place.number += 1;
                place.reader = None;
            }
            let Some(index) = place.history.index(place.number).await? else { return Ok(None) };
            if !index.missing.is_empty() {
                // A target may have them from elsewhere; then it begins after the gap.
                let name = format!("{} history {}", self.archive.url(), place.history.name);
                return Err(RecordingError::Final(gap(&name, &index.file, &index.missing)));
            }
            place.reader = Some(Box::new(FileReader::open(&place.history, index).await?));
        }
    }
}
