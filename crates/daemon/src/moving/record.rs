//! Writes the journal: to the state directory first, then to the server that the applications move to.

use csa_applier::{AuditEntry, CREATE_MOVE, write_move};
use csa_provider::server::link::NO_TABLE;

use super::journal::{Direction, Journal, MovePhase, Step, latest};
use super::mover::{MoveStop, Mover, Taken};
use super::server::{Asked, Server};
use crate::host::{Failure, now_micros};

impl Mover<'_> {
    /// Returns the latest journal of this host and of both servers.
    ///
    /// # Errors
    /// A journal can't be read, or one of other servers has not ended.
    pub(super) async fn recorded(&mut self) -> Result<Option<Journal>, Failure> {
        let name = self.pair.up.name.clone();
        let mut copies = Vec::new();
        copies.extend(self.file.read().map_err(Failure::Input)?);
        for server in [&mut self.from, &mut self.to] {
            // Nothing is decided about a server that does not answer.
            copies.extend(server.journal(&name).await.ok().flatten());
        }
        let servers = self.uuids(self.direction);
        let recorded = latest(&copies, self.direction, servers).map_err(Failure::Input)?;
        self.journal.number = self.journal.number.max(recorded.number);
        Ok(recorded.journal)
    }

    /// Returns the journal again, which this process has read or written.
    ///
    /// # Errors
    /// Another command has continued the move while a session of this one was lost, and the locks with it.
    pub(super) async fn recorded_by_us(&mut self) -> Result<Option<Journal>, Failure> {
        let number = self.journal.number;
        let journal = self.recorded().await?;
        match &journal {
            Some(last) if last.number > number => Err(self.ended_elsewhere(last)),
            _ => Ok(journal),
        }
    }

    /// Returns the end of a command whose move another process has continued.
    pub(super) fn ended_elsewhere(&self, last: &Journal) -> Failure {
        let why = if last.why.is_empty() { String::new() } else { format!("; {}", last.why) };
        Failure::Runtime(format!(
            "another process has continued this {} meanwhile (the last entry of the journal: {}{why}), and nothing more \
             was done here; see --plan, and run the command again to begin another one",
            self.direction.name(),
            last.said()
        ))
    }

    /// Returns the UUIDs of the server that the applications leave in this direction and of the other one, as far as
    /// they are known.
    fn uuids(&self, direction: Direction) -> [&str; 2] {
        let servers = [self.from.identity.uuid.as_str(), self.to.identity.uuid.as_str()];
        let [from, to] = servers;
        if direction == self.direction { servers } else { [to, from] }
    }

    /// Lets no other servers answer than those of the journal, also where one was away until now.
    pub(super) fn expect_servers(&mut self) {
        let [from, to] = &self.journal.servers;
        self.from.expect(from);
        self.to.expect(to);
    }

    /// Records the journal as it is now.
    ///
    /// # Errors
    /// It could not be kept on this host, or not on the new server before that is opened. Or another command may have
    /// continued the move.
    pub(super) async fn note(&mut self) -> Taken {
        self.journal.number += 1;
        let known = self.uuids(self.journal.direction).map(str::to_owned);
        for (recorded, known) in self.journal.servers.iter_mut().zip(known) {
            if !known.is_empty() {
                *recorded = known;
            }
        }
        let said = self.journal.said();
        let kept = self.file.write(&self.journal);
        let opens = self.journal.phase == MovePhase::Moving
            && self.journal.step == Step::Open
            && !self.journal.is_done;
        match kept {
            Err(error) if opens || self.journal.step == Step::Fence => {
                let why = format!("daemon.state_dir: the journal can't be written: {error}");
                return Err(MoveStop::GiveUp(why));
            }
            Err(error) => self.daemon.tell(&format!("the journal can't be written: {error}")),
            Ok(()) => {}
        }
        let (channel, number) = (self.pair.up.name.clone(), self.journal.number);
        let text = serde_json::to_string(&self.journal)
            .map_err(|error| MoveStop::GiveUp(error.to_string()))?;
        let detail =
            format!("{} -> {}; {}", self.from.address(), self.to.address(), self.journal.why);
        let entry = AuditEntry {
            channel: channel.clone(),
            at: now_micros(),
            action: format!("move {said}"),
            by: std::env::var("USER").unwrap_or_else(|_| "unknown".to_owned()),
            peer: self.journal.host.clone(),
            detail,
            ..AuditEntry::default()
        };
        let written = write(&mut self.to, &write_move(&channel, number, &text)).await;
        // An account that may not keep it keeps the journal all the same.
        if written.is_ok()
            && let Err(error) = self.to.ask(&entry.insert()).await
        {
            self.daemon.tell(&format!("not in csa.audit: {error}"));
        }
        if self.journal.is_done || self.journal.phase != MovePhase::Moving {
            self.daemon.tell(&said);
        }
        match written {
            // Another host must be able to see that the server was opened.
            Err(error) if opens => Err(MoveStop::GiveUp(error.text)),
            Err(error) if self.to.is_lost() && self.journal.is_unfinished() => {
                Err(MoveStop::Again(error.text))
            }
            Err(error) => {
                self.daemon.tell(&format!("the journal is on this host only: {error}"));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Makes the table where it is missing.
async fn write(server: &mut Server, statement: &str) -> Asked<()> {
    match server.ask(statement).await {
        Err(error) if error.code.is_some_and(|code| NO_TABLE.contains(&code)) => {
            server.run(&CREATE_MOVE).await?;
            server.ask(statement).await.map(drop)
        }
        other => other.map(drop),
    }
}
