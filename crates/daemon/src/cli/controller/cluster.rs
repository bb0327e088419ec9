//! Requests to the API server, as the service account of the pod.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body, RequestBuilder};

use crate::config::{api_server_of_pod, tls_client};
use crate::host::{Failure, tls_agent};

/// Without a byte for this long the API server counts as away. A watch ends earlier, as it asks for.
const SILENCE: Duration = Duration::from_secs(30);

/// The API server, and the namespace of the pod.
#[derive(Debug)]
pub(super) struct Cluster {
    trust: Mutex<Trust>,
    /// The file of the authorities.
    ca: PathBuf,
    base: String,
    token: PathBuf,
    namespace: String,
}

/// The client, and the authorities that it trusts, as they are in the file.
#[derive(Debug)]
struct Trust {
    agent: Agent,
    authorities: Vec<u8>,
}

/// A request that was not answered as expected.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(super) struct ClusterError {
    /// The answer, if there was one.
    pub(super) status: Option<u16>,
    why: String,
}

impl ClusterError {
    fn new(why: String) -> Self {
        Self { status: None, why }
    }
}

impl Cluster {
    /// # Errors
    /// There is no server, or the account's files can't be read.
    pub(super) fn new(server: Option<&str>, account: &Path) -> Result<Self, Failure> {
        let base = match server {
            Some(server) => server.to_owned(),
            None => api_server_of_pod().map_err(|missing| {
                Failure::Input(format!(
                    "the environment has no {missing}: run in a pod, or give --server"
                ))
            })?,
        };
        let path = account.join("namespace");
        let namespace = fs::read_to_string(&path).map_err(|error| {
            Failure::Input(format!(
                "{}: {error}; is a service account's token mounted there?",
                path.display()
            ))
        })?;
        let ca = account.join("ca.crt");
        let trust = Mutex::new(trust(&base, &ca)?);
        let namespace = namespace.trim().to_owned();
        Ok(Self { trust, ca, base, token: account.join("token"), namespace })
    }

    /// Returns a server without TLS.
    #[cfg(test)]
    pub(super) fn of_test(address: &str, token: PathBuf) -> Self {
        let trust = Trust { agent: crate::host::agent(None), authorities: Vec::new() };
        let (trust, base) = (Mutex::new(trust), format!("http://{address}"));
        Self { trust, ca: PathBuf::new(), base, token, namespace: "default".to_owned() }
    }

    /// Returns the path of an object of the pod's namespace.
    pub(super) fn path(&self, group: &str, rest: &str) -> String {
        format!("/{group}/namespaces/{}/{rest}", self.namespace)
    }

    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClusterError> {
        let request = self.headers(self.agent().get(format!("{}{path}", self.base)))?;
        self.parse(path, request.call())
    }

    /// Changes the fields that `body` names (RFC 7386).
    pub(super) fn merge(&self, path: &str, body: &Value) -> Result<(), ClusterError> {
        let request = self.headers(self.agent().patch(format!("{}{path}", self.base)))?;
        let request = request.header("content-type", "application/merge-patch+json");
        self.parse::<Value>(path, request.send(body.to_string())).map(drop)
    }

    /// Calls `is_enough` for each change as it comes, until it says so or the server ends the watch after `seconds`.
    pub(super) fn watch(
        &self,
        path: &str,
        seconds: u32,
        mut is_enough: impl FnMut(&Value) -> bool,
    ) -> Result<(), ClusterError> {
        let uri = format!("{}{path}&watch=1&timeoutSeconds={seconds}", self.base);
        let answer = self.headers(self.agent().get(uri))?.call();
        let body = self.accepted(path, answer)?.into_body();
        for line in BufReader::new(body.into_with_config().limit(u64::MAX).reader()).lines() {
            let line = line.map_err(|error| ClusterError::new(format!("{path}: {error}")))?;
            let change = serde_json::from_str(&line)
                .map_err(|error| ClusterError::new(format!("{path}: {error}")))?;
            if is_enough(&change) {
                break;
            }
        }
        Ok(())
    }

    /// Returns a client that trusts the authorities in the file: the cluster renews them. Half of a renewal leaves the
    /// last ones in use.
    fn agent(&self) -> Agent {
        let mut last = self.trust.lock();
        if fs::read(&self.ca).is_ok_and(|now| now != last.authorities)
            && let Ok(renewed) = trust(&self.base, &self.ca)
        {
            *last = renewed;
        }
        last.agent.clone()
    }

    /// The token is read each time, because the kubelet renews it.
    fn headers<B>(&self, request: RequestBuilder<B>) -> Result<RequestBuilder<B>, ClusterError> {
        let token = fs::read_to_string(&self.token)
            .map_err(|error| ClusterError::new(format!("{}: {error}", self.token.display())))?;
        Ok(request.header("authorization", format!("Bearer {}", token.trim())))
    }

    fn parse<T: DeserializeOwned>(
        &self,
        path: &str,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<T, ClusterError> {
        let mut answer = self.accepted(path, answer)?;
        let wrong = |error: &dyn std::fmt::Display| ClusterError::new(format!("{path}: {error}"));
        let text = answer.body_mut().with_config().limit(u64::MAX).read_to_string();
        serde_json::from_str(&text.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))
    }

    fn accepted(
        &self,
        path: &str,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>, ClusterError> {
        let mut answer =
            answer.map_err(|error| ClusterError::new(format!("{}{path}: {error}", self.base)))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let text = answer.body_mut().read_to_string().unwrap_or_default();
        let said: Value = serde_json::from_str(&text).unwrap_or_default();
        let why = said["message"].as_str().unwrap_or("no message");
        let why = format!("{path}: HTTP {status}: {why}");
        Err(ClusterError { status: Some(status.as_u16()), why })
    }
}

fn trust(base: &str, ca: &Path) -> Result<Trust, Failure> {
    // Before the parsing: what comes between the two counts as a change.
    let authorities = fs::read(ca)
        .map_err(|error| Failure::Input(format!("--account: {}: {error}", ca.display())))?;
    let tls = tls_client("--account", ca)?.with_no_client_auth();
    Ok(Trust { agent: tls_agent("--server", base, tls, Some(SILENCE))?, authorities })
}

#[cfg(test)]
mod tests;
