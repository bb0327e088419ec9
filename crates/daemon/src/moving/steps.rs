//! The steps of a move. Each may be taken again.

use std::time::Duration;

use csa_provider::binlog::GtidSet;
use tokio::time::Instant;

use super::check::reverse_problem;
use super::decide::ServerAccess;
use super::journal::Step;
use super::mover::{MoveStop, Mover, PATIENCE, Taken};
use super::server::LOCK_WAIT;
use super::tail;
use crate::config::FenceMeans;
use crate::host::{Output, counted, now_micros, run_program};
use crate::observe::view::ChannelState;
use crate::verify::{Replicated, VerifyError};

/// A little more than the time after which INNODB_TRX is renewed.
const RENEWED: Duration = Duration::from_millis(110);
const POLL: Duration = Duration::from_millis(20);
/// Between two looks at the state of a channel.
const VIEWS: Duration = Duration::from_millis(500);
const ATTEMPTS: u32 = 3;

impl Mover<'_> {
    /// Closes the old server, and ends the transactions that are open there.
    pub(super) async fn fence_old(&mut self) -> Taken {
        match self.fence.set(&mut self.from, ServerAccess::Closed).await {
            Err(error) if error.code == Some(LOCK_WAIT) => {
                return Err(MoveStop::GiveUp(format!(
                    "{error}: statements run there that hold up the fence for longer than 2 s (SHOW PROCESSLIST \
                     names them); wait for their end, or KILL them, and run the command again"
                )));
            }
            other => other?,
        }
        // The fence keeps them from committing, except distributed ones, which could still be prepared.
        loop {
            let writing = self.from.writing().await?;
            if writing.as_ref().is_some_and(Vec::is_empty) {
                break;
            }
            let writing = writing.unwrap_or_default();
            self.in_time(|| match writing.is_empty() {
                true => {
                    "INNODB_TRX is not renewed, because somebody reads it all the time".to_owned()
                }
                false => format!("sessions {} roll back", writing.join(", ")),
            })?;
            for session in writing {
                self.from.kill(&session).await?;
            }
            tokio::time::sleep(RENEWED).await;
        }
        self.from.run(&["COMMIT"]).await?;
        let prepared = self.from.prepared().await?;
        match prepared.is_empty() {
            true => Ok(()),
            false => Err(MoveStop::GiveUp(format!(
                "{}: distributed transactions were prepared meanwhile ({}), which no fence keeps from being \
                 committed; commit them or roll them back, and run the command again",
                self.from.address(),
                prepared.join(", ")
            ))),
        }
    }

    /// Waits until the new server has everything.
    pub(super) async fn wait(&mut self) -> Taken {
        let name = self.forward().name.clone();
        let mut looked = Instant::now();
        loop {
            let executed = self.closed_at().await?;
            loop {
                let lacking = executed.difference(&self.to.applied(&name).await?);
                if lacking.is_empty() {
                    break;
                }
                self.in_time(|| {
                    format!(
                        "{} lacks {} of {}",
                        self.to.address(),
                        lacking.brief(),
                        self.from.address()
                    )
                })?;
                if looked.elapsed() > VIEWS {
                    looked = Instant::now();
                    self.has_not_failed(&name)?;
                    // A server that has restarted without its fence takes writes.
                    self.closed_at().await?;
                }
                tokio::time::sleep(POLL).await;
            }
            // The reverse channel may have written its progress, unless the fence stops channels, too.
            if self.closed_at().await? == executed {
                self.journal.executed = executed.to_string();
                return Ok(());
            }
            self.in_time(|| format!("{} is not quiet", self.from.address()))?;
        }
    }

    /// Returns what the old server has executed, if it is closed.
    async fn closed_at(&mut self) -> Result<GtidSet, MoveStop> {
        let access = self.fence.access(&mut self.from).await?;
        if access != ServerAccess::Closed {
            return Err(MoveStop::Again(format!("{} has lost its fence", self.from.address())));
        }
        Ok(self.from.executed().await?)
    }

    fn has_not_failed(&self, channel: &str) -> Taken {
        match self.daemon.view(channel) {
            Ok(view) if view.state == ChannelState::Failed => {
                Err(MoveStop::GiveUp(format!("channel {channel} failed: {}", view.state_detail)))
            }
            // The daemon may be starting.
            _ => Ok(()),
        }
    }

    /// Compares the rows that were changed last.
    pub(super) async fn compare(&mut self) -> Taken {
        let selection = Replicated::new(&self.forward().filters);
        let (from, to) = (self.from.target().clone(), self.to.target().clone());
        let compared = match tail::compare(&from, &to, &selection).await {
            Err(error @ VerifyError::Server { .. }) => {
                return Err(MoveStop::Again(error.to_string()));
            }
            Err(error) => return Err(MoveStop::GiveUp(error.to_string())),
            Ok(compared) => compared,
        };
        if !compared.differing.is_empty() {
            return Err(MoveStop::GiveUp(format!(
                "the last rows of {} differ; csa-daemon verify --channel {}",
                compared.differing.join(", "),
                self.forward().name
            )));
        }
        self.daemon.tell(&match compared.tables {
            0 => "no rows were compared: no table with a key was changed lately, or time ran out"
                .to_owned(),
            tables => format!(
                "the last rows of {} are equal ({})",
                counted(tables, "table"),
                counted(compared.rows, "row")
            ),
        });
        Ok(())
    }

    /// Opens the new server. After its begin is noted, there is no way but forward, unless it was not opened.
    pub(super) async fn open(&mut self) -> Taken {
        if !self.was_open_begun()
            && let Some(why) = reverse_problem(self.daemon, self.reverse())
        {
            return Err(MoveStop::GiveUp(why));
        }
        let is_new = self.fence.access(&mut self.to).await? != ServerAccess::Open;
        if is_new && self.may_be_open.is_some() {
            self.wait_again().await?;
        }
        let executed = self.executed();
        if is_new {
            let now = self.closed_at().await?;
            if now != executed {
                let more = now.difference(&executed).brief();
                return Err(MoveStop::Again(format!(
                    "{} has executed {more}",
                    self.from.address()
                )));
            }
            self.in_time(|| "the new server is not yet opened".to_owned())?;
        }
        if let Err(stop) = self.note_step(Step::Open, false).await {
            // Nothing was asked of the new server.
            if is_new && self.may_be_open.is_none() {
                (self.journal.step, self.journal.is_done) = (Step::Compare, true);
            }
            return Err(stop);
        }
        // This session has seen the fence: as long as it lasts, the server has not restarted.
        if is_new && (!self.from.is_connected() || self.closed_at().await? != executed) {
            return Err(MoveStop::Again(format!("{} has restarted", self.from.address())));
        }
        self.fence.set(&mut self.to, ServerAccess::Open).await?;
        if self.journal.events {
            self.switch_events(true).await?;
        }
        self.refence().await
    }

    fn was_open_begun(&self) -> bool {
        self.journal.step >= Step::Open
    }

    /// Switches the event scheduler on, on the new server, or off, on the old one. A refusal does not end the move, and is
    /// told at its end.
    async fn switch_events(&mut self, on: bool) -> Taken {
        let server = if on { &mut self.to } else { &mut self.from };
        let set = if server.identity.persists { "SET PERSIST" } else { "SET GLOBAL" };
        let state = if on { "ON" } else { "OFF" };
        match server.ask(&format!("{set} event_scheduler = {state}")).await {
            Ok(_) => Ok(()),
            Err(error) if error.code.is_none() => Err(error.into()),
            Err(error) => {
                let why =
                    format!("the event scheduler has to be switched {state} by hand: {error}");
                self.daemon.tell(&why);
                self.alarm.get_or_insert(why);
                Ok(())
            }
        }
    }

    /// Looks whether the old server is still closed, after the new one was opened, and closes it again if not.
    pub(super) async fn refence(&mut self) -> Taken {
        let (from, to) = (self.from.address(), self.to.address());
        let is_lost = match self.fence.access(&mut self.from).await {
            Ok(access) => access == ServerAccess::Open,
            Err(error) if self.from.is_lost() => return Err(error.into()),
            Err(error) => {
                self.daemon.tell(&format!("{from} does not say whether it is closed: {error}"));
                return Ok(());
            }
        };
        let closed = match is_lost {
            true => self.fence.set(&mut self.from, ServerAccess::Closed).await,
            false => Ok(()),
        };
        let gained = match self.from.executed().await {
            Ok(now) => now.difference(&self.executed()),
            Err(error) if self.from.is_lost() => return Err(error.into()),
            Err(error) => {
                self.daemon.tell(&error.text);
                return Ok(());
            }
        };
        // Other fences let the reverse channel write, and so does the last step.
        let has_gained = self.pair.settings.fence == FenceMeans::ReadOnly
            && self.journal.step < Step::Follow
            && !gained.is_empty();
        if !is_lost && !has_gained {
            return Ok(());
        }
        let outcome = closed.map_or_else(|error| error.text, |()| "it is closed again".to_owned());
        let gained = if gained.is_empty() { "nothing".to_owned() } else { gained.brief() };
        let why = format!(
            "{from} lost its fence while {to} was being opened ({outcome}); it has executed {gained} since: look at \
             those transactions, which channel {} brings to {to}",
            self.forward().name
        );
        self.daemon.tell(&why);
        self.alarm = Some(why);
        Ok(())
    }

    /// Lets the operator's program point the applications at the new server.
    pub(super) async fn hand_over(&mut self) -> Taken {
        self.refence().await?;
        let program = &self.pair.settings.hand_over;
        if program.is_empty() {
            self.daemon.tell(&format!("point the applications at {}", self.to.address()));
        } else {
            self.call(program).await?;
        }
        let seconds = now_micros().saturating_sub(self.journal.begun_at) as f64 / 1e6;
        self.daemon.tell(&format!("handed over {seconds:.2} s after the start of the move"));
        Ok(())
    }

    /// Looks whether the applications still have to use the new server. A process that stood still for long has lost
    /// its locks, and another one may have moved them back.
    async fn is_in_use(&mut self) -> Taken {
        let to = self.fence.access(&mut self.to).await?;
        let is_old_open = match self.fence.access(&mut self.from).await {
            Err(error) if self.from.is_lost() => return Err(error.into()),
            // A server that is away keeps nobody from the new one.
            from => from == Ok(ServerAccess::Open),
        };
        if to != ServerAccess::Open || is_old_open {
            let address = self.to.address();
            return Err(MoveStop::Again(format!("{address} is not the only server that is open")));
        }
        Ok(())
    }

    async fn call(&mut self, program: &[String]) -> Taken {
        let timeout = self.pair.settings.command_timeout;
        let ((host, port), (old_host, old_port)) = (self.to.host(), self.from.host());
        let variables = [
            ("CSA_MOVE_CHANNEL", self.pair.up.name.clone()),
            ("CSA_MOVE_DIRECTION", self.direction.option().trim_start_matches('-').to_owned()),
            ("CSA_MOVE_HOST", host.to_owned()),
            ("CSA_MOVE_PORT", port.to_string()),
            ("CSA_MOVE_OLD_HOST", old_host.to_owned()),
            ("CSA_MOVE_OLD_PORT", old_port.to_string()),
        ];
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            self.is_in_use().await?;
            let run = run_program(program, variables.clone(), b"", Output::Ignored);
            why = match tokio::time::timeout(timeout, run).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(why)) => why,
                Err(_) => format!("not done within {} s", timeout.as_secs_f64()),
            };
            self.daemon.tell(&format!("move.hand_over: {why}"));
        }
        Err(MoveStop::GiveUp(format!("move.hand_over: {why}")))
    }

    /// Lets the reverse channel write to the old server, and waits until it does.
    pub(super) async fn follow(&mut self) -> Taken {
        self.refence().await?;
        // Before the fence is lowered: then an event whose definer may write to a read-only server could run on both.
        if self.journal.events {
            self.switch_events(false).await?;
        }
        self.fence.set(&mut self.from, ServerAccess::Following).await?;
        let name = self.reverse().name.clone();
        let until = Instant::now() + PATIENCE;
        let mut why = String::new();
        let mut is_restarted = false;
        while Instant::now() < until {
            // It may wait long before it tries the server again.
            is_restarted = is_restarted || {
                let command = self.daemon.command(&name, "restart");
                command.map_err(|failure| why = failure.to_string()).is_ok()
            };
            let view = if is_restarted { Some(self.daemon.view(&name)) } else { None };
            match view {
                Some(Ok(view)) if view.state == ChannelState::Running => return Ok(()),
                Some(Ok(view)) => {
                    why = format!("channel {name} is {}: {}", view.state.name(), view.state_detail);
                }
                Some(Err(failure)) => why = failure.to_string(),
                None => {}
            }
            tokio::time::sleep(VIEWS).await;
        }
        Err(MoveStop::GiveUp(why))
    }
}
