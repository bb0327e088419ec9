//! Reads the relay store ahead of the applier: it reads, waits and hands over, as
//! [`csa_scheduler::intake`] decides.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use csa_provider::binlog::CommitTimes;
use csa_provider::seams::Clock;
use csa_provider::source::ReceptionEnd;
use csa_relaystore::read::{RelayReader, RelayedTransaction};
use csa_scheduler::admission::{Admission, AdmittedTransaction};
use csa_scheduler::error::Error;
use csa_scheduler::intake::{
    Barrier, FutureCommits, IntakeEnd, Room, Seen, Stage, Step, begins_from, inline_limit,
    next_step,
};
use csa_scheduler::key_source::KeySource;
use csa_scheduler::memory::{EventMemory, EventPermit, Ticket};
use csa_scheduler::until::UntilGate;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::options::{ApplierOptions, Tuning};

/// The longest wait between two checks whether the intake should end.
const TICK: Duration = Duration::from_millis(100);
/// The longest time for which a transaction is held back without another look: the clock may be
/// adjusted meanwhile.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// The silence after which a transaction that was begun while it is being received is given up: it holds
/// locks on the target. A source that is gone is noticed earlier.
const SILENCE: Duration = Duration::from_secs(60);

/// Learns how far the intake has read, and knows the source's clock.
pub trait IntakeObserver: Send {
    /// Notes that a transaction was read that is not executed. Everything before the first of them
    /// is executed.
    fn read(&mut self, relayed: &RelayedTransaction);

    /// Everything in the relay store was read: transactions and bytes of events, from its beginning.
    fn read_to_end(&mut self, transactions: u64, bytes: u64);

    /// The intake has waited.
    fn waited(&mut self, _wait: Wait, _begun: Instant, _ended: Instant) {}

    /// A transaction was handed over, after such a wait for event memory and for the applier.
    fn handed_over(&mut self, _waited: Duration) {}

    /// A transaction is held back, or none any more.
    fn held_back(&mut self, held: Option<HeldUntil>);

    /// Returns the microseconds by which the source's clock is ahead of ours.
    fn clock_ahead(&self) -> i64;

    /// The intake ends so, and the stream after that.
    fn ended(&mut self, _end: &IntakeEnd) {}
}

/// A wait of the intake with a transaction in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It waits for event memory.
    Memory,
    /// For room in the applier's queue.
    Applier,
}

/// A transaction that is held back because of `source_delay`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldUntil {
    pub committed: CommitTimes,
    /// The moment at which it was read.
    pub since: Instant,
    /// The time at which it is due, in microseconds since the epoch.
    pub due: u64,
}

/// The parts of a channel's intake.
#[derive(Debug)]
pub struct Intake<K, O> {
    pub reader: RelayReader,
    pub memory: EventMemory,
    pub admission: Admission<K>,
    /// `begin_early`: a transaction begins once so many bytes of it are here, if not all are.
    pub begin_early: Option<u64>,
    /// `source_delay`; marked as changed when `until` changes, too.
    pub delay: watch::Receiver<Duration>,
    pub until: UntilGate,
    pub tuning: watch::Receiver<Tuning>,
    /// Set when reception has ended for good: once everything is read, the channel stops with it.
    pub reception: watch::Receiver<Option<ReceptionEnd>>,
    /// Statements that were committed on the target.
    pub statements: watch::Receiver<u64>,
    pub sender: mpsc::Sender<AdmittedTransaction>,
    pub observer: O,
    pub clock: Arc<dyn Clock>,
    pub end: CancellationToken,
}

/// The transaction in hand, at each [`Stage`] with what that stage needs. It is in a box, because it goes from stage to
/// stage: the copies were a tenth of the daemon's time in a drain of small transactions.
#[derive(Debug)]
enum Hand {
    Empty,
    Drained(Option<ReceptionEnd>),
    Read(Box<RelayedTransaction>, Instant),
    Measured(Box<RelayedTransaction>, Room),
    Queued(Box<RelayedTransaction>, Room, Ticket),
    Granted(Box<RelayedTransaction>, Room, EventPermit),
    Admitted(Box<AdmittedTransaction>),
    HandedOver(Barrier),
}

impl Hand {
    fn stage(&self) -> Stage {
        match self {
            Self::Empty => Stage::Empty,
            Self::Drained(end) => Stage::Drained { reception_over: end.is_some() },
            Self::Read(relayed, _) => Stage::Read(relayed.header.commit_times()),
            Self::Measured(_, room) => Stage::Measured(*room),
            Self::Queued(_, room, _) => Stage::Queued(*room),
            Self::Granted(_, room, _) => Stage::Granted(*room),
            Self::Admitted(_) => Stage::Admitted,
            Self::HandedOver(barrier) => Stage::HandedOver(*barrier),
        }
    }
}

