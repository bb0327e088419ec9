//! The files of an archive, one after the other.

use csa_provider::binlog::{GtidSet, RawEvent};
use csa_provider::source::{Recording, RecordingError};
use futures_util::stream;
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::FileReader;
use super::choice::{Bisection, gap};
use super::histories::{Candidate, Goal, choose};
use crate::archive::index::{FileIndex, HistoryMark};
use crate::archive::store::{Archive, ArchivedHistory};

type Result<T> = std::result::Result<T, RecordingError>;

/// Requests for indexes at a time: a recording may have tens of thousands.
const REQUESTS: usize = 16;

/// The end of a recording, as far as a target needs to know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Everything at its end, including what lies before it.
    pub(crate) end: GtidSet,
    /// The last commit in it, in RFC 3339; empty if nothing follows the target's transactions.
    pub(crate) last_committed: String,
    pub(crate) server_uuid: String,
    pub(crate) server_version: String,
    /// The first gap after the target's transactions, which nothing can be applied across.
    pub(crate) gap: Option<RecordedGap>,
}

/// A place in a recording where transactions are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedGap {
    /// Everything that comes before it.
    pub(crate) reached: GtidSet,
    pub(crate) missing: GtidSet,
}

/// One history of an archive as a recording.
#[derive(Debug)]
pub(crate) struct ArchivedStream {
    history: ArchivedHistory,
    at: Option<Place>,
}

/// The file that is read.
#[derive(Debug)]
struct Place {
    /// Its number, or that of the next one if none is open.
    number: u64,
    reader: Option<Box<FileReader>>,
    server: (String, String),
}

/// The name of the history to restore from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChosenHistory {
    pub(super) name: String,
    /// It was chosen among several. Later it may be in doubt which one this was.
    pub(super) is_one_of_several: bool,
}

/// Chooses the history for a target that has `received`: the `wanted` one, or the newest unless that is in doubt.
pub(super) async fn choose_history(
    archive: &Archive,
    wanted: Option<&str>,
    received: &GtidSet,
    goal: Goal<'_>,
) -> Result<ChosenHistory> {
    let url = archive.url();
    let marks = archive.marks().await?;
    if marks.is_empty() {
        return Err(RecordingError::Final(format!("{url}: there is no archive")));
    }
    if let Some(wanted) = wanted {
        let names: Vec<_> = marks.iter().map(|(_, mark)| mark.history.as_str()).collect();
        if !names.contains(&wanted) {
            let names = names.join(", ");
            let why = format!("{url}: there is no history {wanted}; it has {names}");
            return Err(RecordingError::Final(why));
        }
        return Ok(ChosenHistory { name: wanted.to_owned(), is_one_of_several: false });
    }
    let mut candidates = Vec::new();
    for (_, mark) in marks {
        candidates.push(candidate(archive, mark, received).await?);
    }
    let chosen = choose(&candidates, received, goal).map_err(RecordingError::Final)?;
    Ok(ChosenHistory { name: chosen.name.clone(), is_one_of_several: candidates.len() > 1 })
}

/// Looks at how far a history goes, and whether it follows what the target has.
async fn candidate(archive: &Archive, mark: HistoryMark, received: &GtidSet) -> Result<Candidate> {
    let HistoryMark { history: name, begins_after, .. } = mark;
    let history = archive.history(&name);
    let numbers = history.objects().await?.numbers;
    let refused = first_file(&history, &numbers, received).await?.err();
    let last = match numbers.last() {
        Some(&last) => history.index(last).await?,
        None => None,
    };
    let end = last.map_or_else(|| begins_after.clone(), |index| index.end());
    Ok(Candidate { name, begins_after, end, refused })
}

impl ArchivedStream {
    pub(super) const fn new(history: ArchivedHistory) -> Self {
        Self { history, at: None }
    }

