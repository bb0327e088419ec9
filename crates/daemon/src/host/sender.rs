//! The sender of an operator's command.

use csa_applier::AuditEntry;

use super::clock::now_micros;

/// The sender of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sender {
    /// Known from the kernel.
    pub(crate) peer: String,
    /// Claimed by the sender; nothing proves it.
    pub(crate) claimed: Option<String>,
}

impl Sender {
    pub(crate) fn entry(&self, channel: &str, action: &str, detail: String) -> AuditEntry {
        AuditEntry {
            channel: channel.to_owned(),
            at: now_micros(),
            action: action.to_owned(),
            by: self.claimed.clone().unwrap_or_default(),
            peer: self.peer.clone(),
            detail,
            ..AuditEntry::default()
        }
    }
}
