//! Accepting connections, so that no client can use up descriptors or hold on to them: a cap, and
//! time limits for headers, silence and answers that are not read.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::peer::Peer;
use super::request::Shared;
use super::slots::{Given, Slots};
use super::stalls::Stalls;

/// Connections to the port, and those from one address.
const NETWORK: (usize, usize) = (100, 50);
/// Connections to the socket; those to the port can't use them up.
const LOCAL: usize = 40;
/// Time for the TLS handshake, for the headers of a request, and between two requests.
const SILENCE: Duration = Duration::from_secs(10);
/// Time without the client reading any of its answer.
const STALL: Duration = Duration::from_secs(30);
/// Headers of a request; a query may hold a GTID set.
const HEADERS_MAX: usize = 128 << 10;
/// Pause after the process ran out of descriptors, or the like.
const RECOVERY: Duration = Duration::from_secs(1);

/// Pause between two lines of the log that say that all places are taken.
const QUIET: Duration = Duration::from_secs(60);

/// Connections that are still closing after their places went to others.
const LEAVING: usize = 10;

/// One listener and its connections.
#[derive(Debug)]
struct Doors {
    inside: Mutex<Inside>,
    /// Bounds descriptors: a connection that has to give up its place stays open until its task has
    /// run.
    room: Arc<Semaphore>,
}

#[derive(Debug)]
struct Inside {
    slots: Slots<IpAddr>,
    ends: HashMap<u64, CancellationToken>,
    /// The last line of the log about a refused connection.
    warned: Option<Instant>,
}

/// A connection's place.
#[derive(Debug)]
struct Visit {
    doors: Arc<Doors>,
    id: u64,
    /// Cancelled when another connection needs the place.
    end: CancellationToken,
    _room: OwnedSemaphorePermit,
}

impl Doors {
    fn new(total: usize, of_one: usize) -> Arc<Self> {
        let slots = Slots::new(total, of_one);
        let inside = Mutex::new(Inside { slots, ends: HashMap::new(), warned: None });
        Arc::new(Self { inside, room: Arc::new(Semaphore::new(total + LEAVING)) })
    }

    /// Waits until there is a descriptor for another connection.
    async fn room(&self) -> io::Result<OwnedSemaphorePermit> {
        Arc::clone(&self.room).acquire_owned().await.map_err(io::Error::other)
    }

    fn enter(self: &Arc<Self>, address: IpAddr, room: OwnedSemaphorePermit) -> Option<Visit> {
        let mut inside = self.inside.lock();
        let id = match inside.slots.take(address) {
            Given::Free(id) => id,
            Given::Of(id, silent) => {
                if let Some(end) = inside.ends.remove(&silent) {
                    end.cancel();
                }
                id
            }
            Given::None => {
                inside.warn_of_refusal(address);
                return None;
            }
        };
        let end = CancellationToken::new();
        inside.ends.insert(id, end.clone());
        Some(Visit { doors: Arc::clone(self), id, end, _room: room })
    }
}

impl Inside {
    fn warn_of_refusal(&mut self, address: IpAddr) {
        if self.warned.is_none_or(|at| at.elapsed() >= QUIET) {
            self.warned = Some(Instant::now());
            warn!(%address, "refusing connections to the admin port or socket: all places are taken");
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut inside = self.doors.inside.lock();
        inside.slots.leave(self.id);
        inside.ends.remove(&self.id);
    }
}

/// The place of a request's connection.
#[derive(Debug, Clone)]
pub(super) struct Place(Arc<Doors>, u64);

impl Place {
    /// Keeps the place for the connection: its client has the rights for what it asks.
    pub(super) fn keep(&self) {
        self.0.inside.lock().slots.asked(self.1);
    }

    /// Begins a wait, which ends when the result is dropped; `None` while too many others wait.
    pub(super) fn wait(&self) -> Option<Waiting<'_>> {
        let has_room = self.0.inside.lock().slots.begin_wait(self.1);
        has_room.then(|| Waiting(self))
    }
}

/// A client that waits.
#[derive(Debug)]
pub(super) struct Waiting<'a>(&'a Place);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Place(doors, id) = self.0;
        doors.inside.lock().slots.end_wait(*id);
    }
}

/// Serves the port until stopped.
pub(super) async fn network(
    daemon: Shared,
    listener: TcpListener,
    app: Router,
    stop: CancellationToken,
) {
    let doors = Doors::new(NETWORK.0, NETWORK.1);
    loop {
        // The permit first: a client without one waits in the kernel and takes no descriptor.
        let accept = async { Ok((doors.room().await?, listener.accept().await?)) };
        let (room, (stream, address)) = tokio::select! {
            accepted = accept => match accepted {
                Ok(accepted) => accepted,
                Err(error) => { recover(&error).await; continue }
            },
            () = stop.cancelled() => return,
        };
        // Without a place the stream is dropped, which closes it.
        let Some(visit) = doors.enter(address.ip(), room) else { continue };
        let (tls, app, stop) = (daemon.access().tls.clone(), app.clone(), stop.clone());
        tokio::spawn(async move {
            let peer = Peer::Network(address.ip());
            match tls {
                None => serve(stream, app, peer, &visit, &stop).await,
                Some(tls) => match shake_hands(TlsAcceptor::from(tls.server), stream, &visit).await
                {
                    Some(stream) => serve(stream, app, peer, &visit, &stop).await,
                    None => debug!(%address, "no TLS handshake on the admin port"),
                },
            }
        });
    }
}

async fn shake_hands(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    visit: &Visit,
) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    tokio::select! {
        shaken = tokio::time::timeout(SILENCE, acceptor.accept(stream)) => shaken.ok()?.ok(),
        () = visit.end.cancelled() => None,
    }
}

/// Serves the socket until stopped.
pub(super) async fn local(listener: UnixListener, app: Router, stop: CancellationToken) {
    let doors = Doors::new(LOCAL, LOCAL);
    loop {
        let accept = async { Ok((doors.room().await?, listener.accept().await?.0)) };
        let (room, stream) = tokio::select! {
            accepted = accept => match accepted {
                Ok(accepted) => accepted,
                Err(error) => { recover(&error).await; continue }
            },
            () = stop.cancelled() => return,
        };
        let (Some(visit), Some(peer)) =
            (doors.enter(Ipv4Addr::LOCALHOST.into(), room), who(&stream))
        else {
            continue;
        };
        let (app, stop) = (app.clone(), stop.clone());
        tokio::spawn(async move { serve(stream, app, peer, &visit, &stop).await });
    }
}

fn who(stream: &UnixStream) -> Option<Peer> {
    let credentials = stream.peer_cred().ok()?;
    Some(Peer::local(credentials.uid(), credentials.pid()))
}

/// An error that concerns one client needs nothing; after any other, room may be found later.
async fn recover(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        warn!(%error, "the admin port takes no connection for a second");
        tokio::time::sleep(RECOVERY).await;
    }
}

async fn serve<S>(stream: S, app: Router, peer: Peer, visit: &Visit, stop: &CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let place = Place(Arc::clone(&visit.doors), visit.id);
    let app = app.layer(Extension(place)).layer(Extension(peer));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(SILENCE).max_buf_size(HEADERS_MAX);
    let stream = TokioIo::new(Stalls::new(stream, STALL));
    let served = http.serve_connection(stream, TowerToHyperService::new(app));
    let mut served = std::pin::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = visit.end.cancelled() => Ok(()),
        () = stop.cancelled() => {
            // An answer under way may finish, but the end of the process does not wait for it.
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "connection to the admin port ended");
    }
}
