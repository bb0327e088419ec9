//! The daemon's place in a fleet: its channels start and end as its claims come and go.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use crate::claims::claimed_channels::ClaimedChannels;
use crate::claims::engine::Engine;
use crate::claims::etcd::Etcd;
use crate::claims::fleet_view::FleetView;
use crate::claims::keeper::{Handle, Keeper, Options};
use crate::claims::kubernetes::Kubernetes;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::process::Daemon;
use crate::channel::Identity;
use crate::config::{BackEnd, Claims};
use crate::host::Failure;

/// Keeps the session and the claims, and gives them up when its tokens are cancelled.
type Keeping = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A fleet to join.
pub(crate) struct Entry {
    ended: CancellationToken,
    keep: Keeping,
    identity: Identity,
}

/// A fleet that this daemon has joined, or tries to.
#[derive(Debug)]
pub(crate) struct JoinedFleet {
    /// Ends the session once no channel runs.
    ended: CancellationToken,
    keeper: JoinHandle<()>,
    /// No other process has this daemon's name in the fleet from the same state directory.
    _identity: Identity,
}

/// The daemon belongs to the fleet of the configuration from here on, and claims nothing yet.
///
/// # Errors
/// The state directory can't be written, or another process uses it.
pub(crate) fn enter(
    daemon: &Arc<Daemon>,
    claims: Claims,
    stop: &CancellationToken,
) -> Result<Entry, Failure> {
    // No channel has this name.
    let identity = Identity::claim(&daemon.at_start.state_dir.join(".claims"))
        .map_err(|error| Failure::Input(format!("daemon.state_dir: {error}")))?;
    let Claims { engine, name, weight, ttl, rebalance_delay } = claims;
    let id = identity.name().to_owned();
    let options = |engine| Options { engine, name, id, weight, ttl, rebalance_delay };
    let ended = CancellationToken::new();
    let tokens = (stop.clone(), ended.clone());
    let keep = match engine {
        BackEnd::Etcd(settings) => keep(daemon, Etcd::new(settings), options("etcd"), tokens),
        BackEnd::Kubernetes(settings) => {
            keep(daemon, Kubernetes::new(settings), options("kubernetes"), tokens)
        }
    };
    Ok(Entry { ended, keep, identity })
}

fn keep<E: Engine>(
    daemon: &Arc<Daemon>,
    engine: E,
    options: Options,
    (stop, ended): (CancellationToken, CancellationToken),
) -> Keeping {
    let (keeper, handle) = Keeper::new(engine, Channels(Arc::clone(daemon)), options);
    daemon.set_fleet(handle);
    Box::pin(keeper.run(stop, ended))
}

impl Entry {
    /// Joins, and begins to claim channels.
    pub(crate) fn join(self) -> JoinedFleet {
        let Self { ended, keep, identity } = self;
        JoinedFleet { ended, keeper: tokio::spawn(keep), _identity: identity }
    }
}

impl JoinedFleet {
    /// No channel runs any more.
    pub(crate) async fn leave(self) {
        self.ended.cancel();
        let _ = self.keeper.await;
    }
}

/// The daemon's channels as the keeper starts and ends them.
#[derive(Debug)]
struct Channels(Arc<Daemon>);

impl ClaimedChannels for Channels {
    fn channels(&self) -> BTreeMap<String, u64> {
        let channels = self.0.channels();
        channels.iter().map(|channel| (channel.name().to_owned(), channel.instance())).collect()
    }

    async fn begin(&self, channel: &str, instance: u64) {
        let channel = self.0.channel(channel);
        if let Some(channel) = channel.filter(|channel| channel.instance() == instance) {
            channel.claimed().await;
        }
    }

    async fn end(&self, channel: &str) {
        // A reload that removed it has ended it.
        if let Some(channel) = self.0.channel(channel) {
            channel.give_away(self.0.stop_timeout()).await;
        }
    }

    async fn move_away(&self, channel: &str) -> bool {
        match self.0.channel(channel) {
            Some(channel) => channel.give_away_unless_held(self.0.stop_timeout()).await,
            None => true,
        }
    }

    fn is_held(&self, channel: &str) -> bool {
        self.0.channel(channel).is_some_and(|channel| channel.is_held())
    }

    fn stands_by(&self, channel: &str, detail: &str) {
        if let Some(channel) = self.0.channel(channel) {
            channel.show_elsewhere(detail);
        }
    }

    fn awaits(&self, channel: &str, detail: &str) {
        if let Some(channel) = self.0.channel(channel) {
            channel.show_joining(detail);
        }
    }
}

impl Daemon {
    /// The fleet as this daemon sees it.
    pub(crate) fn fleet_view(&self) -> FleetView {
        let none = || FleetView { engine: "none".to_owned(), ..FleetView::default() };
        self.fleet().map_or_else(none, Handle::view)
    }
}
