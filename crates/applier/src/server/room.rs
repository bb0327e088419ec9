//! The room that a target has for a channel's sessions. An account can have fewer than the channel has workers
//! (`max_user_connections`), and so can the server, with its other clients (`max_connections`).
//!
//! Groups commit in order, so a group whose worker has no session may be the one that all others wait for, with
//! open transactions, on all the sessions there are. Three rules keep the channel from standing still. Sessions
//! are served in the order of [`SessionClaim`]. A session that is not in use is closed for another that is
//! wanted. Of the groups that wait for others, the last one rolls back and gives its session up. The group
//! whose turn it is waits for no other, so once it has a session it commits.
//!
//! The control session is counted by nobody here: it comes before all others, and gets room by
//! [`Room::make_way`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use csa_provider::seams::Chance;
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::server::link::refused_pause;
use csa_scheduler::sequence::Sequence;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::port::Pending;
use super::session::Session;
use super::target::{MakesWay, OccupiedRoom};
use crate::error::Error;

/// The time after which a server no longer counts a session that has ended.
const COUNTED: Duration = Duration::from_secs(2);
/// A wait for another's session is looked at again after this time, whatever was reported.
const LOOK: Duration = Duration::from_secs(1);

/// A user of the target, with a session of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    Control,
    Catalogue,
    Worker(u16),
}

/// The order in which sessions are given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SessionClaim {
    Control,
    Catalogue,
    Group(Sequence),
}

/// Shared by all users of a channel's target; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room {
    shared: Arc<SharedRoom>,
}

#[derive(Debug, Default)]
struct SharedRoom {
    state: Mutex<RoomState>,
    /// Wakes in the order of waiting, so that a simulation repeats it.
    changed: Notify,
}

#[derive(Debug, Default)]
struct RoomState {
    /// Sessions that are open or being opened.
    open: BTreeMap<u64, Party>,
    last_ticket: u64,
    /// Those of them that are not in use, with the generation to which each belongs.
    idle: BTreeMap<Party, (Session, u64)>,
    wanting: BTreeSet<(SessionClaim, Party)>,
    /// Users that wait for a group before theirs, most of them with a session.
    waiting: BTreeSet<(SessionClaim, Party)>,
    /// Some of them, which were asked to give their session up.
    giving: BTreeSet<Party>,
    limit: Option<Limit>,
    /// The last time that a session ended.
    left: Option<Instant>,
    /// Sessions were refused that the server may count although their link is lost.
    is_suspect: bool,
}

/// The target has refused more sessions than these.
#[derive(Debug, Clone)]
struct Limit {
    sessions: usize,
    /// The time of the next attempt at one more.
    again: Instant,
    why: String,
}

/// Sessions that a channel has to make do with.
#[derive(Debug, Clone)]
pub struct Shortage {
    /// The number of sessions, without the control session.
    pub sessions: usize,
    pub why: String,
    pub again: Instant,
}

/// The room as a session refers to it: weak, because the room holds sessions.
#[derive(Debug)]
pub(crate) struct RoomOfSession(Weak<SharedRoom>);

impl RoomOfSession {
    fn get(&self) -> Option<Room> {
        Some(Room { shared: self.0.upgrade()? })
    }
}

impl MakesWay for RoomOfSession {
    fn make_way(&self) -> Pending<'_, Option<OccupiedRoom>> {
        Box::pin(async {
            let way: OccupiedRoom = Box::new(self.get()?.make_way().await?);
            Some(way)
        })
    }
}

/// Held as long as a session is open; dropping it frees the room.
#[derive(Debug)]
pub(crate) struct Permit {
    room: RoomOfSession,
    ticket: u64,
    party: Party,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(Room { shared }) = self.room.get() else { return };
        {
            let mut state = shared.state.lock();
            state.open.remove(&self.ticket);
            state.giving.remove(&self.party);
            state.left = Some(Instant::now());
        }
        shared.changed.notify_waiters();
    }
}

/// An entry of a set for as long as it lives, whatever becomes of the future that holds it.
#[derive(Debug)]
pub(crate) struct Listed {
    room: Room,
    set: fn(&mut RoomState) -> &mut BTreeSet<(SessionClaim, Party)>,
    entry: (SessionClaim, Party),
}

