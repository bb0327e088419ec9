//! The server between two statements: what is committed, its sessions, their locks, its restarts.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher as _;
use std::sync::Arc;
use std::time::Duration;

use csa_provider::binlog::{Gtid, Tag, Uuid};
use csa_provider::server::link::LinkError;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Observer;
use super::catalogue::ShownLog;
use super::faults::{Crash, Faults};
use super::row_locks::{LockName, Mode, RowLocks, Woken};
use super::state::State;
use super::transaction::Transaction;

/// A GTID is waited for without a limit; no run lasts as long as this.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The GTID of a session's next transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NextGtid {
    Automatic,
    Assigned(Gtid),
    /// The assigned one was used; the session has to say more before it can begin a transaction.
    Used,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) transaction: Option<Transaction>,
    pub(crate) database: String,
    pub(crate) next_gtid: NextGtid,
    /// Its changes are in the binary log.
    pub(crate) logs: bool,
    /// `foreign_key_checks`.
    pub(crate) checks_references: bool,
    /// `rbr_exec_mode`.
    pub(crate) is_idempotent: bool,
    /// It reads what was committed when its transaction began.
    pub(crate) snapshot: Option<Arc<State>>,
    pub(crate) row_lock_wait: Duration,
    pub(crate) table_lock_wait: Duration,
    /// It ends after so long without a statement.
    pub(crate) idle_limit: Duration,
    /// It has received a format description.
    pub(crate) has_format: bool,
    /// It executes a statement.
    pub(crate) is_busy: bool,
    pub(crate) since: Instant,
    /// Cancelled to end it.
    pub(crate) ended: CancellationToken,
}

impl Session {
    /// Returns the GTID of a transaction that is being committed.
    pub(crate) fn take_gtid(&mut self) -> NextGtid {
        let next = self.next_gtid.clone();
        if let NextGtid::Assigned(_) = next {
            self.next_gtid = NextGtid::Used;
        }
        next
    }
}

/// An answer, or what a statement has to wait for before it is tried again.
pub(crate) enum Step {
    Done(Answered),
    Failed(LinkError),
    Again,
    Lock {
        woken: oneshot::Receiver<Woken>,
        limit: Duration,
    },
    /// A named lock, for so long from the first try on.
    Named {
        changed: OwnedNotified,
        patience: Duration,
    },
}

/// The answer to a statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) rows: u64,
    pub(crate) shown: Vec<Vec<String>>,
}

/// Sessions in each other's way; without faults, groups that run beside each other have none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Conflicts {
    pub(crate) waits: usize,
    pub(crate) failures: usize,
}

pub(crate) struct Core {
    pub(crate) uuid: Uuid,
    pub(crate) state: State,
    /// The server's own last GTID; part of what a crash takes back.
    own_number: u64,
    /// The states before each of the last commits, the oldest first.
    unsynced: VecDeque<(State, u64)>,
    /// The most commits that a crash loses.
    may_lose: usize,
    pub(crate) sessions: BTreeMap<u32, Session>,
    last_session: u32,
    /// The last session of its earlier lives: each life numbers its connections from 1.
    earlier_sessions: u32,
    pub(crate) locks: RowLocks,
    /// Holders of named locks.
    pub(crate) named: BTreeMap<String, u32>,
    pub(crate) named_changed: Arc<Notify>,
    /// Notified of each commit.
    pub(crate) committed: Arc<Notify>,
    /// The log of a source.
    pub(crate) log: ShownLog,
    /// The most rows that a query of a replicated table may ask for.
    pub(crate) most_rows: Option<u64>,
    pub(crate) short_uuids: u64,
    down_until: Option<Instant>,
    read_only_until: Option<Instant>,
    pub(crate) faults: Box<dyn Faults>,
    observer: Box<dyn Observer>,
    began: Instant,
    /// Of everything that happened, to compare two runs.
    digest: std::hash::DefaultHasher,
    /// Waits for locks of rows, and statements that failed because of rows or locks.
    pub(crate) conflicts: Conflicts,
    /// Prints what happens.
    pub(crate) is_traced: bool,
    /// Cancelled when a session panics.
    pub(crate) broken: CancellationToken,
}

pub(crate) fn refused(code: u16, message: impl Into<String>) -> LinkError {
    LinkError::Server { code, message: message.into() }
}

