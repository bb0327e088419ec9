//! The seam between the keeper of a daemon's claims and the channels.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;

/// The channels as the keeper starts and ends them.
pub trait ClaimedChannels: Debug + Send + Sync + 'static {
    /// Names of all channels in the configuration of the moment, each with the number of its instance. A channel that was
    /// removed and added again is another instance, which does not run.
    fn channels(&self) -> BTreeMap<String, u64>;

    /// Starts a channel that is claimed, if it still is this instance.
    fn begin(&self, channel: &str, instance: u64) -> impl Future<Output = ()> + Send;

    /// Finishes running groups and ends the channel; returns when nothing of it runs.
    fn end(&self, channel: &str) -> impl Future<Output = ()> + Send;

    /// Does the same for a channel that belongs elsewhere, unless an operator has paused or stopped it by now. Returns
    /// false where it stays.
    fn move_away(&self, channel: &str) -> impl Future<Output = bool> + Send;

    /// An operator has paused or stopped the channel.
    fn is_held(&self, channel: &str) -> bool;

    /// Another daemon runs the channel, or nobody does, as `detail` says.
    fn stands_by(&self, channel: &str, detail: &str);

    /// This daemon should run the channel, and has not claimed it yet.
    fn awaits(&self, channel: &str, detail: &str);
}
