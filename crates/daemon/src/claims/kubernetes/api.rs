//! Requests to the API server for the Leases of one fleet.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use form_urlencoded::byte_serialize;
use hyper::Method;
use serde_json::Value;
use tokio::time::timeout;

use super::super::engine::EngineError;
use super::super::http::{Endpoint, Link, Reply};
use super::object::{FLEET, KIND, MEMBER};

/// Objects in one answer: a page of a few hundred kilobytes.
const PAGE: &str = "500";

/// The objects of a list, and where a watch for later changes begins.
pub(super) type ListedLeases = (Vec<Value>, String);

#[derive(Debug)]
pub(super) struct Api {
    endpoints: Vec<Endpoint>,
    /// `/apis/…/leases`
    path: String,
    /// Selector of the fleet's objects, as it stands in a query.
    selector: String,
    token_file: Option<PathBuf>,
    /// The longest wait for one answer.
    limit: Duration,
    /// The server that answered last.
    current: AtomicUsize,
}

/// A refusal by the API server, or no answer at all (status 0).
#[derive(Debug)]
pub(super) struct ApiFailure {
    pub(super) status: u16,
    text: String,
}

impl ApiFailure {
    pub(super) const CONFLICT: u16 = 409;
    pub(super) const GONE: u16 = 410;
    pub(super) const NOT_FOUND: u16 = 404;

    pub(super) fn away(why: &dyn fmt::Display) -> Self {
        Self { status: 0, text: why.to_string() }
    }

    /// Later, or from another server, the answer may be another one.
    fn is_transient(&self) -> bool {
        matches!(self.status, 0 | 408 | 429 | 500..)
    }

    async fn of(reply: Reply) -> Self {
        let status = reply.status;
        let body = reply.text().await.unwrap_or_default();
        let said: Value = serde_json::from_str(&body).unwrap_or_default();
        let why = said["message"].as_str().map_or_else(String::new, |why| format!(": {why}"));
        Self { status, text: format!("HTTP status {status}{why}") }
    }
}

impl From<ApiFailure> for EngineError {
    fn from(failure: ApiFailure) -> Self {
        let ApiFailure { status, text } = &failure;
        match status {
            // The kubelet renews tokens; the next request reads the file again.
            401 => Self::Refused(format!(
                "claims.token_file: {text}; is this a token of the cluster, and still valid?"
            )),
            403 => Self::Refused(format!(
                "claims.engine: {text}; grant get, list, watch, create, update and delete on leases \
                 (coordination.k8s.io) in claims.namespace"
            )),
            404 => Self::Refused(format!("claims.namespace: {text}; create the namespace")),
            _ if failure.is_transient() => Self::Away(failure.text),
            409 | 410 => Self::Away(failure.text),
            _ => Self::Refused(format!("claims.engine: the API server refuses a Lease: {text}")),
        }
    }
}

impl Api {
    pub(super) fn new(
        endpoints: Vec<Endpoint>,
        namespace: &str,
        prefix: &str,
        token_file: Option<PathBuf>,
        limit: Duration,
    ) -> Self {
        Self {
            endpoints,
            path: format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"),
            selector: format!("{FLEET}={prefix}"),
            token_file,
            limit,
            current: AtomicUsize::new(0),
        }
    }

    /// # Errors
    /// See [`ApiFailure`].
    pub(super) async fn get(&self, object: &str) -> Result<Value, ApiFailure> {
        self.call(Method::GET, &format!("{}/{object}", self.path), None).await
    }

    pub(super) async fn create(&self, lease: &Value) -> Result<Value, ApiFailure> {
        self.call(Method::POST, &self.path, Some(lease)).await
    }

    /// Fails with [`ApiFailure::CONFLICT`] unless the object has still the version that `lease` names.
    pub(super) async fn update(&self, lease: &Value) -> Result<Value, ApiFailure> {
        let object = lease["metadata"]["name"].as_str().unwrap_or_default();
        self.call(Method::PUT, &format!("{}/{object}", self.path), Some(lease)).await
    }

    pub(super) async fn delete(
        &self,
        object: &str,
        preconditions: &Value,
    ) -> Result<(), ApiFailure> {
        let path = format!("{}/{object}", self.path);
        self.call(Method::DELETE, &path, Some(preconditions)).await.map(drop)
    }

    /// All objects of the fleet, or its members; the pages show one moment.
    pub(super) async fn list(&self, members_only: bool) -> Result<ListedLeases, ApiFailure> {
        let selector = match members_only {
            true => format!("{},{KIND}={MEMBER}", self.selector),
            false => self.selector.clone(),
        };
        let (mut objects, mut next) = (Vec::new(), String::new());
        loop {
            let query = [("labelSelector", &*selector), ("limit", PAGE), ("continue", &next)];
            let mut page = self.call(Method::GET, &self.query(&query), None).await?;
            if let Value::Array(items) = page["items"].take() {
                objects.extend(items);
            }
            let field = |name: &str| page["metadata"][name].as_str().unwrap_or_default().to_owned();
            next = field("continue");
            if next.is_empty() {
                return Ok((objects, field("resourceVersion")));
            }
        }
    }

