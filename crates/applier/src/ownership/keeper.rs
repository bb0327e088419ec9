//! Keeps the channel while it runs, once `claim.rs` has taken it: its lock, its checkpoint rows, and the
//! target's GTIDs level with them.

use std::sync::Arc;

use csa_provider::binlog::{Gtid, GtidSet, Uuid};
use csa_provider::seams::{Backoff, Chance};
use csa_scheduler::sequence::Sequence;
use tracing::{debug, info, warn};

use crate::error::{Error, ErrorClass, Fence, Result};
use crate::options::{ApplierOptions, TargetGtids};
use crate::ownership::checkpoint;
use crate::ownership::control::ControlSession;
use crate::ownership::intent;
use crate::ownership::locks;
use crate::server::retry_pause;
use crate::server::room::Party;
use crate::server::session::Session;
use crate::server::target::AFTER_MAKING_WAY;
use crate::server::target::Target;

/// The checkpoint row that statements write: worker 0's, which no group uses while a statement runs.
const WORKER: u16 = 0;

/// Holds the control session of a channel, and opens it again after it was lost.
#[derive(Debug)]
pub(crate) struct Keeper {
    control: ControlSession,
    target: Target,
    /// The pauses between attempts to reach the target, from the first.
    backoff: Backoff,
    chance: Arc<dyn Chance>,
}

impl Keeper {
    pub(crate) fn new(control: ControlSession, target: Target, options: &ApplierOptions) -> Self {
        Self { control, target, backoff: options.backoff(), chance: Arc::clone(&options.chance) }
    }

    /// The session is kept from here on: until now, opening the relay store may have taken long.
    pub(crate) async fn begin(&mut self) -> Result<()> {
        match self.control.limit_idleness().await {
            Err(error) if error.is_passing() => self.keep_alive().await,
            other => other,
        }
    }

    /// Records the order in which the channel commits, where its holes would show.
    pub(crate) async fn note_order(&mut self, in_order: bool) -> Result<()> {
        if self.target.gtids != TargetGtids::Source {
            return Ok(());
        }
        let mut conflicts = retry_pause::conflicts();
        loop {
            match self.control.note_order(in_order).await {
                Err(error) if error.is_passing() => self.let_pass(&mut conflicts).await?,
                other => return other,
            }
        }
    }

