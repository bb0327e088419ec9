//! Channels of other daemons: as much of their `/status` as a table of all channels needs. Their version
//! may be another, so every field may be missing, and unknown ones are passed over.

use serde::{Deserialize, Serialize};

use super::{ChannelState, ChannelView};

/// `/peers`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct PeersView {
    pub(crate) peers: Vec<PeerView>,
}

/// Another daemon.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct PeerView {
    /// The address as configured.
    pub(crate) address: String,
    /// The reason why nothing is known of it.
    pub(crate) error: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) channels: Vec<PeerChannelView>,
}

/// A part of [`ChannelView`](super::ChannelView).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PeerChannelView {
    pub(crate) channel_name: String,
    /// The state, which may be one that this version does not know.
    pub(crate) state: String,
    pub(crate) state_detail: String,
    pub(crate) lag_seconds: Option<f64>,
    pub(crate) backlog_transactions: Option<u64>,
    pub(crate) backlog_bytes: Option<u64>,
    pub(crate) applied_transactions_per_second: Option<f64>,
    pub(crate) seconds_to_drain: Option<f64>,
    pub(crate) bottleneck: PeerBottleneckView,
    pub(crate) settings: PeerSettingsView,
    pub(crate) connection: PeerConnectionView,
    pub(crate) applier: PeerApplierView,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PeerBottleneckView {
    pub(crate) cause: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PeerSettingsView {
    pub(crate) paused_by: Option<String>,
    pub(crate) paused_since: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PeerConnectionView {
    pub(crate) source: String,
    pub(crate) service_state: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PeerApplierView {
    pub(crate) target: String,
    pub(crate) desired_delay: f64,
}

impl PeerChannelView {
    /// Returns the channel for the table of `status`. A state that this version does not know is
    /// named in the detail.
    pub(crate) fn shown(&self) -> ChannelView {
        let state = ChannelState::named(&self.state);
        let state_detail = match state {
            ChannelState::Unknown => format!("{}: {}", self.state, self.state_detail),
            _ => self.state_detail.clone(),
        };
        let mut view = ChannelView {
            channel_name: self.channel_name.clone(),
            state,
            state_detail,
            lag_seconds: self.lag_seconds,
            backlog_transactions: self.backlog_transactions,
            backlog_bytes: self.backlog_bytes,
            applied_transactions_per_second: self.applied_transactions_per_second,
            seconds_to_drain: self.seconds_to_drain,
            ..ChannelView::default()
        };
        view.bottleneck.cause.clone_from(&self.bottleneck.cause);
        view
    }
}
