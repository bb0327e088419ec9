//! A directory of ordinary binary log files as a recording.

use std::path::{Path, PathBuf};

use csa_provider::binlog::file::{BinlogFileError, BinlogFileParser, FileEvent, MAGIC};
use csa_provider::binlog::{GtidSet, RawEvent};
use csa_provider::seams::rfc3339;
use csa_provider::source::{Placement, RecordingError, TransactionAssembler};
use tokio::fs::{self, File};
use tokio::io::AsyncReadExt as _;

use super::archived::Extent;
use super::choice::{Bisection, gap};
use super::file::as_event;

type Result<T> = std::result::Result<T, RecordingError>;

/// Bytes that are read at once; the first ones are enough for what lies before a file.
const CHUNK: usize = 1 << 20;
const FIRST_CHUNK: usize = 32 << 10;

/// The binary logs of one server in a directory, in the order of their numbers.
#[derive(Debug)]
pub(crate) struct DirectoryStream {
    directory: PathBuf,
    files: Vec<PathBuf>,
    /// The place in `files` of the file that is read.
    at: usize,
    reader: Option<PlainFile>,
    assembler: TransactionAssembler,
    /// The target's transactions, and everything that was read as a whole.
    reached: GtidSet,
    version: String,
}

/// One file, read a piece at a time.
#[derive(Debug)]
struct PlainFile {
    path: PathBuf,
    file: File,
    parser: BinlogFileParser,
    chunk: usize,
}

impl DirectoryStream {
    pub(super) const fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            files: Vec::new(),
            at: 0,
            reader: None,
            assembler: TransactionAssembler::new(),
            reached: GtidSet::new(),
            version: String::new(),
        }
    }

    /// Reads the last files for the end of the recording, and for its last commit.
    pub(super) async fn extent(&mut self, received: &GtidSet) -> Result<Extent> {
        self.open(received).await?;
        let mut extent = Extent { server_version: self.version.clone(), ..Extent::default() };
        for (place, path) in self.files.iter().rev().enumerate() {
            let (end, committed) = end_of(path).await?;
            if place == 0 {
                extent.end = end;
            }
            // A file that was just begun has no transaction.
            if let Some(committed) = committed {
                extent.last_committed = rfc3339(committed);
                break;
            }
        }
        if extent.end.is_subset_of(received) {
            extent.last_committed.clear();
        }
        Ok(extent)
    }

    /// Returns the regular files that begin as a binary log does.
    async fn list(&self) -> Result<Vec<PathBuf>> {
        let of = |error| wrong(&self.directory, error);
        let mut files = Vec::new();
        let mut entries = fs::read_dir(&self.directory).await.map_err(of)?;
        while let Some(entry) = entries.next_entry().await.map_err(of)? {
            let path = entry.path();
            let is_file = fs::metadata(&path).await.is_ok_and(|facts| facts.is_file());
            // Also an encrypted one, which is refused by name when it is read.
            if is_file && begins(&path).await.is_ok_and(|magic| magic.ends_with(&MAGIC[1..])) {
                files.push(path);
            }
        }
        files.sort_by_cached_key(|path| place(path));
        Ok(files)
    }

    async fn open_at(&mut self, at: usize) -> Result<()> {
        self.at = at;
        self.reader = match self.files.get(at) {
            Some(path) => Some(PlainFile::open(path).await?),
            None => None,
        };
        Ok(())
    }
}

/// Returns everything up to the end of a file, and when its last transaction was committed. One that is not whole does
/// not count: the server ended while it wrote it, or the file is not yet copied as a whole.
async fn end_of(path: &Path) -> Result<(GtidSet, Option<u64>)> {
    let mut reader = PlainFile::open(path).await?;
    let mut assembler = TransactionAssembler::new();
    let (mut end, mut open, mut committed) = (GtidSet::new(), None, None);
    while let Some(event) = reader.next().await? {
        let event = match event {
            FileEvent::Previous(before) => {
                end = before;
                continue;
            }
            FileEvent::Format(_) => continue,
            FileEvent::Event(event) => event,
        };
        match assembler.place(&event) {
            Ok(Placement::Begin(header)) => open = Some(header),
            Ok(Placement::End) => {
                if let Some(header) = open.take() {
                    committed = Some(header.immediate_commit_timestamp);
                    end.add(&header.gtid);
                }
            }
            Ok(_) => {}
            // Reception will refuse it, and says why.
            Err(_) => assembler.reset(),
        }
    }
    Ok((end, committed))
}