impl Listed {
    fn new(
        room: &Room,
        set: fn(&mut RoomState) -> &mut BTreeSet<(SessionClaim, Party)>,
        entry: (SessionClaim, Party),
    ) -> Self {
        set(&mut room.shared.state.lock()).insert(entry);
        room.shared.changed.notify_waiters();
        Self { room: room.clone(), set, entry }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        (self.set)(&mut self.room.shared.state.lock()).remove(&self.entry);
        self.room.shared.changed.notify_waiters();
    }
}

impl RoomState {
    fn may_enter(&self, entry: (SessionClaim, Party), now: Instant) -> bool {
        let Some(limit) = &self.limit else { return true };
        let is_first = self.wanting.first().is_none_or(|first| *first >= entry);
        is_first && (self.open.len() < limit.sessions || now >= limit.again)
    }

    fn enter(&mut self, party: Party, now: Instant) -> u64 {
        if let Some(limit) = &mut self.limit
            && self.open.len() >= limit.sessions
        {
            // One attempt at a time.
            limit.again = now + refused_pause();
        }
        self.last_ticket += 1;
        self.open.insert(self.last_ticket, party);
        self.last_ticket
    }

    fn limit_to(&mut self, limit: Limit) {
        if self.limit.is_none() {
            let Limit { sessions, why, .. } = &limit;
            warn!(sessions, why, "the target refuses more sessions; making do with these");
        }
        self.limit = Some(limit);
    }

    /// Returns true if the user is the one to give its session up.
    fn is_asked(&self, entry: (SessionClaim, Party)) -> bool {
        let earlier = self.wanting.iter().filter(|(claim, _)| *claim < entry.0).count();
        // A group that failed may wait for its turn without a session: it has none to give.
        let may_give = |party: &Party| {
            !self.giving.contains(party) && self.open.values().any(|holder| holder == party)
        };
        let last = self.waiting.iter().rfind(|(_, party)| may_give(party));
        self.limit.is_some()
            && self.idle.is_empty()
            && self.giving.len() < earlier
            && last == Some(&entry)
            && !is_planted(Bug::SessionsKept)
    }
}

