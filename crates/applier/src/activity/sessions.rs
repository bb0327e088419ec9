//! States of all workers' sessions, for the status and for resolving lock inversions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use csa_provider::recorder::{Details, Recorder, Span, Track};
use csa_scheduler::group::Group;
use csa_scheduler::sequence::Sequence;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A worker's state with its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// Collecting the group's rows.
    Preparing,
    /// Another group that touches the same keys has to be committed first.
    WaitingForDependency,
    Applying,
    /// Applied; an earlier group is not committed yet.
    WaitingForTurn,
    Committing,
    /// Everything received of its transaction is applied; the source still sends the rest.
    WaitingForEvents,
}

impl SessionState {
    /// Name in status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::WaitingForDependency => "waiting_for_dependency",
            Self::Applying => "applying",
            Self::WaitingForTurn => "waiting_for_turn",
            Self::Committing => "committing",
            Self::WaitingForEvents => "waiting_for_events",
        }
    }

    /// Returns true if a group in it yields as soon as it is asked; the others yield after their statement.
    pub(crate) const fn yields_at_once(self) -> bool {
        matches!(self, Self::WaitingForDependency | Self::WaitingForTurn | Self::WaitingForEvents)
    }

    pub const ALL: [Self; 6] = [
        Self::Preparing,
        Self::WaitingForDependency,
        Self::Applying,
        Self::WaitingForTurn,
        Self::Committing,
        Self::WaitingForEvents,
    ];
}

/// The time that a worker spent in each state with one group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TimesInStates([Duration; SessionState::ALL.len()]);

impl TimesInStates {
    pub(crate) fn add(&mut self, state: SessionState, time: Duration) {
        if let Some(sum) = self.0.get_mut(state as usize) {
            *sum += time;
        }
    }

    /// Returns the durations in the order of [`SessionState::ALL`].
    pub(crate) const fn in_order(self) -> [Duration; SessionState::ALL.len()] {
        self.0
    }
}

/// One worker at one moment.
#[derive(Debug, Clone)]
pub struct SessionView {
    pub worker: u16,
    /// The target's number of the connection, once there is one.
    pub connection: Option<u32>,
    pub sequence: Sequence,
    pub state: SessionState,
    pub since: Instant,
    /// Bytes of the group that were sent, and of the whole group; 0 until known.
    pub done_bytes: u64,
    pub total_bytes: u64,
}

/// A worker's progress in its group.
#[derive(Debug, Default)]
pub(crate) struct GroupProgress {
    done: AtomicU64,
    total: AtomicU64,
}

impl GroupProgress {
    /// Begins a new attempt at so many bytes.
    pub(crate) fn begin(&self, total: u64) {
        // Relaxed, because nothing but views reads them.
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.done.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The group whose turn it is, while it makes no progress.
#[derive(Debug, Clone)]
pub(crate) struct Stalled {
    pub(crate) group: Arc<Group>,
    pub(crate) connection: u32,
    pub(crate) since: Instant,
    /// Later groups wait for it and may hold its locks.
    pub(crate) parked: bool,
}

/// The group whose turn it is, or the statement that is being executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) what: String,
    /// The target's number of its session; `None` while it waits for nothing there.
    pub(crate) connection: Option<u32>,
    /// The time since which it has not come further.
    pub(crate) since: Instant,
    /// A statement that commits implicitly, whose wait for a lock may end when the channel is stopped.
    pub(crate) may_be_interrupted: bool,
}

/// Shorter states are not shown on the timeline.
const SHOWN: Duration = Duration::from_micros(1);

/// Returns a group's figures.
pub(crate) fn details(group: &Group) -> Details {
    let (first, last) = group.span();
    Details {
        group: Some(group.sequence.get()),
        waited_for: None,
        first: Some(first.clone()),
        last: Some(last.clone()),
        transactions: Some(group.transactions.len() as u64),
        rows: Some(group.rows as u64),
        bytes: Some(group.bytes()),
    }
}

/// All workers that have a group, by its sequence number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sessions {
    recorder: Recorder,
    running: Arc<Mutex<BTreeMap<Sequence, Running>>>,
}

