//! Answers to commands of the API.

use serde::{Deserialize, Serialize};

use super::ChannelState;

/// A setting that was changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ChangedView {
    /// `None` for `[daemon]`.
    pub(crate) channel_name: Option<String>,
    pub(crate) setting: String,
    pub(crate) from: String,
    pub(crate) to: String,
}

/// A setting that differs in the file and needs a restart.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct PendingView {
    pub(crate) channel_name: Option<String>,
    pub(crate) setting: String,
    pub(crate) needs: String,
}

/// A channel that restarted with new settings.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct RestartedView {
    pub(crate) channel_name: String,
    /// The settings that need it.
    pub(crate) settings: Vec<String>,
}

/// The outcome of the last reload; the start counts as one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastReload {
    pub(crate) ok: bool,
    /// Microseconds since the epoch at which the configuration in use was read.
    pub(crate) adopted: u64,
}

/// Result of a reload.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ReloadView {
    /// The rest is what a reload would do.
    pub(crate) dry_run: bool,
    /// Names of channels.
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) restarted: Vec<RestartedView>,
    pub(crate) changed: Vec<ChangedView>,
    pub(crate) pending: Vec<PendingView>,
}

impl ReloadView {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { dry_run: _, added, removed, restarted, changed, pending } = self;
        added.is_empty()
            && removed.is_empty()
            && restarted.is_empty()
            && changed.is_empty()
            && pending.is_empty()
    }

    /// Returns the part that concerns a channel, on one line, for the audit.
    pub(crate) fn of_channel(&self, name: &str) -> String {
        let concerns = |of: &Option<String>| of.as_ref().is_none_or(|of| of == name);
        let prefix = |of: &Option<String>| if of.is_some() { "" } else { "daemon." };
        let mut parts = Vec::new();
        if self.added.iter().any(|added| added == name) {
            parts.push("added".to_owned());
        }
        if self.removed.iter().any(|removed| removed == name) {
            parts.push("removed".to_owned());
        }
        for RestartedView { settings, .. } in
            self.restarted.iter().filter(|r| r.channel_name == name)
        {
            parts.push(format!("restarted for {}", settings.join(", ")));
        }
        for ChangedView { channel_name, setting, from, to } in &self.changed {
            if concerns(channel_name) {
                parts.push(format!("{}{setting}: {from} -> {to}", prefix(channel_name)));
            }
        }
        for PendingView { channel_name, setting, needs } in &self.pending {
            // Keys of other sections have their name with them.
            let prefix = |of: &Option<String>| if setting.contains('.') { "" } else { prefix(of) };
            if concerns(channel_name) {
                parts.push(format!("{}{setting} needs a {needs}", prefix(channel_name)));
            }
        }
        parts.join("; ")
    }
}

/// A channel's state after a command.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct CommandView {
    pub(crate) channel_name: String,
    #[serde(deserialize_with = "ChannelState::of_any_version")]
    pub(crate) state: ChannelState,
    pub(crate) state_detail: String,
    /// Running groups have finished; otherwise they were given up, or still run.
    pub(crate) drained: bool,
    pub(crate) applied_transaction_set: String,
    /// The number of a stop, which a restart may name.
    pub(crate) stop_number: Option<u64>,
}

/// Result of a wait for transactions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct WaitView {
    pub(crate) channel_name: String,
    pub(crate) applied: bool,
    /// The transactions that are not applied.
    pub(crate) missing: String,
    #[serde(deserialize_with = "ChannelState::of_any_version")]
    pub(crate) state: ChannelState,
    pub(crate) state_detail: String,
}

/// A segment of a relay store.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct SegmentView {
    pub(crate) segment: u64,
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) transactions: u64,
    pub(crate) event_bytes: u64,
    pub(crate) gtid_set: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct SegmentsView {
    pub(crate) channel_name: String,
    pub(crate) segments: Vec<SegmentView>,
}

/// The reason of a refusal, and what to do.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ErrorAnswer {
    pub(crate) error: String,
    pub(crate) fix: String,
}
