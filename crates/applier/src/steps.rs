//! What is sent to the target for a group.

use std::sync::Arc;

use csa_scheduler::{AdmittedTransaction, Group, flattened_events};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::row_image::{RowImageCutter, Step};
use crate::{Error, Result, merge};

/// Steps of a group, in order: its net changes where everything in it is understood, else its events
/// as they came.
#[derive(Debug)]
pub(crate) enum Steps {
    Merged(std::vec::IntoIter<Vec<u8>>),
    /// Cut as they are asked for, on a thread of their own: reading a transaction back from the relay
    /// store blocks on the disk. At most one step is ahead, so memory stays at a few statements
    /// however large the transaction is.
    Cut(mpsc::Receiver<Result<Step>>),
}

impl Steps {
    /// `limit`: bytes of row images in one statement.
    pub(crate) async fn of(group: &Arc<Group>, range: (usize, usize), limit: usize) -> Self {
        let group = Arc::clone(group);
        if !merge::is_mergeable(slice(&group, range)) {
            return Self::cut(group, range, limit);
        }
        let merging = spawn_blocking({
            let group = Arc::clone(&group);
            move || merge::merge(slice(&group, range), limit)
        });
        match merging.await {
            Ok(statements) => Self::Merged(statements.into_iter()),
            // The runtime is shutting down; nobody will ask for a step.
            Err(_) => Self::cut(group, range, limit),
        }
    }

    fn cut(group: Arc<Group>, range: (usize, usize), limit: usize) -> Self {
        let (sender, steps) = mpsc::channel(1);
        spawn_blocking(move || {
            let send = |step| sender.blocking_send(step).is_ok();
            let mut cutter = RowImageCutter::new(limit);
            let mut ready = Vec::new();
            for AdmittedTransaction { relayed, .. } in slice(&group, range) {
                for event in flattened_events(relayed) {
                    let pushed = event
                        .map_err(Error::from)
                        .and_then(|event| cutter.push(&relayed.header.gtid, &event, &mut ready));
                    if let Err(error) = pushed {
                        send(Err(error));
                        return;
                    }
                    if !ready.drain(..).all(|step| send(Ok(step))) {
                        return;
                    }
                }
            }
            cutter.finish(&mut ready);
            // Nobody may want the last ones any more.
            ready.into_iter().all(|step| send(Ok(step)));
        });
        Self::Cut(steps)
    }

    pub(crate) async fn next(&mut self) -> Option<Result<Step>> {
        match self {
            Self::Merged(statements) => statements.next().map(|images| Ok(Step::RowImages(images))),
            Self::Cut(steps) => steps.recv().await,
        }
    }
}

fn slice(group: &Group, range: (usize, usize)) -> &[AdmittedTransaction] {
    group.transactions.get(range.0..range.1).unwrap_or_default()
}
