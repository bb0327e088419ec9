//! The steps in which a group is sent to the target.

use std::sync::Arc;

use csa_provider::seams::planted::{Bug, is_planted};
use csa_relaystore::read::RelayedTransaction;
use csa_relaystore::state::Outcome;
use csa_scheduler::admission::AdmittedTransaction;
use csa_scheduler::events::decompressed_bytes;
use csa_scheduler::group::Group;
use csa_scheduler::sequence::Sequence;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::merge;
pub(crate) use super::merge::LatePart;
use crate::activity::sessions::GroupProgress;
use crate::error::{Error, Result};
use crate::options::RowImageColumns;
use crate::rows::binlog_statements::{Framing, RowImageCutter, RowImages, Step};
use crate::threads::{apart, computed};

/// Merging so few rows takes less time than a switch to another thread and back.
const ROWS_AT_ONCE: usize = 64;

/// Steps of a group, in order: its net changes if everything in it is understood, else its events
/// as they came.
#[derive(Debug)]
pub(crate) struct Steps {
    free: StepSource,
    /// Images that have to wait for other groups.
    late: std::vec::IntoIter<LatePart>,
    progress: Arc<GroupProgress>,
}

#[derive(Debug)]
enum StepSource {
    Merged(std::vec::IntoIter<RowImages>),
    /// Cut on demand, on a thread of their own: reading a transaction back from the relay store blocks
    /// on the disk. At most one step is ahead, so memory stays at a few statements however large the
    /// transaction is.
    Cut {
        steps: mpsc::Receiver<Result<Step>>,
        /// `None` once it has ended.
        cutting: Option<JoinHandle<()>>,
    },
}

impl Steps {
    /// Makes the steps of a group, with at most `limit` bytes of row images in one statement and with these
    /// `columns` in merged rows. Groups up to `low_water` are committed.
    pub(crate) async fn of(
        group: &Arc<Group>,
        range: (usize, usize),
        (limit, columns): (usize, RowImageColumns),
        low_water: Sequence,
        progress: &Arc<GroupProgress>,
    ) -> Result<Self> {
        let group = Arc::clone(group);
        if !group.is_keyed() {
            return Ok(Self::unmerged(&group, range, limit, progress));
        }
        let merge = {
            let group = Arc::clone(&group);
            move || {
                let in_the_way = |key| {
                    let earlier = group.late.get(&key).copied().map(Sequence::new);
                    earlier.filter(|earlier| *earlier > low_water)
                };
                merge::merge(slice(&group, range), group.sequence, limit, columns, in_the_way)
            }
        };
        let rows: usize = slice(&group, range).iter().map(AdmittedTransaction::rows).sum();
        let merged = match rows > ROWS_AT_ONCE {
            true => computed(merge).await,
            false => Ok(merge()),
        };
        // The events as they came would be no substitute: they do not hold back rows that must wait.
        let merged =
            merged.map_err(|source| Error::Task { task: "the merge of rows", source })??;
        Ok(Self {
            progress: {
                let late = merged.late.iter().flat_map(|part| &part.images);
                let all = merged.free.iter().chain(late);
                let bytes: usize = all.map(|images| images.events.len()).sum();
                progress.begin(bytes as u64);
                Arc::clone(progress)
            },
            free: StepSource::Merged(merged.free.into_iter()),
            late: merged.late.into_iter(),
        })
    }

    /// Steps of a transaction that is not committed with others, its own beginning and end included.
    pub(crate) fn as_logged(group: &Arc<Group>, limit: usize) -> Self {
        let all = (0, group.transactions.len());
        Self::cut(Arc::clone(group), all, limit, Framing::Own, &Arc::default())
    }

    /// Events of a group as they came, without the beginning and end of its transactions.
    pub(crate) fn unmerged(
        group: &Arc<Group>,
        range: (usize, usize),
        limit: usize,
        progress: &Arc<GroupProgress>,
    ) -> Self {
        Self::cut(Arc::clone(group), range, limit, Framing::Group, progress)
    }

    /// Returns a step for each rows event.
    pub(crate) fn by_event(group: &Arc<Group>, range: (usize, usize)) -> Self {
        Self::unmerged(group, range, 1, &Arc::default())
    }