impl Core {
    pub(crate) fn new(
        uuid: Uuid,
        may_lose: usize,
        faults: Box<dyn Faults>,
        observer: Box<dyn Observer>,
    ) -> Self {
        Self {
            uuid,
            state: State::default(),
            own_number: 0,
            unsynced: VecDeque::new(),
            may_lose,
            sessions: BTreeMap::new(),
            last_session: 0,
            earlier_sessions: 0,
            locks: RowLocks::default(),
            named: BTreeMap::new(),
            named_changed: Arc::default(),
            committed: Arc::default(),
            log: ShownLog::default(),
            most_rows: None,
            short_uuids: 1 << 50,
            down_until: None,
            read_only_until: None,
            faults,
            observer,
            began: Instant::now(),
            digest: std::hash::DefaultHasher::new(),
            conflicts: Conflicts::default(),
            is_traced: false,
            broken: CancellationToken::new(),
        }
    }

    pub(crate) fn is_down(&self) -> bool {
        self.down_until.is_some_and(|until| Instant::now() < until)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only_until.is_some_and(|until| Instant::now() < until)
    }

    pub(crate) fn read_only_for(&mut self, time: Duration) {
        self.read_only_until = Some(Instant::now() + time);
    }

    /// Returns the microseconds since the server exists.
    pub(crate) fn now(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_micros()).expect("a short run")
    }

    /// Adds an event to the digest, with its time.
    pub(crate) fn note(&mut self, session: u32, what: &str) {
        if self.is_traced {
            eprintln!("{} {session} {what}", self.now());
        }
        self.digest.write_i64(self.now());
        self.digest.write_u32(session);
        self.digest.write(what.as_bytes());
    }

    /// Everything that is committed is on the disk.
    pub(crate) fn sync(&mut self) {
        self.unsynced.clear();
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    pub(crate) fn open(&mut self) -> (u32, CancellationToken) {
        self.last_session += 1;
        let ended = CancellationToken::new();
        let session = Session {
            transaction: None,
            database: String::new(),
            next_gtid: NextGtid::Automatic,
            logs: true,
            checks_references: true,
            is_idempotent: false,
            snapshot: None,
            row_lock_wait: Duration::from_secs(50),
            table_lock_wait: Duration::from_secs(31_536_000),
            idle_limit: Duration::from_secs(28_800),
            has_format: false,
            is_busy: false,
            since: Instant::now(),
            ended: ended.clone(),
        };
        self.sessions.insert(self.last_session, session);
        (self.last_session, ended)
    }

    /// Returns a number that no session has.
    pub(crate) const fn next_owner(&mut self) -> u32 {
        self.last_session += 1;
        self.last_session
    }

    /// The server's number of the session's connection.
    pub(crate) fn connection_of(&self, session: u32) -> u32 {
        session - self.earlier_sessions
    }

    /// Returns the session of this life with that number.
    pub(crate) fn session_of(&self, connection: u32) -> u32 {
        connection.saturating_add(self.earlier_sessions)
    }

    /// Ends a session: its transaction is rolled back before its named locks are free.
    pub(crate) fn end(&mut self, id: u32) {
        self.note(id, "ended");
        self.locks.give_up(id, None);
        self.roll_back(id);
        self.named.retain(|_, holder| *holder != id);
        self.sessions.remove(&id);
        self.named_changed.notify_waiters();
    }

    /// Returns `None` once the session has ended.
    pub(crate) fn idle_limit(&self, id: u32) -> Option<Duration> {
        self.sessions.get(&id).map(|session| session.idle_limit)
    }

    pub(crate) fn busy(&mut self, id: u32, is_busy: bool) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.is_busy = is_busy;
            // MySQL shows for a sleeping session the time since its last statement began.
            if is_busy {
                session.since = Instant::now();
            }
        }
    }

    pub(crate) fn roll_back(&mut self, id: u32) {
        if let Some(session) = self.sessions.get_mut(&id) {
            (session.transaction, session.snapshot) = (None, None);
            if matches!(session.next_gtid, NextGtid::Assigned(_)) {
                session.next_gtid = NextGtid::Used;
            }
        }
        self.locks.release_all(id);
    }

    /// Commits the session's transaction, if it has one.
    pub(crate) fn commit(&mut self, id: u32) -> Result<(), LinkError> {
        let is_read_only = self.is_read_only();
        let Some(session) = self.sessions.get_mut(&id) else { return Err(LinkError::Closed) };
        session.snapshot = None;
        let Some(transaction) = session.transaction.take() else { return Ok(()) };
        let (changes, logs) = (transaction.has_changes(), session.logs);
        if changes && is_read_only {
            self.roll_back(id);
            return Err(read_only());
        }
        let next = session.take_gtid();
        let is_new = match &next {
            NextGtid::Assigned(gtid) => !self.state.executed.contains(gtid),
            _ => changes,
        };
        if is_new {
            self.publish(&next, logs, |state| transaction.commit(state));
        }
        self.locks.release_all(id);
        Ok(())
    }

    /// Commits a statement that is a transaction of its own. Where it changed nothing, the server logs nothing, and
    /// the session still owns its GTID.
    pub(crate) fn commit_statement(&mut self, id: u32) -> Result<(), LinkError> {
        let Some(session) = self.sessions.get_mut(&id) else { return Err(LinkError::Closed) };
        if session.transaction.as_ref().is_some_and(Transaction::has_changes) {
            return self.commit(id);
        }
        session.transaction = None;
        for (lock, _) in self.locks.held_by(id) {
            self.locks.release(id, &lock);
        }
        Ok(())
    }

    /// Makes a change visible, and its GTID with it.
    pub(crate) fn publish(&mut self, next: &NextGtid, logs: bool, change: impl FnOnce(&mut State)) {
        if self.may_lose > 0 {
            self.unsynced.push_back((self.state.clone(), self.own_number));
            if self.unsynced.len() > self.may_lose {
                self.unsynced.pop_front();
            }
        }
        change(&mut self.state);
        match next {
            NextGtid::Assigned(gtid) => {
                self.state.executed.add(gtid);
            }
            _ if logs => {
                self.own_number += 1;
                let gtid = Gtid { uuid: self.uuid, tag: Tag::untagged(), gno: self.own_number };
                self.state.executed.add(&gtid);
            }
            _ => {}
        }
        self.observer.committed(&self.state);
        self.committed.notify_waiters();
    }

    /// Queues for a lock, unless that closes a cycle: then the transaction of the cycle that changed
    /// least is rolled back, as InnoDB does it.
    pub(crate) fn block(&mut self, id: u32, name: LockName, mode: Mode) -> Step {
        while let Some(cycle) = self.locks.cycle(id, &name, mode) {
            let weight = |session: &u32| {
                let transaction = self.sessions.get(session).and_then(|s| s.transaction.as_ref());
                (transaction.map_or(0, Transaction::weight), *session != id, *session)
            };
            let victim = cycle.into_iter().min_by_key(weight).unwrap_or(id);
            self.note(victim, "deadlock");
            if victim == id {
                self.roll_back(id);
                return Step::Failed(deadlock());
            }
            self.locks.give_up(victim, Some(Woken::Victim));
            self.roll_back(victim);
            if self.locks.take(id, &name, mode) {
                return Step::Again;
            }
        }
        let Some(session) = self.sessions.get(&id) else { return Step::Failed(LinkError::Closed) };
        let limit = match name {
            LockName::Table(_) => session.table_lock_wait,
            LockName::Value(..) => session.row_lock_wait,
            LockName::Gtid(_) => FOR_EVER,
        };
        self.conflicts.waits += usize::from(matches!(name, LockName::Value(..)));
        Step::Lock { woken: self.locks.wait(id, name, mode), limit }
    }

    /// Ends a wait that took too long: the statement fails, the transaction stays.
    pub(crate) fn time_out(&mut self, id: u32) -> LinkError {
        self.locks.give_up(id, None);
        self.end_implicit(id);
        refused(1205, "Lock wait timeout exceeded; try restarting transaction")
    }

    /// A statement that commits on its own has failed.
    pub(crate) fn end_implicit(&mut self, id: u32) {
        let transaction = self.sessions.get(&id).and_then(|session| session.transaction.as_ref());
        if transaction.is_some_and(|transaction| !transaction.is_explicit) {
            self.roll_back(id);
        }
    }

    /// Ends all sessions and forgets what was not committed, and as many commits as the disk did not
    /// have.
    pub(crate) fn crash(&mut self, Crash { down, loses }: Crash) {
        for session in std::mem::take(&mut self.sessions).into_values() {
            session.ended.cancel();
        }
        self.earlier_sessions = self.last_session;
        self.named.clear();
        let lost = loses.min(self.unsynced.len());
        if let Some((state, number)) = self.unsynced.drain(self.unsynced.len() - lost..).next() {
            (self.state, self.own_number) = (state, number);
        }
        self.locks = RowLocks::default();
        for branch in self.state.prepared.values() {
            self.locks.give(branch.owner, &branch.locks);
        }
        // What is there when it starts is on its disk.
        self.unsynced.clear();
        self.read_only_until = None;
        self.down_until = Some(Instant::now() + down);
        self.note(0, "crashed");
        self.observer.restarted(&self.state);
    }
}

pub(crate) fn deadlock() -> LinkError {
    refused(1213, "Deadlock found when trying to get lock; try restarting transaction")
}

pub(crate) fn read_only() -> LinkError {
    refused(1290, "The MySQL server is running with the --read-only option")
}