    /// Changes after `position`, one a line.
    pub(super) async fn watch(&self, position: &str, seconds: u64) -> Result<Reply, ApiFailure> {
        let query = [
            ("labelSelector", &*self.selector),
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", position),
            ("timeoutSeconds", &seconds.to_string()),
        ];
        self.open(&Method::GET, &self.query(&query), None).await
    }

    fn query(&self, fields: &[(&str, &str)]) -> String {
        let field = |(name, value): &(&str, &str)| {
            format!("{name}={}", byte_serialize(value.as_bytes()).collect::<String>())
        };
        let fields: Vec<String> = fields.iter().map(field).collect();
        format!("{}?{}", self.path, fields.join("&"))
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ApiFailure> {
        let answer = async { parse(self.open(&method, path, body).await?).await };
        let late = |_| Err(ApiFailure::away(&format!("no answer in {:?}", self.limit)));
        timeout(self.limit, answer).await.unwrap_or_else(late)
    }

    /// Sends a request to one server after the other, until one decides.
    async fn open(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, ApiFailure> {
        let token = self.token().await?;
        let headers: Vec<_> = token.iter().map(|token| ("authorization", token.as_str())).collect();
        let first = self.current.load(Ordering::Relaxed);
        // The first one may swallow everything; the others need time too.
        let limit = self.limit / u32::try_from(self.endpoints.len().max(1)).unwrap_or(1);
        let mut failure = ApiFailure::away(&"no server");
        for attempt in 0..self.endpoints.len() {
            let number = (first + attempt) % self.endpoints.len();
            let endpoint = &self.endpoints[number];
            let sent = endpoint.send(method.clone(), path, &headers, body);
            failure = match timeout(limit, sent).await {
                Ok(Ok(reply)) if (200..300).contains(&reply.status) => {
                    self.current.store(number, Ordering::Relaxed);
                    return Ok(reply);
                }
                Ok(Ok(reply)) => ApiFailure::of(reply).await,
                Ok(Err(error)) => ApiFailure::away(&error),
                Err(_) => ApiFailure::away(&"no answer"),
            };
            failure.text = format!("{endpoint:?}: {}", failure.text);
            if !failure.is_transient() {
                break;
            }
        }
        Err(failure)
    }

    /// A connection for many requests, to the server that answered last.
    pub(super) async fn line(&self) -> Result<ApiConnection<'_>, ApiFailure> {
        let token = self.token().await?;
        let endpoint = &self.endpoints[self.current.load(Ordering::Relaxed)];
        let link = match timeout(self.limit, endpoint.link()).await {
            Ok(Ok(link)) => link,
            Ok(Err(error)) => return Err(ApiFailure::away(&format!("{endpoint:?}: {error}"))),
            Err(_) => return Err(ApiFailure::away(&format!("{endpoint:?}: no answer"))),
        };
        Ok(ApiConnection { api: self, token, link })
    }

    /// The token as its file has it at the moment.
    async fn token(&self) -> Result<Option<String>, ApiFailure> {
        let Some(path) = &self.token_file else { return Ok(None) };
        match tokio::fs::read_to_string(path).await {
            Ok(token) => Ok(Some(format!("Bearer {}", token.trim()))),
            Err(error) => {
                Err(ApiFailure::away(&format!("claims.token_file: {}: {error}", path.display())))
            }
        }
    }
}

/// A connection for one request after another.
#[derive(Debug)]
pub(super) struct ApiConnection<'a> {
    api: &'a Api,
    token: Option<String>,
    link: Link,
}

impl ApiConnection<'_> {
    /// One request; `object` is the last part of the path, if any.
    pub(super) async fn call(
        &mut self,
        method: Method,
        object: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Value, ApiFailure> {
        let path = match object {
            Some(object) => format!("{}/{object}", self.api.path),
            None => self.api.path.clone(),
        };
        let headers: Vec<_> =
            self.token.iter().map(|token| ("authorization", token.as_str())).collect();
        let answer = async {
            let reply = self.link.send(method, &path, &headers, body).await;
            match reply.map_err(|error| ApiFailure::away(&error))? {
                reply if (200..300).contains(&reply.status) => parse(reply).await,
                reply => Err(ApiFailure::of(reply).await),
            }
        };
        let late = |_| Err(ApiFailure::away(&"no answer"));
        timeout(self.api.limit, answer).await.unwrap_or_else(late)
    }
}

async fn parse(reply: Reply) -> Result<Value, ApiFailure> {
    let text = reply.text().await.map_err(|error| ApiFailure::away(&error))?;
    serde_json::from_str(&text).map_err(|error| ApiFailure::away(&error))
}