impl DirectoryStream {
    pub(super) fn name(&self) -> String {
        self.directory.display().to_string()
    }

    pub(super) fn server(&self) -> (String, String) {
        (String::new(), self.version.clone())
    }

    /// Goes to the last file that begins with nothing that `received` lacks.
    pub(super) async fn open(&mut self, received: &GtidSet) -> Result<()> {
        self.files = self.list().await?;
        let name = self.name();
        let Some(first) = self.files.first() else {
            return Err(RecordingError::Final(format!("{name}: there is no binary log")));
        };
        let mut heads = Vec::new();
        for path in &self.files {
            heads.push(head(path).await?);
        }
        let mut search = Bisection::new(heads.len());
        while let Some(at) = search.next() {
            search.answer(heads.get(at).is_some_and(|(before, _)| before.is_subset_of(received)));
        }
        let Some(at) = search.last() else {
            let missing = heads.first().map(|(before, _)| before.difference(received));
            let first = first.display().to_string();
            return Err(RecordingError::Final(gap(&name, &first, &missing.unwrap_or_default())));
        };
        self.version = heads.get(at).map(|(_, version)| version.clone()).unwrap_or_default();
        self.reached.clone_from(received);
        self.assembler.reset();
        self.open_at(at).await
    }

    /// Returns the next event.
    pub(super) async fn next(&mut self) -> Result<Option<RawEvent>> {
        loop {
            let Some(reader) = &mut self.reader else { return Ok(None) };
            match reader.next().await? {
                Some(FileEvent::Event(event)) => {
                    self.note(&event);
                    return Ok(Some(event));
                }
                Some(FileEvent::Format(format)) => return Ok(Some(as_event(&format))),
                // A file in between may have been deleted.
                Some(FileEvent::Previous(before)) => {
                    let missing = before.difference(&self.reached);
                    if !missing.is_empty() {
                        let file = reader.path.display().to_string();
                        return Err(RecordingError::Final(gap(&self.name(), &file, &missing)));
                    }
                }
                None => {
                    let is_last = self.at + 1 >= self.files.len();
                    // The last file may have been copied while the server wrote it.
                    if is_last {
                        return Ok(None);
                    }
                    reader.finish()?;
                    if let Some(gtid) = self.assembler.in_transaction() {
                        return Err(RecordingError::Final(format!(
                            "{}: it ends within transaction {gtid}, and there are later files; copy it again from its server",
                            reader.path.display()
                        )));
                    }
                    self.open_at(self.at + 1).await?;
                }
            }
        }
    }

    /// Counts a transaction as reached with its last event. A wrong event is left to reception, which says why, unless the
    /// transaction was reached before.
    fn note(&mut self, event: &RawEvent) {
        let open = self.assembler.in_transaction().cloned();
        match (self.assembler.place(event), open) {
            (Ok(Placement::Begin(header)), _) if self.reached.contains(&header.gtid) => {
                self.assembler.leave_out();
            }
            (Ok(Placement::End), Some(gtid)) => {
                self.reached.add(&gtid);
            }
            _ => {}
        }
    }
}

impl PlainFile {
    async fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).await.map_err(|error| wrong(path, error))?;
        let parser = BinlogFileParser::new();
        Ok(Self { path: path.to_owned(), file, parser, chunk: FIRST_CHUNK })
    }

    async fn next(&mut self) -> Result<Option<FileEvent>> {
        let mut chunk = Vec::new();
        loop {
            let event = self.parser.next_event().map_err(|error| damaged(&self.path, &error))?;
            if event.is_some() {
                return Ok(event);
            }
            chunk.resize(std::mem::replace(&mut self.chunk, CHUNK), 0);
            let read =
                self.file.read(&mut chunk).await.map_err(|error| wrong(&self.path, error))?;
            if read == 0 {
                return Ok(None);
            }
            self.parser.feed(chunk.get(..read).unwrap_or_default());
        }
    }

    fn finish(&self) -> Result<()> {
        self.parser.finish().map_err(|error| damaged(&self.path, &error))
    }
}

/// Returns the place of a file among others. After `.999999` a server writes `.1000000`.
fn place(path: &Path) -> (String, u64, PathBuf) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let numbered = name.rsplit_once('.').and_then(|(stem, digits)| {
        let number = digits.parse::<u64>().ok()?;
        Some((stem.to_owned(), number))
    });
    let (stem, number) = numbered.unwrap_or_else(|| (name.into_owned(), 0));
    (stem, number, path.to_owned())
}