impl Room {
    /// Waits until a session may be opened.
    pub(crate) async fn enter(&self, entry: (SessionClaim, Party)) -> Permit {
        let (_, party) = entry;
        let mut wanting = None;
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            let now = Instant::now();
            let (idle, until) = {
                let mut state = self.shared.state.lock();
                if state.may_enter(entry, now) {
                    let ticket = state.enter(party, now);
                    return Permit { room: self.of_session(), ticket, party };
                }
                let again = state.limit.as_ref().map(|limit| limit.again);
                (state.idle.pop_last(), again.filter(|again| *again > now).unwrap_or(now + LOOK))
            };
            if wanting.is_none() {
                wanting = Some(Listed::new(self, |state| &mut state.wanting, entry));
            }
            match idle {
                Some((_, (session, _))) => session.close().await,
                None => tokio::select! {
                    biased;
                    () = changed => {}
                    () = sleep_until(until.min(now + LOOK)) => {}
                },
            }
        }
    }

    /// A session was opened.
    pub(crate) fn entered(&self) {
        let mut state = self.shared.state.lock();
        let open = state.open.len();
        if let Some(limit) = &mut state.limit
            && open > limit.sessions
        {
            limit.sessions = open;
            limit.again = Instant::now();
        }
    }

    /// A session was refused for want of room. True if there are others to wait for.
    pub(crate) fn refused(&self, permit: Permit, error: &Error, chance: &dyn Chance) -> bool {
        drop(permit);
        let pause = error.refused_pause(chance).unwrap_or_else(refused_pause);
        let mut state = self.shared.state.lock();
        let sessions = state.open.len();
        state.limit_to(Limit { sessions, again: Instant::now() + pause, why: error.to_string() });
        state.is_suspect = true;
        drop(state);
        self.shared.changed.notify_waiters();
        sessions > 0
    }

    /// Returns true if the server may still count a session that has ended.
    pub(crate) fn has_just_left(&self) -> bool {
        self.shared.state.lock().left.is_some_and(|left| left.elapsed() < COUNTED)
    }

    /// Keeps a session that is not in use until its user takes it back, or another needs the room; then it is
    /// returned, and has to be closed.
    pub(crate) fn park(&self, party: Party, session: Session, generation: u64) -> Option<Session> {
        let mut state = self.shared.state.lock();
        state.giving.remove(&party);
        if !state.wanting.is_empty() && state.limit.is_some() {
            return Some(session);
        }
        let before = state.idle.insert(party, (session, generation));
        before.map(|(session, _)| session)
    }

    /// Returns the session of [`Self::park`], if nobody needed it.
    pub(crate) fn unpark(&self, party: Party) -> Option<(Session, u64)> {
        self.shared.state.lock().idle.remove(&party)
    }

    /// Returns true if the user has a session that is not in use.
    pub(crate) fn has_idle(&self, party: Party) -> bool {
        self.shared.state.lock().idle.contains_key(&party)
    }

    /// Ends when the user, who waits for a group before its own, is to give its session up.
    pub(crate) async fn asked(&self, entry: (SessionClaim, Party)) {
        let (_, party) = entry;
        let _waiting = Listed::new(self, |state| &mut state.waiting, entry);
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            {
                let mut state = self.shared.state.lock();
                if state.is_asked(entry) {
                    state.giving.insert(party);
                    return;
                }
            }
            changed.await;
        }
    }

    /// True if the user was asked to give its session up, and has not yet.
    pub(crate) fn is_giving(&self, party: Party) -> bool {
        self.shared.state.lock().giving.contains(&party)
    }

    /// Returns the room as a session knows it.
    pub(crate) fn of_session(&self) -> RoomOfSession {
        RoomOfSession(Arc::downgrade(&self.shared))
    }

    /// Ends a session so that the control session can be opened, or one that only asks something. Nobody else takes
    /// the room as long as the result lives. `None` if there is no session to end.
    pub(crate) async fn make_way(&self) -> Option<Listed> {
        const PATIENCE: Duration = Duration::from_secs(10);
        let idle = {
            let mut state = self.shared.state.lock();
            if state.open.is_empty() {
                return None;
            }
            if state.limit.is_none() {
                let sessions = state.open.len() - 1;
                let why = "the control session needs the room".to_owned();
                state.limit_to(Limit { sessions, again: Instant::now() + refused_pause(), why });
            }
            state.idle.pop_last()
        };
        let first = (SessionClaim::Control, Party::Control);
        let wanting = Listed::new(self, |state| &mut state.wanting, first);
        if let Some((_, (session, _))) = idle {
            session.close().await;
            return Some(wanting);
        }
        let before = self.shared.state.lock().left;
        let left = async {
            loop {
                let mut changed = std::pin::pin!(self.shared.changed.notified());
                changed.as_mut().enable();
                if self.shared.state.lock().left != before {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(PATIENCE, left).await.ok().map(|()| wanting)
    }

    /// The number of groups that may run: as many as there are sessions for, and one more when it is time to ask for
    /// one.
    pub(crate) fn workers(&self, wanted: u16) -> u16 {
        let mut state = self.shared.state.lock();
        let others = state.open.values().filter(|party| !is_worker(party)).count();
        let Some(limit) = &state.limit else { return wanted };
        let sessions = limit.sessions.saturating_sub(others);
        let asks = usize::from(Instant::now() >= limit.again);
        let permitted = u16::try_from(sessions + asks).unwrap_or(wanted).clamp(1, wanted);
        if sessions >= usize::from(wanted) {
            info!(sessions, "the target has room for all sessions again");
            state.limit = None;
        }
        permitted
    }

    /// Workers below this number that have no session, where the server may count ones that they had.
    pub(crate) fn suspects(&self, workers: u16) -> Vec<u16> {
        let mut state = self.shared.state.lock();
        if !std::mem::take(&mut state.is_suspect) {
            return Vec::new();
        }
        let has = |worker: &u16| state.open.values().any(|party| *party == Party::Worker(*worker));
        (0..workers).filter(|worker| !has(worker)).collect()
    }

    /// Ends the sessions that are not in use.
    pub(crate) fn clear(&self) {
        let idle = std::mem::take(&mut self.shared.state.lock().idle);
        // Without the lock, which the end of each takes.
        drop(idle);
    }

    /// The shortage, while somebody wants more than there is.
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        let state = self.shared.state.lock();
        let Limit { sessions, again, why } = state.limit.clone()?;
        if state.wanting.is_empty() && again < Instant::now() {
            return None;
        }
        Some(Shortage { sessions, why, again })
    }
}

fn is_worker(party: &Party) -> bool {
    matches!(party, Party::Worker(_))
}
