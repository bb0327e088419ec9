//! Rows that have to wait for other groups. Those that wait for the group just before this one are sent while all later
//! groups wait for this one, so they come last and are few; the others need not wait so long.

use csa_provider::seams::planted::{Bug, is_planted};
use csa_scheduler::sequence::Sequence;

use super::writer::StatementWriter;
use crate::rows::binlog_statements::RowImages;

/// Images that are sent once the groups up to `after` are committed.
#[derive(Debug)]
pub(crate) struct LatePart {
    pub(crate) after: Sequence,
    pub(crate) images: Vec<RowImages>,
}

/// Late rows of the group `own`, in the order in which they are sent.
#[derive(Debug)]
pub(super) struct LateRows {
    own: Sequence,
    /// Rows that wait for groups before the last one.
    far: Part,
    /// Rows that wait for the group just before this one.
    near: Part,
    /// Rows of later stages, which come after all others.
    rest: Part,
}

#[derive(Debug)]
pub(super) struct Part {
    /// The last group that is waited for.
    after: Option<Sequence>,
    pub(super) writer: StatementWriter,
}

impl LateRows {
    pub(super) fn new(own: Sequence, limit: usize) -> Self {
        Self { own, far: Part::new(limit), near: Part::new(limit), rest: Part::new(limit) }
    }

    /// Returns true if no row was late so far.
    pub(super) fn is_empty(&self) -> bool {
        self.far.after.is_none() && self.near.after.is_none()
    }

    /// Returns true if rows that wait for this group belong to the near part.
    pub(super) fn is_near(&self, earlier: Sequence) -> bool {
        earlier == self.own.previous()
    }

    /// Returns the part for rows that wait for this group.
    pub(super) fn part(&mut self, earlier: Sequence) -> &mut Part {
        let part = if self.is_near(earlier) { &mut self.near } else { &mut self.far };
        let is_early = is_planted(Bug::LateRowsEarly);
        part.waits_for(if is_early { earlier.previous() } else { earlier })
    }

    /// Returns the part that comes last, for rows that wait for this group, if for any.
    pub(super) fn rest(&mut self, earlier: Sequence) -> &mut Part {
        self.rest.waits_for(earlier)
    }

    pub(super) fn end_statements(&mut self) {
        for part in [&mut self.far, &mut self.near, &mut self.rest] {
            part.writer.end_statement();
        }
    }

    pub(super) fn finish(self) -> Vec<LatePart> {
        let parts = [self.far, self.near, self.rest].map(|Part { after, writer }| LatePart {
            after: after.unwrap_or_default(),
            images: writer.finish(),
        });
        // Rows whose changes cancel out leave nothing to send.
        parts.into_iter().filter(|part| !part.images.is_empty()).collect()
    }
}

impl Part {
    fn new(limit: usize) -> Self {
        Self { after: None, writer: StatementWriter::new(limit) }
    }

    fn waits_for(&mut self, earlier: Sequence) -> &mut Self {
        self.after = self.after.max(Some(earlier));
        self
    }
}
