//! The target as its users know it: how to connect, and as whom.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use csa_provider::server::link::Side;

use super::connect::connect;
use super::port::{Pending, TargetLink};
use super::refusals::Refusals;
use crate::error::Result;
use crate::options::{Route, TargetGtids, TargetOptions};

/// Opens connections to a target.
pub trait Connector: Debug + Send + Sync {
    /// Connects and logs in; fails with [`crate::Error::Target`] or [`crate::Error::Timeout`].
    fn connect<'a>(&'a self, target: &'a TargetOptions)
    -> Pending<'a, Result<Box<dyn TargetLink>>>;
}

/// Room for a session, which is free again once this is dropped.
pub(crate) type OccupiedRoom = Box<dyn Debug + Send>;

/// The room that a target has for a channel's sessions, as each of them knows it.
pub(crate) trait MakesWay: Debug + Send + Sync {
    /// Ends a session so that one can be opened that only asks something. Nobody else takes the room as long as the
    /// result lives. `None` if there is no session to end.
    fn make_way(&self) -> Pending<'_, Option<OccupiedRoom>>;
}

/// The pause after [`MakesWay::make_way`]: the server may count a session for a moment after its end.
pub(crate) const AFTER_MAKING_WAY: Duration = Duration::from_millis(100);

/// A target and the way to connect to it; cheap to clone.
#[derive(Debug, Clone)]
pub struct Target {
    options: Arc<TargetOptions>,
    connector: Arc<dyn Connector>,
    /// That of the channel that its sessions are of.
    room: Option<Arc<dyn MakesWay>>,
    pub(super) refusals: Arc<Refusals>,
}

impl Target {
    /// Returns a target that `connector` reaches.
    pub fn new(options: TargetOptions, connector: impl Connector + 'static) -> Self {
        Self {
            options: Arc::new(options),
            connector: Arc::new(connector),
            room: None,
            refusals: Arc::default(),
        }
    }

    /// Returns the same account and settings on another server, and on no other in its place.
    #[must_use]
    pub fn at(&self, host: &str, port: u16) -> Self {
        let options = TargetOptions {
            host: host.to_owned(),
            port,
            socket: None,
            route: Route::new(Vec::new(), false),
            ..(*self.options).clone()
        };
        Self { options: Arc::new(options), ..self.clone() }
    }

    /// Returns the same target for a session that does not mirror GTIDs.
    pub(crate) fn with_own_gtids(&self) -> Self {
        let options = TargetOptions { gtids: TargetGtids::Own, ..(*self.options).clone() };
        Self { options: Arc::new(options), ..self.clone() }
    }

    /// Returns the target for sessions of a channel, which share its room there.
    pub(crate) fn in_room(&self, room: impl MakesWay + 'static) -> Self {
        Self { room: Some(Arc::new(room)), ..self.clone() }
    }

    /// See [`MakesWay::make_way`].
    pub(super) async fn make_way(&self) -> Option<OccupiedRoom> {
        self.room.as_ref()?.make_way().await
    }

    /// Returns a real server of a channel; errors call it `side`.
    #[must_use]
    pub fn on(side: Side, options: TargetOptions) -> Self {
        Self::new(options, Server(side))
    }

    /// Connects and logs in, and sets nothing up.
    ///
    /// # Errors
    /// [`crate::Error::Target`] or [`crate::Error::Timeout`].
    pub async fn connect(&self) -> Result<Box<dyn TargetLink>> {
        self.connector.connect(&self.options).await
    }
}

/// A real server.
impl From<TargetOptions> for Target {
    fn from(options: TargetOptions) -> Self {
        Self::on(Side::Target, options)
    }
}

impl Deref for Target {
    type Target = TargetOptions;

    fn deref(&self) -> &TargetOptions {
        &self.options
    }
}

/// Connects to the server that the options name, which is on this side of the channel.
#[derive(Debug)]
struct Server(Side);

impl Connector for Server {
    fn connect<'a>(
        &'a self,
        target: &'a TargetOptions,
    ) -> Pending<'a, Result<Box<dyn TargetLink>>> {
        Box::pin(async {
            let link: Box<dyn TargetLink> = Box::new(connect(target, self.0).await?);
            Ok(link)
        })
    }
}
