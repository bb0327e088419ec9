//! The knowledge that one attempt at a statement leaves to the next. Pure.

use crate::error::Result;

#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// One of them got no answer, and may have written the checkpoint.
    pub(super) may_be_committed: bool,
    /// The error with which the statement ended on the source, if it ended without one here. Only the attempt that
    /// executes it learns that, and a later one may be left to write the checkpoint.
    pub(super) missing: Option<u16>,
}

impl Attempts {
    /// Notes how the statement ended.
    pub(super) fn note(&mut self, outcome: &Result<Option<u16>>) {
        if let Ok(missing) = outcome {
            self.missing = *missing;
        }
    }
}
