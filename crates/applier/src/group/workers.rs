//! A channel's workers: those that are idle, and those that apply a group.

use std::sync::Arc;

use csa_scheduler::group::Group;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::worker::Worker;
use super::worker_session::{SharedWorkerState, WorkerSession};
use crate::error::Result;
use crate::options::ApplierOptions;
use crate::server::room::Party;
use crate::server::target::Target;

/// Workers with and without a group.
pub(crate) struct Workers {
    pub(crate) epoch: u64,
    pub(crate) target: Target,
    pub(crate) options: ApplierOptions,
    pub(crate) shared: SharedWorkerState,
    pub(crate) wanted: u16,
    /// Workers below this number have their checkpoint rows.
    pub(crate) with_rows: u16,
    /// Workers that exist.
    pub(crate) existing: Vec<u16>,
    pub(crate) idle: Vec<Worker>,
    pub(crate) running: JoinSet<Finished>,
}

pub(crate) struct Finished {
    pub(crate) worker: Worker,
    pub(crate) group: Arc<Group>,
    pub(crate) outcome: Result<()>,
}

/// Sessions that no worker uses end as those of the workers do.
impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.target.room().clear();
    }
}

impl Workers {
    /// Returns an idle worker, or a new one. It may be one more than wanted: the group whose turn it is gets a
    /// worker even while more workers still run than the new, lower number.
    pub(crate) fn take(&mut self) -> Option<Worker> {
        // One that has a session, where the target has no room for more.
        let room = self.shared.target.room();
        let with_session =
            self.idle.iter().rposition(|worker| room.has_idle(Party::Worker(worker.index())));
        if let Some(place) = with_session.or(self.idle.len().checked_sub(1)) {
            return Some(self.idle.remove(place));
        }
        let index = (0..self.with_rows).find(|index| !self.existing.contains(index))?;
        self.existing.push(index);
        Some(Worker::new(WorkerSession::new(
            index,
            self.epoch,
            self.target.clone(),
            self.options.clone(),
            self.shared.clone(),
        )))
    }

    pub(crate) fn start(&mut self, mut worker: Worker, group: Group) {
        let group = Arc::new(group);
        let applied = async move {
            let outcome = worker.apply(&group).await;
            Finished { worker, group, outcome }
        };
        self.running.spawn(applied.in_current_span());
    }

    /// Takes a worker back, or ends it when there are more than wanted.
    pub(crate) fn put_back(&mut self, worker: Worker) {
        if worker.index() < self.wanted {
            self.idle.push(worker);
        } else {
            self.end(worker);
        }
    }

    pub(crate) fn resize(&mut self, wanted: u16) {
        self.wanted = wanted;
        // Rows stay when the number falls: only together are they the checkpoint.
        self.with_rows = self.with_rows.max(wanted);
        for worker in std::mem::take(&mut self.idle) {
            self.put_back(worker);
        }
    }

    pub(crate) fn end(&mut self, worker: Worker) {
        self.existing.retain(|index| *index != worker.index());
        // Not waited for: a later worker with this number ends the session if it still lives.
        tokio::spawn(worker.close().in_current_span());
    }

    /// Follows the room that the target has for sessions; returns the number of groups that may run.
    pub(crate) fn permitted(&self) -> usize {
        usize::from(self.shared.target.room().workers(self.wanted))
    }

    pub(crate) async fn close(&mut self) {
        // Aborted tasks drop their sessions, and the server rolls back what was open.
        self.running.shutdown().await;
        for worker in self.idle.drain(..) {
            worker.close().await;
        }
    }
}
