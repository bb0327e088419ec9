//! The record of a move: in the state directory, and in `csa.move` on the server that the applications move to.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host::replaced_file::replace_synced;

const FILE: &str = "move.json";

/// The way of the applications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Direction {
    /// The way from the source of the channel that has `[channel.move]` to its target.
    CutOver,
    Back,
}

impl Direction {
    /// Returns the option of the command.
    pub(crate) const fn option(self) -> &'static str {
        match self {
            Self::CutOver => "--cut-over",
            Self::Back => "--back",
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::CutOver => "cut over",
            Self::Back => "way back",
        }
    }
}

/// The steps in their order. Until `Open` has begun, a move can be undone; after it, it can only continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// The server in use takes no more writes, and its open transactions have ended.
    Fence,
    /// The new server has all transactions of the old one.
    Wait,
    /// The rows that were changed last are equal.
    Compare,
    /// The new server takes writes.
    Open,
    /// The applications use it.
    HandOver,
    /// The old server takes the writes of the reverse channel, and of no one else.
    Follow,
}

impl Step {
    pub(crate) const ALL: [Self; 6] =
        [Self::Fence, Self::Wait, Self::Compare, Self::Open, Self::HandOver, Self::Follow];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fence => "fence",
            Self::Wait => "wait",
            Self::Compare => "compare",
            Self::Open => "open",
            Self::HandOver => "hand over",
            Self::Follow => "follow",
        }
    }

    /// Returns the step after it; `None` for the last.
    pub(crate) fn next(self) -> Option<Self> {
        let mut later = Self::ALL.into_iter().skip_while(|step| *step != self);
        later.next();
        later.next()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MovePhase {
    /// Both servers were compared, and the new one takes no writes of applications.
    Prepared,
    Moving,
    /// The old server is being opened again.
    Undoing,
    Undone,
    Moved,
    /// The way back is given up.
    Finished,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// Rises with every entry, so that the latest of several copies can be told.
    pub(crate) number: u64,
    pub(crate) direction: Direction,
    pub(crate) phase: MovePhase,
    /// The step that was begun last.
    pub(crate) step: Step,
    /// The step's effect is there.
    pub(crate) is_done: bool,
    /// Microseconds since the epoch.
    pub(crate) begun_at: u64,
    /// The old server's `gtid_executed` once it was fenced.
    pub(crate) executed: String,
    /// The event scheduler of the old server ran, and moves with the applications.
    pub(crate) events: bool,
    /// The host of the command.
    pub(crate) host: String,
    /// The reason of an undo.
    pub(crate) why: String,
    /// The `server_uuid` of the server that the applications leave, and of the one that they move to. Empty where
    /// an earlier version wrote the journal.
    #[serde(default)]
    pub(crate) servers: [String; 2],
    /// The seconds since the start of the server that the applications move to, at the begin. `None` where an earlier
    /// version wrote the journal.
    pub(crate) uptime: Option<u64>,
    /// The time of that start by the server's own clock, in seconds since the epoch; `None` as above.
    pub(crate) start: Option<i64>,
}

/// A server's word for the time since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerLife {
    /// Seconds since the start: the time of day less that of the start. A clock that is set forward makes them more.
    pub(crate) uptime: u64,
    /// The time of day at the start, in seconds since the epoch. A clock that is set later changes nothing in it.
    pub(crate) start: i64,
}

impl Journal {
    pub(crate) fn new(direction: Direction, number: u64, now: u64, host: &str) -> Self {
        Self {
            number,
            direction,
            phase: MovePhase::Moving,
            step: Step::Fence,
            is_done: false,
            begun_at: now,
            executed: String::new(),
            events: false,
            host: host.to_owned(),
            why: String::new(),
            servers: Default::default(),
            uptime: None,
            start: None,
        }
    }

    pub(crate) fn is_unfinished(&self) -> bool {
        matches!(self.phase, MovePhase::Moving | MovePhase::Undoing)
    }

    /// Returns how a move is ended that has not ended.
    pub(crate) fn to_be_ended(&self) -> Option<String> {
        let (name, option) = (self.direction.name(), self.direction.option());
        self.is_unfinished().then(|| {
            format!(
                "a {name} has begun and has not ended; finish it with {option}, or give it up with --undo"
            )
        })
    }

    /// Returns true if the new server was opened.
    pub(crate) fn was_opened(&self) -> bool {
        self.step > Step::Open || (self.step == Step::Open && self.is_done)
    }

