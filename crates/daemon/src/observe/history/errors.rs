//! The last errors of a channel, each listed once however often it recurred.

use std::collections::VecDeque;

use csa_provider::source::SourceCause;
use serde::Serialize;

use crate::observe::advice::{About, ErrorCause, advice, while_waiting};
use crate::observe::view::{ChannelState, ChannelView, ErrorView};

const ENTRIES: usize = 10;

/// Newest last.
#[derive(Debug, Default)]
pub(super) struct ErrorLog {
    entries: VecDeque<ErrorEntry>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct ErrorEntry {
    pub(super) about: About,
    /// The server's error number; 0 for none.
    pub(super) number: u16,
    pub(super) message: String,
    pub(super) transaction: Option<String>,
    /// Possible next steps, each sufficient on its own; may have row values.
    pub(super) ways_on: Vec<String>,
    /// Seconds since the epoch.
    pub(super) first: u64,
    pub(super) last: u64,
    /// It still persists.
    pub(super) current: bool,
}

impl ErrorLog {
    pub(super) fn entries(&self) -> impl Iterator<Item = &ErrorEntry> {
        self.entries.iter()
    }

    pub(super) fn take(&mut self, second: u64, view: &ChannelView) {
        for entry in &mut self.entries {
            entry.current = false;
        }
        // Before the channel runs, its state is the only source of errors.
        let waits = |state| {
            let so = view.state == state && view.applier.service_state != "ON";
            so.then_some(view.state_detail.as_str())
        };
        let source = view
            .connection
            .last_error_message
            .as_deref()
            .filter(|_| view.connection.service_state == "CONNECTING")
            .or_else(|| waits(ChannelState::WaitingForSource));
        let target = view
            .applier
            .target_error_message
            .as_deref()
            .or_else(|| waits(ChannelState::WaitingForTarget));
        let link = view.connection.last_error_cause.unwrap_or(SourceCause::Unreachable);
        for (about, cause, message) in [
            (About::Source, ErrorCause::Link(link), source),
            (About::Target, ErrorCause::TargetAway, target),
        ] {
            if let Some(message) = message {
                let steps = while_waiting(about, message);
                let ways_on = vec![steps.unwrap_or_else(|| advice(cause).to_owned())];
                let message = message.to_owned();
                self.note(second, about, ErrorView { message, ways_on, ..ErrorView::default() });
            }
        }
        if let Some(error) = &view.last_error
            && view.state == ChannelState::Failed
        {
            self.note(second, About::Channel, error.clone());
        }
    }

    fn note(&mut self, second: u64, about: About, error: ErrorView) {
        let same = |entry: &ErrorEntry| entry.about == about && entry.message == error.message;
        let first = match self.entries.iter().position(same).and_then(|at| self.entries.remove(at))
        {
            Some(known) => known.first,
            None => second,
        };
        if self.entries.len() == ENTRIES {
            self.entries.pop_front();
        }
        let ErrorView { number, message, transaction, ways_on, .. } = error;
        self.entries.push_back(ErrorEntry {
            about,
            number,
            message,
            transaction,
            ways_on,
            first,
            last: second,
            current: true,
        });
    }
}