#[derive(Debug)]
struct Running {
    group: Arc<Group>,
    recorder: Recorder,
    begun: Instant,
    /// The group for which the session waits in its present state.
    waits_for: Option<Sequence>,
    is_done: bool,
    view: SessionView,
    /// The times in states before the present one.
    times: TimesInStates,
    yielding: Arc<Yield>,
    /// The last group that it was asked to yield to. From then on it begins after that one.
    yields_to: Sequence,
    progress: Arc<GroupProgress>,
}

impl Running {
    /// The present state ends.
    fn end_state(&mut self, at: Instant) {
        let time = at.saturating_duration_since(self.view.since);
        self.times.add(self.view.state, time);
        if time >= SHOWN {
            self.recorder.record(|| self.state_until(at));
        }
        self.view.since = at;
    }

    /// Returns the present state on the timeline.
    fn state_until(&self, ended: Instant) -> Span {
        Span {
            track: Track::Worker(self.view.worker),
            name: self.view.state.name(),
            begun: self.view.since,
            ended,
            details: Details {
                group: Some(self.view.sequence.get()),
                waited_for: self.waits_for.map(Sequence::get),
                ..Details::default()
            },
        }
    }

    /// Returns the whole group on the timeline.
    fn group_until(&self, ended: Instant) -> Span {
        let track = Track::Worker(self.view.worker);
        Span { track, name: "group", begun: self.begun, ended, details: details(&self.group) }
    }

    fn view(&self) -> SessionView {
        SessionView {
            done_bytes: self.progress.done.load(Ordering::Relaxed),
            total_bytes: self.progress.total.load(Ordering::Relaxed),
            ..self.view.clone()
        }
    }
}

/// A request to give up locks that an earlier group waits for.
#[derive(Debug, Default)]
pub(crate) struct Yield {
    to: Mutex<Option<Sequence>>,
    asked: Notify,
}

impl Yield {
    /// Waits for the request, and returns the group that has to commit first.
    pub(crate) async fn asked(&self) -> Sequence {
        loop {
            if let Some(earlier) = self.to.lock().take() {
                return earlier;
            }
            // A request made since the look is kept: `notify_one` leaves a permit.
            self.asked.notified().await;
        }
    }
}

impl Sessions {
    /// Shows them on a timeline, too.
    pub(crate) fn recorded(recorder: Recorder) -> Self {
        Self { recorder, ..Self::default() }
    }

    /// The groups that workers have at this moment, and their states, as they would end now.
    pub(crate) fn unfinished(&self) -> Vec<Span> {
        let now = Instant::now();
        let running = self.running.lock();
        running.values().flat_map(|one| [one.state_until(now), one.group_until(now)]).collect()
    }

    /// Records that a worker takes a group; dropping the guard removes the entry.
    pub(crate) fn enter(&self, worker: u16, group: &Arc<Group>) -> Entered {
        let (sequence, begun) = (group.sequence, Instant::now());
        let yielding = Arc::new(Yield::default());
        let view = SessionView {
            worker,
            connection: None,
            sequence,
            state: SessionState::Preparing,
            since: begun,
            done_bytes: 0,
            total_bytes: 0,
        };
        let progress = Arc::new(GroupProgress::default());
        let running = Running {
            group: Arc::clone(group),
            recorder: self.recorder.clone(),
            begun,
            waits_for: None,
            is_done: false,
            view,
            times: TimesInStates::default(),
            yielding: Arc::clone(&yielding),
            yields_to: Sequence::default(),
            progress: Arc::clone(&progress),
        };
        self.running.lock().insert(sequence, running);
        Entered { sessions: self.clone(), sequence, yielding, progress }
    }

    pub(crate) fn views(&self) -> Vec<SessionView> {
        self.running.lock().values().map(Running::view).collect()
    }

    /// Returns the group whose turn it is, if it has been applying for `patience`.
    pub(crate) fn stalled(&self, patience: Duration) -> Option<Stalled> {
        let running = self.running.lock();
        let mut views = running.values().map(|running| &running.view);
        let first = views.next()?;
        // In the other states it waits for groups or the disk, or has no transaction yet.
        let stalled = first.state == SessionState::Applying && first.since.elapsed() >= patience;
        let parked = views.any(|later| {
            matches!(later.state, SessionState::WaitingForTurn | SessionState::WaitingForDependency)
        });
        let connection = first.connection.filter(|_| stalled)?;
        let group = Arc::clone(&running.values().next()?.group);
        Some(Stalled { group, connection, since: first.since, parked })
    }

