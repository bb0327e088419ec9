//! Claims in Lease objects of Kubernetes. A member renews one Lease; each claimed channel has another, which is
//! written when the channel changes hands. Every write names the version that it replaces.
//!
//! A session ends when its Lease is deleted or replaced in the version in which it was seen unchanged for too
//! long. A member that returns after that can't renew any more, and only then are its claims free
//! ([`observed`]).

mod api;
#[cfg(test)]
pub(super) mod fake;
mod object;
mod observed;
#[cfg(test)]
mod tests;
mod work;

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use csa_provider::binlog::Uuid;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use self::api::{Api, ApiFailure};
use self::object::{LeaseSession, MemberLease, Object, ObjectNames, Version, read};
use self::observed::Observed;
use super::engine::{Engine, EngineError, Fleet, Member};
use super::http::Endpoint;

/// Attempts to write an object of which only this daemon writes new versions, unless its session has ended.
const ATTEMPTS: usize = 3;
/// Everything is listed this often, though the watch has told all changes.
const RELIST: Duration = Duration::from_secs(600);
/// The time without another change after which all changes of one event are known: a daemon that starts claims
/// many channels.
const QUIET: Duration = Duration::from_millis(50);
/// Claims that nobody will take over, deleted with each look.
const ORPHANS: usize = 20;

/// A cluster, and the fleet's place in it.
#[derive(Debug)]
pub struct KubernetesOptions {
    /// API servers of the cluster.
    pub endpoints: Vec<Endpoint>,
    pub namespace: String,
    /// Of all objects' names, and the fleet's label.
    pub prefix: String,
    pub ttl: Duration,
    /// The account's token, read again for each request; `None` where the endpoints' certificate is the account.
    pub token_file: Option<PathBuf>,
}

/// A fleet's claims in Leases.
#[derive(Debug)]
pub struct Kubernetes {
    ttl: Duration,
    names: ObjectNames,
    api: Api,
    /// The own Lease; whoever writes it holds the lock.
    own: tokio::sync::Mutex<Option<Own>>,
    state: Mutex<LeasesState>,
}

#[derive(Debug)]
struct Own {
    session: LeaseSession,
    member: Member,
    version: Version,
}

#[derive(Debug)]
struct LeasesState {
    /// The session, and when the request was sent that renewed it last.
    session: Option<(LeaseSession, Instant)>,
    observed: Observed,
    listed: Option<Instant>,
    /// A watch has told the changes of claims since the last look.
    is_watched: bool,
    /// Not all that was asked for could be claimed in the time: the next look is due.
    has_more: bool,
}

impl Kubernetes {
    #[must_use]
    pub fn new(options: KubernetesOptions) -> Self {
        let KubernetesOptions { endpoints, namespace, prefix, ttl, token_file } = options;
        let state = LeasesState {
            session: None,
            observed: Observed::new(ttl),
            listed: None,
            is_watched: false,
            has_more: false,
        };
        Self {
            ttl,
            api: Api::new(endpoints, &namespace, &prefix, token_file, ttl / 5),
            names: ObjectNames { prefix },
            own: tokio::sync::Mutex::default(),
            state: Mutex::new(state),
        }
    }

    /// Limits the work to less than a third of the time to live.
    async fn limited<T>(
        &self,
        work: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let limit = self.ttl * 3 / 10;
        let late = |_| Err(EngineError::Away(format!("no answer in {limit:?}")));
        timeout(limit, work).await.unwrap_or_else(late)
    }

    /// The API server has just answered.
    fn answered(&self) -> Instant {
        let now = Instant::now();
        self.state.lock().observed.answered(now);
        now
    }

    fn session(&self) -> Option<LeaseSession> {
        self.state.lock().session.as_ref().map(|(session, _)| session.clone())
    }

    /// Returns the session, if its time has not run out by this daemon's own clock, whatever others have seen.
    fn sure_session(&self) -> Result<LeaseSession, EngineError> {
        let state = self.state.lock();
        let sure = state.session.as_ref().filter(|(_, renewed)| renewed.elapsed() < self.ttl);
        sure.map(|(session, _)| session.clone()).ok_or(EngineError::SessionEnded)
    }