    /// Returns what the history has for a target that has `received`.
    pub(super) async fn extent(&mut self, received: &GtidSet) -> Result<Extent> {
        let numbers = self.history.objects().await?.numbers;
        let first = first_file(&self.history, &numbers, received).await?;
        let first = first.map_err(RecordingError::Final)?;
        let mut extent =
            Extent { gap: first_gap(&self.history, &numbers, first).await?, ..Extent::default() };
        if let Some(&last) = numbers.last()
            && let Some(index) = self.history.index(last).await?
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

/// Returns the first gap after a file.
async fn first_gap(
    history: &ArchivedHistory,
    numbers: &[u64],
    first: FileIndex,
) -> Result<Option<RecordedGap>> {
    let after = numbers.iter().copied().filter(|&number| number > first.number);
    let indexes = stream::iter(after).map(|number| history.index(number));
    let mut indexes = indexes.buffered(REQUESTS).boxed();
    let mut reached = first.end();
    while let Some(index) = indexes.try_next().await? {
        let Some(index) = index else { continue };
        // Also where an index is not there.
        let missing = index.before.difference(&reached);
        if !missing.is_empty() {
            return Ok(Some(RecordedGap { reached, missing }));
        }
        reached = index.end();
    }
    Ok(None)
}

/// Returns the last file of a history that begins with nothing that `received` lacks, or why there is none.
async fn first_file(
    history: &ArchivedHistory,
    numbers: &[u64],
    received: &GtidSet,
) -> Result<std::result::Result<FileIndex, String>> {
    let name = title(history);
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
        self.history.archive().url().to_owned()
    }

    fn server(&self) -> (String, String) {
        self.at.as_ref().map(|place| place.server.clone()).unwrap_or_default()
    }

    async fn open(&mut self, received: &GtidSet) -> Result<()> {
        self.at = None;
        let numbers = self.history.objects().await?.numbers;
        let first = first_file(&self.history, &numbers, received).await?;
        let index = first.map_err(RecordingError::Final)?;
        let server = (index.source_uuid.clone(), index.source_version.clone());
        let number = index.number;
        let reader = Box::new(FileReader::open(&self.history, index).await?);
        self.at = Some(Place { number, reader: Some(reader), server });
        Ok(())
    }

    async fn next(&mut self) -> Result<Option<RawEvent>> {
        let Some(place) = &mut self.at else { return Ok(None) };
        let history = &self.history;
        loop {
            if let Some(reader) = &mut place.reader {
                if let Some(event) = reader.next().await? {
                    return Ok(Some(event));
                }
                place.number += 1;
                place.reader = None;
            }
            let Some(index) = history.index(place.number).await? else { return Ok(None) };
            if !index.missing.is_empty() {
                // A target may have them from elsewhere; then it begins after the gap.
                return Err(RecordingError::Final(gap(
                    &title(history),
                    &index.file,
                    &index.missing,
                )));
            }
            place.reader = Some(Box::new(FileReader::open(history, index).await?));
        }
    }
}

/// Returns the name of a history for people.
fn title(history: &ArchivedHistory) -> String {
    format!("{} history {}", history.archive().url(), history.name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::archive::index::tests::{index, mark};

    fn text(intervals: &str) -> String {
        match intervals {
            "" => String::new(),
            of => format!("07070707-0707-0707-0707-070707070707:{of}"),
        }
    }

    fn set(intervals: &str) -> GtidSet {
        text(intervals).parse().expect("a set")
    }

    /// Returns the archive of a source that was set back from 6 to 4.
    async fn archive() -> Archive {
        let archive = Archive::over(Arc::new(InMemory::new()), "shop");
        let histories = [
            ("first", "", [("", "1-3"), ("1-3", "4-6")]),
            ("second", "1-4", [("1-4", "5-6"), ("1-6", "7-8")]),
        ];
        for (name, begin, files) in histories {
            let mark = HistoryMark { begins_after: set(begin), ..mark(name) };
            let history = archive.begin(&mark).await.expect("begun");
            for (number, (before, added)) in (1..).zip(files) {
                let file = index(number, &text(before), &text(added));
                history.publish(&file).await.expect("published");
            }
        }
        archive
    }

    #[tokio::test]
    async fn a_history_is_chosen_once_and_read_to_its_end() {
        let archive = archive().await;
        let received = set("1-4");
        let chosen = choose_history(&archive, None, &received, Goal::Everything).await;
        let chosen = chosen.expect("there is no doubt");
        assert_eq!(chosen, ChosenHistory { name: "second".to_owned(), is_one_of_several: true });
        // It stays the same once it has applied something that the other one has, too.
        for (name, end) in [("first", "1-6"), ("second", "1-8")] {
            let mut stream = ArchivedStream::new(archive.history(name));
            let extent = stream.extent(&set("1-5")).await.expect("it follows");
            assert_eq!(extent.end, set(end));
            // Only indexes are here.
            let error = stream.open(&set("1-5")).await.expect_err("no file").to_string();
            assert!(error.contains(&format!("shop/{name}/")), "{error}");
        }
    }

    #[tokio::test]
    async fn the_first_gap_after_the_target_is_known() {
        let history = Archive::over(Arc::new(InMemory::new()), "shop").history("only");
        let files = [("", "1-3", ""), ("1-5", "6", "4-5"), ("1-6", "7", ""), ("1-8", "9", "8")];
        for (number, (before, added, missing)) in (1..).zip(files) {
            let file = index(number, &text(before), &text(added));
            history.publish(&FileIndex { missing: set(missing), ..file }).await.expect("published");
        }
        for (received, gap) in [
            ("", Some(("1-3", "4-5"))),
            ("1-4", Some(("1-3", "4-5"))),
            ("1-5", Some(("1-7", "8"))),
            ("1-8", None),
        ] {
            let mut stream = ArchivedStream::new(history.clone());
            let extent = stream.extent(&set(received)).await.expect("it follows");
            assert_eq!(extent.end, set("1-9"));
            let expected = gap.map(|(reached, missing)| RecordedGap {
                reached: set(reached),
                missing: set(missing),
            });
            assert_eq!(extent.gap, expected, "{received}");
        }
    }

    #[tokio::test]
    async fn a_history_in_doubt_has_to_be_named() {
        let archive = archive().await;
        let received = set("1-5");
        let choose = async |wanted| {
            let chosen = choose_history(&archive, wanted, &received, Goal::Everything).await;
            chosen.map_err(|error| error.to_string())
        };
        let said = choose(None).await.expect_err("in doubt");
        for word in
            ["first (", ":1-6)", "second (", ":5-8)", ":5-6 of", "the target's", "--history"]
        {
            assert!(said.contains(word), "{word}: {said}");
        }
        for name in ["first", "second"] {
            let chosen = choose(Some(name)).await.expect("named");
            assert_eq!(chosen, ChosenHistory { name: name.to_owned(), is_one_of_several: false });
        }
        let said = choose(Some("third")).await.expect_err("there is none");
        assert!(said.contains("no history third; it has first, second"), "{said}");
    }
}
