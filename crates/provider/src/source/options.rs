use std::sync::Arc;
use std::time::Duration;

use crate::binlog::gtid::Uuid;
use crate::server::environment::Environment;
use crate::server::group::Candidates;
use crate::server::link::{Endpoint, LinkOptions, Password, Purpose, Side, TlsOptions};
use crate::source::group::GroupDiscovery;

/// The source's address and our account and identity on it.
#[derive(Debug, Clone)]
pub struct SourceOptions {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: Password,
    /// Our own; unique in the topology.
    pub server_id: u32,
    /// Our own; the source ends an older dump with the same UUID.
    pub replica_uuid: Uuid,
    pub tls: TlsOptions,
    /// An idle source sends a heartbeat this often; the link is dead
    /// after [`Self::DEAD_AFTER`] intervals.
    pub heartbeat_interval: Duration,
    pub connect_timeout: Duration,
    /// First and longest pause between attempts.
    pub connect_retry: Duration,
    pub connect_retry_max: Duration,
    /// Acknowledge transactions to a semi-synchronous source, once the spool has them on disk.
    pub semi_sync: bool,
    /// Tried in order after host and port.
    pub failover: Vec<(String, u16)>,
    /// Set where the source is a group, whose members are found.
    pub group: Option<GroupDiscovery>,
    pub environment: Environment,
}

impl SourceOptions {
    /// Heartbeat intervals of silence that end a link.
    pub const DEAD_AFTER: u32 = 3;

    /// Returns the source and its alternatives, in order.
    pub(crate) fn candidates(&self) -> Candidates {
        let known = self.group.as_ref().map(|group| group.known.get()).unwrap_or_default();
        let first = (self.host.clone(), self.port);
        Candidates::new(std::iter::once(first).chain(self.failover.iter().cloned()).chain(known))
    }

    /// Returns the options of a link to one of them.
    pub(crate) fn link(&self, host: &str, port: u16) -> LinkOptions {
        LinkOptions {
            side: Side::Source,
            purpose: Purpose::Replication,
            endpoint: Endpoint::Tcp { host: host.to_owned(), port },
            user: self.user.clone(),
            password: self.password.current(),
            tls: self.tls.clone(),
            connect_timeout: self.connect_timeout,
            silence: Some(self.patience()),
            net_timeout: None,
            network: Arc::clone(&self.environment.network),
        }
    }

    /// Returns the silence that ends a link before its dump: no heartbeats come until then.
    pub(crate) fn patience(&self) -> Duration {
        self.dead_after().max(self.connect_timeout)
    }

    /// Returns the silence that ends a dump.
    pub(crate) fn dead_after(&self) -> Duration {
        self.heartbeat_interval * Self::DEAD_AFTER
    }
}
