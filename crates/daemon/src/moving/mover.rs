//! Takes the steps of a move, one after the other, however often it is interrupted.

use std::time::Duration;

use csa_provider::binlog::GtidSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::DaemonControl;
use super::check::{STAYS, channel_problems, server_problems};
use super::decide::{MoveFacts, Next, Refusal, decide, has_not_restarted, is_over};
use super::fence::Fence;
use super::journal::{Direction, Journal, JournalFile, MovePhase, Step, number_on_host};
use super::pair::{Pair, check_servers};
use super::server::{Asked, Server, ServerError};
use crate::config::{ChannelSettings, EventKind, MoveSettings};
use crate::host::{Failure, now_micros};

/// How long a server or the daemon may be away where nothing can be undone.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How long a channel may take to become ready before a move is refused.
const SOON: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);

/// The end of a step that did not succeed.
#[derive(Debug)]
pub(super) enum MoveStop {
    /// A server went away, or changed: look at everything again.
    Again(String),
    /// It will not succeed.
    GiveUp(String),
    /// Somebody has to act first, and the servers stay as they are.
    End(String),
}

impl From<ServerError> for MoveStop {
    fn from(error: ServerError) -> Self {
        match error.code {
            None => Self::Again(error.text),
            Some(_) => Self::GiveUp(error.text),
        }
    }
}

impl MoveStop {
    pub(super) fn text(self) -> String {
        match self {
            Self::Again(text) | Self::GiveUp(text) | Self::End(text) => text,
        }
    }
}

pub(super) type Taken = Result<(), MoveStop>;

/// A move of one pair in one direction.
pub(crate) struct Mover<'a> {
    pub(super) pair: Pair<'a>,
    pub(super) daemon: &'a dyn DaemonControl,
    pub(super) direction: Direction,
    pub(super) from: Server,
    pub(super) to: Server,
    pub(super) fence: Fence,
    pub(super) file: JournalFile,
    pub(super) journal: Journal,
    /// The time when this process began the move, or saw that it had begun.
    since: Option<Instant>,
    /// This process has begun a move, or has seen one that had begun.
    was_begun: bool,
    /// A process of this command was killed that had noted something.
    follows_worker: bool,
    /// Set once something went wrong that was not undone.
    pub(super) alarm: Option<String>,
    /// This process has moved the applications, or has undone the move.
    pub(super) has_ended: bool,
    /// The new server may have been open, so nothing is undone. Until then this process tries to open it.
    pub(super) may_be_open: Option<Instant>,
    /// Somebody wants the move to end: it is undone, or it continues where it can't be.
    pub(super) stop: CancellationToken,
}

impl<'a> Mover<'a> {
    /// Takes the locks of the pair, and looks at both servers.
    pub(crate) fn new(
        pair: Pair<'a>,
        daemon: &'a dyn DaemonControl,
        direction: Direction,
    ) -> Result<Self, Failure> {
        let directory = pair.up.directory().to_owned();
        let file = JournalFile::open(&directory).map_err(Failure::Runtime)?;
        let [from, to] = pair.servers(direction).map(Server::new);
        let mut mover = Self {
            fence: pair.fence(),
            journal: Journal::new(direction, 0, now_micros(), &crate::notify::host()),
            from,
            to,
            file,
            daemon,
            direction,
            pair,
            since: None,
            was_begun: false,
            follows_worker: false,
            alarm: None,
            has_ended: false,
            may_be_open: None,
            stop: CancellationToken::new(),
        };
        let lock = format!("csa_move_{}", mover.pair.up.name);
        // Longer than a move that lives is silent: while a command runs, or until its time limit.
        let MoveSettings { command_timeout, time_limit, .. } = &mover.pair.settings;
        let idle = *time_limit + *command_timeout * 3 + Duration::from_secs(30);
        mover.from.lock(&lock, idle);
        mover.to.lock(&lock, idle);
        Ok(mover)
    }

