//! The seam to a service that keeps members and claims.
//!
//! A member has a session there, which ends when it is not renewed for the time to live. Its claims end
//! with the session. Engines measure that time with monotonic clocks: nothing here depends on the time of
//! day.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::Future;

use serde::{Deserialize, Serialize};

/// A daemon of the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Unique in the fleet.
    pub name: String,
    /// Of its state directory: tells a daemon that restarted from another one of the same name.
    pub id: String,
    /// Its share of the channels, relative to the others'; 0 for none.
    pub weight: u32,
    /// It gives its channels away and takes none.
    pub draining: bool,
    /// Channels in its configuration.
    pub channels: BTreeSet<String>,
}

/// A channel's claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Name of the member that has it.
    pub holder: String,
    /// It lives as long as the session of whoever looks. False for claims of others, and for those that an
    /// earlier session of the same member left behind.
    pub is_current: bool,
}

/// Members and claims at one moment; those of sessions that have ended are not among them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fleet {
    /// The members by name.
    pub members: Vec<Member>,
    /// The claims by channel.
    pub claims: BTreeMap<String, Claim>,
}

/// The reason why an engine did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// It did not answer, or can't decide at the moment; the request may have taken effect.
    #[error("{0}")]
    Away(String),
    /// The session has ended, and with it the claims.
    #[error("the engine has ended this daemon's session")]
    SessionEnded,
    /// An operator has to act.
    #[error("{0}")]
    Refused(String),
}

/// A service that keeps members and claims. All methods may be called at the same time, may be dropped at
/// any point, and limit their own time to less than a third of the time to live.
pub trait Engine: Debug + Send + Sync + 'static {
    /// Begins a session if there is none, and publishes this member in it. A session of the same name and
    /// id that still lasts is replaced by the new one.
    ///
    /// # Errors
    /// [`EngineError::Refused`] while a member with another id has the name.
    fn join(&self, member: &Member) -> impl Future<Output = Result<(), EngineError>> + Send;

    /// Extends the session, and all claims with it.
    ///
    /// # Errors
    /// [`EngineError::SessionEnded`] calls for a new [`Self::join`].
    fn renew(&self) -> impl Future<Output = Result<(), EngineError>> + Send;

    /// Claims each of the channels that no other member has, for the time of the session; those that an
    /// earlier session of this member has left behind, too. Returns the channels claimed.
    ///
    /// # Errors
    /// Some of the channels may be claimed: [`Self::look`] tells.
    fn claim(
        &self,
        channels: &[String],
    ) -> impl Future<Output = Result<Vec<String>, EngineError>> + Send;

    /// Gives up the claims of this member to these channels; others' claims stay.
    ///
    /// # Errors
    /// Some may be given up.
    fn release(&self, channels: &[String]) -> impl Future<Output = Result<(), EngineError>> + Send;

    /// # Errors
    /// The engine is away.
    fn look(&self) -> impl Future<Output = Result<Fleet, EngineError>> + Send;

    /// Returns when something may have changed since the last look. It may miss a change when a link is
    /// lost silently: look from time to time all the same.
    ///
    /// # Errors
    /// The engine is away.
    fn changed(&self) -> impl Future<Output = Result<(), EngineError>> + Send;

    /// Ends the session and its claims at once.
    ///
    /// # Errors
    /// They end with the time to live.
    fn leave(&self) -> impl Future<Output = Result<(), EngineError>> + Send;
}