    /// Returns the group whose turn it is.
    pub(crate) fn oldest_work(&self) -> Option<Work> {
        let running = self.running.lock();
        let first = running.values().next()?;
        // In the other states it waits for groups, or for nothing on the target.
        let executes =
            matches!(first.view.state, SessionState::Applying | SessionState::Committing);
        Some(Work {
            what: format!("transaction {}", first.group.span().0),
            connection: first.view.connection.filter(|_| executes),
            since: first.view.since,
            may_be_interrupted: false,
        })
    }

    /// Asks all groups after the one whose turn it is to yield to it, if it has been applying for
    /// `patience`. Targets that do not show the holder of a lock need this. Returns the number that was not
    /// asked before.
    pub(crate) fn all_yield(&self, patience: Duration) -> usize {
        let Some(Stalled { group, parked: true, .. }) = self.stalled(patience) else { return 0 };
        self.all_yield_to(group.sequence)
    }

    /// Asks all groups after `earlier` to yield to it. Returns the number that was not asked before.
    pub(crate) fn all_yield_to(&self, earlier: Sequence) -> usize {
        self.those_yield_to(earlier, |_| true).len()
    }

    /// Asks the later groups on these connections to yield to `earlier`. Returns the states of those that were
    /// not asked before.
    pub(crate) fn yield_to(&self, earlier: Sequence, connections: &[u32]) -> Vec<SessionState> {
        self.those_yield_to(earlier, |connection| connections.contains(&connection))
    }

    /// Asks each later group once: one that has yielded has no lock before `earlier` is committed.
    fn those_yield_to(&self, earlier: Sequence, holds: impl Fn(u32) -> bool) -> Vec<SessionState> {
        let mut running = self.running.lock();
        let later = running.range_mut(earlier.next()..).map(|(_, running)| running);
        later
            .filter(|running| running.view.connection.is_some_and(&holds))
            .filter(|running| running.yields_to != earlier)
            .map(|running| {
                running.yields_to = earlier;
                // Under the map's lock, which `asked` never takes.
                *running.yielding.to.lock() = Some(earlier);
                running.yielding.asked.notify_one();
                running.view.state
            })
            .collect()
    }
}

/// A worker's entry.
#[derive(Debug)]
pub(crate) struct Entered {
    sessions: Sessions,
    sequence: Sequence,
    pub(crate) yielding: Arc<Yield>,
    pub(crate) progress: Arc<GroupProgress>,
}

impl Entered {
    pub(crate) fn now(&self, state: SessionState) {
        self.change(state, Instant::now(), None);
    }

    /// Does what [`Self::now`] does, for a moment that has passed.
    pub(crate) fn since(&self, state: SessionState, at: Instant) {
        self.change(state, at, None);
    }

    /// Does what [`Self::now`] does, for a state that lasts until everything up to `group` is
    /// committed.
    pub(crate) fn waits(&self, state: SessionState, group: Sequence) {
        self.change(state, Instant::now(), Some(group));
    }

    fn change(&self, state: SessionState, at: Instant, waits_for: Option<Sequence>) {
        if let Some(running) = self.sessions.running.lock().get_mut(&self.sequence) {
            running.end_state(at);
            running.view.state = state;
            running.waits_for = waits_for;
        }
    }

    /// The group is committed: the time spent in each state.
    pub(crate) fn done(&self) -> TimesInStates {
        let mut running = self.sessions.running.lock();
        let Some(running) = running.get_mut(&self.sequence) else {
            return TimesInStates::default();
        };
        running.end_state(Instant::now());
        running.is_done = true;
        running.times
    }

    pub(crate) fn connected(&self, connection: u32) {
        if let Some(running) = self.sessions.running.lock().get_mut(&self.sequence) {
            running.view.connection = Some(connection);
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Some(mut running) = self.sessions.running.lock().remove(&self.sequence) else { return };
        if running.recorder.is_on() {
            if !running.is_done {
                running.end_state(Instant::now());
            }
            let ended = running.view.since;
            running.recorder.record(|| running.group_until(ended));
        }
    }
}