    /// Writes the own Lease as it should be, which renews it.
    async fn write_own(&self, own: &mut Option<Own>) -> Result<(), EngineError> {
        for _ in 0..ATTEMPTS {
            let Own { session, member, version } = own.as_mut().ok_or(EngineError::SessionEnded)?;
            let sent = Instant::now();
            let lease = self.member_lease(member, session, Some(version));
            match self.api.update(&lease).await {
                Ok(written) => {
                    *version = member_of(&written)?.version;
                    let session = session.clone();
                    self.answered();
                    self.state.lock().session = Some((session, sent));
                    return Ok(());
                }
                // Another version: an answer was lost, somebody has edited it, or it is another session's.
                Err(ApiFailure { status: ApiFailure::CONFLICT, .. }) => {
                    match self.api.get(&version.object).await {
                        Ok(found) => match member_of(&found)? {
                            found if found.session == *session => *version = found.version,
                            _ => return Err(self.end(own)),
                        },
                        Err(ApiFailure { status: ApiFailure::NOT_FOUND, .. }) => {
                            return Err(self.end(own));
                        }
                        Err(failure) => return Err(failure.into()),
                    }
                }
                Err(ApiFailure { status: ApiFailure::NOT_FOUND, .. }) => return Err(self.end(own)),
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(EngineError::Away("the member's Lease changes all the time".to_owned()))
    }

    fn end(&self, own: &mut Option<Own>) -> EngineError {
        *own = None;
        self.state.lock().session = None;
        EngineError::SessionEnded
    }

    fn member_lease(
        &self,
        member: &Member,
        session: &LeaseSession,
        over: Option<&Version>,
    ) -> Value {
        self.names.member_lease(member, session, self.ttl.as_secs().max(1), &now(), over)
    }

    /// Returns the version that a new session of this member replaces, if there is one.
    async fn replaceable(&self, member: &Member) -> Result<Option<Version>, EngineError> {
        let sent = Instant::now();
        let found = match self.api.get(&self.names.member(&member.name)).await {
            Ok(found) => member_of(&found)?,
            Err(ApiFailure { status: ApiFailure::NOT_FOUND, .. }) => return Ok(None),
            Err(failure) => return Err(failure.into()),
        };
        let received = self.answered();
        let identity = LeaseSession::new(member, "");
        if found.name != member.name {
            return Err(EngineError::Refused(format!(
                "claims.name: the Lease {} belongs to {:?}; set another name",
                found.version.object, found.name
            )));
        }
        if found.session.identity() == identity.identity() {
            return Ok(Some(found.version));
        }
        let overdue = {
            let observed = &mut self.state.lock().observed;
            observed.member(found.clone(), received);
            observed.overdue(None, sent)
        };
        match overdue.iter().any(|lease| lease.version == found.version) {
            true => Ok(Some(found.version)),
            false => Err(EngineError::Refused(format!(
                "claims.name: another daemon is in the fleet as {:?}; set another name, or wait {:?} if it was \
                 this one with another state_dir",
                member.name,
                self.ttl * 11 / 10
            ))),
        }
    }

    async fn begin(&self, own: &mut Option<Own>, member: &Member) -> Result<(), EngineError> {
        let over = self.replaceable(member).await?;
        let session = LeaseSession::new(member, &Uuid::new_v4().simple().to_string());
        let sent = Instant::now();
        let lease = self.member_lease(member, &session, over.as_ref());
        let written = match &over {
            Some(_) => self.api.update(&lease).await,
            None => self.api.create(&lease).await,
        };
        let version = member_of(&written?)?.version;
        self.answered();
        self.state.lock().session = Some((session.clone(), sent));
        *own = Some(Own { session, member: member.clone(), version });
        Ok(())
    }

    /// Brings what is known of the fleet up to date.
    async fn refresh(&self) -> Result<Instant, EngineError> {
        let must_list = {
            let state = self.state.lock();
            let is_recent = state.listed.is_some_and(|listed| listed.elapsed() < RELIST);
            state.observed.position.is_none() || !state.is_watched || !is_recent
        };
        let sent = Instant::now();
        let (values, position) = self.api.list(!must_list).await?;
        let received = self.answered();
        let objects = values.iter().filter_map(|value| match read(value) {
            Ok(object) => Some(object),
            Err(why) => {
                warn!(why, "not a Lease of the fleet as this version knows them: left out");
                None
            }
        });
        let mut state = self.state.lock();
        (state.has_more, state.is_watched) = (false, false);
        if must_list {
            state.observed.all(objects.collect(), position, received);
            state.listed = Some(received);
        } else {
            let member = |object| match object {
                Object::Member(lease) => Some(lease),
                Object::Claim(_) => None,
            };
            state.observed.members(objects.filter_map(member).collect(), received);
        }
        Ok(sent)
    }

    /// Ends the sessions of members that have not renewed them in time. What `sent` proves, see [`Observed`].
    async fn fence(&self, own: &LeaseSession, sent: Instant) -> Result<(), EngineError> {
        let overdue = self.state.lock().observed.overdue(Some(own), sent);
        for lease in overdue {
            let deleted = self.api.delete(&lease.version.object, &lease.version.deletion()).await;
            match deleted {
                Err(ApiFailure { status: ApiFailure::CONFLICT, .. }) => {
                    let now = self.answered();
                    self.state.lock().observed.spared(&lease, now);
                }
                Ok(()) | Err(ApiFailure { status: ApiFailure::NOT_FOUND, .. }) => {
                    if deleted.is_ok() {
                        warn!(
                            daemon = lease.name,
                            "it has not renewed its session; its claims are free"
                        );
                    }
                    self.state.lock().observed.ended(&lease);
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(())
    }

    /// Deletes some claims that nobody will take over.
    async fn clean(&self) {
        let orphans = self.state.lock().observed.orphans(Instant::now(), ORPHANS);
        for claim in orphans {
            // Another daemon may have deleted it, or the channel may have come back.
            if self.api.delete(&claim.version.object, &claim.version.deletion()).await.is_ok() {
                info!(claim.channel, "deleted the claim of a session that has ended");
                self.state.lock().observed.claim(&claim.channel, None);
            }
        }
    }

    /// Takes a line of a watch; true if the fleet has changed.
    fn noted(&self, line: &str) -> bool {
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        let received = self.answered();
        let kind = event["type"].as_str().unwrap_or_default();
        let observed = &mut self.state.lock().observed;
        let position = event["object"]["metadata"]["resourceVersion"].as_str();
        let Some(position) = position.filter(|_| kind != "ERROR") else {
            // Most often the position is too old (410).
            observed.position = None;
            return true;
        };
        observed.position = Some(position.to_owned());
        if kind == "BOOKMARK" {
            return false;
        }
        // One that can't be read is as if it were not there.
        read(&event["object"])
            .is_ok_and(|object| observed.change(object, kind == "DELETED", received))
    }
}

impl Engine for Kubernetes {
    async fn join(&self, member: &Member) -> Result<(), EngineError> {
        self.limited(async {
            let mut own = self.own.lock().await;
            if let Some(own) = own.as_mut() {
                own.member = member.clone();
            }
            match self.write_own(&mut own).await {
                Err(EngineError::SessionEnded) => self.begin(&mut own, member).await,
                written => written,
            }
        })
        .await
    }

    async fn renew(&self) -> Result<(), EngineError> {
        self.limited(async {
            let mut own = self.own.lock().await;
            self.write_own(&mut own).await
        })
        .await
    }

    async fn claim(&self, channels: &[String]) -> Result<Vec<String>, EngineError> {
        let session = self.sure_session()?;
        if self.state.lock().observed.position.is_none() {
            self.limited(self.refresh()).await?;
        }
        let claimed = self.claim_each(channels, &session).await?;
        // However long the answers took: what is claimed in a session that is over is not claimed.
        self.sure_session()?;
        Ok(claimed)
    }

    async fn release(&self, channels: &[String]) -> Result<(), EngineError> {
        let session = self.session().ok_or(EngineError::SessionEnded)?;
        self.release_each(channels, &session).await
    }

    async fn look(&self) -> Result<Fleet, EngineError> {
        let own = self.session();
        self.limited(async {
            let sent = self.refresh().await?;
            // Whoever is no member ends nobody's session.
            if let Some(own) = &own {
                self.fence(own, sent).await?;
            }
            Ok(())
        })
        .await?;
        if own.is_some() {
            // What is left can wait for the next look, and must not make this one fail.
            let _ = timeout(self.ttl / 40, self.clean()).await;
        }
        Ok(self.state.lock().observed.fleet(own.as_ref(), Instant::now()))
    }

    async fn changed(&self) -> Result<(), EngineError> {
        let own = self.session();
        let (position, is_due) = {
            let state = self.state.lock();
            (state.observed.position.clone(), state.has_more)
        };
        let Some(position) = position.filter(|_| !is_due) else { return Ok(()) };
        // The keeper looks after the time to live at the latest, and begins another watch.
        let opened = self.api.watch(&position, self.ttl.as_secs().max(1) * 2).await;
        let mut changes = match opened {
            Err(ApiFailure { status: ApiFailure::GONE, .. }) => {
                self.state.lock().observed.position = None;
                return Ok(());
            }
            opened => opened?,
        };
        self.answered();
        self.state.lock().is_watched = true;
        // After the first change: until no more come, but not for long.
        let mut last: Option<Instant> = None;
        loop {
            let overdue = self.state.lock().observed.first_overdue(own.as_ref());
            let quiet = last.map(|last| last.min(Instant::now() + QUIET));
            let wakes = [overdue, quiet].into_iter().flatten().min();
            let woken = async {
                match wakes {
                    Some(wakes) => sleep_until(wakes).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                line = changes.line() => match line {
                    Ok(Some(line)) if self.noted(&line) => {
                        last.get_or_insert_with(|| Instant::now() + QUIET * 10);
                    }
                    Ok(Some(_)) => {}
                    // The next look shows the change, or the trouble.
                    _ if last.is_some() => return Ok(()),
                    Ok(None) => return Err(EngineError::Away("the watch has ended".to_owned())),
                    Err(error) => return Err(EngineError::Away(error.to_string())),
                },
                // All changes are known, or nothing has been heard of a member for too long.
                () = woken => return Ok(()),
            }
        }
    }

    async fn leave(&self) -> Result<(), EngineError> {
        self.limited(async {
            let mut own = self.own.lock().await;
            let Own { session, version, .. } = own.as_ref().ok_or(EngineError::SessionEnded)?;
            let (session, mut version) = (session.clone(), version.clone());
            self.end(&mut own);
            for _ in 0..ATTEMPTS {
                match self.api.delete(&version.object, &version.deletion()).await {
                    Ok(()) | Err(ApiFailure { status: ApiFailure::NOT_FOUND, .. }) => return Ok(()),
                    Err(ApiFailure { status: ApiFailure::CONFLICT, .. }) => {}
                    Err(failure) => return Err(failure.into()),
                }
                match self.api.get(&version.object).await {
                    Err(ApiFailure { status: ApiFailure::NOT_FOUND, .. }) => return Ok(()),
                    found => match member_of(&found?)? {
                        found if found.session == session => version = found.version,
                        _ => return Ok(()),
                    },
                }
            }
            Err(EngineError::Away("the member's Lease changes all the time".to_owned()))
        })
        .await
    }
}

/// Returns a member's Lease from an answer.
fn member_of(value: &Value) -> Result<MemberLease, EngineError> {
    match read(value) {
        Ok(Object::Member(lease)) => Ok(lease),
        Ok(Object::Claim(claim)) => Err(EngineError::Refused(format!(
            "claims.prefix: the Lease {} is a claim",
            claim.version.object
        ))),
        Err(why) => Err(EngineError::Refused(format!(
            "claims.prefix: {why}; delete it, or set another prefix"
        ))),
    }
}

/// Returns the time of day, for people alone.
fn now() -> String {
    format!("{:.6}", Timestamp::now())
}
