//! The server, and the life of it between two restarts, in which a channel's sessions may commit.
//!
//! A target can come back older than it was: after a crash with relaxed durability, or as a replica
//! that lagged. Sessions reconnect one by one, and the first to do so must not commit on top of a gap.
//! So the control session goes first: where it holds the channel's lock it checks that everything known
//! to be committed is there, and begins a generation. Every other session has to be on the same server
//! in the same life. The lock proves that: it lives as long as the session that took it, and ends with
//! the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Notify, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::{Error, Result};
use crate::server::lock_names::lock_name;
use crate::server::session::Session;
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::server::Vendor;
use csa_provider::sql_text::quote;

/// Shared by all sessions of a channel; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Generation {
    shared: Arc<SharedGeneration>,
}

#[derive(Debug, Default)]
struct SharedGeneration {
    /// Read-locked from before a COMMIT is sent until its answer is recorded, so that every commit of
    /// earlier generations is known when a new one begins.
    life: RwLock<Life>,
    /// Wakes those who wait in the order in which they came, as a watch does not: a simulation repeats it.
    begun: Notify,
    suspected: Notify,
    /// The control session is being opened again. A server that has restarted numbers connections from
    /// the beginning, so the lock may be held again by the number that [`Place::holder`] has.
    is_in_doubt: AtomicBool,
}

/// The place where the control session holds the channel's lock, and the generation's number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Life {
    number: u64,
    place: Place,
}

/// A server in one of its lives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// `server_uuid`, or host name and port on MariaDB.
    pub(crate) server: String,
    /// The connection that holds the channel's lock; 0 for none.
    pub(crate) holder: u64,
}

impl Place {
    /// Returns the place that the session is connected to.
    pub(crate) async fn of(session: &mut Session, channel: &str) -> Result<Self> {
        let server = match session.vendor() {
            Vendor::MySql | Vendor::MySql57 => "@@GLOBAL.server_uuid",
            Vendor::MariaDb => "CONCAT(@@GLOBAL.hostname, ':', @@GLOBAL.port)",
        };
        let name = quote(&lock_name(channel));
        let query = format!("SELECT {server}, COALESCE(IS_USED_LOCK({name}), 0)");
        let rows: Vec<(String, u64)> = session.rows(&query).await?;
        let (server, holder) = rows.into_iter().next().unwrap_or_default();
        Ok(Self { server, holder })
    }
}

/// No COMMIT is under way while this is held.
#[derive(Debug)]
pub(crate) struct Renewal<'a> {
    life: RwLockWriteGuard<'a, Life>,
    shared: &'a SharedGeneration,
}

impl Renewal<'_> {
    /// From now on sessions commit at `place` and nowhere else.
    pub(crate) fn begin(mut self, place: Place) {
        let number = self.life.number + 1;
        *self.life = Life { number, place };
        self.shared.is_in_doubt.store(false, Ordering::SeqCst);
        // Those woken wait for the lock, which is released when this returns.
        self.shared.begun.notify_waiters();
    }
}

/// A commit made while this is held has to be recorded before it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Committing<'a> {
    _life: RwLockReadGuard<'a, Life>,
}

