//! A TCP proxy on loopback with adjustable bandwidth and latency, which can hold a request.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const CHUNK: usize = 4 << 10;
/// Chunks that a link of long latency holds.
const CHUNKS: usize = 256;

/// Forwards connections to a server until it is dropped; both directions alike, except where noted.
#[derive(Debug)]
pub struct Proxy {
    /// The port on 127.0.0.1.
    pub port: u16,
    link: Arc<Link>,
}

#[derive(Debug)]
struct Link {
    /// Bytes per second from the server to each client.
    rate: AtomicU64,
    latency_micros: AtomicU64,
    /// Requests with this text wait.
    held: Mutex<Option<Vec<u8>>>,
    is_holding: AtomicBool,
    closed: AtomicBool,
}

impl Proxy {
    /// Forwards to a port on 127.0.0.1, at first without a limit.
    ///
    /// # Panics
    /// If it can't listen.
    #[must_use]
    pub fn to(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("the address bound").port();
        let link = Arc::new(Link {
            rate: AtomicU64::new(u64::MAX),
            latency_micros: AtomicU64::new(0),
            held: Mutex::default(),
            is_holding: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        let shared = Arc::clone(&link);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if shared.closed.load(Ordering::Relaxed) {
                    return;
                }
                // A server that is down closes the connection, as it would without the proxy.
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", server)))
                else {
                    continue;
                };
                let _ = client.set_nodelay(true);
                let _ = server.set_nodelay(true);
                let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else { continue };
                pump(from, to, Arc::clone(&shared), false);
                pump(server, client, Arc::clone(&shared), true);
            }
        });
        Self { port, link }
    }

    /// Bytes per second from the server to each client; `None` for no limit.
    pub fn set_rate(&self, rate: Option<u64>) {
        self.link.rate.store(rate.unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
    }

    /// The latency of every byte, in each direction.
    pub fn set_latency(&self, latency: Duration) {
        self.link.latency_micros.store(latency.as_micros() as u64, Ordering::Relaxed);
    }

    /// Holds requests with this text, and what follows on their connections; `None` lets all pass. A request has to be
    /// short, and without TLS.
    pub fn hold(&self, text: Option<&str>) {
        *self.link.held() = text.map(|text| text.as_bytes().to_vec());
    }

    /// Returns true once a request was held.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.link.is_holding.load(Ordering::Relaxed)
    }
}

impl Link {
    fn held(&self) -> std::sync::MutexGuard<'_, Option<Vec<u8>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holds(&self, request: &[u8]) -> bool {
        let held = self.held();
        let Some(text) = held.as_ref().filter(|text| !text.is_empty()) else { return false };
        request.windows(text.len()).any(|part| part == text.as_slice())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.link.closed.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn pump(mut from: TcpStream, to: TcpStream, link: Arc<Link>, limited: bool) {
    let (sender, chunks) = sync_channel(CHUNKS);
    let writing = Arc::clone(&link);
    std::thread::spawn(move || write(to, &chunks, &writing, limited));
    std::thread::spawn(move || {
        let _ = read(&mut from, &sender, &link);
        let _ = from.shutdown(Shutdown::Read);
    });
}

/// Ends with the connection, the other direction, or the proxy.
fn read(
    from: &mut TcpStream,
    sender: &SyncSender<(Instant, Vec<u8>)>,
    link: &Link,
) -> std::io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    while !link.closed.load(Ordering::Relaxed) {
        let len = from.read(&mut chunk)?;
        if len == 0 || sender.send((Instant::now(), chunk[..len].to_vec())).is_err() {
            break;
        }
    }
    Ok(())
}

fn write(mut to: TcpStream, chunks: &Receiver<(Instant, Vec<u8>)>, link: &Link, limited: bool) {
    for (read, chunk) in chunks {
        let latency = Duration::from_micros(link.latency_micros.load(Ordering::Relaxed));
        std::thread::sleep((read + latency).saturating_duration_since(Instant::now()));
        let rate = link.rate.load(Ordering::Relaxed);
        if limited && rate != u64::MAX {
            std::thread::sleep(Duration::from_secs_f64(chunk.len() as f64 / rate as f64));
        }
        while !limited && link.holds(&chunk) && !link.closed.load(Ordering::Relaxed) {
            link.is_holding.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(10));
        }
        if link.closed.load(Ordering::Relaxed) || to.write_all(&chunk).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
