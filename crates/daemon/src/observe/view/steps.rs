//! How long the steps of replication take, each in sum and as a histogram.

use csa_provider::seams::BOUNDS_MICROS;
use serde::{Deserialize, Serialize};

/// The steps in the order in which a transaction takes them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct StepsView {
    /// Of each transaction: from its commit on the source until it was received as a whole.
    pub(crate) reception: DurationView,
    /// The duration of each sync of the relay store.
    pub(crate) relay_sync: DurationView,
    /// Of each transaction: the wait for event memory and for room in the applier's queue.
    pub(crate) admission_wait: DurationView,
    /// The time of each group from its first transaction's arrival in the applier until a worker
    /// has it.
    pub(crate) group_formation: DurationView,
    /// Of each group of row changes, as the following: collecting its rows.
    pub(crate) preparation: DurationView,
    /// The wait for groups with the same keys.
    pub(crate) dependency_wait: DurationView,
    /// Sending and executing; of a statement that commits implicitly, its commit too.
    pub(crate) statement: DurationView,
    /// The wait for the commits of earlier groups.
    pub(crate) commit_order_wait: DurationView,
    pub(crate) commit: DurationView,
    /// Of each group: from its first transaction's commit on the source to its commit on the target.
    pub(crate) end_to_end: DurationView,
}

/// Number and sum of durations.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct DurationView {
    pub(crate) count: u64,
    pub(crate) seconds: f64,
    /// How many fell into each bucket, for the metrics.
    #[serde(skip)]
    pub(crate) buckets: [u64; BOUNDS_MICROS.len() + 1],
}

/// A step of a channel's start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct StartStepView {
    pub(crate) step: String,
    pub(crate) seconds: f64,
}
