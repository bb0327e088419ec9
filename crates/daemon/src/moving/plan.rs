//! A move in words, before it is made.

use super::decide::{Next, ServerAccess, decide};
use super::journal::{Direction, Journal, Step};
use super::mover::Mover;
use super::pair::{check_servers, said};
use super::tail;
use crate::config::FenceMeans;
use crate::host::Failure;

impl Mover<'_> {
    /// Shows the state of both servers, all steps with their statements, and what stands in the way. Touches nothing.
    ///
    /// # Errors
    /// Something stands in the way.
    pub(crate) async fn plan(&mut self) -> Result<(), Failure> {
        let journal = self.recorded().await?;
        if let Some(journal) = &journal {
            self.journal = journal.clone();
        }
        let (facts, away) = self.facts().await?;
        for (server, access) in [(&self.from, facts.from), (&self.to, facts.to)] {
            let version = &server.identity.version;
            self.daemon.tell(&format!("{} ({version}) {}", server.address(), said(access)));
        }
        if let Some(journal) = &journal {
            let at = crate::host::rfc3339(journal.begun_at);
            self.daemon.tell(&format!("the last entry of the journal: {} ({at})", journal.said()));
        }
        if let Some(away) = away {
            return Err(Failure::Runtime(away));
        }
        if let Some(journal) = journal.filter(Journal::is_unfinished) {
            let is_late = self.is_late(&journal);
            return self.plan_of_begun(decide(
                Some(&journal),
                self.direction,
                facts,
                is_late,
                true,
            ));
        }
        self.tell_steps(Step::Fence);
        let kept = self.from.identity.persists && self.to.identity.persists;
        // A restart keeps locked accounts, and whatever a program has done.
        if !kept && self.fence.means == FenceMeans::ReadOnly {
            self.daemon.tell(
                "MySQL 5.7 forgets a fence when it restarts: write super_read_only = ON into the option file of the \
                 old server for the time of the move",
            );
        }
        check_servers(self.forward(), self.reverse(), &self.from, &self.to).await?;
        let found = self.problems().await?;
        self.daemon.tell("nothing was touched");
        match found.is_empty() {
            true => Ok(()),
            false => Err(Failure::Runtime(found.join("; also: "))),
        }
    }

    /// Shows how a move continues that was begun.
    fn plan_of_begun(&self, next: Next) -> Result<(), Failure> {
        let option = self.direction.option();
        match next {
            Next::Refuse(refusal) => return Err(self.refused(refusal)),
            Next::Undo(why) => {
                let from = self.from.address();
                self.daemon.tell(&format!("{why}: the next {option} opens {from} again"));
            }
            Next::Continue(step) => {
                self.daemon
                    .tell(&format!("this move has begun; the next {option} continues with:"));
                self.tell_steps(step);
            }
            Next::Begin | Next::Ended | Next::Ask | Next::Nothing => {
                self.daemon.tell(&format!("this move has begun; {option} ends it"));
            }
        }
        self.daemon.tell("nothing was touched");
        Ok(())
    }

    fn tell_steps(&self, first: Step) {
        for (number, (step, words)) in self.steps().into_iter().enumerate() {
            if step >= first {
                self.daemon.tell(&format!("{}. {}: {words}", number + 1, step.name()));
            }
        }
    }

    fn steps(&self) -> Vec<(Step, String)> {
        let (from, to) = (self.from.address(), self.to.address());
        let settings = self.pair.settings;
        let statements = |is_from: bool, access| {
            let server = if is_from { &self.from } else { &self.to };
            self.fence.statements(access, server.identity.persists).join("; ")
        };
        let words = |step| match step {
            Step::Fence => format!(
                "on {from}: {}; KILL of each session whose transaction has changed rows; XA RECOVER must be empty",
                statements(true, ServerAccess::Closed)
            ),
            Step::Wait => format!(
                "until channel {} has applied gtid_executed of {from}; after {} s of all steps so far, {from} is \
                 opened again: {}",
                self.forward().name,
                settings.time_limit.as_secs_f64(),
                statements(true, ServerAccess::Open)
            ),
            Step::Compare => format!(
                "the last rows of the tables that were changed last, for {} s at most",
                tail::BUDGET.as_secs_f64()
            ),
            Step::Open => format!("on {to}: {}", statements(false, ServerAccess::Open)),
            Step::HandOver if settings.hand_over.is_empty() => {
                format!("point the applications at {to} yourself (move.hand_over is not set)")
            }
            Step::HandOver => settings.hand_over.join(" "),
            Step::Follow => format!(
                "on {from}: {}; csa-daemon restart --channel {}",
                statements(true, ServerAccess::Following),
                self.reverse().name
            ),
        };
        Step::ALL.map(|step| (step, words(step))).to_vec()
    }

    /// Returns the way that the applications would take next.
    pub(crate) async fn next_direction(&mut self) -> Result<Direction, Failure> {
        let journal = self.recorded().await?;
        if let Some(journal) = journal.filter(|journal| journal.is_unfinished()) {
            return Ok(journal.direction);
        }
        let (facts, _) = self.facts().await?;
        Ok(match (facts.from, facts.to) {
            (Some(ServerAccess::Following | ServerAccess::Closed), Some(ServerAccess::Open)) => {
                Direction::Back
            }
            _ => Direction::CutOver,
        })
    }
}
