//! A model of a MySQL 9.7 source as a replica sees it: a binary log that grows, and links of bytes in memory
//! that fail. Its clients are the world's; nothing here depends on a wall clock or on chance.

mod chaos;
mod connection;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
pub(crate) use chaos::LinkChaos;
use csa_provider::binlog::{Gtid, GtidSet, RawEvent, Uuid};
use csa_provider::seams::Clock;
use csa_provider::server::link::{Connecting, Endpoint, Network, Transport};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Bytes that a link holds before the sender waits.
const LINK_BYTES: usize = 64 << 10;

/// The fate of a packet, or of a connection in the making.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Transit {
    #[default]
    Arrive,
    Late(Duration),
    /// Both ends find the link cut.
    Cut,
    /// Nothing arrives any more, and neither end learns of it.
    Vanish,
    /// A bit of it is flipped.
    Damage,
}

/// Decides what goes wrong on links to the source.
pub(crate) trait LinkFaults: std::fmt::Debug + Send {
    fn connect(&mut self) -> Transit {
        Transit::Arrive
    }

    /// Returns the error with which the source refuses a login.
    fn refuses(&mut self) -> Option<u16> {
        None
    }

    /// Returns a packet from the source on its way.
    fn packet(&mut self) -> Transit {
        Transit::Arrive
    }
}

/// A transaction in the binary log.
#[derive(Debug, Clone)]
struct Logged {
    gtid: Gtid,
    events: Arc<[Bytes]>,
}

#[derive(Debug, Default)]
struct Log {
    transactions: Vec<Logged>,
    executed: GtidSet,
    /// No longer in the log.
    purged: GtidSet,
    down_until: Option<Instant>,
}

#[derive(Debug)]
struct Core {
    uuid: Uuid,
    clock: Arc<dyn Clock>,
    log: Mutex<Log>,
    faults: Mutex<Box<dyn LinkFaults>>,
    /// Transactions in the log.
    grown: watch::Sender<usize>,
    /// Restarts; links end with them.
    lives: watch::Sender<u64>,
    /// Cancelled when a client breaks a promise.
    broken: CancellationToken,
}

/// The server; clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    core: Arc<Core>,
}

impl Source {
    pub(crate) fn new(
        uuid: Uuid,
        clock: Arc<dyn Clock>,
        faults: impl LinkFaults + 'static,
    ) -> Self {
        Self {
            core: Arc::new(Core {
                uuid,
                clock,
                log: Mutex::default(),
                faults: Mutex::new(Box::new(faults)),
                grown: watch::Sender::new(0),
                lives: watch::Sender::new(0),
                broken: CancellationToken::new(),
            }),
        }
    }

    /// Commits a transaction, whose first event has its GTID.
    pub(crate) fn commit(&self, gtid: &Gtid, events: &[RawEvent]) {
        let events = events.iter().map(|event| Bytes::copy_from_slice(event.bytes())).collect();
        let mut log = self.core.log.lock();
        log.executed.add(gtid);
        log.transactions.push(Logged { gtid: gtid.clone(), events });
        self.core.grown.send_replace(log.transactions.len());
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.core.clock)
    }

    /// All links end, as the server restarts after `down`; its log is durable.
    pub(crate) fn restart(&self, down: Duration) {
        self.core.log.lock().down_until = Some(Instant::now() + down);
        self.core.lives.send_modify(|lives| *lives += 1);
    }

    /// Purges what is in `set`, up to the first transaction that is not.
    pub(crate) fn purge(&self, set: &GtidSet) {
        let mut log = self.core.log.lock();
        let Log { transactions, purged, .. } = &mut *log;
        let gone = transactions.iter().map(|logged| &logged.gtid);
        gone.take_while(|gtid| set.contains(gtid)).for_each(|gtid| {
            purged.add(gtid);
        });
    }

    pub(crate) fn purged(&self) -> GtidSet {
        self.core.log.lock().purged.clone()
    }

    /// Waits for a client that asks for what it must not; the message is on standard error.
    pub(crate) async fn broken(&self) {
        self.core.broken.cancelled().await;
    }

    pub(crate) fn executed(&self) -> GtidSet {
        self.core.log.lock().executed.clone()
    }

    /// Returns the first transaction from `place` on that is not in `known`, and the place after
    /// it.
    fn next(&self, mut place: usize, known: &GtidSet) -> Option<(usize, Arc<[Bytes]>)> {
        let log = self.core.log.lock();
        loop {
            let logged = log.transactions.get(place)?;
            place += 1;
            if !known.contains(&logged.gtid) {
                return Some((place, Arc::clone(&logged.events)));
            }
        }
    }
}

/// The times at which the events that arrived had left the source.
#[derive(Debug, Clone)]
pub(crate) struct Departed(Arc<Mutex<VecDeque<Passage>>>);

#[derive(Debug, Clone, Copy)]
struct Passage {
    departed: Instant,
    arrived: Instant,
}

impl Default for Departed {
    fn default() -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(VecDeque::from([Passage { departed: now, arrived: now }]))))
    }
}

impl Departed {
    /// Enough for all that arrive at the same instant and for some that nobody has read.
    const KEPT: usize = 256;

    fn note(&self, departed: Instant) {
        let mut passages = self.0.lock();
        if passages.len() == Self::KEPT {
            passages.pop_front();
        }
        passages.push_back(Passage { departed, arrived: Instant::now() });
    }

    /// Departure of what was read at `heard`: of the last that had arrived, or the first at the same instant.
    pub(crate) fn of(&self, heard: Instant) -> Instant {
        let passages = self.0.lock();
        let arrived = passages.iter().map(|passage| passage.arrived);
        let last = arrived.filter(|arrived| *arrived <= heard).max();
        let with_it = passages.iter().filter(|passage| Some(passage.arrived) == last);
        with_it.map(|passage| passage.departed).min().unwrap_or(heard)
    }
}

/// Tells the world of a panic in a task that nobody waits for.
struct Breaks<'a>(&'a CancellationToken);

impl Drop for Breaks<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}

impl Network for Source {
    fn connect<'a>(&'a self, _: &'a Endpoint, _: Option<Duration>) -> Connecting<'a> {
        self.link(Departed::default())
    }
}

impl Source {
    /// Returns a new connection, which notes when what arrives has left.
    pub(crate) fn link(&self, departed: Departed) -> Connecting<'_> {
        let transit = self.core.faults.lock().connect();
        let is_down = self.core.log.lock().down_until.is_some_and(|until| Instant::now() < until);
        let transit = if is_down { Transit::Cut } else { transit };
        Box::pin(async move {
            match transit {
                Transit::Arrive | Transit::Damage => {}
                Transit::Late(time) => tokio::time::sleep(time).await,
                Transit::Cut => return Err(io::ErrorKind::ConnectionRefused.into()),
                Transit::Vanish => std::future::pending().await,
            }
            let (ours, theirs) = tokio::io::duplex(LINK_BYTES);
            let source = self.clone();
            tokio::spawn(async move {
                let mut lives = source.core.lives.subscribe();
                let _breaks = Breaks(&source.core.broken);
                tokio::select! {
                    biased;
                    _ = lives.changed() => {}
                    // However it ends, the link is closed by dropping its end.
                    _ = connection::serve(&source, ours, &departed) => {}
                }
            });
            let theirs: Box<dyn Transport> = Box::new(theirs);
            Ok(theirs)
        })
    }
}
