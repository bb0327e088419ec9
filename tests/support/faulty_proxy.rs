//! A TCP proxy that fails as networks do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Server;

/// How long a server keeps a connection that its client has given up and the network has forgotten.
const FORGOTTEN: Duration = Duration::from_secs(20);

/// The treatment of connections through the proxy.
#[derive(Debug, Clone, Copy, Default)]
struct Mode {
    /// Nothing passes, and neither end learns of it.
    black_hole: bool,
    /// Every connection is reset, new ones too.
    resets: bool,
    /// Counts the cuts: connections made before the last one are gone for the client.
    cuts: u64,
    /// Counts how often connections were forgotten: those made before are silent forever.
    forgets: u64,
    /// Each piece waits this long.
    latency: Duration,
}

impl Mode {
    /// A connection made under `made` can still carry bytes at some time.
    fn keeps(&self, made: &Self) -> bool {
        !self.resets && self.cuts == made.cuts && self.forgets == made.forgets
    }
}

/// Everything that a proxy has let through so far, or in some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// Connections made to the server.
    pub connections: u64,
    /// Pieces from the client: each is a request, unless it is large.
    pub requests: u64,
    /// The bytes in both directions.
    pub bytes: u64,
}

impl Passed {
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            requests: self.requests + other.requests,
            bytes: self.bytes + other.bytes,
        }
    }

    /// Returns the part of it that has passed since.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            connections: self.connections - before.connections,
            requests: self.requests - before.requests,
            bytes: self.bytes - before.bytes,
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// Between the daemon and a server.
#[derive(Debug)]
pub struct FaultyProxy {
    pub port: u16,
    mode: watch::Sender<Mode>,
    counts: Arc<Counts>,
    accept: JoinHandle<()>,
}

impl FaultyProxy {
    /// Listens on loopback and forwards to the server.
    ///
    /// # Panics
    /// If no port can be bound.
    pub async fn start(server: &Server) -> Self {
        Self::to(server.port).await
    }

    /// Listens on loopback and forwards to a port on it.
    ///
    /// # Panics
    /// If no port can be bound.
    pub async fn to(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("binding a port");
        let port = listener.local_addr().expect("the address bound").port();
        let mode = watch::Sender::new(Mode::default());
        let counts = Arc::<Counts>::default();
        let (to, modes, counted) = (server, mode.clone(), Arc::clone(&counts));
        let accept = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, to, modes.subscribe(), Arc::clone(&counted)));
            }
        });
        Self { port, mode, counts, accept }
    }

    /// Returns everything that has passed so far.
    #[must_use]
    pub fn passed(&self) -> Passed {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { connections, requests, bytes } = &*self.counts;
        Passed { connections: value(connections), requests: value(requests), bytes: value(bytes) }
    }

    /// Silently lets nothing through in either direction; new connections are accepted
    /// and get no answer.
    pub fn black_hole(&self) {
        self.mode.send_modify(|mode| mode.black_hole = true);
    }

    /// Lets everything through again, including bytes received meanwhile.
    pub fn heal(&self) {
        self.mode.send_modify(|mode| {
            (mode.black_hole, mode.resets, mode.latency) = (false, false, Duration::ZERO);
        });
    }

    /// Ends every connection for the client; the server does not notice.
    pub fn cut(&self) {
        self.mode.send_modify(|mode| mode.cuts += 1);
    }

    /// Resets every connection at both ends, and new ones, until [`FaultyProxy::heal`].
    pub fn reset(&self) {
        self.mode.send_modify(|mode| mode.resets = true);
    }

    /// Leaves every present connection half open: neither end learns that nothing will pass again.
    pub fn forget(&self) {
        self.mode.send_modify(|mode| mode.forgets += 1);
    }

    /// Delays each piece of data by this, until [`FaultyProxy::heal`].
    pub fn delay(&self, latency: Duration) {
        self.mode.send_modify(|mode| mode.latency = latency);
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn carry(
    mut client: TcpStream,
    to: u16,
    mut mode: watch::Receiver<Mode>,
    counts: Arc<Counts>,
) {
    let made = *mode.borrow();
    let open = mode.wait_for(|mode| !mode.black_hole || !mode.keeps(&made)).await;
    match open.map(|mode| *mode) {
        Ok(mode) if mode.keeps(&made) => {}
        Ok(_) => return end(client, None, &mut mode, &made).await,
        Err(_) => return,
    }
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    counts.connections.fetch_add(1, Ordering::Relaxed);
    let (mut up, mut down) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let (length, is_up) = tokio::select! {
            lost = async { mode.wait_for(|mode| !mode.keeps(&made)).await.is_ok() } => {
                if lost {
                    end(client, Some(server), &mut mode, &made).await;
                }
                return;
            }
            read = client.read(&mut up) => (read.unwrap_or(0), true),
            read = server.read(&mut down) => (read.unwrap_or(0), false),
        };
        if !pass(&mut mode, &made).await {
            continue;
        }
        // When either end closes, so does the other.
        if length == 0 {
            return;
        }
        counts.bytes.fetch_add(length as u64, Ordering::Relaxed);
        counts.requests.fetch_add(u64::from(is_up), Ordering::Relaxed);
        let written = match is_up {
            true => server.write_all(&up[..length]).await,
            false => client.write_all(&down[..length]).await,
        };
        if written.is_err() {
            return;
        }
    }
}

/// Waits until something may pass; `false` when the connection is lost.
async fn pass(mode: &mut watch::Receiver<Mode>, made: &Mode) -> bool {
    let now = mode.wait_for(|mode| !mode.black_hole || !mode.keeps(made)).await;
    let Ok(now) = now.map(|mode| *mode) else { return false };
    if now.keeps(made) && !now.latency.is_zero() {
        tokio::time::sleep(now.latency).await;
    }
    now.keeps(made)
}

/// Ends a lost connection in the manner in which it was lost.
async fn end(
    mut client: TcpStream,
    server: Option<TcpStream>,
    mode: &mut watch::Receiver<Mode>,
    made: &Mode,
) {
    let now = *mode.borrow();
    if now.resets {
        let _ = client.set_zero_linger();
        let _ = server.map(|server| server.set_zero_linger());
    } else if now.cuts > made.cuts {
        drop(client);
        // The server does not notice for as long as the proxy lives.
        while mode.changed().await.is_ok() {}
    } else {
        let mut ignored = vec![0; 4 << 10];
        while client.read(&mut ignored).await.is_ok_and(|length| length > 0) {}
        tokio::time::sleep(FORGOTTEN).await;
    }
}
