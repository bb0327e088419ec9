use std::collections::VecDeque;

use bytes::Bytes;

use crate::disk::segment::RelayPosition;

/// The newest frames in memory: those written last, as runs that are contiguous in one file.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    runs: VecDeque<(RelayPosition, Bytes)>,
    bytes: usize,
}

impl Tail {
    /// Adds a run just written at `start`, and drops the oldest ones beyond `limit` bytes.
    pub(crate) fn push(&mut self, start: RelayPosition, run: Bytes, limit: usize) {
        self.bytes += run.len();
        self.runs.push_back((start, run));
        while self.bytes > limit {
            let Some((_, oldest)) = self.runs.pop_front() else { break };
            self.bytes -= oldest.len();
        }
    }

    /// Everything in memory from `position` to the end of its run.
    pub(crate) fn at(&self, position: RelayPosition) -> Option<Bytes> {
        // Runs ascend, also after `truncate`: what is written next begins where it cut.
        let next = self.runs.partition_point(|(start, _)| *start <= position);
        let (start, run) = self.runs.get(next.checked_sub(1)?)?;
        if start.segment != position.segment {
            return None;
        }
        let skip = usize::try_from(position.offset - start.offset).ok()?;
        (skip < run.len()).then(|| run.slice(skip..))
    }

    /// Returns everything in memory of a segment.
    pub(crate) fn runs_of(&self, segment: u64) -> Vec<Bytes> {
        let runs = self.runs.iter().filter(|(start, _)| start.segment == segment);
        runs.map(|(_, run)| run.clone()).collect()
    }

    /// Forgets everything from `position` on.
    pub(crate) fn truncate(&mut self, position: RelayPosition) {
        while let Some((start, run)) = self.runs.back_mut() {
            if *start >= position {
                self.bytes -= run.len();
                self.runs.pop_back();
                continue;
            }
            if start.segment == position.segment {
                let keep = (position.offset - start.offset) as usize;
                if keep < run.len() {
                    self.bytes -= run.len() - keep;
                    run.truncate(keep);
                }
            }
            break;
        }
    }
}
