//! Test support: real MySQL servers in a sandbox, the daemon as a process, load, and the comparison
//! of two servers. An error here ends the test: functions panic and name the failed operation.

mod clients;
mod clock;
mod comparison;
mod config;
mod daemon;
mod etcd;
mod fake_server;
mod faulty_proxy;
mod gate;
mod group;
mod guide;
mod hostile;
mod kubernetes;
mod load;
mod mount;
mod openapi;
mod prometheus;
mod proxy;
mod scratch;
mod server;
#[cfg(test)]
mod tests;
mod tools;

use std::time::{Duration, Instant};

pub use clients::{Clients, MakeTransaction};
pub use clock::Clock;
pub use comparison::{Compare, Compared, Difference, compare};
pub use config::{DaemonBuilder, free_port};
pub use daemon::{Daemon, Said};
pub use etcd::{Etcd, EtcdTls};
pub use fake_server::FakeServer;
pub use faulty_proxy::{FaultyProxy, Passed};
pub use gate::{At, Gate};
pub use group::Group;
pub use guide::{Block, Guide, blocks, repository};
pub use hostile::{HostileServer, Hostility};
pub use kubernetes::{ACCOUNT_TOKEN, ADMIN_TOKEN, ApiServer, kubernetes_tool};
pub use load::{Burst, Load, LoadOptions, LoadReport, Mix, prepare};
pub use mount::Mount;
pub use openapi::OpenApi;
pub use prometheus::{Firing, Prometheus};
pub use proxy::Proxy;
pub use scratch::measure;
pub use server::Server;
pub use tools::{browse, tool};

/// Polls `condition` every 20 ms until it holds.
///
/// # Panics
/// After `deadline`, naming `what`.
pub async fn eventually<F>(what: &str, deadline: Duration, mut condition: F)
where
    F: AsyncFnMut() -> bool,
{
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < deadline, "{what}: not within {deadline:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
