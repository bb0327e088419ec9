//! Locks on tables, rows and values of unique keys, the sessions that wait for them, and cycles of such
//! waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tokio::sync::oneshot;

use super::state::{Key, TableName};

/// A thing that can be locked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LockName {
    /// The definition of a table: shared by the transactions that use it, exclusive to a statement that
    /// changes it.
    Table(TableName),
    /// A value of a unique key, whether or not a row has it; key 0 is the primary one.
    Value(TableName, usize, Key),
    /// A GTID that a session is going to use.
    Gtid(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

impl Mode {
    const fn excludes(self, other: Self) -> bool {
        matches!((self, other), (Self::Exclusive, _) | (_, Self::Exclusive))
    }
}

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    Granted,
    /// The transaction was rolled back to end a deadlock.
    Victim,
}

#[derive(Debug)]
struct Waiter {
    session: u32,
    mode: Mode,
    wake: oneshot::Sender<Woken>,
}

#[derive(Debug, Default)]
struct Lock {
    holders: BTreeMap<u32, Mode>,
    queue: VecDeque<Waiter>,
}

impl Lock {
    /// Returns the sessions that keep `session` from having it, which stands at `place` of the
    /// queue.
    fn blockers(&self, session: u32, mode: Mode, place: usize) -> BTreeSet<u32> {
        let holders = self.holders.iter().map(|(&holder, &held)| (holder, held));
        let before = self.queue.iter().take(place).map(|waiter| (waiter.session, waiter.mode));
        // One that holds it already need not queue for more.
        let before = before.filter(|_| !self.holders.contains_key(&session));
        let others = holders.chain(before).filter(|&(other, _)| other != session);
        others.filter(|&(_, held)| mode.excludes(held)).map(|(other, _)| other).collect()
    }

    fn grant(&mut self, session: u32, mode: Mode) {
        let held = self.holders.entry(session).or_insert(mode);
        if mode == Mode::Exclusive {
            *held = mode;
        }
    }
}

/// All locks of a server.
#[derive(Debug, Default)]
pub(crate) struct RowLocks {
    locks: BTreeMap<LockName, Lock>,
    held: BTreeMap<u32, BTreeSet<LockName>>,
    /// The lock that a session waits for.
    waiting: BTreeMap<u32, LockName>,
}

impl RowLocks {
    /// Takes a lock without waiting; false if others are in the way.
    pub(crate) fn take(&mut self, session: u32, name: &LockName, mode: Mode) -> bool {
        let lock = self.locks.entry(name.clone()).or_default();
        if !lock.blockers(session, mode, lock.queue.len()).is_empty() {
            return false;
        }
        lock.grant(session, mode);
        self.held.entry(session).or_default().insert(name.clone());
        true
    }

    /// Returns everything that a session has locked, but for GTIDs.
    pub(crate) fn held_by(&self, session: u32) -> Vec<(LockName, Mode)> {
        let held = self.held.get(&session).into_iter().flatten();
        let held = held.filter(|name| !matches!(name, LockName::Gtid(_)));
        let mode = |name: &LockName| self.locks.get(name)?.holders.get(&session).copied();
        held.filter_map(|name| Some((name.clone(), mode(name)?))).collect()
    }

    /// Gives locks to an owner that others can't be in the way of: they have them already, or nobody has any.
    pub(crate) fn give(&mut self, owner: u32, locks: &[(LockName, Mode)]) {
        for (name, mode) in locks {
            self.locks.entry(name.clone()).or_default().grant(owner, *mode);
            self.held.entry(owner).or_default().insert(name.clone());
        }
    }

    pub(crate) fn holds(&self, session: u32, name: &LockName) -> bool {
        self.held.get(&session).is_some_and(|held| held.contains(name))
    }

    /// The sessions of a cycle that a wait would close, its own included.
    pub(crate) fn cycle(&self, session: u32, name: &LockName, mode: Mode) -> Option<Vec<u32>> {
        let lock = self.locks.get(name)?;
        let first = lock.blockers(session, mode, lock.queue.len());
        let mut paths: Vec<Vec<u32>> = first.into_iter().map(|next| vec![session, next]).collect();
        let mut seen = BTreeSet::new();
        while let Some(path) = paths.pop() {
            let last = *path.last()?;
            for next in self.blockers_of(last) {
                if next == session {
                    return Some(path);
                }
                if seen.insert(next) {
                    paths.push([path.as_slice(), &[next]].concat());
                }
            }
        }
        None
    }

