//! The record of a move: in the state directory, and in `csa.move` on the server that the applications move to.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host::replaced_file::replace_synced;

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
        }
    }

    pub(crate) fn is_unfinished(&self) -> bool {
        matches!(self.phase, MovePhase::Moving | MovePhase::Undoing)
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

/// Returns the latest of the copies.
pub(crate) fn latest(copies: impl IntoIterator<Item = Option<Journal>>) -> Option<Journal> {
    copies.into_iter().flatten().max_by_key(|journal| journal.number)
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
            Ok(()) => Ok(Self { path: directory.join("move.json"), _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => {
                let path = path.display();
                Err(format!("another csa-daemon move runs on this host ({path}); wait for its end"))
            }
            Err(fs::TryLockError::Error(error)) => Err(wrong(&path, error)),
        }
    }

    /// Returns `None` where there is no file. One that can't be read was written by another version.
    pub(crate) fn read(directory: &Path) -> Option<Journal> {
        serde_json::from_slice(&fs::read(directory.join("move.json")).ok()?).ok()
    }

    /// Replaces the file as a whole, and syncs it.
    pub(crate) fn write(&self, journal: &Journal) -> io::Result<()> {
        replace_synced(&self.path, &serde_json::to_vec(journal)?)
    }
}