impl<K: KeySource, O: IntakeObserver> Intake<K, O> {
    /// Reads until the pipeline ends or an error occurs. The stream ends with it: what was handed over before is applied.
    pub async fn run(mut self) -> IntakeEnd {
        let end = match self.pass_on().await {
            Ok(never) => match never {},
            Err(end) => end,
        };
        self.observer.ended(&end);
        end
    }

    async fn pass_on(&mut self) -> Result<Infallible, IntakeEnd> {
        let mut hand = Hand::Empty;
        let mut limit = 0;
        let mut is_holding = false;
        let mut future = FutureCommits::default();
        let mut waited = Duration::ZERO;
        loop {
            let seen = self.seen(&hand, &mut future);
            let step = next_step(hand.stage(), &seen);
            if is_holding && !matches!(step, Step::HoldBack(_)) {
                self.observer.held_back(None);
                is_holding = false;
            }
            hand = match (step, hand) {
                (Step::Read, _) => {
                    self.follow_limit(&mut limit);
                    self.read().await?
                }
                (Step::HoldBack(left), Hand::Read(relayed, since)) => {
                    is_holding = true;
                    let committed = relayed.header.commit_times();
                    let due = seen.now.saturating_add(left.as_micros() as u64);
                    self.observer.held_back(Some(HeldUntil { committed, since, due }));
                    self.wait_until_due(left).await;
                    Hand::Read(relayed, since)
                }
                (Step::Measure, Hand::Read(relayed, _)) => {
                    let statement = ApplierOptions::STATEMENT_BYTES as u64;
                    match Room::of(&relayed, limit, statement, || !self.is_stopped()) {
                        Err(_) if relayed.is_cut_off() => self.take_back(),
                        room => Hand::Measured(relayed, room?),
                    }
                }
                (Step::Queue(footprint), Hand::Measured(relayed, room)) => {
                    let ticket = self.memory.request(footprint.bytes());
                    Hand::Queued(relayed, room, ticket)
                }
                (Step::WaitForMemory, Hand::Queued(relayed, room, ticket)) => {
                    self.wait_for_memory(relayed, room, ticket, &mut waited).await
                }
                (Step::Admit { whole }, Hand::Granted(relayed, _, permit)) => {
                    self.admit(relayed, permit, whole).await?
                }
                (Step::HandOver, Hand::Admitted(admitted)) => {
                    self.hand_over(admitted, &mut waited).await?
                }
                (Step::WaitForStatement, hand) => {
                    self.wait_for_statement().await;
                    hand
                }
                (Step::ForgetDefinitions, _) => {
                    self.admission.definitions_changed();
                    Hand::Empty
                }
                (Step::Stop, _) => return Err(IntakeEnd::Stopped),
                (Step::EndAt(until), _) => return Err(IntakeEnd::Until(until)),
                (Step::EndWithReception, Hand::Drained(Some(end))) => {
                    return Err(IntakeEnd::Reception(end));
                }
                (step, hand) => unreachable!("{step:?} at {:?}", hand.stage()),
            };
        }
    }

    async fn wait_for_memory(
        &mut self,
        relayed: Box<RelayedTransaction>,
        room: Room,
        mut ticket: Ticket,
        waited: &mut Duration,
    ) -> Hand {
        // The clock is read only where there is something to wait for, here and below.
        if let Some(permit) = ticket.take() {
            return Hand::Granted(relayed, room, permit);
        }
        let begun = Instant::now();
        let granted = tokio::time::timeout(TICK, ticket.granted()).await;
        *waited += self.waited(Wait::Memory, begun);
        match granted {
            Ok(permit) => Hand::Granted(relayed, room, permit),
            Err(_) => Hand::Queued(relayed, room, ticket),
        }
    }

    async fn admit(
        &mut self,
        relayed: Box<RelayedTransaction>,
        permit: EventPermit,
        whole: bool,
    ) -> Result<Hand, IntakeEnd> {
        let admitted = match relayed.followed() {
            None => self.admission.admit(*relayed, Some(permit), whole).await.map(Some),
            Some(_) => self.admission.admit_followed(*relayed, permit).await,
        };
        let admitted = match admitted {
            // The end cut off an answer or the reading, which refuses nothing.
            Err(Error::Keys { .. }) if self.end.is_cancelled() => return Err(IntakeEnd::Stopped),
            admitted => admitted?,
        };
        Ok(admitted.map_or_else(|| self.take_back(), |admitted| Hand::Admitted(Box::new(admitted))))
    }