    /// Keeps the lock: pings the session, and opens it again if it was lost.
    pub(crate) async fn keep_alive(&mut self) -> Result<()> {
        // Boxed, as the future of the whole applier holds this one.
        match Box::pin(self.control.look(&self.target)).await {
            Ok(()) => Ok(()),
            Err(error) if error.class() == ErrorClass::Unavailable => self.regain(&error).await,
            // A server that answers with an error has the session still, and with it the lock.
            Err(error) if error.is_passing() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Finds out whether the target takes writes, and waits until it does.
    pub(crate) async fn look_writable(&mut self) -> Result<()> {
        match self.control.probe().await {
            Err(error) if error.class() == ErrorClass::Unavailable => self.regain(&error).await,
            Err(error) if error.is_passing() => Ok(()),
            other => other,
        }
    }

    /// Waits until a statement of ours may be repeated. The target may take writes and still refuse that one: without a
    /// pause it would be sent thousands of times in a second.
    async fn let_pass(&mut self, conflicts: &mut Backoff) -> Result<()> {
        self.look_writable().await?;
        retry_pause::pause(conflicts, &*self.chance).await;
        Ok(())
    }

    async fn regain(&mut self, error: &Error) -> Result<()> {
        self.control.reachability.lost(Party::Control, error);
        self.reopen(&mut self.backoff.clone()).await
    }

    /// Waits after the session was lost in a statement, then opens it again.
    pub(crate) async fn wait_and_regain(
        &mut self,
        error: &Error,
        backoff: &mut Backoff,
    ) -> Result<()> {
        self.control.reachability.lost(Party::Control, error);
        self.pause(error, backoff).await;
        self.reopen(backoff).await
    }

    /// Returns true while the session holds the lock, on a target that has everything known to be committed.
    pub(crate) fn is_held(&self) -> bool {
        self.control.hold.is_sure
    }

    pub(crate) fn channel(&self) -> &str {
        &self.control.channel
    }

    /// Returns this daemon as it is recognised on the target.
    pub(crate) fn claimant(&self) -> locks::Claimant<'_> {
        self.control.hold.claimant()
    }

    /// Returns the session that holds the lock: for statements, and for queries about the server.
    pub(crate) fn session(&mut self) -> &mut Session {
        &mut self.control.session
    }

    /// Brings the target's GTIDs level with the checkpoint, or the checkpoint level with them.
    pub(crate) async fn level(&mut self) -> Result<()> {
        // On a server that may lack some of it, nothing may be stated as executed.
        if !self.control.hold.is_sure {
            return Ok(());
        }
        if self.target.gtids == TargetGtids::Own {
            return Ok(());
        }
        // Later ones state the same and more.
        self.control.session.wait_briefly(true).await?;
        let outcome = match self.target.gtids {
            TargetGtids::Own => Ok(()),
            TargetGtids::Mirror => {
                let executed = self.control.commits.executed();
                self.control.mirror(&executed).await
            }
            TargetGtids::Source => {
                let (sequence, executed) = self.control.commits.progress();
                self.control.note_progress(sequence, &executed).await
            }
        };
        self.control.session.wait_briefly(false).await?;
        outcome
    }

    /// The transaction in `csa.statement`: it was begun, and can't be rolled back.
    pub(crate) async fn begun(&mut self) -> Result<Option<Gtid>> {
        loop {
            match intent::begun(&mut self.control.session, &self.control.channel).await {
                Err(error) if error.is_passing() => self.keep_alive().await?,
                other => return other,
            }
        }
    }

    /// Adds checkpoint rows until so many workers have one.
    pub(crate) async fn add_workers(&mut self, workers: u16) -> Result<()> {
        let mut conflicts = retry_pause::conflicts();
        loop {
            match self.control.add_workers(workers).await {
                Err(error) if error.is_passing() => self.let_pass(&mut conflicts).await?,
                other => return other,
            }
        }
    }

    /// Returns true if the channel has not followed this server before.
    pub(crate) fn is_new(&self, server: &Uuid) -> bool {
        self.control.is_new(server)
    }

    /// Records that the channel follows a server, which has to be there before anything of it is applied.
    pub(crate) async fn follow(&mut self, server: Uuid) -> Result<()> {
        let mut conflicts = retry_pause::conflicts();
        loop {
            match self.control.follow(server).await {
                Err(error) if error.is_passing() => self.let_pass(&mut conflicts).await?,
                Ok(()) => {
                    info!(%server, "transactions of another server arrive; it is recorded in csa.channel");
                    return Ok(());
                }
                other => return other,
            }
        }
    }

    pub(crate) async fn close(self) {
        self.control.close().await;
    }

    /// Records that the session works.
    pub(crate) fn reached(&self) {
        self.control.reachability.reached(Party::Control);
    }

    async fn reopen(&mut self, backoff: &mut Backoff) -> Result<()> {
        loop {
            self.target.route.forget();
            match Box::pin(self.control.reopen(&self.target)).await {
                Ok(()) => {
                    debug!(
                        connection = self.control.session.id(),
                        "the channel is held on the target again"
                    );
                    self.reached();
                    return Ok(());
                }
                Err(error) if error.is_passing() => {
                    self.control.reachability.lost(Party::Control, &error);
                    if error.is_of_room() && self.has_made_way().await {
                        tokio::time::sleep(AFTER_MAKING_WAY).await;
                        continue;
                    }
                    self.pause(&error, backoff).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Frees room for the control session, before which no other is of use.
    async fn has_made_way(&mut self) -> bool {
        // The one that it takes the place of may still live.
        self.control.session.hang_up().await;
        self.control.reachability.room().make_way().await.is_some()
    }

    async fn pause(&mut self, error: &Error, backoff: &mut Backoff) {
        let pause = error.pause(backoff.pause(), &*self.chance);
        self.control.reachability.waits(Party::Control, pause);
        debug!(%error, "control session not opened, trying again in {pause:?}");
        self.target.password.pause(pause).await;
    }

    /// Ends sessions of workers that have none any more: where a link was lost without a word, the server counts
    /// its session until it notices, and may have no room for another.
    pub(crate) async fn end_lost(&mut self, workers: u16) -> Result<()> {
        let suspects = self.control.reachability.room().suspects(workers);
        if suspects.is_empty() {
            return Ok(());
        }
        let ControlSession { session, channel, .. } = &mut self.control;
        match locks::end_workers(session, channel, suspects.into_iter()).await {
            Err(error) if error.is_passing() => self.keep_alive().await,
            Err(error) => {
                warn!(%error, "sessions that were left behind can't be looked up");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// True if the checkpoint has the transaction: the answer to its COMMIT was lost.
    pub(crate) async fn has_committed(&mut self, gtid: &Gtid) -> Result<bool> {
        let ControlSession { session, channel, .. } = &mut self.control;
        // No row lock is needed: with the channel's lock here, the earlier session has ended.
        let found = checkpoint::read(session, channel, false).await?;
        Ok(found.is_some_and(|found| found.executed.contains(gtid)))
    }

    /// Writes the checkpoint of a group whose statements ran on this session.
    ///
    /// # Errors
    /// [`Error::Fenced`] if another daemon took the channel over.
    pub(crate) async fn write_checkpoint(
        &mut self,
        sequence: Sequence,
        executed: &GtidSet,
    ) -> Result<()> {
        if self.target.gtids == TargetGtids::Source {
            return self.control.write_progress(sequence, executed).await;
        }
        let epoch = self.control.checkpoint().epoch;
        let channel = &self.control.channel;
        let update = checkpoint::update(channel, WORKER, epoch, sequence, executed);
        match self.control.session.run(update).await?.first() {
            Some(1) => Ok(()),
            _ => Err(Error::fenced(channel, Fence::TakenOver)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use csa_provider::source::Foreign;
    use tokio::time::Instant;

    use super::*;
    use crate::checkpoint::Checkpoint;
    use crate::commits::Commits;
    use crate::group::worker::tests::options;
    use crate::ownership::control::{Hold, RecordedServers};
    use crate::server::generation::Generation;
    use crate::server::reachability::Reachability;
    use crate::server::scripted::Scripted;

    pub(crate) async fn keeper(server: &Scripted) -> Keeper {
        Keeper::new(control(server).await, server.target(), &options())
    }

    pub(crate) async fn control(server: &Scripted) -> ControlSession {
        ControlSession {
            session: Session::connect(&server.target()).await.expect("connects"),
            channel: "c".to_owned(),
            checkpoint: Checkpoint::default(),
            converging: None,
            servers: RecordedServers {
                foreign: Foreign::default(),
                follows: None,
                own: BTreeSet::new(),
            },
            commits: Commits::new(Sequence::default(), GtidSet::new()),
            reachability: Reachability::default(),
            workers: 1,
            generation: Generation::default(),
            hold: Hold {
                identity: "i".to_owned(),
                connection: 1,
                is_sure: true,
                idle_limit: Duration::from_secs(60),
                server: "scripted".to_owned(),
            },
            noted: GtidSet::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn our_own_rows_are_repeated_with_pauses() {
        // A deadlock, and a statement that somebody ended.
        for code in [1213, 1317] {
            let server = Scripted::default();
            let mut keeper = keeper(&server).await;
            server.state().refusals.extend([code; 5]);
            let begun = Instant::now();
            keeper.add_workers(4).await.expect("written");
            let is_insert = |sent: &&String| sent.starts_with("INSERT ");
            assert_eq!(server.state().sent.iter().filter(is_insert).count(), 6, "{code}");
            // 20 ms, doubled four times; at least the half of each.
            let took = begun.elapsed();
            assert!(took >= Duration::from_millis(310), "{code}: {took:?}");
        }
    }

    /// The channel's state shows it then.
    #[tokio::test(start_paused = true)]
    async fn our_own_rows_are_not_repeated_while_undo_slots_are_full() {
        let server = Scripted::default();
        let mut keeper = keeper(&server).await;
        server.state().refusals.extend([1637]);
        let error = keeper.add_workers(4).await.expect_err("refused");
        assert_eq!(error.class(), ErrorClass::Slow);
    }
}