    /// Returns the channel from the server that the applications leave.
    pub(super) fn forward(&self) -> &'a ChannelSettings {
        let [forward, _] = self.pair.channels(self.direction);
        forward
    }

    /// Returns the channel back to that server.
    pub(super) fn reverse(&self) -> &'a ChannelSettings {
        let [_, reverse] = self.pair.channels(self.direction);
        reverse
    }

    pub(crate) fn stop_with(&mut self, stop: CancellationToken) {
        self.stop = stop;
    }

    /// Lets no move be begun if this host has noted one after that number: an earlier process of this command was
    /// killed, and its move is over.
    pub(crate) fn begins_after(&mut self, number: u64) {
        self.follows_worker = number_on_host(self.pair.up.directory()) > number;
        self.was_begun = self.follows_worker;
    }

    /// Moves the applications, or finishes what was begun.
    pub(crate) async fn go(&mut self) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        let (mut was_said, mut is_ours) = (false, false);
        loop {
            let round = Instant::now();
            let (next, away) = self.decided(is_ours).await?;
            let stop = match next {
                Next::Nothing => {
                    let address = self.to.address();
                    self.daemon.tell(&format!("the applications use {address} already"));
                    self.has_ended = self.follows_worker;
                    return Ok(());
                }
                Next::Refuse(refusal) => return Err(self.refused(refusal)),
                Next::Ask if Instant::now() > until => {
                    let away = away.unwrap_or_else(|| "a server does not answer".to_owned());
                    let why = format!("{away}; run the same command again once it answers");
                    return Err(Failure::Runtime(why));
                }
                Next::Ask => {
                    if !was_said && let Some(away) = &away {
                        self.daemon.tell(&format!("waiting: {away}"));
                    }
                    was_said = true;
                    tokio::time::sleep(POLL).await;
                    continue;
                }
                Next::Ended => {
                    self.has_ended = self.follows_worker;
                    return Err(self.ended_elsewhere(&self.journal));
                }
                Next::Undo(why) => return Err(self.undo(why).await),
                Next::Begin => {
                    self.begin().await?;
                    is_ours = true;
                    self.take_from(Step::Fence).await
                }
                Next::Continue(step) => {
                    let words = format!("the {} continues: {}", self.direction.name(), step.name());
                    self.daemon.tell(&words);
                    self.expect_servers();
                    is_ours = true;
                    // The journal is at this step only if the server is open, or may have been.
                    self.may_be_open = (step == Step::Open).then_some(until);
                    self.continue_from(step).await
                }
            };
            // A round that was long, as a program of the hand-over may be, is followed by another look.
            if let Some(ended) = self.after(stop, round > until).await {
                return ended;
            }
        }
    }

    /// Reads the journal, looks at both servers, and decides. Returns the error of a server that does not answer.
    async fn decided(&mut self, is_ours: bool) -> Result<(Next, Option<String>), Failure> {
        let journal = match is_ours {
            true => self.recorded_by_us().await?,
            false => self.recorded().await?,
        };
        if let Some(journal) = &journal {
            self.journal = journal.clone();
        }
        let is_begun = journal.as_ref().is_some_and(Journal::is_unfinished);
        if is_begun {
            self.was_begun = true;
            self.since.get_or_insert_with(Instant::now);
        }
        // Whatever a server refuses meanwhile, a move that was begun has to end.
        let (facts, away) = match is_begun {
            true => self.facts_of_begun().await,
            false => self.facts().await?,
        };
        let is_late = self.is_late(&self.journal) || (is_begun && self.stop.is_cancelled());
        let next = decide(journal.as_ref(), self.direction, facts, is_late, self.was_begun);
        Ok((next, away))
    }

    /// Returns the end of the command, or `None` if it looks at everything again.
    async fn after(&mut self, taken: Taken, is_last: bool) -> Option<Result<(), Failure>> {
        match taken {
            Ok(()) => Some(self.alarm.take().map_or(Ok(()), |why| Err(Failure::Runtime(why)))),
            Err(MoveStop::Again(why)) => {
                self.daemon.tell(&format!("looking at both servers again: {why}"));
                tokio::time::sleep(POLL).await;
                let is_stopped = self.stop.is_cancelled() && !self.is_opened();
                let is_over = self.is_forward_only() && (is_stopped || is_last);
                is_over.then(|| Err(self.forward_only(&why)))
            }
            Err(MoveStop::End(why)) => Some(Err(Failure::Runtime(why))),
            Err(MoveStop::GiveUp(why)) if self.is_forward_only() => {
                Some(Err(self.forward_only(&why)))
            }
            Err(MoveStop::GiveUp(why)) => Some(Err(self.undo(why).await)),
        }
    }

    /// Returns a refusal with what the operator may do on the servers.
    pub(super) fn refused(&self, Refusal { why, by_hand }: Refusal) -> Failure {
        let servers = [&self.from, &self.to];
        let mut text = format!("{} -> {}: {why}", self.from.address(), self.to.address());
        for (server, wanted) in servers.into_iter().zip(by_hand) {
            if let Some(wanted) = wanted {
                text = format!("{text}; {}", self.fence.by_hand(server, wanted));
            }
        }
        Failure::Input(text)
    }

    /// Returns the channel whose settings the move has.
    pub(crate) fn channel(&self) -> &'a ChannelSettings {
        self.pair.up
    }

    /// Returns what others are to learn of the end of the move.
    pub(crate) fn news(&self) -> Option<(EventKind, String)> {
        let (from, to) = (self.from.address(), self.to.address());
        match self.journal.phase {
            _ if !self.has_ended => None,
            MovePhase::Moved => {
                Some((EventKind::CutOver, format!("the applications use {to} instead of {from}")))
            }
            MovePhase::Undone => {
                let why = &self.journal.why;
                Some((EventKind::MoveUndone, format!("{why}; {from} takes the writes as before")))
            }
            _ => None,
        }
    }

    fn forward_only(&self, why: &str) -> Failure {
        let (from, to) = (self.from.address(), self.to.address());
        let now = match self.is_opened() {
            true => format!("{to} takes the writes now and {from} is fenced"),
            false => format!("{to} may have taken writes, so {from} is not opened again"),
        };
        Failure::Runtime(format!(
            "{why}; {now}: see to it, and run the same command again, which continues after the step {:?}",
            self.journal.step.name()
        ))
    }

    /// Returns true if this move has opened the new server.
    pub(super) fn is_opened(&self) -> bool {
        self.journal.phase == MovePhase::Moving && self.journal.was_opened()
    }

    /// Returns true if the new server takes writes, or may have taken some.
    fn is_forward_only(&self) -> bool {
        self.may_be_open.is_some() || self.is_opened()
    }

    pub(super) fn is_late(&self, journal: &Journal) -> bool {
        let counted = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        let limit = self.pair.settings.time_limit;
        journal.is_unfinished() && is_over(journal.begun_at, now_micros(), counted, limit)
    }

    /// Ends a step that has not yet opened the new server at the time limit.
    pub(super) fn in_time(&self, doing: impl FnOnce() -> String) -> Taken {
        if self.stop.is_cancelled() && !self.is_opened() {
            return Err(MoveStop::GiveUp("stopped by a signal".to_owned()));
        }
        if let Some(until) = self.may_be_open {
            let is_over = Instant::now() > until && !self.is_opened();
            return if is_over { Err(MoveStop::GiveUp(doing())) } else { Ok(()) };
        }
        match self.is_late(&self.journal) && !self.is_opened() {
            true => Err(MoveStop::GiveUp(format!(
                "not within move.time_limit ({} s): {}",
                self.pair.settings.time_limit.as_secs_f64(),
                doing()
            ))),
            false => Ok(()),
        }
    }

    /// Returns what both servers say, and the error of one that does not answer.
    ///
    /// # Errors
    /// A server answers, and refuses.
    pub(super) async fn facts(&mut self) -> Result<(MoveFacts, Option<String>), Failure> {
        let (facts, errors) = self.looked().await;
        let refusal = errors.iter().find(|error| error.code.is_some());
        match refusal {
            Some(error) => Err(Failure::Runtime(error.text.clone())),
            None => Ok((facts, errors.into_iter().next().map(|error| error.text))),
        }
    }

    /// Returns the same; one that refuses does not answer.
    async fn facts_of_begun(&mut self) -> (MoveFacts, Option<String>) {
        let (facts, errors) = self.looked().await;
        (facts, errors.into_iter().next().map(|error| error.text))
    }

    pub(super) async fn looked(&mut self) -> (MoveFacts, Vec<ServerError>) {
        let mut errors = Vec::new();
        let from = self.fence.access(&mut self.from).await;
        let from = answered(from, &mut errors);
        let to = self.fence.access(&mut self.to).await;
        let to = answered(to, &mut errors);
        let life = answered(self.to.life().await, &mut errors);
        let lived = now_micros().saturating_sub(self.journal.begun_at) / 1_000_000;
        let is_same_life = life.is_some_and(|life| has_not_restarted(life, &self.journal, lived));
        (MoveFacts { from, to, is_same_life }, errors)
    }

    /// Looks whether everything is ready, and begins the journal. Nothing else is touched.
    async fn begin(&mut self) -> Result<(), Failure> {
        check_servers(self.forward(), self.reverse(), &self.from, &self.to).await?;
        let found = self.problems().await?;
        if !found.is_empty() {
            let found = found.join("; also: ");
            return Err(Failure::Runtime(format!("nothing was touched: {found}")));
        }
        let events = self.from.is_on("event_scheduler").await.map_err(untouched)?;
        let life = self.to.life().await.map_err(untouched)?;
        let number = self.journal.number;
        self.since = Some(Instant::now());
        self.journal = Journal {
            events,
            uptime: Some(life.uptime),
            start: Some(life.start),
            ..Journal::new(self.direction, number, now_micros(), &crate::notify::host())
        };
        Ok(())
    }

    /// Waits a while for what passes on its own, such as a channel that starts, and returns the rest.
    pub(super) async fn problems(&mut self) -> Result<Vec<String>, Failure> {
        let of_servers =
            server_problems(&self.pair, [&mut self.from, &mut self.to]).await.map_err(untouched)?;
        // The last look counts. A lag that was known a moment ago may not be now.
        let until = Instant::now() + SOON;
        let mut found = self.channel_problems();
        while !found.is_empty() && !self.has_stopped_channel() && Instant::now() < until {
            tokio::time::sleep(POLL).await;
            found = self.channel_problems();
        }
        found.extend(of_servers);
        Ok(found)
    }

    fn channel_problems(&self) -> Vec<String> {
        let max_lag = self.pair.settings.max_lag.as_secs_f64();
        channel_problems(self.daemon, self.pair.channels(self.direction), max_lag)
    }

    /// Returns true if a channel is in a state that somebody has to end.
    fn has_stopped_channel(&self) -> bool {
        let stays = |channel: &ChannelSettings| {
            self.daemon.view(&channel.name).is_ok_and(|view| STAYS.contains(&view.state))
        };
        self.pair.channels(self.direction).into_iter().any(stays)
    }

    /// Returns true while a channel is not ready, and may become so on its own.
    pub(super) fn waits_for_channels(&self) -> bool {
        !self.channel_problems().is_empty() && !self.has_stopped_channel()
    }

    /// Continues a move. Before a step that comes earlier than the opening of the new server, one that was noted is taken
    /// back.
    async fn continue_from(&mut self, step: Step) -> Taken {
        if step < Step::Open {
            let is_back = self.take_back_opening().await;
            is_back.map_err(|stop| MoveStop::Again(stop.text()))?;
        }
        self.take_from(step).await
    }

    /// Takes a step and all after it.
    async fn take_from(&mut self, first: Step) -> Taken {
        if self.is_opened() {
            self.reopen().await?;
        }
        let mut next = Some(first);
        while let Some(step) = next {
            self.take(step).await?;
            next = step.next();
        }
        self.journal.phase = MovePhase::Moved;
        self.note().await?;
        self.has_ended = true;
        let seconds = now_micros().saturating_sub(self.journal.begun_at) as f64 / 1e6;
        self.daemon.tell(&format!(
            "{} done in {seconds:.1} s: the applications use {}, and channel {} follows on {}",
            self.direction.name(),
            self.to.address(),
            self.reverse().name,
            self.from.address()
        ));
        Ok(())
    }

    async fn take(&mut self, step: Step) -> Taken {
        // The step that opens the new server notes its begin after its own last look.
        if step != Step::Open {
            self.note_step(step, false).await?;
        }
        match step {
            Step::Fence => self.fence_old().await?,
            Step::Wait => self.wait().await?,
            Step::Compare => self.compare().await?,
            Step::Open => self.open().await?,
            Step::HandOver => self.hand_over().await?,
            Step::Follow => self.follow().await?,
        }
        super::planted::end_at(step, true);
        self.note_step(step, true).await
    }

    pub(super) async fn note_step(&mut self, step: Step, is_done: bool) -> Taken {
        self.journal.phase = MovePhase::Moving;
        self.journal.step = step;
        self.journal.is_done = is_done;
        let noted = self.note().await;
        if !is_done {
            super::planted::end_at(step, false);
        }
        noted
    }

    pub(super) fn executed(&self) -> GtidSet {
        self.journal.executed.parse().unwrap_or_default()
    }
}

/// Returns the end of a command that has not begun.
fn untouched(error: ServerError) -> Failure {
    Failure::Runtime(format!("nothing was touched: {error}"))
}

/// Returns `None` for a server that does not answer.
fn answered<T>(asked: Asked<T>, errors: &mut Vec<ServerError>) -> Option<T> {
    asked.map_err(|error| errors.push(error)).ok()
}
