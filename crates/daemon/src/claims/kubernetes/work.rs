//! Claims and releases of many channels: one request each, eight at a time over connections that stay open
//! meanwhile.

use std::collections::VecDeque;

use hyper::Method;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::super::engine::EngineError;
use super::api::{ApiConnection, ApiFailure};
use super::object::{ClaimLease, LeaseSession, Object, Version, read};
use super::observed::ClaimStanding;
use super::{ATTEMPTS, Kubernetes, now};

/// Channels that are left to do, and the outcome so far.
#[derive(Debug)]
struct Batch<T> {
    left: Mutex<VecDeque<T>>,
    done: Mutex<Vec<String>>,
    failure: Mutex<Option<EngineError>>,
    /// Nothing begins after this.
    until: Instant,
}

impl<T> Batch<T> {
    fn new(left: impl Iterator<Item = T>, until: Instant) -> Self {
        Self {
            left: Mutex::new(left.collect()),
            done: Mutex::default(),
            failure: Mutex::default(),
            until,
        }
    }

    fn next(&self) -> Option<T> {
        let may = Instant::now() < self.until && self.failure.lock().is_none();
        may.then(|| self.left.lock().pop_front()).flatten()
    }

    fn failed(&self, failure: ApiFailure) {
        self.failure.lock().get_or_insert(failure.into());
    }
}

/// Runs this future eight times at once, as part of the task that calls; to be boxed, as eight are large.
macro_rules! eight {
    ($work:expr) => {
        tokio::join!($work, $work, $work, $work, $work, $work, $work, $work)
    };
}

impl Kubernetes {
    pub(super) async fn claim_each(
        &self,
        channels: &[String],
        session: &LeaseSession,
    ) -> Result<Vec<String>, EngineError> {
        let batch = {
            let state = self.state.lock();
            let now = Instant::now();
            let free = channels.iter().filter_map(|channel| {
                match state.observed.standing(channel, session, now) {
                    ClaimStanding::Free(over) => Some((channel, over)),
                    ClaimStanding::Taken => None,
                }
            });
            Batch::new(free, now + self.ttl / 5)
        };
        let work = async || {
            let mut line = None;
            while let Some((channel, over)) = batch.next() {
                match self.claim_one(&mut line, channel, session, over).await {
                    Ok(true) => batch.done.lock().push(channel.clone()),
                    Ok(false) => {}
                    Err(failure) => batch.failed(failure),
                }
            }
        };
        let is_late = timeout(self.ttl * 3 / 10, Box::pin(async { eight!(work()) })).await.is_err();
        let (done, failure) = (batch.done.into_inner(), batch.failure.into_inner());
        let has_more = is_late || failure.is_some() || !batch.left.into_inner().is_empty();
        self.state.lock().has_more |= has_more;
        match failure {
            Some(failure) if done.is_empty() => Err(failure),
            // The next look shows the others.
            _ => Ok(channels.iter().filter(|channel| done.contains(channel)).cloned().collect()),
        }
    }

    async fn claim_one<'a>(
        &'a self,
        line: &mut Option<ApiConnection<'a>>,
        channel: &str,
        session: &LeaseSession,
        over: Option<Version>,
    ) -> Result<bool, ApiFailure> {
        let line = self.lined(line).await?;
        let lease = self.names.claim_lease(channel, session, &now(), over.as_ref());
        let object = self.names.claim(channel);
        let written = match over {
            Some(_) => line.call(Method::PUT, Some(&object), Some(&lease)).await,
            None => line.call(Method::POST, None, Some(&lease)).await,
        };
        let answer = match written {
            // Another one was faster, or the answer to an earlier attempt of this session was lost. It has been
            // deleted (404) after a release, or by whoever cleans up.
            Err(ApiFailure { status: ApiFailure::CONFLICT, .. }) => {
                line.call(Method::GET, Some(&object), None).await
            }
            written => written,
        };
        let value = match answer {
            Err(ApiFailure { status: ApiFailure::NOT_FOUND, .. }) => {
                self.note_claim(channel, None);
                self.state.lock().has_more = true;
                return Ok(false);
            }
            answer => answer?,
        };
        let claim = claim_of(&value, channel);
        let is_own = claim.as_ref().is_some_and(|claim| claim.session == *session);
        self.note_claim(channel, claim);
        Ok(is_own)
    }

    pub(super) async fn release_each(
        &self,
        channels: &[String],
        session: &LeaseSession,
    ) -> Result<(), EngineError> {
        let batch = Batch::new(channels.iter(), Instant::now() + self.ttl / 5);
        let work = async || {
            let mut line = None;
            while let Some(channel) = batch.next() {
                if let Err(failure) = self.release_one(&mut line, channel, session).await {
                    batch.failed(failure);
                }
            }
        };
        let is_late = timeout(self.ttl * 3 / 10, Box::pin(async { eight!(work()) })).await.is_err();
        match (batch.failure.into_inner(), is_late || !batch.left.into_inner().is_empty()) {
            (Some(failure), _) => Err(failure),
            (None, true) => Err(EngineError::Away("the API server is slow".to_owned())),
            (None, false) => Ok(()),
        }
    }

    async fn release_one<'a>(
        &'a self,
        line: &mut Option<ApiConnection<'a>>,
        channel: &str,
        session: &LeaseSession,
    ) -> Result<(), ApiFailure> {
        let line = self.lined(line).await?;
        let object = self.names.claim(channel);
        let mut known = {
            let state = self.state.lock();
            state.observed.held(channel, session).map(|claim| claim.version.clone())
        };
        for _ in 0..ATTEMPTS {
            if let Some(version) = known.take() {
                let gone =
                    line.call(Method::DELETE, Some(&object), Some(&version.deletion())).await;
                match gone {
                    Ok(_) => {
                        self.note_claim(channel, None);
                        return Ok(());
                    }
                    Err(ApiFailure {
                        status: ApiFailure::CONFLICT | ApiFailure::NOT_FOUND,
                        ..
                    }) => {}
                    Err(failure) => return Err(failure),
                }
            }
            let found = match line.call(Method::GET, Some(&object), None).await {
                Err(ApiFailure { status: ApiFailure::NOT_FOUND, .. }) => None,
                found => claim_of(&found?, channel),
            };
            let own = found.as_ref().filter(|claim| claim.session.identity() == session.identity());
            known = own.map(|claim| claim.version.clone());
            self.note_claim(channel, found);
            if known.is_none() {
                return Ok(());
            }
        }
        Err(ApiFailure::away(&format!("the Lease {object} changes all the time")))
    }

    /// Returns the connection of one who works, opened with the first request.
    async fn lined<'a, 'b>(
        &'a self,
        line: &'b mut Option<ApiConnection<'a>>,
    ) -> Result<&'b mut ApiConnection<'a>, ApiFailure> {
        match line {
            Some(line) => Ok(line),
            None => Ok(line.insert(self.api.line().await?)),
        }
    }

    fn note_claim(&self, channel: &str, claim: Option<ClaimLease>) {
        self.answered();
        self.state.lock().observed.claim(channel, claim);
    }
}

/// The channel's claim in an answer; `None` for an object of something else.
fn claim_of(value: &Value, channel: &str) -> Option<ClaimLease> {
    match read(value) {
        Ok(Object::Claim(claim)) if claim.channel == channel => Some(claim),
        _ => None,
    }
}