    fn cut(
        group: Arc<Group>,
        range: (usize, usize),
        limit: usize,
        framing: Framing,
        progress: &Arc<GroupProgress>,
    ) -> Self {
        let (sender, steps) = mpsc::channel(1);
        let read = Arc::clone(progress);
        let cutting = apart(async move {
            let bytes = |t: &AdmittedTransaction| {
                // The source states the length of one whose end has not come.
                if t.relayed.followed().is_some() {
                    return t.relayed.header.transaction_length;
                }
                let decompressed = decompressed_bytes(&t.relayed);
                decompressed.map_or(t.relayed.event_bytes, |(kept, more)| kept.saturating_add(more))
            };
            read.begin(slice(&group, range).iter().map(bytes).sum());
            let send = async |step| sender.send(step).await.is_ok();
            let mut cutter = RowImageCutter::new(limit, framing);
            let mut ready = Vec::new();
            for transaction in slice(&group, range) {
                let gtid = &transaction.relayed.header.gtid;
                cutter.enter(transaction.session.as_ref(), &mut ready);
                cutter.learn(transaction.changes.as_ref());
                let mut events = transaction.events();
                loop {
                    let written = Written::of(&transaction.relayed);
                    // More of them may come after a first end.
                    for event in events.by_ref() {
                        if let Ok(event) = &event {
                            read.add(event.len());
                        }
                        let pushed = event
                            .map_err(Error::from)
                            .and_then(|event| cutter.push(gtid, &event, &mut ready));
                        if let Err(error) = pushed {
                            send(Err(error)).await;
                            return;
                        }
                        for step in ready.drain(..) {
                            // The attempt has ended, and nobody asks for more.
                            if !send(Ok(step)).await {
                                return;
                            }
                        }
                    }
                    let Written::Partly(wait) = written else { break };
                    tokio::select! {
                        biased;
                        () = sender.closed() => return,
                        () = wait => {}
                    }
                }
            }
            cutter.finish(&mut ready);
            // The receiver may be gone by now, which is no error.
            for step in ready {
                if !send(Ok(step)).await {
                    return;
                }
            }
        });
        Self {
            free: StepSource::Cut { steps, cutting: Some(cutting) },
            late: Vec::new().into_iter(),
            progress: Arc::clone(progress),
        }
    }

    /// Returns the next step that need not wait.
    pub(crate) async fn next(&mut self) -> Option<Result<Step>> {
        match &mut self.free {
            StepSource::Merged(statements) => {
                statements.next().map(|images| Ok(Step::RowImages(images)))
            }
            StepSource::Cut { steps, cutting } => {
                if let Some(step) = steps.recv().await {
                    return Some(step);
                }
                // A panic ends the steps, too, and the rest of the transaction is missing then.
                let ended = cutting.as_mut()?.await;
                *cutting = None;
                let failed = |source| Err(Error::Task { task: "the cutting of rows", source });
                ended.err().map(failed)
            }
        }
    }

    /// Returns true if the next step is not there yet.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(&self.free, StepSource::Cut { steps, .. } if steps.is_empty() && !steps.is_closed())
    }

    /// Returns true if all rows are known, and every one ends as it began.
    pub(crate) fn is_undone(&self) -> bool {
        match &self.free {
            StepSource::Merged(statements) => {
                self.late.len() == 0 && statements.as_slice().iter().all(|images| images.is_undone)
            }
            StepSource::Cut { .. } => false,
        }
    }

    /// Returns all of the group, if it is one step that need not wait.
    pub(crate) fn only(&mut self) -> Option<RowImages> {
        match &mut self.free {
            StepSource::Merged(statements) if statements.len() == 1 && self.late.len() == 0 => {
                statements.next()
            }
            _ => None,
        }
    }

    /// Returns everything, of a merged group of which nothing has to wait; `None` of others.
    pub(crate) fn all(self) -> Option<Vec<RowImages>> {
        match self.free {
            StepSource::Merged(statements) if self.late.len() == 0 => Some(statements.collect()),
            _ => None,
        }
    }

    /// Counts bytes of a merged group that were sent; where events are cut, reading them counts instead.
    pub(crate) fn sent(&self, bytes: usize) {
        if matches!(self.free, StepSource::Merged(_)) {
            self.progress.add(bytes);
        }
    }

    /// Returns the next images that have to wait.
    pub(crate) fn next_late(&mut self) -> Option<LatePart> {
        self.late.next()
    }

    /// Returns true if no images are left that have to wait.
    pub(crate) fn are_late_sent(&self) -> bool {
        self.late.len() == 0
    }
}

/// The part of a transaction that there was when its events began to be read.
enum Written<F> {
    All,
    /// Not all: the future ends once there are more, or none will come.
    Partly(F),
}

impl Written<()> {
    fn of(relayed: &RelayedTransaction) -> Written<impl Future<Output = ()> + use<>> {
        let Some(followed) = relayed.followed().cloned() else { return Written::All };
        let seen = followed.seen();
        match seen.outcome {
            Outcome::Whole => Written::All,
            Outcome::Lost if is_planted(Bug::LostPartCommitted) => Written::All,
            // Of a lost one the next event is an error.
            Outcome::Growing | Outcome::Lost => {
                Written::Partly(async move { followed.changed_since(seen).await })
            }
        }
    }
}

fn slice(group: &Group, range: (usize, usize)) -> &[AdmittedTransaction] {
    group.transactions.get(range.0..range.1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_transaction_does_not_end_where_its_cutting_panicked() {
        let (sender, steps) = mpsc::channel(1);
        let cutting = apart(async move {
            let sent = sender.send(Ok(Step::Statement("SAVEPOINT a".into()))).await;
            assert!(sent.is_err(), "a bug of the cutter");
        });
        let mut steps = Steps {
            free: StepSource::Cut { steps, cutting: Some(cutting) },
            late: Vec::new().into_iter(),
            progress: Arc::default(),
        };
        assert!(matches!(steps.next().await, Some(Ok(Step::Statement(_)))));
        assert!(matches!(steps.next().await, Some(Err(Error::Task { .. }))));
        assert!(steps.next().await.is_none(), "it was said once");
    }
}