    async fn hand_over(
        &mut self,
        admitted: Box<AdmittedTransaction>,
        waited: &mut Duration,
    ) -> Result<Hand, IntakeEnd> {
        if admitted.relayed.is_cut_off() {
            return Ok(self.take_back());
        }
        // Read before it is sent: the applier may execute it at once.
        let barrier = Barrier::after(&admitted.verdict, *self.statements.borrow());
        if admitted.relayed.followed().is_some() {
            self.observer.read(&admitted.relayed);
        }
        let begun = (self.sender.capacity() == 0).then(Instant::now);
        // Not raced with `end`: an applier that ends drops the stream, which ends this.
        if self.sender.send(*admitted).await.is_err() {
            return Err(IntakeEnd::Stopped);
        }
        if let Some(begun) = begun {
            *waited += self.waited(Wait::Applier, begun);
        }
        self.observer.handed_over(std::mem::take(waited));
        Ok(Hand::HandedOver(barrier))
    }

    fn waited(&mut self, wait: Wait, begun: Instant) -> Duration {
        let ended = Instant::now();
        self.observer.waited(wait, begun, ended);
        ended - begun
    }

    fn is_stopped(&self) -> bool {
        self.end.is_cancelled() || self.sender.is_closed()
    }

    /// Everything that the next step depends on; no question is asked needlessly.
    fn seen(&mut self, hand: &Hand, future: &mut FutureCommits) -> Seen {
        let mut seen = Seen { stopped: self.is_stopped(), ..Seen::default() };
        match hand {
            Hand::Read(relayed, since) => {
                seen.delay = *self.delay.borrow_and_update();
                // After the delay was marked as seen: a change of the end marks it again.
                seen.until = self.until.ends_before(&relayed.header);
                if seen.delay.is_zero() {
                    *future = FutureCommits::default();
                } else {
                    seen.now = self.clock.now_micros();
                    seen.clock_ahead = self.observer.clock_ahead();
                    let clocks = (seen.now, seen.clock_ahead);
                    let committed = relayed.header.commit_times();
                    seen.known = future.known(committed, *since, Instant::now(), clocks);
                }
            }
            // Whatever the source's clock did meanwhile: what comes next is read when it is received.
            Hand::Drained(_) => *future = FutureCommits::default(),
            Hand::HandedOver(Barrier::Statement { .. } | Barrier::Definitions { .. }) => {
                seen.statements = *self.statements.borrow_and_update();
            }
            _ => {}
        }
        seen
    }

    /// Larger transactions are streamed; the memory's limit may change at any time.
    fn follow_limit(&mut self, limit: &mut u64) {
        let now = inline_limit(self.memory.limit());
        if now != *limit {
            *limit = now;
            self.reader.set_inline_limit(now);
            self.admission.limit_rows(now);
        }
    }

    async fn read(&mut self) -> Result<Hand, IntakeEnd> {
        self.follow();
        // Before the store is read, so that nothing received before the end is missed.
        let ended = self.reception.borrow().clone();
        let Some(relayed) = self.reader.next(TICK).await? else {
            let (transactions, bytes) = self.reader.read_so_far();
            self.observer.read_to_end(transactions, bytes);
            return Ok(Hand::Drained(ended));
        };
        // One that is not whole may be taken back, and be read again.
        if relayed.followed().is_none() {
            self.observer.read(&relayed);
        }
        Ok(Hand::Read(Box::new(relayed), Instant::now()))
    }

    /// Decides whether a transaction may begin before it is whole, and ends one that must not any more.
    fn follow(&mut self) {
        let has_end = self.until.get().is_some();
        let is_paused = self.tuning.borrow().paused;
        let from = begins_from(self.begin_early, *self.delay.borrow(), has_end, is_paused);
        self.reader.follow_from(from);
        if let Some(open) = self.reader.followed()
            && (from.is_none() || open.silent_for() > SILENCE)
        {
            open.give_up();
        }
    }

    /// The transaction in hand has to be whole first.
    fn take_back(&mut self) -> Hand {
        self.reader.take_back();
        Hand::Empty
    }

    async fn wait_until_due(&mut self, left: Duration) {
        let Self { delay, sender, end, .. } = self;
        // Each of these leads to another look at all of them, so their order matters only to a simulation.
        tokio::select! {
            biased;
            () = end.cancelled() => {}
            () = sender.closed() => {}
            Ok(()) = delay.changed() => {}
            () = tokio::time::sleep(left.min(LOOK_AGAIN)) => {}
        }
    }

    async fn wait_for_statement(&mut self) {
        let Self { statements, sender, end, .. } = self;
        tokio::select! {
            biased;
            () = end.cancelled() => {}
            () = sender.closed() => {}
            Ok(()) = statements.changed() => {}
            () = tokio::time::sleep(TICK) => {}
        }
    }
}