/// Returns the first bytes of a file.
async fn begins(path: &Path) -> std::io::Result<[u8; 4]> {
    let mut magic = [0; 4];
    File::open(path).await?.read_exact(&mut magic).await?;
    Ok(magic)
}

/// Returns what lies before a file, and the version of its server.
async fn head(path: &Path) -> Result<(GtidSet, String)> {
    let mut file = PlainFile::open(path).await?;
    let mut version = String::new();
    while let Some(event) = file.next().await? {
        match event {
            FileEvent::Format(format) => format.server_version().clone_into(&mut version),
            FileEvent::Previous(before) => return Ok((before, version)),
            FileEvent::Event(_) => break,
        }
    }
    Err(RecordingError::Final(format!(
        "{}: it does not say which GTIDs lie before it; the server wrote it without gtid_mode",
        path.display()
    )))
}

fn wrong(path: &Path, error: std::io::Error) -> RecordingError {
    RecordingError::Final(format!("{}: {error}", path.display()))
}

fn damaged(path: &Path, error: &BinlogFileError) -> RecordingError {
    RecordingError::Final(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::file::BinlogFileWriter;
    use csa_provider::binlog::{EventType, Gtid};
    use csa_provider::test_util::{event, format_description, gtid_event, query_event};

    use super::*;

    /// Writes a file that begins after `before`, with these events.
    fn write_file(path: &Path, before: &GtidSet, events: &[RawEvent]) {
        let mut bytes = Vec::new();
        let mut writer = BinlogFileWriter::begin(&format_description(), before, &mut bytes);
        for event in events {
            writer.push(event, &mut bytes);
        }
        std::fs::write(path, bytes).expect("written");
    }

    #[tokio::test]
    async fn a_file_that_ends_within_a_transaction_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let gtid: Gtid = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1".parse().expect("a GTID");
        let begin = [gtid_event(&gtid, 1), query_event("d", "BEGIN")];
        let whole = [&begin[..], &[event(EventType::XID, &[0; 8])]].concat();
        let after = GtidSet::from_iter([gtid.clone()]);
        for (events, cut) in [(&begin[..], true), (&whole[..], false)] {
            write_file(&folder.path().join("binlog.000001"), &GtidSet::new(), events);
            write_file(&folder.path().join("binlog.000002"), &after, &[]);
            let mut stream = DirectoryStream::new(folder.path().to_owned());
            stream.open(&GtidSet::new()).await.expect("opened");
            let end = loop {
                match stream.next().await {
                    Ok(Some(_)) => {}
                    end => break end,
                }
            };
            match (end, cut) {
                (Err(RecordingError::Final(why)), true) => {
                    assert!(why.contains("binlog.000001: it ends within"), "{why}");
                    assert!(why.contains(&gtid.to_string()), "{why}");
                }
                (Ok(None), false) => {}
                (end, _) => panic!("{end:?}"),
            }
        }
    }

    #[tokio::test]
    async fn what_the_target_has_hides_no_transaction_after_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let gtid = |gno: u64| -> Gtid {
            format!("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:{gno}").parse().expect("a GTID")
        };
        // A session in another format than ROW has logged the first: no event ends it.
        let events = [
            gtid_event(&gtid(1), 1),
            query_event("d", "CREATE TABLE t SELECT 1"),
            gtid_event(&gtid(2), 2),
            query_event("d", "BEGIN"),
            event(EventType::XID, &[0; 8]),
        ];
        write_file(&folder.path().join("binlog.000001"), &GtidSet::new(), &events);
        let both = GtidSet::from_iter([gtid(1), gtid(2)]);
        write_file(&folder.path().join("binlog.000002"), &both, &[]);
        let mut stream = DirectoryStream::new(folder.path().to_owned());
        stream.open(&GtidSet::from_iter([gtid(1)])).await.expect("opened");
        while stream.next().await.expect("no gap").is_some() {}
        assert_eq!(stream.reached, both);
    }

    #[tokio::test]
    async fn files_are_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().expect("a folder");
        let ordered =
            ["binlog.000002", "binlog.999998", "binlog.999999", "binlog.1000000", "other.000001"];
        for name in ordered.iter().rev() {
            std::fs::write(folder.path().join(name), MAGIC).expect("written");
        }
        std::fs::write(folder.path().join("binlog.index"), "./binlog.000002").expect("written");
        let listed = DirectoryStream::new(folder.path().to_owned()).list().await.expect("listed");
        let names: Vec<_> = listed.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(names, ordered);
    }
}
