//! The load of a run: a shape of our own, or a script of sysbench's.

use anyhow::Result;
use csa_tests::Server;
use serde::{Deserialize, Serialize};

use super::options::Options;
use super::producer::{Produced, Producer};
use super::shape::Shape;
use super::sizes::Sizes;
use super::sysbench::{Script, ScriptRun};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Load {
    Shape(Shape),
    Script { sysbench: Script },
}

/// Writes backlogs of one load, each other than the one before.
#[derive(Debug)]
pub(super) enum Writer {
    Shape(Producer),
    Script(ScriptRun),
}

impl Load {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Shape(shape) => shape.name(),
            Self::Script { sysbench } => format!("sysbench-{}", sysbench.stem()),
        }
    }

    /// Returns the schema whose tables it changes.
    pub(super) fn schema(&self) -> &str {
        match self {
            Self::Shape(shape) => shape.schema(),
            Self::Script { sysbench } => sysbench.stem(),
        }
    }

    /// Returns the transactions of a backlog, unless its size follows from time.
    pub(super) fn backlog(&self, sizes: &Sizes) -> u64 {
        match self {
            Self::Shape(shape) => shape.backlog(sizes),
            // They change one row to four.
            Self::Script { .. } => Shape::WriteOnly.backlog(sizes),
        }
    }

    pub(super) fn writer(&self, options: &Options) -> Writer {
        match self {
            Self::Shape(shape) => {
                Writer::Shape(Producer::new(*shape, &options.sizes, options.producers))
            }
            Self::Script { sysbench } => Writer::Script(ScriptRun::new(sysbench, options)),
        }
    }
}

impl Writer {
    /// Writes a number of transactions as fast as the source takes them.
    pub(super) async fn backlog(&mut self, source: &Server, transactions: u64) -> Result<Produced> {
        match self {
            Self::Shape(producer) => producer.backlog(source, transactions).await,
            Self::Script(run) => run.backlog(source, transactions).await,
        }
    }
}
