//! Gives a move up: the old server is opened again, as long as the new one was not.

use std::time::Duration;

use tokio::time::Instant;

use super::decide::ServerAccess;
use super::journal::{MovePhase, Step};
use super::mover::{MoveStop, Mover, PATIENCE, Taken};
use crate::host::Failure;

const POLL: Duration = Duration::from_millis(200);

impl Mover<'_> {
    /// Opens the old server, and returns the failure of the move.
    pub(super) async fn undo(&mut self, why: String) -> Failure {
        self.journal.phase = MovePhase::Undoing;
        self.journal.why.clone_from(&why);
        let from = self.from.address();
        let until = Instant::now() + PATIENCE;
        let mut is_noted = false;
        loop {
            match self.open_old(&mut is_noted).await {
                Ok(()) => break,
                Err(MoveStop::End(text)) => return Failure::Runtime(format!("{why}; {text}")),
                Err(_) if Instant::now() < until => {
                    tokio::time::sleep(POLL).await;
                    if let Err(failure) = self.recorded_by_us().await {
                        return failure;
                    }
                }
                Err(stop) => {
                    return Failure::Runtime(format!(
                        "{why}; undoing: {}; {from} is still closed: run the same command again once both servers answer",
                        stop.text()
                    ));
                }
            }
        }
        self.journal.phase = MovePhase::Undone;
        self.has_ended = true;
        if let Err(stop) = self.note().await {
            self.daemon.tell(&stop.text());
        }
        super::planted::end_in("undone");
        Failure::Runtime(format!("{why}; undone: {from} takes the writes as before"))
    }

    /// Opens the old server, if the new one is not open and can't become so.
    async fn open_old(&mut self, is_noted: &mut bool) -> Taken {
        self.take_back_opening().await?;
        match self.fence.access(&mut self.to).await {
            Ok(ServerAccess::Open) => {
                let (from, to) = (self.from.address(), self.to.address());
                return Err(MoveStop::End(format!(
                    "{to} takes writes, so {from} stays closed: close {to}, see what was written there, and run \
                     the same command again; {}",
                    self.fence.by_hand(&self.to, ServerAccess::Following)
                )));
            }
            Err(error) if self.to.is_lost() => return Err(error.into()),
            // One that does not answer was not asked to open.
            Ok(_) | Err(_) => {}
        }
        if !*is_noted {
            match self.note().await {
                Err(stop @ MoveStop::Again(_)) => return Err(stop),
                Err(stop) => self.daemon.tell(&stop.text()),
                Ok(()) => {}
            }
            *is_noted = true;
        }
        Ok(self.fence.set(&mut self.from, ServerAccess::Open).await?)
    }

    /// Closes the new server where it was asked to open and may not have done so: a program that was cut off, or a
    /// server that was shut down, may still do it. After that the opening has not taken place.
    ///
    /// # Errors
    /// It does not answer, or may have taken writes.
    pub(super) async fn take_back_opening(&mut self) -> Taken {
        if self.journal.step != Step::Open || self.journal.is_done {
            return Ok(());
        }
        let (from, to) = (self.from.address(), self.to.address());
        let (facts, errors) = self.looked().await;
        if facts.to.is_none() || self.to.is_lost() {
            let errors = errors.into_iter().map(|error| error.text).collect::<Vec<_>>();
            let why = format!("{to} may have been opened: {}", errors.join("; "));
            return Err(MoveStop::Again(why));
        }
        // Where the old one is open, somebody has gone back by hand, and nothing is opened.
        let may_have_taken = !facts.is_same_life && facts.from != Some(ServerAccess::Open);
        if facts.to == Some(ServerAccess::Open) || may_have_taken {
            return Err(MoveStop::End(format!(
                "{to} was opened, or may have been, so {from} stays closed: run the same command again, which \
                 continues"
            )));
        }
        self.fence.set(&mut self.to, ServerAccess::Following).await?;
        if self.fence.access(&mut self.to).await? == ServerAccess::Open {
            return Err(MoveStop::Again(format!("{to} does not close")));
        }
        (self.journal.step, self.journal.is_done) = (Step::Compare, true);
        Ok(())
    }

    /// Gives up a move that was begun, in whichever direction.
    pub(crate) async fn give_up(&mut self) -> Result<(), Failure> {
        let recorded = self.recorded().await?;
        let Some(journal) = recorded.filter(|journal| journal.is_unfinished()) else {
            return Err(Failure::Input("no move has begun that could be undone".to_owned()));
        };
        let direction = journal.direction;
        self.journal = journal;
        let was_opened = self.journal.was_opened();
        let may_be_open = self.journal.step == Step::Open;
        // After the journal: the new server must not have restarted since the move began.
        let (facts, _) = self.facts().await?;
        if facts.to.is_none() && may_be_open && !was_opened {
            return Err(Failure::Runtime(format!(
                "{} does not answer, and may have been opened; run the command again once it answers",
                self.to.address()
            )));
        }
        let took_writes = was_opened || (may_be_open && !facts.is_same_life);
        let is_closed = matches!(facts.to, Some(ServerAccess::Following | ServerAccess::Closed));
        // Somebody has gone back by hand: no server is opened, and the journal only has to say so.
        let went_back = facts.from == Some(ServerAccess::Open) && is_closed;
        if facts.to == Some(ServerAccess::Open) || (took_writes && !went_back) {
            return Err(Failure::Runtime(format!(
                "{} takes writes, or has taken some; finish with {}, then go back",
                self.to.address(),
                direction.option()
            )));
        }
        if took_writes {
            self.daemon.tell(&format!(
                "{} takes the writes already; what {} took while it was open is there only if channel {} brought \
                 it: csa-daemon verify --channel {}",
                self.from.address(),
                self.to.address(),
                self.reverse().name,
                self.forward().name
            ));
        }
        match self.undo("given up by --undo".to_owned()).await {
            Failure::Runtime(text) if self.journal.phase == MovePhase::Undone => {
                self.daemon.tell(&text);
                Ok(())
            }
            failure => Err(failure),
        }
    }
}
