//! One try to apply and commit a unit. `Worker::apply_unit` (worker.rs) repeats it after a deadlock or a lock wait
//! timeout, and after a lost connection if the unit was not committed (lost_answer.rs). Its transaction begins with the update of the channel's row in
//! `csa.checkpoint`, which matches nothing if another daemon has taken the channel over; under the source's
//! GTID that is the fence instead (unit.rs). It ends in one of the ways of commit.rs.

use std::collections::BTreeMap;
use std::sync::Arc;

use csa_scheduler::admission::AdmittedTransaction;
use csa_scheduler::group::Group;
use csa_scheduler::sequence::Sequence;

use super::gtid_use::Committed;
use super::late_tables::{late_rows, whole_tables};
use super::unit::{Unit, UnitOpening};
use super::worker_session::{Waits, WorkerSession};
use crate::activity::sessions::{Entered, SessionState};
use crate::error::{Error, Fence, Result};
use crate::options::TargetGtids;
use crate::rows::binlog_statements::Step;
use crate::rows::executor::{Opening, RowExecutor};
use crate::rows::steps::{LatePart, Steps};
use crate::server::row_session;

const ACCESS_DENIED: u16 = 1227;

/// The reason why an attempt did not commit.
#[derive(Debug)]
pub(super) enum Unfinished {
    /// An earlier group needs what this one has: its locks or its session.
    Yielded(Sequence),
    Failed(Error),
}

/// The outcome of an attempt, or of a part of it.
pub(super) type Tried<T = ()> = std::result::Result<T, Unfinished>;

impl From<Sequence> for Unfinished {
    fn from(earlier: Sequence) -> Self {
        Self::Yielded(earlier)
    }
}

impl From<Error> for Unfinished {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl WorkerSession {
    /// Makes one try: everything up to and including the COMMIT. Whatever of it is open on the session
    /// otherwise, the caller rolls back.
    pub(super) async fn attempt(
        &mut self,
        unit: &Unit,
        dependency: Sequence,
        committed: Committed,
        entered: &Entered,
    ) -> Tried {
        entered.now(SessionState::Preparing);
        let (mut rows, limit) = self.rows(unit, entered).await?;
        if unit.is_series() {
            return self.commit_series(unit, (&rows, limit), committed, entered).await;
        }
        if self.is_there(unit).await? {
            return self.pass_over(unit, entered).await;
        }
        // Before BEGIN: the session holds no lock while it waits.
        let held_back = || whole_tables(&unit.group);
        self.wait_for(dependency, held_back, entered).await?;
        entered.now(SessionState::Preparing);
        // One value for the attempt: rows late by it stay late, even if groups commit meanwhile.
        let low_water = self.shared.turn.low_water();
        let size = (limit, rows.columns());
        let (group, progress) = (&unit.group, &entered.progress);
        let mut steps = match unit.is_as_logged {
            true => Steps::unmerged(group, unit.range, limit, progress),
            false => Steps::of(group, unit.range, size, low_water, progress).await?,
        };
        entered.now(SessionState::Applying);
        let is_undone = self.target.gtids == TargetGtids::Source && steps.is_undone();
        if committed.is_by_statement(is_undone)
            && self.may_commit_at_once(unit, &rows)
            && let Some(images) = steps.only()
        {
            let bytes = images.events.len();
            self.commit_with_rows(unit, images, &mut rows, entered).await?;
            steps.sent(bytes);
            return Ok(());
        }
        self.send(unit, &mut steps, &mut rows, entered).await?;
        let mut sent = low_water;
        while let Some(LatePart { after, mut images }) = steps.next_late() {
            let held_back = || late_rows(&unit.group, sent, after);
            self.wait_for(after, held_back, entered).await?;
            entered.now(SessionState::Applying);
            sent = after;
            steps.sent(images.iter().map(|images| images.events.len()).sum());
            let is_end = steps.are_late_sent() && self.may_commit_with_last(unit, &rows);
            let last = if is_end { images.pop() } else { None };
            let session = self.session().await?;
            for images in images {
                rows.send(session, None, images).await?;
            }
            if let Some(last) = last {
                return Ok(self.commit_with_last(unit, last, &mut rows, entered).await?);
            }
        }
        // Frees the group's statements while it waits for its turn.
        drop(steps);
        self.commit_in_turn(unit, entered).await
    }

    /// Sets the session up for the unit's rows. Returns their executor, and the bytes of row images in a step.
    async fn rows(&mut self, unit: &Unit, entered: &Entered) -> Result<(RowExecutor, usize)> {
        let format = Arc::clone(unit.group.format());
        let mut rows = RowExecutor::new(&self.options, Arc::clone(&self.shared.tables));
        let logs = self.logs(unit);
        let session = self.session().await?;
        session.log(logs).await.map_err(|error| may_not_log(unit, error))?;
        let limit = rows.step_bytes(session);
        rows.prepare(session, &format).await?;
        session.use_bytes(rows.takes_row_images()).await?;
        entered.connected(session.id());
        Ok((rows, limit))
    }

