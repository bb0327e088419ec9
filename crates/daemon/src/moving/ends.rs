//! The begin of a pair, before a move, and its end, when the way back is no longer wanted.

use std::time::Duration;

use csa_scheduler::filter::OWN_TABLES;

use super::decide::ServerAccess;
use super::journal::{Direction, Journal, MovePhase, Step};
use super::mover::Mover;
use super::pair::{check_servers, said};
use crate::host::{Failure, now_micros};

const POLL: Duration = Duration::from_millis(500);

impl Mover<'_> {
    /// Closes the new server to applications, and waits until both channels follow, however long a copy takes. Returns
    /// the number of the journal, for [`Self::prepared`].
    pub(crate) async fn prepare(&mut self) -> Result<u64, Failure> {
        let journal = self.recorded_without_move().await?;
        let (facts, away) = self.facts().await?;
        if let Some(away) = away {
            return Err(Failure::Runtime(away));
        }
        let has_moved = journal.is_some_and(|journal| {
            journal.phase == MovePhase::Moved && journal.direction == Direction::CutOver
        });
        // It is closed below, and the applications may be there.
        if has_moved && facts.to == Some(ServerAccess::Open) {
            let to = self.to.address();
            return Err(Failure::Input(format!(
                "the applications have moved to {to}, which takes writes; --back moves them back, and --finish ends \
                 the pair. If no application uses {to}, close it; {}",
                self.fence.by_hand(&self.to, ServerAccess::Following)
            )));
        }
        check_servers(self.forward(), self.reverse(), &self.from, &self.to).await?;
        if facts.from != Some(ServerAccess::Open) {
            return Err(Failure::Input(format!(
                "{} {}; the applications have to use it",
                self.from.address(),
                said(facts.from)
            )));
        }
        if facts.to == Some(ServerAccess::Open) {
            let closed = self.fence.set(&mut self.to, ServerAccess::Following).await;
            closed.map_err(|error| Failure::Runtime(error.text))?;
            let to = self.to.address();
            self.daemon.tell(&format!("{to} takes writes from channels only from now on"));
        }
        let mut last = String::new();
        while self.waits_for_channels() {
            let view = self.daemon.view(&self.forward().name)?;
            let words = format!(
                "channel {} is {}: {}",
                self.forward().name,
                view.state.name(),
                view.state_detail
            );
            if words != last {
                self.daemon.tell(&words);
                last = words;
            }
            tokio::time::sleep(POLL).await;
        }
        // The wait may have been longer than sessions and locks last.
        self.recorded_without_move().await?;
        let found = self.problems().await?;
        match found.is_empty() {
            true => Ok(self.journal.number),
            false => Err(Failure::Runtime(found.join("; also: "))),
        }
    }

    /// Returns the journal, unless a move has begun that has not ended.
    async fn recorded_without_move(&mut self) -> Result<Option<Journal>, Failure> {
        let journal = self.recorded().await?;
        match journal.as_ref().and_then(Journal::to_be_ended) {
            Some(why) => Err(Failure::Input(why)),
            None => Ok(journal),
        }
    }

    /// Records that both servers were compared, unless somebody has moved the applications since the journal had
    /// this number: nothing kept another command away during the comparison.
    pub(crate) async fn prepared(&mut self, number: u64) -> Result<(), Failure> {
        let journal = self.recorded_without_move().await?;
        if self.journal.number > number {
            let said = journal.map_or_else(|| "of other servers".to_owned(), |last| last.said());
            return Err(Failure::Runtime(format!(
                "the applications were moved during the comparison (the last entry of the journal: {said}); see \
                 --plan, and run --prepare again before the next --cut-over"
            )));
        }
        self.journal.phase = MovePhase::Prepared;
        self.journal.step = Step::Fence;
        self.journal.begun_at = now_micros();
        self.note().await.map_err(|stop| Failure::Runtime(stop.text()))
    }

    /// Stops both channels, closes the server that no application uses, and says what remains to be done.
    pub(crate) async fn finish(&mut self) -> Result<(), Failure> {
        let journal = self.recorded().await?;
        if let Some(journal) = journal {
            if journal.is_unfinished() {
                let option = journal.direction.option();
                let why = format!("a {} has begun and has not ended", journal.direction.name());
                return Err(Failure::Input(format!("{why}; finish it with {option}")));
            }
            self.journal = journal;
        }
        let (facts, away) = self.facts().await?;
        if let Some(away) = away {
            return Err(Failure::Runtime(away));
        }
        if facts.to != Some(ServerAccess::Open) || facts.from == Some(ServerAccess::Open) {
            return Err(Failure::Input(format!(
                "{} {}, and {} {}; --finish ends a move whose applications use the new server alone",
                self.from.address(),
                said(facts.from),
                self.to.address(),
                said(facts.to)
            )));
        }
        for channel in [self.reverse(), self.forward()] {
            self.daemon.command(&channel.name, "stop")?;
            self.daemon
                .tell(&format!("channel {} is stopped until the daemon restarts", channel.name));
        }
        let closed = self.fence.set(&mut self.from, ServerAccess::Closed).await;
        closed.map_err(|error| Failure::Runtime(error.text))?;
        self.journal.phase = MovePhase::Finished;
        self.note().await.map_err(|stop| Failure::Runtime(stop.text()))?;
        let (old, new) = (self.from.address(), self.to.address());
        let (up, down) = (&self.pair.up.name, &self.pair.down.name);
        self.daemon.tell(&format!("{old} takes no writes; what is there stays as it is"));
        self.daemon.tell("what remains to be done:");
        self.daemon.tell(&format!(
            "1. take the channels {up} and {down} out of the configuration; csa-daemon reload"
        ));
        let ours = OWN_TABLES.map(|table| format!("csa.{table}")).join(", ");
        self.daemon.tell(&format!(
            "2. unless other channels write to {new}, drop there: DROP TABLE IF EXISTS {ours}"
        ));
        self.daemon.tell(&format!("3. shut {old} down, once nobody wants its data"));
        Ok(())
    }
}
