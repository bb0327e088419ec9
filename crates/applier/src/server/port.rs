//! The door to the target: every statement passes through it, so that a test can stand in for the server.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use csa_provider::server::link::{Budget, Limits, Link, LinkError, NextRows, Row, RowPart};
use tokio::time::Instant;

use super::answer::{Answer, Warning};

/// An answer to come.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An answer, or the error that the server sent or the link had.
pub type Linked<T> = std::result::Result<T, LinkError>;

/// A connection to the target.
pub trait TargetLink: Debug + Send {
    /// Returns the number of this connection in the greeting. A router or proxy may have put its own there, or 0, so only
    /// `CONNECTION_ID()` tells the server's.
    fn id(&self) -> u32;

    /// Sends statements; [`Self::answers`] has to follow.
    fn begin<'a>(&'a mut self, statements: &'a [u8]) -> Pending<'a, Linked<()>>;

    /// Returns the answers to all statements, or the error of the first that failed. There are
    /// `least` at least, even if the server does not announce them. The last but one of `least` has
    /// its time.
    fn answers(&mut self, limits: Limits, least: usize) -> Pending<'_, Linked<Vec<Answer>>>;

    /// Returns the rows of one query.
    fn query<'a>(&'a mut self, query: &'a str, limits: Limits) -> Pending<'a, Linked<Vec<Row>>>;

    /// Returns the next rows of one query that was begun with [`Self::begin`].
    fn next_rows(&mut self, part: RowPart) -> Pending<'_, Linked<NextRows>>;

    /// Lets the server take several statements in a packet, as at first, or refuse a second one.
    fn take_several(&mut self, several: bool) -> Pending<'_, Linked<()>>;

    /// Ends the connection; an error no longer matters.
    fn quit(self: Box<Self>) -> Pending<'static, ()>;
}

/// A connection that was ended.
#[derive(Debug)]
pub(crate) struct HungUp;

impl TargetLink for HungUp {
    fn id(&self) -> u32 {
        0
    }

    fn begin<'a>(&'a mut self, _: &'a [u8]) -> Pending<'a, Linked<()>> {
        Box::pin(async { Err(LinkError::Closed) })
    }

    fn answers(&mut self, _: Limits, _: usize) -> Pending<'_, Linked<Vec<Answer>>> {
        Box::pin(async { Err(LinkError::Closed) })
    }

    fn query<'a>(&'a mut self, _: &'a str, _: Limits) -> Pending<'a, Linked<Vec<Row>>> {
        Box::pin(async { Err(LinkError::Closed) })
    }

    fn next_rows(&mut self, _: RowPart) -> Pending<'_, Linked<NextRows>> {
        Box::pin(async { Err(LinkError::Closed) })
    }

    fn take_several(&mut self, _: bool) -> Pending<'_, Linked<()>> {
        Box::pin(async { Err(LinkError::Closed) })
    }

    fn quit(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async {})
    }
}

impl TargetLink for Link {
    fn id(&self) -> u32 {
        self.connection_id()
    }

    fn begin<'a>(&'a mut self, statements: &'a [u8]) -> Pending<'a, Linked<()>> {
        Box::pin(Link::begin(self, statements))
    }

    fn answers(&mut self, limits: Limits, least: usize) -> Pending<'_, Linked<Vec<Answer>>> {
        Box::pin(async move {
            let mut budget = Budget::new(limits, "statements");
            let mut answers = Vec::new();
            let mut shown = Vec::new();
            loop {
                let next = self.next_result(&mut budget, |row| shown.extend(warning(row)));
                let Some(outcome) = next.await? else { return Ok(answers) };
                let shown = std::mem::take(&mut shown);
                let (rows, warnings) = (outcome.affected_rows, outcome.warnings);
                // What follows is the COMMIT, which the server runs after it has sent this answer.
                let at = (answers.len() + 2 == least).then(Instant::now);
                answers.push(Answer { rows, warnings, shown, at });
                if answers.len() < least {
                    self.expect_unannounced();
                }
            }
        })
    }

    fn query<'a>(&'a mut self, query: &'a str, limits: Limits) -> Pending<'a, Linked<Vec<Row>>> {
        Box::pin(Link::query(self, query, limits))
    }

    fn next_rows(&mut self, part: RowPart) -> Pending<'_, Linked<NextRows>> {
        Box::pin(Link::next_rows(self, part))
    }

    fn take_several(&mut self, several: bool) -> Pending<'_, Linked<()>> {
        Box::pin(Link::take_several(self, several))
    }

    fn quit(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(Link::quit(*self))
    }
}

/// Returns the level, code and message.
fn warning(mut row: Row) -> Option<Warning> {
    Some(Warning { code: row.take_opt(1)?.ok()?, message: row.take_opt(2)?.ok()? })
}