    /// Waits until everything up to `dependency` is committed; `held_back`: the rows that wait, by table.
    pub(super) async fn wait_for(
        &mut self,
        dependency: Sequence,
        held_back: impl FnOnce() -> BTreeMap<String, u64>,
        entered: &Entered,
    ) -> Tried {
        let turn = &self.shared.turn;
        entered.waits(SessionState::WaitingForDependency, dependency);
        if dependency > turn.low_water() {
            self.shared.status.held_back(held_back());
        }
        Ok(self.waits().or_yield(turn.wait(dependency), entered).await?)
    }

    /// Waits until everything before the group is committed.
    pub(super) async fn wait_for_turn(&mut self, group: &Group, entered: &Entered) -> Tried {
        let earlier = group.sequence.previous();
        entered.waits(SessionState::WaitingForTurn, earlier);
        Ok(self.waits().or_yield(self.shared.turn.wait(earlier), entered).await?)
    }

    /// True if the unit came back under a GTID of the target's own, or was committed in a series that
    /// failed later. Under that GTID the server would pass over every statement, the fence too.
    async fn is_there(&mut self, unit: &Unit) -> Result<bool> {
        let may_be_there = |of: &&AdmittedTransaction| of.is_returned() || unit.group.is_series();
        match unit.transactions().first().filter(may_be_there) {
            Some(transaction) if self.target.gtids == TargetGtids::Source => {
                let gtid = transaction.relayed.header.gtid.to_string();
                self.session().await?.has_executed(&gtid).await
            }
            _ => Ok(false),
        }
    }

    /// Returns the statements before the unit's rows on this session.
    pub(super) async fn opening_here(&mut self, unit: &Unit) -> Result<UnitOpening> {
        let mut opening = self.opening(unit);
        // Our own statements need our own settings.
        if let Some(own) = self.session().await?.row_settings.leave() {
            opening.text = format!("{own};{}", opening.text);
            opening.statements += row_session::count(&own);
        }
        Ok(opening)
    }

    /// Sends BEGIN, the UPDATE of the checkpoint row and every change, in as few packets as possible; or ends with
    /// the group to which this one has to yield.
    async fn send(
        &mut self,
        unit: &Unit,
        steps: &mut Steps,
        rows: &mut RowExecutor,
        entered: &Entered,
    ) -> Tried {
        let channel = self.options.channel.clone();
        let opening = self.opening_here(unit).await?.with_version();
        let UnitOpening { mut text, mut statements, is_fenced, .. } = opening;
        if !is_fenced {
            text.push_str(";BEGIN");
            statements += 1;
        }
        let fence = is_fenced.then(|| statements - 1);
        let waits = self.waits();
        let mut opening = Some(Opening { text: text.into_bytes(), statements });
        while let Some(step) = next_step(unit, steps, &waits, entered).await? {
            let session = self.session().await?;
            let opened = opening.is_some();
            let mut images_sent = 0;
            let matched = match step? {
                Step::RowImages(images) => {
                    images_sent = images.events.len();
                    rows.send(session, opening.take(), images).await?
                }
                Step::Statement(text) => {
                    let Opening { text: mut statements, .. } = opening.take().unwrap_or_default();
                    if opened {
                        statements.push(b';');
                    }
                    statements.extend_from_slice(&text);
                    let matched = session.run(&statements).await?;
                    session.row_settings.settled();
                    matched
                }
            };
            steps.sent(images_sent);
            if let Some(fence) = fence.filter(|_| opened) {
                // The packet's rows have run by now; without the checkpoint row they roll back.
                owned(&channel, matched.get(fence))?;
            }
        }
        if let Some(Opening { text, .. }) = opening {
            let session = self.session().await?;
            let matched = session.run(&text).await?;
            session.row_settings.settled();
            if let Some(fence) = fence {
                owned(&channel, matched.get(fence))?;
            }
        }
        Ok(())
    }
}

/// Returns the next step, which may not have arrived from the source yet.
async fn next_step(
    unit: &Unit,
    steps: &mut Steps,
    waits: &Waits,
    entered: &Entered,
) -> Tried<Option<Result<Step>>> {
    let is_growing = unit.group.followed().is_some_and(|followed| followed.is_growing());
    if !is_growing || !steps.is_awaited() {
        return Ok(steps.next().await);
    }
    entered.now(SessionState::WaitingForEvents);
    let next = waits.or_yield(steps.next(), entered).await;
    entered.now(SessionState::Applying);
    Ok(next?)
}

/// Returns the error for a target that does not permit to leave a unit out of its binary log.
fn may_not_log(unit: &Unit, error: Error) -> Error {
    match (error.code(), unit.transactions().first()) {
        (Some(ACCESS_DENIED), Some(transaction)) => Error::Unsupported {
            gtid: transaction.relayed.header.gtid.to_string(),
            what: format!(
                "it comes from the target's own server, and to pass over it needs another privilege \
                 there, for the channel's account: SESSION_VARIABLES_ADMIN ({error})"
            ),
        },
        _ => error,
    }
}

/// Checks that the UPDATE that opens the transaction matched the checkpoint row.
fn owned(channel: &str, matched: Option<&u64>) -> Result<()> {
    match matched {
        // Rows matched, as the link asks for, not rows changed.
        Some(1) => Ok(()),
        _ => Err(Error::fenced(channel, Fence::NothingCommitted)),
    }
}
