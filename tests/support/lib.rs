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
mod reset;
mod reuse;
mod scratch;
mod server;
#[cfg(test)]
mod tests;
mod tools;

use std::time::{Duration, Instant};

pub use clients::{Clients, MakeTransaction};
pub use clock::Clock;
pub use comparison::{Compare, Compared, Difference, compare};
pub use config::{DaemonBuilder, LogSink, free_port};
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
pub use tools::{browse, not_run, peak_memory, tool};

/// Returns the pause between two looks at something that is awaited for so long already. A look often opens a connection, and
/// tests beside this one need the processors.
#[must_use]
pub fn until_next_look(waited: Duration) -> Duration {
    (waited / 16).clamp(Duration::from_millis(20), Duration::from_millis(100))
}

/// Polls `condition` until it holds, at first every 20 ms and later every 100 ms.
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
        tokio::time::sleep(until_next_look(started.elapsed())).await;
    }
}
