//! Faults of the server and between it and its clients; the world decides which.

use std::fmt::Debug;
use std::time::Duration;

/// The fate of bytes on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Transit {
    #[default]
    Arrive,
    /// They arrive after this time.
    Late(Duration),
    /// The client finds the link cut; the server notices after this time, and until then the session
    /// lives.
    Cut(Duration),
    /// The same, but the client notices nothing.
    Vanish(Duration),
    Crash(Crash),
}

/// The fate of a statement in the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Run {
    #[default]
    Normally,
    /// It begins after the server has worked on it for this time.
    Slow(Duration),
    /// It fails; 1213 rolls the transaction back.
    Fail(u16),
    /// The server takes no writes for this time, from before the statement on.
    ReadOnly(Duration),
    Crash(Crash),
}

/// The end of a server: all sessions, and everything that is not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crash {
    /// Time until it takes connections again.
    pub(crate) down: Duration,
    /// The number of last commits that it loses, of those that it may lose at all.
    pub(crate) loses: usize,
}

/// Decides what goes wrong. Called in the order of events, so a policy with a seed repeats itself.
pub(crate) trait Faults: Debug + Send {
    /// A client connects.
    fn connect(&mut self) -> Transit {
        Transit::Arrive
    }

    /// The error with which the server refuses one more session than it has.
    fn refuses(&mut self, _sessions: usize) -> Option<u16> {
        None
    }

    /// Returns a packet of statements on its way to the server.
    fn request(&mut self, _packet: &str) -> Transit {
        Transit::Arrive
    }

    /// Returns a statement in the server.
    fn statement(&mut self, _statement: &str) -> Run {
        Run::Normally
    }

    /// Returns the answer to a packet on its way to the client.
    fn answer(&mut self, _packet: &str) -> Transit {
        Transit::Arrive
    }

    /// A client is gone; the server notices after this time.
    fn hang_up(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// Nothing goes wrong.
#[derive(Debug)]
pub(crate) struct NoFaults;

impl Faults for NoFaults {}
