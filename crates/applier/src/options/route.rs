//! The way to the target: the servers that may be it, and the one that is it now (`server/search.rs` finds it).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use csa_provider::binlog::Uuid;
use csa_provider::server::ServerFacts;
use csa_provider::server::group::{Address, KnownMembers, Membership};
use parking_lot::Mutex;
use tokio::sync::watch;

/// The way to the target; all sessions of a channel share it, cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Route(pub(crate) Arc<SharedRoute>);

#[derive(Debug, Default)]
pub(crate) struct SharedRoute {
    /// Tried after the configured server.
    pub(crate) failover: Vec<Address>,
    /// The members of the target's group are found, and its primary is the target.
    pub(crate) discovers: bool,
    pub(crate) known: KnownMembers,
    /// The server that was found last; `None` for the configured one.
    pub(crate) now: watch::Sender<Option<Address>>,
    /// The next connection need not look for it.
    pub(crate) is_settled: AtomicBool,
    pub(crate) settling: tokio::sync::Mutex<()>,
    group: Mutex<GroupOfTarget>,
}

/// The group that the target was seen to be in.
#[derive(Debug, Default)]
struct GroupOfTarget {
    /// The UUIDs of the group's GTIDs.
    uuids: Vec<Uuid>,
    /// The account sees its members.
    is_visible: bool,
    /// It has `wsrep_on`; `None` before the first look.
    is_galera: Option<bool>,
}

impl Route {
    #[must_use]
    pub fn new(failover: Vec<Address>, discovers: bool) -> Self {
        Self(Arc::new(SharedRoute { failover, discovers, ..SharedRoute::default() }))
    }

    /// Returns true if the members of the target's group are found.
    #[must_use]
    pub fn discovers(&self) -> bool {
        self.0.discovers
    }

    /// Returns the server that was found last; `None` for the configured one.
    #[must_use]
    pub fn now(&self) -> Option<Address> {
        self.0.now.borrow().clone()
    }

    /// The target was lost, or refuses: the next connection looks for it again.
    pub(crate) fn forget(&self) {
        self.0.is_settled.store(false, Ordering::SeqCst);
    }

    /// Waits until another server than that at `address` is the target.
    pub(crate) async fn moved_from(&self, address: &str) {
        let mut now = self.0.now.subscribe();
        let is_other = |now: &Option<Address>| {
            now.as_ref().is_some_and(|(host, port)| format!("{host}:{port}") != address)
        };
        // The sender lives as long as `self`.
        let _ = now.wait_for(is_other).await;
    }

    /// Keeps what the look at the target has found about its group.
    pub(crate) fn note(&self, target: &ServerFacts) {
        let uuids = ["group_replication_group_name", "group_replication_view_change_uuid"];
        let uuids = uuids.iter().filter_map(|name| target.text(name).parse().ok()).collect();
        let is_visible = matches!(target.group, Membership::Known(_));
        let is_galera = Some(target.is_on("wsrep_on"));
        *self.0.group.lock() = GroupOfTarget { uuids, is_visible, is_galera };
    }

    /// Returns true if the target was seen to be in a group, whose members the account sees.
    pub(crate) fn is_of_group(&self) -> bool {
        self.0.group.lock().is_visible
    }

    /// Returns false if the target was seen to be no node of a Galera cluster.
    pub(crate) fn may_be_galera(&self) -> bool {
        self.0.group.lock().is_galera != Some(false)
    }

    /// Returns the UUIDs of the GTIDs that the target's group gives its transactions.
    pub(crate) fn group_uuids(&self) -> Vec<Uuid> {
        self.0.group.lock().uuids.clone()
    }
}