impl Generation {
    /// Waits for the answers of all COMMITs under way, and holds back new ones.
    pub(crate) async fn renew(&self) -> Renewal<'_> {
        Renewal { life: self.shared.life.write().await, shared: &self.shared }
    }

    /// Admits no session until the next generation begins; to be called before the channel's lock is
    /// taken again. Sessions that were admitted still commit: their server has not restarted.
    pub(crate) fn doubt(&self) {
        let is_in_doubt = !is_planted(Bug::EarlierLifeAccepted);
        self.shared.is_in_doubt.store(is_in_doubt, Ordering::SeqCst);
    }

    /// Waits while the channel is being taken again: no session would be admitted meanwhile, and each attempt is a
    /// login that the target may refuse or count.
    pub(crate) async fn settled(&self) {
        loop {
            let mut begun = std::pin::pin!(self.shared.begun.notified());
            // Before the look, so that no beginning is missed.
            begun.as_mut().enable();
            if !self.shared.is_in_doubt.load(Ordering::SeqCst) {
                return;
            }
            begun.await;
        }
    }

    /// Returns the generation that a new session belongs to.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] if it is not connected to the place where the control session is.
    pub(crate) async fn admit(&self, session: &mut Session, channel: &str) -> Result<u64> {
        // Not held during the query: a renewal must not wait for a session that hangs.
        let life = self.shared.life.read().await.clone();
        check(&life, session, channel).await?;
        // After the query: the lock that it found may be that of a later life.
        let is_in_doubt = self.shared.is_in_doubt.load(Ordering::SeqCst);
        match !is_in_doubt && self.shared.life.read().await.number == life.number {
            true => Ok(life.number),
            false => Err(Error::Elsewhere { address: session.address().to_owned() }),
        }
    }

    /// Permits a COMMIT on a session that was admitted to generation `number`; the number is updated if
    /// a later generation has begun on the same server in the same life.
    ///
    /// # Errors
    /// [`Error::Elsewhere`]; nothing may be committed on the session.
    pub(crate) async fn commit(
        &self,
        session: &mut Session,
        channel: &str,
        number: &mut u64,
    ) -> Result<Committing<'_>> {
        let life = self.shared.life.read().await;
        // The same number needs no query: no session outlives its server.
        if life.number != *number {
            check(&life, session, channel).await?;
            *number = life.number;
        }
        Ok(Committing { _life: life })
    }

    /// Reports that a session was lost, so that the control session is checked.
    pub(crate) fn suspect(&self) {
        self.shared.suspected.notify_one();
    }

    /// Waits for a session to be lost.
    pub(crate) async fn suspected(&self) {
        self.shared.suspected.notified().await;
    }

    /// Waits for the next generation.
    pub(crate) async fn next(&self) {
        self.shared.begun.notified().await;
    }
}

async fn check(life: &Life, session: &mut Session, channel: &str) -> Result<()> {
    let place = Place::of(session, channel).await?;
    // Before the first generation, and where nobody holds the lock, both would be 0.
    match place == life.place && place.holder != 0 {
        true => Ok(()),
        false => Err(Error::Elsewhere { address: session.address().to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::server::scripted::Scripted;

    fn place(holder: u64) -> Place {
        Place { server: "a".to_owned(), holder }
    }

    #[tokio::test]
    async fn a_generation_begins_after_the_commits_under_way() {
        let generation = Generation::default();
        generation.renew().await.begin(place(7));
        let committing = generation.shared.life.read().await;
        let renewal = tokio::spawn({
            let generation = generation.clone();
            async move { generation.renew().await.begin(place(8)) }
        });
        tokio::task::yield_now().await;
        assert!(!renewal.is_finished(), "its answer is not known yet");
        drop(committing);
        renewal.await.expect("begun");
        assert_eq!(*generation.shared.life.read().await, Life { number: 2, place: place(8) });
    }

    /// A server that has restarted gives the control session the connection number it had before.
    #[tokio::test]
    async fn no_session_is_admitted_while_the_channel_is_taken_again() {
        let generation = Generation::default();
        let mut session = Session::connect(&Scripted::default().target()).await.expect("connects");
        generation.renew().await.begin(Scripted::place());
        assert_eq!(generation.admit(&mut session, "c").await.expect("admitted"), 1);
        generation.doubt();
        let refused = generation.admit(&mut session, "c").await;
        assert!(matches!(refused, Err(Error::Elsewhere { .. })), "{refused:?}");
        // Without a word about what was committed before: it may be a gap.
        drop(generation.renew().await);
        assert!(generation.admit(&mut session, "c").await.is_err());
        generation.renew().await.begin(Scripted::place());
        assert_eq!(generation.admit(&mut session, "c").await.expect("admitted"), 2);
    }

    #[tokio::test]
    async fn those_who_wait_for_the_target_are_woken_by_a_new_generation() {
        let generation = Generation::default();
        let waiting = tokio::spawn({
            let generation = generation.clone();
            async move { generation.next().await }
        });
        tokio::task::yield_now().await;
        generation.renew().await.begin(place(7));
        tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("woken").expect("ok");
        generation.suspect();
        tokio::time::timeout(Duration::from_secs(10), generation.suspected()).await.expect("kept");
    }
}
