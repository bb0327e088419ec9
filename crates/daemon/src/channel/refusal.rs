//! The refusal of a command to a channel.

/// The refusal of a command; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) error: String,
    pub(crate) fix: String,
    /// Because of the target, not of the channel's state.
    pub(crate) by_target: bool,
}

impl Refusal {
    pub(super) fn state(error: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { error: error.into(), fix: fix.into(), by_target: false }
    }
}
