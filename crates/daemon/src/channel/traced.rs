//! A channel while its timeline is recorded.

use csa_provider::recorder::{Span, SpanRecording};

use super::live_settings::Controls;
use super::watch::Watch;
use crate::host::rfc3339;
use crate::observe::timeline::Figures;

/// Recording ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Traced {
    pub(crate) recording: SpanRecording,
    watch: Watch,
    controls: Controls,
}

impl Traced {
    /// Returns `None` while another client records.
    pub(super) fn start(watch: &Watch, controls: &Controls) -> Option<Self> {
        let recording = watch.source().recorder().start()?;
        Some(Self { recording, watch: watch.clone(), controls: controls.clone() })
    }

    pub(crate) fn workers(&self) -> u16 {
        self.controls.tuning().worker_count
    }

    /// Returns the time by the channel's clock.
    pub(crate) fn now(&self) -> String {
        rfc3339(self.watch.clock().now_micros())
    }

    pub(crate) fn figures(&self) -> Figures {
        let view = self.watch.view_without_sets();
        Figures {
            backlog_transactions: view.backlog_transactions,
            event_memory_bytes: view.event_memory.held_bytes,
            groups_in_flight: view.applier.workers.len(),
        }
    }

    /// Groups that workers have at this moment.
    pub(crate) fn unfinished(&self) -> Vec<Span> {
        self.watch.unfinished()
    }
}
