//! The inputs of a check.

use csa_applier::TargetOptions;

use super::managed::Profiles;
use crate::config::ChannelSettings;

/// A channel that is to be started, and who looks at its servers.
#[derive(Debug)]
pub(crate) struct CheckOptions<'a> {
    pub(crate) channel: &'a ChannelSettings,
    /// The source and its alternatives; see [`crate::verify::source_servers`].
    pub(crate) source: Vec<TargetOptions>,
    /// Reads the source's definitions where the channel's account lacks the privilege.
    pub(crate) source_reader: Option<Vec<TargetOptions>>,
    /// The services that run the servers, where the operator named them.
    pub(crate) profiles: Profiles,
}

impl CheckOptions<'_> {
    /// Returns `None` for a channel that only archives.
    pub(super) fn target(&self) -> Option<&TargetOptions> {
        (!self.channel.archives_only()).then_some(&*self.channel.target)
    }
}
