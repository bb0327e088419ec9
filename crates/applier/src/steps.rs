//! What is sent to the target for a group.

use std::sync::Arc;

use csa_scheduler::{AdmittedTransaction, Group, Sequence};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::row_image::{RowImageCutter, Step};
use crate::{Error, Result, merge};

/// Steps of a group, in order: its net changes where everything in it is understood, else its events
/// as they came.
#[derive(Debug)]
pub(crate) struct Steps {
    free: Source,
    /// To be sent once the groups up to this one are committed.
    late: std::vec::IntoIter<Vec<u8>>,
    pub(crate) late_dependency: Option<Sequence>,
}

#[derive(Debug)]
enum Source {
    Merged(std::vec::IntoIter<Vec<u8>>),
    /// Cut as they are asked for, on a thread of their own: reading a transaction back from the relay
    /// store blocks on the disk. At most one step is ahead, so memory stays at a few statements
    /// however large the transaction is.
    Cut(mpsc::Receiver<Result<Step>>),
}

impl Steps {
    /// `limit`: bytes of row images in one statement. Groups up to `low_water` are committed.
    pub(crate) async fn of(
        group: &Arc<Group>,
        range: (usize, usize),
        limit: usize,
        low_water: Sequence,
    ) -> Self {
        let group = Arc::clone(group);
        if !group.is_keyed() {
            return Self::cut(group, range, limit);
        }
        let merging = spawn_blocking({
            let group = Arc::clone(&group);
            move || {
                let in_the_way = |key| {
                    let earlier = group.late.get(&key).copied().unwrap_or_default();
                    earlier > low_water.get()
                };
                merge::merge(slice(&group, range), limit, in_the_way)
            }
        });
        match merging.await {
            Ok(merged) => Self {
                late_dependency: (!merged.late.is_empty())
                    .then(|| group.late.values().max().copied().map(Sequence::new))
                    .flatten(),
                free: Source::Merged(merged.free.into_iter()),
                late: merged.late.into_iter(),
            },
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
            for transaction in slice(&group, range) {
                let gtid = &transaction.relayed.header.gtid;
                for event in transaction.events() {
                    let pushed = event
                        .map_err(Error::from)
                        .and_then(|event| cutter.push(gtid, &event, &mut ready));
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
        Self { free: Source::Cut(steps), late: Vec::new().into_iter(), late_dependency: None }
    }

    /// The next step that need not wait.
    pub(crate) async fn next(&mut self) -> Option<Result<Step>> {
        match &mut self.free {
            Source::Merged(statements) => {
                statements.next().map(|images| Ok(Step::RowImages(images)))
            }
            Source::Cut(steps) => steps.recv().await,
        }
    }

    /// The next step that has to wait.
    pub(crate) fn next_late(&mut self) -> Option<Vec<u8>> {
        self.late.next()
    }
}

fn slice(group: &Group, range: (usize, usize)) -> &[AdmittedTransaction] {
    group.transactions.get(range.0..range.1).unwrap_or_default()
}