    /// Returns true if it is of a move between other servers. `servers` are those of this pair as they are in
    /// `direction`; one that has not said its UUID yet is empty.
    fn is_foreign(&self, direction: Direction, servers: [&str; 2]) -> bool {
        let [from, to] = servers;
        let servers = if self.direction == direction { [from, to] } else { [to, from] };
        let differs =
            |(then, now): (&String, &str)| !then.is_empty() && !now.is_empty() && *then != now;
        self.servers.iter().zip(servers).any(differs)
    }

    /// Returns the step in words, for `csa.audit` and the terminal.
    pub(crate) fn said(&self) -> String {
        let Self { direction, step, is_done, .. } = self;
        let name = direction.name();
        match (self.phase, is_done) {
            (MovePhase::Prepared, _) => "prepared".to_owned(),
            (MovePhase::Moving, false) => format!("{name}: {} begins", step.name()),
            (MovePhase::Moving, true) => format!("{name}: {} done", step.name()),
            (MovePhase::Undoing, _) => format!("{name}: undo begins"),
            (MovePhase::Undone, _) => format!("{name}: undone"),
            (MovePhase::Moved, _) => format!("{name}: done"),
            (MovePhase::Finished, _) => "finished".to_owned(),
        }
    }
}

/// A copy of the journal, and how to delete it.
#[derive(Debug, Clone)]
pub(crate) struct JournalCopy {
    pub(crate) text: String,
    pub(crate) deletion: String,
}

/// The journal that counts among its copies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// The latest of this pair of servers.
    pub(crate) journal: Option<Journal>,
    /// The highest of all numbers.
    pub(crate) number: u64,
}

/// Returns the latest of the copies that are of these servers, in this direction.
///
/// # Errors
/// A copy can't be read, or the latest is of a move between other servers that has not ended.
pub(crate) fn latest(
    copies: &[JournalCopy],
    direction: Direction,
    servers: [&str; 2],
) -> Result<Recorded, String> {
    let mut found = Vec::new();
    for JournalCopy { text, deletion } in copies {
        let journal: Journal = serde_json::from_str(text).map_err(|error| {
            format!(
                "a journal of a move can't be read ({error}): run the command with the version that wrote it. \
                 If no move is under way, delete it: {deletion}"
            )
        })?;
        found.push((journal, deletion.as_str()));
    }
    let number = found.iter().map(|(journal, _)| journal.number).max().unwrap_or_default();
    let (foreign, own): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(journal, _)| journal.is_foreign(direction, servers));
    let unfinished = |(journal, _): &&(Journal, &str)| journal.is_unfinished();
    if let Some((journal, _)) = foreign.iter().find(|(journal, _)| journal.number == number)
        && journal.is_unfinished()
    {
        let deletions: Vec<&str> =
            foreign.iter().filter(unfinished).map(|(_, deletion)| *deletion).collect();
        return Err(format!(
            "the journal is of a move between other servers ({}) that has not ended: {}. If nobody will finish \
             that move, delete it: {}",
            journal.servers.join(" -> "),
            journal.said(),
            deletions.join("; ")
        ));
    }
    let journal = own.into_iter().map(|(journal, _)| journal).max_by_key(|journal| journal.number);
    Ok(Recorded { journal: journal.map(|journal| Journal { number, ..journal }), number })
}

/// Returns the number of the last entry on this host, 0 where none can be read.
pub(crate) fn number_on_host(directory: &Path) -> u64 {
    let text = fs::read_to_string(directory.join(FILE)).unwrap_or_default();
    serde_json::from_str(&text).map_or(0, |journal: Journal| journal.number)
}

/// The copy in the state directory, and the lock of the command on this host.
#[derive(Debug)]
pub(crate) struct JournalFile {
    path: PathBuf,
    /// Held until the command ends.
    _lock: File,
}

impl JournalFile {
    /// Opens the file of a channel.
    ///
    /// # Errors
    /// One line: another command has it, or the folder can't be written.
    pub(crate) fn open(directory: &Path) -> Result<Self, String> {
        let wrong = |path: &Path, error: io::Error| {
            let path = path.display();
            format!("daemon.state_dir: {path}: {error}; run the command as the daemon's user")
        };
        fs::create_dir_all(directory).map_err(|error| wrong(directory, error))?;
        let path = directory.join("move.lock");
        let lock = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|error| wrong(&path, error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: directory.join(FILE), _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => {
                let path = path.display();
                Err(format!("another csa-daemon move runs on this host ({path}); wait for its end"))
            }
            Err(fs::TryLockError::Error(error)) => Err(wrong(&path, error)),
        }
    }

