//! A channel's target, as far as it is known.

use csa_applier::{Executor, Target, TargetFacts, TargetGtids};

use super::describe::failure::FailedChannel;
use crate::config::ChannelSettings;

#[derive(Debug, Default)]
pub(super) struct TargetWatch {
    /// The target, unless the channel only archives; another server may take its place at any time.
    pub(super) present: Option<Target>,
    pub(super) version: Option<String>,
    executor: Option<Executor>,
}

impl TargetWatch {
    /// Returns the target that the settings name, which has not answered yet.
    pub(super) fn of(settings: &ChannelSettings) -> Self {
        let present = (!settings.archives_only()).then(|| settings.target.clone());
        Self { present, version: None, executor: None }
    }

    pub(super) fn answered(&mut self, facts: &TargetFacts) {
        self.version = Some(facts.version.clone());
        self.executor = Some(facts.executor);
    }

    /// Returns the channel of this name, as far as its next steps depend on it.
    pub(super) fn failed<'a>(&self, name: &'a str) -> FailedChannel<'a> {
        let gtids = self.present.as_ref().map_or(TargetGtids::Own, |target| target.gtids);
        FailedChannel { name, gtids, executor: self.executor }
    }
}
