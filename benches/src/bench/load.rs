//! The load of a run: a shape of our own, or a script of sysbench's.

use anyhow::{Result, ensure};
use clap::ValueEnum as _;
use csa_tests::Server;
use serde::{Deserialize, Serialize};

use super::options::Options;
use super::producer::{Produced, Producer};
use super::script::{Script, ScriptRun};
use super::shape::Shape;
use super::sizes::Sizes;

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
    /// Returns the loads that are wanted: scripts, or shapes.
    pub(super) fn all(options: &Options) -> Vec<Self> {
        if !options.scripts.is_empty() {
            let scripts = options.scripts.iter().cloned();
            return scripts.map(|sysbench| Self::Script { sysbench }).collect();
        }
        let shapes = if options.load.is_empty() { Shape::value_variants() } else { &options.load };
        shapes.iter().map(|shape| Self::Shape(*shape)).collect()
    }

    /// Idle mode writes a row of its own, and with the load bulk many others in the same transaction.
    pub(super) fn of_idle(options: &Options) -> Result<Vec<Self>> {
        let is_known = options.load.iter().all(|load| *load == Shape::Bulk);
        ensure!(is_known, "idle mode has no load but bulk");
        Ok(options.load.iter().map(|shape| Self::Shape(*shape)).collect())
    }

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
            Self::Script { sysbench } => Writer::Script(script_run(sysbench, options)),
        }
    }
}

/// Returns runs of a script with the options of the command line.
pub(super) fn script_run(script: &Script, options: &Options) -> ScriptRun {
    ScriptRun::new(options.sysbench.clone(), script.clone(), options.sizes, options.producers)
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
