//! The fleet as this daemon sees it, for people and programs. A client may read that of an earlier version, which
//! lacks fields.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The fleet, and this daemon's place in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetView {
    /// `none` without a fleet; then the rest is empty.
    pub engine: String,
    /// This daemon's.
    pub name: String,
    /// It gives its channels away and takes none.
    pub draining: bool,
    /// This daemon's session certainly lasts.
    pub has_session: bool,
    /// The engine's last failure, until it answers again.
    pub error: Option<String>,
    pub members: Vec<MemberView>,
    /// Holder by channel, of all channels claimed in the fleet.
    pub claims: BTreeMap<String, String>,
    /// Channels of this daemon's configuration that no member has claimed.
    pub unclaimed: Vec<String>,
    /// Channels among them that another member is about to claim.
    pub awaited: u64,
    /// Channels of this daemon that are not to move: it should have them, or nobody else can.
    pub staying: u64,
}

impl FleetView {
    /// Returns this daemon as a member, once it has joined.
    #[must_use]
    pub fn own(&self) -> Option<&MemberView> {
        self.members.iter().find(|member| member.name == self.name)
    }

    /// This daemon has given its channels away, and all that can be claimed are claimed: ending the
    /// drain does not bring them back at once.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.awaited == 0 && self.own().is_some_and(|own| own.draining && own.claims == 0)
    }
}

/// A daemon of the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberView {
    pub name: String,
    pub weight: u32,
    pub draining: bool,
    /// Channels in its configuration.
    pub channels: u64,
    /// Channels that it has claimed.
    pub claims: u64,
    /// Channels that it should have.
    pub share: u64,
}