    /// Returns `None` where there is no file.
    ///
    /// # Errors
    /// There is one, and it can't be read.
    pub(crate) fn read(&self) -> Result<Option<JournalCopy>, String> {
        let path = self.path.display();
        match fs::read_to_string(&self.path) {
            Ok(text) => Ok(Some(JournalCopy { text, deletion: format!("rm {path}") })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!(
                "daemon.state_dir: {path}: {error}; run the command as the daemon's user. If no move is under \
                 way, the file can be deleted"
            )),
        }
    }

    /// Replaces the file as a whole, and syncs it.
    pub(crate) fn write(&self, journal: &Journal) -> io::Result<()> {
        replace_synced(&self.path, &serde_json::to_vec(journal)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(journal: &Journal, place: &str) -> JournalCopy {
        let text = serde_json::to_string(journal).expect("a journal");
        JournalCopy { text, deletion: format!("rm {place}") }
    }

    fn between(servers: [&str; 2], number: u64, phase: MovePhase) -> Journal {
        let servers = servers.map(str::to_owned);
        Journal { phase, servers, ..Journal::new(Direction::CutOver, number, 0, "h") }
    }

    #[test]
    fn the_latest_copy_of_this_pair_counts() {
        let early = between(["a", "b"], 3, MovePhase::Moving);
        let late = between(["a", "b"], 4, MovePhase::Undone);
        let copies = [copy(&early, "x"), copy(&late, "y")];
        let read = |direction, servers| latest(&copies, direction, servers).expect("read");
        // A server that has not answered yet may be the right one.
        for servers in [["a", "b"], ["", "b"], ["", ""]] {
            assert_eq!(read(Direction::CutOver, servers).journal, Some(late.clone()));
        }
        assert_eq!(read(Direction::Back, ["b", "a"]).journal, Some(late.clone()));
        assert_eq!(latest(&[], Direction::Back, ["b", "a"]), Ok(Recorded::default()));
    }

    #[test]
    fn a_journal_of_other_servers_is_no_journal_of_this_move() {
        for servers in [["b", "c"], ["a", "c"], ["b", "a"], ["", "c"]] {
            // One that has ended says nothing here, but its number is used.
            let ended = [copy(&between(["a", "b"], 7, MovePhase::Moved), "x")];
            let recorded = latest(&ended, Direction::CutOver, servers).expect("ended");
            assert_eq!(recorded, Recorded { journal: None, number: 7 });
            // One that has not ended is refused, with what to delete.
            let begun = between(["a", "b"], 7, MovePhase::Moving);
            let copies = [copy(&begun, "x"), copy(&begun, "y")];
            let why = latest(&copies, Direction::CutOver, servers).expect_err("refused");
            assert!(why.contains("a -> b") && why.contains("rm x; rm y"), "{why}");
        }
        // An old copy that was left somewhere has a lower number than the journal of this move.
        let left = copy(&between(["a", "b"], 7, MovePhase::Moving), "x");
        let own = between(["b", "c"], 9, MovePhase::Moving);
        let recorded = latest(&[left, copy(&own, "y")], Direction::CutOver, ["b", "c"]);
        assert_eq!(recorded.map(|recorded| recorded.journal), Ok(Some(own)));
    }

    #[test]
    fn a_journal_that_cannot_be_read_is_refused_and_an_earlier_one_is_read() {
        let journal = between(["", ""], 5, MovePhase::Moving);
        let text = serde_json::to_string(&journal).expect("a journal");
        let earlier = text.replace(r#","servers":["",""],"uptime":null,"start":null"#, "");
        assert_ne!(text, earlier);
        let copies = |text: &str| [JournalCopy { text: text.to_owned(), deletion: "rm x".into() }];
        let read = latest(&copies(&earlier), Direction::CutOver, ["a", "b"]).expect("read");
        assert_eq!(read.journal, Some(journal.clone()));
        let without_start = text.replace(r#","start":null"#, "");
        assert!(without_start.contains("uptime"));
        let read = latest(&copies(&without_start), Direction::CutOver, ["a", "b"]).expect("read");
        assert_eq!(read.journal, Some(journal));
        for text in ["", "{}", &text.replace("moving", "marching")] {
            let why = latest(&copies(text), Direction::CutOver, ["a", "b"]).expect_err("refused");
            assert!(why.contains("can't be read") && why.contains("rm x"), "{why}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_a_missing_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = JournalFile::open(folder.path()).expect("opened");
        assert!(file.read().expect("no file").is_none());
        fs::write(folder.path().join("move.json"), [0xff, 0xfe]).expect("written");
        let why = file.read().expect_err("not text");
        assert!(why.contains("move.json"), "{why}");
    }
}
