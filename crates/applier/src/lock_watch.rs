//! Watches for waits of the channel for locks of others, over a session of its own that is open only while something
//! is slow.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::activity::sessions::Work;
use crate::error::Result;
use crate::server::lock_wait::{
    FoundLock, KNOWN_INTERVAL, LockHolder, LockWait, PATIENCE, Seen, look,
};
use crate::server::session::Session;
use crate::server::target::Target;
use crate::status::ApplierStatus;

/// How often it is looked for a wait; a known one is looked at more rarely, each [`KNOWN_INTERVAL`].
const INTERVAL: Duration = Duration::from_secs(1);
/// A wait that is repeated, after its time for the lock has passed, is the same one.
const GAP: Duration = Duration::from_secs(6);
/// Shorter waits are not logged.
const LOGGED: Duration = Duration::from_secs(5);

/// Shows in `status` what the channel waits for, until dropped. Once `stop` is cancelled, a statement that
/// waits for a lock is interrupted: nothing of it is done, and it is executed again after the next start. One that has
/// had its effect, and only lacks its checkpoint, is let wait.
pub(crate) async fn watch(
    target: &Target,
    status: &ApplierStatus,
    stop: &CancellationToken,
) -> Infallible {
    let mut watch = Watch { target, status, session: None, current: None, looked: None };
    loop {
        match stop.is_cancelled() {
            true => tokio::time::sleep(INTERVAL).await,
            false => tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(INTERVAL) => {}
            },
        }
        // An error ends the look and nothing else: the wait is only shown.
        if let Err(error) = watch.step(status.oldest_work(), stop.is_cancelled()).await {
            debug!(%error, "locks that others hold can't be looked up");
            watch.session = None;
        }
    }
}

struct Watch<'a> {
    target: &'a Target,
    status: &'a ApplierStatus,
    session: Option<Session>,
    current: Option<Current>,
    looked: Option<Instant>,
}

/// The wait that is shown.
struct Current {
    wait: LockWait,
    seen: Instant,
    is_logged: bool,
}

impl Watch<'_> {
    async fn step(&mut self, work: Option<Work>, is_stopping: bool) -> Result<()> {
        let now = Instant::now();
        let is_slow = |work: &&Work| now.duration_since(work.since) >= PATIENCE;
        let slow = work.as_ref().filter(is_slow).and_then(|work| Some((work, work.connection?)));
        let found = match slow {
            Some(_) if !self.is_due(now, is_stopping) => return Ok(()),
            Some((work, connection)) => {
                self.looked = Some(now);
                self.find(work, connection, is_stopping).await?
            }
            None => None,
        };
        match (slow, found) {
            (Some((work, connection)), Some(found)) => self.seen(work, connection, found, now),
            _ => self.unseen(work, now).await,
        }
        Ok(())
    }

    fn is_due(&self, now: Instant, is_stopping: bool) -> bool {
        let is_known = self.current.is_some() && !is_stopping;
        let interval = if is_known { KNOWN_INTERVAL } else { INTERVAL };
        self.looked.is_none_or(|looked| now.duration_since(looked) >= interval)
    }

    /// Returns the lock that something slow waits for, if it is one of others.
    async fn find(
        &mut self,
        work: &Work,
        connection: u32,
        is_stopping: bool,
    ) -> Result<Option<FoundLock>> {
        let session = match &mut self.session {
            Some(session) => session,
            None => self.session.insert(Session::connect(self.target).await?),
        };
        let mut found = match look(session, connection).await? {
            Seen::Nothing => return Ok(None),
            Seen::Lock(found) => found,
            Seen::Hidden(unseen) if self.status.had_lock_timeout(GAP) => FoundLock {
                lock: "a lock on a row".to_owned(),
                holders: Vec::new(),
                unseen: Some(unseen),
                look: String::new(),
            },
            Seen::Hidden(_) => return Ok(None),
        };
        let own = self.status.connections();
        let is_own = |holder: &LockHolder| {
            holder.connection.is_some_and(|id| own.iter().any(|&own| u64::from(own) == id))
        };
        // Those are resolved by yielding (group/lock_inversion.rs).
        let had_holders = !found.holders.is_empty();
        found.holders.retain(|holder| !is_own(holder));
        if had_holders && found.holders.is_empty() {
            return Ok(None);
        }
        if is_stopping && work.may_be_interrupted {
            info!(connection, lock = found.lock, what = work.what, "stopping: its wait is ended");
            session.run(format!("KILL QUERY {connection}")).await?;
        }
        Ok(Some(found))
    }

    fn seen(&mut self, work: &Work, connection: u32, found: FoundLock, now: Instant) {
        let current = match self.current.take() {
            Some(current) if current.wait.what == work.what => Current {
                wait: LockWait { connection, found, ..current.wait },
                seen: now,
                ..current
            },
            other => {
                self.end(other, now);
                let (what, since) = (work.what.clone(), work.since);
                let wait = LockWait { what, connection, since, found };
                Current { wait, seen: now, is_logged: false }
            }
        };
        let is_logged = current.is_logged || now.duration_since(current.wait.since) >= LOGGED;
        if is_logged && !current.is_logged {
            warn!("waiting for a lock of another session: {}", current.wait);
        }
        self.status.lock_wait(Some(current.wait.clone()));
        self.current = Some(Current { is_logged, ..current });
    }

    /// No wait is seen now; between two attempts at the same work none is.
    async fn unseen(&mut self, work: Option<Work>, now: Instant) {
        let is_repeated = |current: &Current| {
            let is_same = work.is_some_and(|work| work.what == current.wait.what);
            is_same && now.duration_since(current.seen) < GAP
        };
        if self.current.as_ref().is_some_and(is_repeated) {
            return;
        }
        let current = self.current.take();
        self.end(current, now);
        self.status.lock_wait(None);
        if let Some(session) = self.session.take() {
            session.close().await;
        }
    }

    fn end(&self, current: Option<Current>, now: Instant) {
        if let Some(Current { wait, is_logged: true, .. }) = current {
            let seconds = now.duration_since(wait.since).as_secs();
            info!(
                seconds,
                lock = wait.found.lock,
                what = wait.what,
                "the lock of another session is free"
            );
        }
    }
}
