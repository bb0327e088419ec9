//! An engine in memory, for tests: sessions end by tokio's clock, and a member's link can be cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::engine::{Claim, Engine, EngineError, Fleet, Member};

/// Time between two looks for sessions that have ended.
const TICK: Duration = Duration::from_millis(50);

/// The service that all members share.
#[derive(Debug, Clone)]
pub(super) struct MemoryCluster {
    ttl: Duration,
    state: Arc<Mutex<MemoryState>>,
    /// Counts changes.
    version: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct MemoryState {
    sessions: BTreeMap<u64, Instant>,
    last: u64,
    members: BTreeMap<String, (u64, Member)>,
    claims: BTreeMap<String, (u64, String)>,
}

/// One member's link to it.
#[derive(Debug)]
pub(super) struct MemoryEngine {
    cluster: MemoryCluster,
    session: Mutex<Option<(u64, String)>>,
    seen: Mutex<u64>,
    is_cut: Arc<AtomicBool>,
}

impl MemoryCluster {
    pub(super) fn new(ttl: Duration) -> Self {
        let version = Arc::new(watch::Sender::new(0));
        Self { ttl, state: Arc::default(), version }
    }

    /// Returns a link, and the switch that cuts it.
    pub(super) fn link(&self) -> (MemoryEngine, Arc<AtomicBool>) {
        let is_cut = Arc::new(AtomicBool::new(false));
        let engine = MemoryEngine {
            cluster: self.clone(),
            session: Mutex::default(),
            seen: Mutex::default(),
            is_cut: Arc::clone(&is_cut),
        };
        (engine, is_cut)
    }

    /// Ends a member's session, as if it had not been renewed.
    pub(super) fn end_session(&self, member: &str) {
        self.with(|state| {
            let session = state.members.get(member).map(|(session, _)| *session);
            session.map(|session| state.sessions.remove(&session));
            state.forget();
        });
    }

    pub(super) fn holder(&self, channel: &str) -> Option<String> {
        self.with(|state| state.claims.get(channel).map(|(_, holder)| holder.clone()))
    }

    fn with<T>(&self, change: impl FnOnce(&mut MemoryState) -> T) -> T {
        let mut state = self.state.lock();
        let now = Instant::now();
        let before = (state.members.clone(), state.claims.clone());
        state.sessions.retain(|_, ends| *ends > now);
        state.forget();
        let done = change(&mut state);
        if before != (state.members.clone(), state.claims.clone()) {
            self.version.send_modify(|version| *version += 1);
        }
        done
    }
}

impl MemoryState {
    /// Members and claims end with their sessions.
    fn forget(&mut self) {
        self.members.retain(|_, (session, _)| self.sessions.contains_key(session));
        self.claims.retain(|_, (session, _)| self.sessions.contains_key(session));
    }
}

impl MemoryEngine {
    async fn reached(&self) -> Result<(), EngineError> {
        // As long as a real one takes, so that requests of members overlap.
        tokio::time::sleep(Duration::from_millis(2)).await;
        match self.is_cut.load(Ordering::Relaxed) {
            true => Err(EngineError::Away("the link is cut".to_owned())),
            false => Ok(()),
        }
    }

    fn session(&self) -> Result<(u64, String), EngineError> {
        self.session.lock().clone().ok_or(EngineError::SessionEnded)
    }
}

impl Engine for MemoryEngine {
    async fn join(&self, member: &Member) -> Result<(), EngineError> {
        self.reached().await?;
        let (ttl, current) = (self.cluster.ttl, self.session().ok().map(|(session, _)| session));
        let session = self.cluster.with(|state| {
            let known = state.members.get(&member.name);
            if known.is_some_and(|(_, known)| known.id != member.id) {
                return Err(EngineError::Refused(format!("{} is taken", member.name)));
            }
            let lasting = current.filter(|session| state.sessions.contains_key(session));
            let session = lasting.unwrap_or_else(|| {
                state.last += 1;
                state.last
            });
            state.sessions.entry(session).or_insert(Instant::now() + ttl);
            state.members.insert(member.name.clone(), (session, member.clone()));
            Ok(session)
        })?;
        *self.session.lock() = Some((session, member.name.clone()));
        Ok(())
    }

    async fn renew(&self) -> Result<(), EngineError> {
        self.reached().await?;
        let (session, _) = self.session()?;
        let renewed = self.cluster.with(|state| {
            let ends = state.sessions.get_mut(&session);
            ends.map(|ends| *ends = Instant::now() + self.cluster.ttl)
        });
        renewed.ok_or(EngineError::SessionEnded)
    }

    async fn claim(&self, channels: &[String]) -> Result<Vec<String>, EngineError> {
        self.reached().await?;
        let (session, name) = self.session()?;
        self.cluster.with(|state| {
            if !state.sessions.contains_key(&session) {
                return Err(EngineError::SessionEnded);
            }
            let free = |channel: &&String| {
                state.claims.get(*channel).is_none_or(|(_, holder)| *holder == name)
            };
            let got: Vec<String> = channels.iter().filter(free).cloned().collect();
            for channel in &got {
                state.claims.insert(channel.clone(), (session, name.clone()));
            }
            Ok(got)
        })
    }

    async fn release(&self, channels: &[String]) -> Result<(), EngineError> {
        self.reached().await?;
        let (_, name) = self.session()?;
        self.cluster.with(|state| {
            state
                .claims
                .retain(|channel, (_, holder)| *holder != name || !channels.contains(channel));
        });
        Ok(())
    }

    async fn look(&self) -> Result<Fleet, EngineError> {
        self.reached().await?;
        let own = self.session().ok().map(|(session, _)| session);
        let fleet = self.cluster.with(|state| Fleet {
            members: state.members.values().map(|(_, member)| member.clone()).collect(),
            claims: state
                .claims
                .iter()
                .map(|(channel, (session, holder))| {
                    let is_current = own == Some(*session);
                    (channel.clone(), Claim { holder: holder.clone(), is_current })
                })
                .collect(),
        });
        *self.seen.lock() = *self.cluster.version.borrow();
        Ok(fleet)
    }

    async fn changed(&self) -> Result<(), EngineError> {
        let seen = *self.seen.lock();
        loop {
            self.reached().await?;
            self.cluster.with(|_| ());
            if *self.cluster.version.borrow() != seen {
                return Ok(());
            }
            tokio::time::sleep(TICK).await;
        }
    }

    async fn leave(&self) -> Result<(), EngineError> {
        self.reached().await?;
        let (session, _) = self.session()?;
        self.cluster.with(|state| {
            state.sessions.remove(&session);
            state.forget();
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_keeps_the_promises_of_an_engine() {
        let ttl = Duration::from_secs(15);
        let cluster = MemoryCluster::new(ttl);
        super::super::promises::check(|| cluster.link().0, ttl, TICK * 40).await;
    }
}
