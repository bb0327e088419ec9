//! A TCP proxy that fails as networks do.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Server;

/// The treatment of connections through the proxy.
#[derive(Debug, Clone, Copy)]
struct Mode {
    /// Nothing passes, and neither end learns of it.
    black_hole: bool,
    /// Counts the cuts: connections made before the last one are gone for the client.
    cuts: u64,
}

/// Between the daemon and a server.
#[derive(Debug)]
pub struct FaultyProxy {
    pub port: u16,
    mode: watch::Sender<Mode>,
    accept: JoinHandle<()>,
}

impl FaultyProxy {
    /// Listens on loopback and forwards to the server.
    ///
    /// # Panics
    /// If no port can be bound.
    pub async fn start(server: &Server) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("binding a port");
        let port = listener.local_addr().expect("the address bound").port();
        let mode = watch::Sender::new(Mode { black_hole: false, cuts: 0 });
        let (to, modes) = (server.port, mode.clone());
        let accept = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, to, modes.subscribe()));
            }
        });
        Self { port, mode, accept }
    }

    /// Silently lets nothing through in either direction; new connections are accepted
    /// and get no answer.
    pub fn black_hole(&self) {
        self.mode.send_modify(|mode| mode.black_hole = true);
    }

    /// Lets everything through again, including bytes received meanwhile.
    pub fn heal(&self) {
        self.mode.send_modify(|mode| mode.black_hole = false);
    }

    /// Ends every connection for the client; the server does not notice.
    pub fn cut(&self) {
        self.mode.send_modify(|mode| mode.cuts += 1);
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn carry(mut client: TcpStream, to: u16, mut mode: watch::Receiver<Mode>) {
    let cuts = mode.borrow().cuts;
    if mode.wait_for(|mode| !mode.black_hole).await.is_err() {
        return;
    }
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut up, mut down) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let (length, is_up) = tokio::select! {
            is_cut = async { mode.wait_for(|mode| mode.cuts > cuts).await.is_ok() } => {
                drop(client);
                if is_cut {
                    // The server does not notice for as long as the proxy lives.
                    while mode.changed().await.is_ok() {}
                }
                return;
            }
            read = client.read(&mut up) => (read.unwrap_or(0), true),
            read = server.read(&mut down) => (read.unwrap_or(0), false),
        };
        // When either end closes, so does the other.
        if length == 0 || !pass(&mut mode, cuts).await {
            if mode.borrow().cuts == cuts {
                return;
            }
            continue;
        }
        let written = match is_up {
            true => server.write_all(&up[..length]).await,
            false => client.write_all(&down[..length]).await,
        };
        if written.is_err() {
            return;
        }
    }
}

/// Waits until something may pass; `false` when the connection was cut meanwhile, or the proxy ended.
async fn pass(mode: &mut watch::Receiver<Mode>, cuts: u64) -> bool {
    let now = mode.wait_for(|mode| !mode.black_hole || mode.cuts > cuts).await;
    now.is_ok_and(|mode| mode.cuts == cuts)
}
