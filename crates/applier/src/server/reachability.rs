//! The users of the target that have lost it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use csa_provider::seams::Chance;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::error::{Error, Result};
use crate::server::generation::Generation;
use crate::server::room::{Party, Room, SessionClaim};
use crate::server::session::Session;

/// Attempts at a session right after another one has ended, which the server may still count.
const QUICK_ATTEMPTS: u32 = 5;
const QUICK_PAUSE: Duration = Duration::from_millis(100);

/// Why the target can't be reached or written to, by party; cheap to clone. That one can read proves
/// nothing for another that can't write: each removes only its own entry.
#[derive(Debug, Clone, Default)]
pub struct Reachability {
    outage: Arc<watch::Sender<Outage>>,
    /// Sessions that the target refused with an error.
    refused: Arc<AtomicU64>,
    room: Room,
}

/// The parties that have lost it; over once there are none.
#[derive(Debug, Default)]
struct Outage {
    since: Option<Instant>,
    lost: BTreeMap<Party, Lost>,
    is_logged: bool,
    /// Parties with a session from after the last outage that was logged; `None` before the first. Others may
    /// find out much later that theirs is gone.
    renewed: Option<BTreeSet<Party>>,
}

/// Why one party has lost it.
#[derive(Debug, Clone)]
struct Lost {
    why: String,
    /// The time of its next attempt, where it waits for one.
    again: Option<Instant>,
}

impl Reachability {
    /// Records that a party has lost it. The log has one line for an outage, whoever finds it out and however
    /// often: then this returns true.
    pub(crate) fn lost(&self, party: Party, error: &Error) -> bool {
        if matches!(error, Error::Connecting(_)) && error.code().is_some() {
            self.refused();
        }
        let mut is_news = false;
        self.outage.send_modify(|Outage { since, lost, is_logged, renewed }| {
            // The control session is asked all the time, and no outage ends without it.
            let is_of_the_last = party != Party::Control
                && renewed.as_ref().is_some_and(|renewed| !renewed.contains(&party));
            is_news = !*is_logged && !is_of_the_last;
            if is_news {
                *is_logged = true;
                *renewed = Some(BTreeSet::new());
            }
            since.get_or_insert_with(Instant::now);
            lost.insert(party, Lost { why: error.to_string(), again: None });
        });
        match is_news {
            true => warn!(%error, "target unavailable, waiting for it"),
            false => debug!(?party, %error, "target unavailable"),
        }
        is_news
    }

    /// The target has refused a session with an error.
    fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Opens a session with `open`, once there is room for it on the target.
    ///
    /// # Errors
    /// Those of `open`. For want of room only if the channel has no other session there.
    pub(crate) async fn open<F>(
        &self,
        entry: (SessionClaim, Party),
        generation: &Generation,
        chance: &dyn Chance,
        open: impl Fn() -> F,
    ) -> Result<(Session, u64)>
    where
        F: Future<Output = Result<(Session, u64)>>,
    {
        let mut attempts = 0;
        loop {
            generation.settled().await;
            let permit = self.room.enter(entry).await;
            let error = match open().await {
                Ok((mut session, number)) => {
                    self.room.entered();
                    session.occupy(Box::new(permit));
                    return Ok((session, number));
                }
                Err(error) => error,
            };
            if !error.is_of_room() {
                return Err(error);
            }
            if attempts < QUICK_ATTEMPTS && self.room.has_just_left() {
                attempts += 1;
                drop(permit);
                tokio::time::sleep(QUICK_PAUSE).await;
                continue;
            }
            attempts = 0;
            if !self.room.refused(permit, &error, chance) {
                return Err(error);
            }
            self.refused();
        }
    }

    /// The party tries again after this time.
    pub(crate) fn waits(&self, party: Party, pause: Duration) {
        let again = Some(Instant::now() + pause);
        self.outage.send_if_modified(|Outage { lost, .. }| {
            if let Some(lost) = lost.get_mut(&party) {
                lost.again = again;
            }
            false
        });
    }

    pub(crate) fn reached(&self, party: Party) {
        let mut over = None;
        self.outage.send_if_modified(|Outage { since, lost, is_logged, renewed }| {
            let is_known = lost.remove(&party).is_some();
            if let Some(renewed) = renewed.as_mut().filter(|_| is_known) {
                renewed.insert(party);
            }
            if lost.is_empty() {
                over = since.take().filter(|_| mem::take(is_logged));
            }
            is_known
        });
        if let Some(since) = over {
            info!(seconds = since.elapsed().as_secs(), "target available again");
        }
    }

    /// Tells `told` whether the target is known to be away, now and whenever it may have changed.
    pub async fn follow(&self, told: impl Fn(bool)) {
        let mut outage = self.outage.subscribe();
        loop {
            let is_lost = !outage.borrow_and_update().lost.is_empty();
            told(is_lost);
            if outage.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns true if the target is known to be away.
    pub(crate) fn is_lost(&self) -> bool {
        !self.outage.borrow().lost.is_empty()
    }

    pub(crate) fn why_lost(&self) -> Option<String> {
        self.outage.borrow().lost.first_key_value().map(|(_, lost)| lost.why.clone())
    }

    /// Returns the time of the next attempt to reach it.
    pub(crate) fn next_attempt(&self) -> Option<Instant> {
        self.outage.borrow().lost.first_key_value().and_then(|(_, lost)| lost.again)
    }

    /// Returns the sessions that the target refused with an error.
    pub(crate) fn refused_total(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the room for sessions there.
    pub(crate) fn room(&self) -> &Room {
        &self.room
    }

    pub(crate) async fn until_lost(&self) {
        // The sender lives as long as `self`, so this fails never.
        let _ = self.outage.subscribe().wait_for(|outage| !outage.lost.is_empty()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_reads_does_not_speak_for_who_writes() {
        let target = Reachability::default();
        let error = |text: &str| Error::Held {
            channel: "c".to_owned(),
            what: text.to_owned(),
            by_another: true,
        };
        let soon = || tokio::time::timeout(Duration::from_secs(1), target.until_lost());
        assert!(!target.is_lost() && soon().await.is_err());
        assert!(target.lost(Party::Worker(1), &error("read-only")), "news");
        assert!(!target.lost(Party::Control, &error("away")), "known already");
        target.reached(Party::Control);
        target.reached(Party::Catalogue);
        assert!(target.is_lost() && soon().await.is_ok());
        assert!(target.why_lost().is_some_and(|why| why.contains("read-only")));
        target.reached(Party::Worker(1));
        assert!(!target.is_lost() && soon().await.is_err());
    }

    #[test]
    fn a_session_that_is_found_lost_after_an_outage_is_no_news() {
        let target = Reachability::default();
        let away = Error::Timeout { address: "t:1".to_owned(), seconds: 1 };
        assert!(target.lost(Party::Control, &away));
        target.reached(Party::Control);
        assert!(!target.lost(Party::Worker(1), &away), "it has not asked since");
        assert!(target.is_lost());
        target.reached(Party::Worker(1));
        assert!(target.lost(Party::Worker(1), &away), "its session was a new one");
        target.reached(Party::Worker(1));
        assert!(target.lost(Party::Control, &away), "it is asked all the time");
        assert!(!target.lost(Party::Worker(1), &away), "known");
    }
}