    fn blockers_of(&self, session: u32) -> BTreeSet<u32> {
        let lock = self.waiting.get(&session).and_then(|name| self.locks.get(name));
        let Some(lock) = lock else { return BTreeSet::new() };
        let place = lock.queue.iter().position(|waiter| waiter.session == session);
        place.map_or_else(BTreeSet::new, |at| lock.blockers(session, lock.queue[at].mode, at))
    }

    /// Queues for a lock.
    pub(crate) fn wait(
        &mut self,
        session: u32,
        name: LockName,
        mode: Mode,
    ) -> oneshot::Receiver<Woken> {
        let (wake, woken) = oneshot::channel();
        let lock = self.locks.entry(name.clone()).or_default();
        lock.queue.push_back(Waiter { session, mode, wake });
        self.waiting.insert(session, name);
        woken
    }

    /// Ends the wait of a session, if it has one.
    pub(crate) fn give_up(&mut self, session: u32, why: Option<Woken>) {
        let Some(name) = self.waiting.remove(&session) else { return };
        let Some(lock) = self.locks.get_mut(&name) else { return };
        let place = lock.queue.iter().position(|waiter| waiter.session == session);
        let waiter = place.and_then(|place| lock.queue.remove(place));
        if let (Some(waiter), Some(why)) = (waiter, why) {
            // Its session may have ended.
            let _ = waiter.wake.send(why);
        }
        self.pass_on(&name);
    }

    /// Releases one lock.
    pub(crate) fn release(&mut self, session: u32, name: &LockName) {
        if let Some(held) = self.held.get_mut(&session) {
            held.remove(name);
        }
        if let Some(lock) = self.locks.get_mut(name) {
            lock.holders.remove(&session);
        }
        self.pass_on(name);
    }

    /// Releases everything that a transaction locked.
    pub(crate) fn release_all(&mut self, session: u32) {
        for name in self.held.remove(&session).unwrap_or_default() {
            self.release(session, &name);
        }
    }

    /// Grants a lock to those who can have it now, in the order in which they came.
    fn pass_on(&mut self, name: &LockName) {
        let Some(lock) = self.locks.get_mut(name) else { return };
        while let Some(Waiter { session, mode, .. }) = lock.queue.front() {
            let (session, mode) = (*session, *mode);
            if !lock.blockers(session, mode, 0).is_empty() {
                break;
            }
            lock.grant(session, mode);
            self.held.entry(session).or_default().insert(name.clone());
            self.waiting.remove(&session);
            if let Some(waiter) = lock.queue.pop_front() {
                let _ = waiter.wake.send(Woken::Granted);
            }
        }
        if lock.holders.is_empty() && lock.queue.is_empty() {
            self.locks.remove(name);
        }
    }

    /// Pairs of a session that waits for a lock, and one that it waits for. The server shows no waits for
    /// GTIDs.
    pub(crate) fn waits(&self) -> Vec<(u32, u32)> {
        let sessions = self.waiting.iter().filter(|(_, name)| !matches!(name, LockName::Gtid(_)));
        sessions
            .map(|(session, _)| *session)
            .flat_map(|session| self.blockers_of(session).into_iter().map(move |on| (session, on)))
            .collect()
    }

    /// Returns the GTIDs that sessions are going to use, and the sessions.
    pub(crate) fn gtids(&self) -> impl Iterator<Item = (&str, u32)> {
        self.locks.iter().filter_map(|(name, lock)| match name {
            LockName::Gtid(gtid) => Some((gtid.as_str(), *lock.holders.keys().next()?)),
            LockName::Table(_) | LockName::Value(..) => None,
        })
    }

    /// Primary keys of a table that others have locked exclusively: some are of rows that only they
    /// see.
    pub(crate) fn keys_of_others(&self, session: u32, table: &TableName) -> BTreeSet<Key> {
        let from = LockName::Value(table.clone(), 0, Key::new());
        let locks = self.locks.range(from..);
        let mine = |lock: &Lock| lock.holders.keys().all(|&holder| holder == session);
        locks
            .map_while(|(name, lock)| match name {
                LockName::Value(of, 0, key) if of == table => Some((key, lock)),
                _ => None,
            })
            .filter(|(_, lock)| !mine(lock))
            .map(|(key, _)| key.clone())
            .collect()
    }
}
