//! Claims in etcd, through the JSON gateway that every etcd server has on its client port
//! (<https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/>). A daemon has one lease; its member key
//! `PREFIX/members/NAME` and its claims `PREFIX/claims/CHANNEL` are bound to it.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::Method;
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::warn;

use super::engine::{Claim, Engine, EngineError, Fleet, Member};
use super::http::{Endpoint, Reply};

/// Claims in one request: by default etcd takes 128 operations.
const BATCH: usize = 100;
/// Codes of gRPC, as the gateway reports them.
const NOT_FOUND: u64 = 5;
const UNAUTHENTICATED: u64 = 16;
/// The words of etcd for a token of an earlier state of its accounts, by release, and of a state without accounts.
const OLD_TOKEN: [&str; 3] =
    ["auth store is old", "revision in header is old", "user name is empty"];
/// Those for which another server may have another answer.
const TRANSIENT: [u64; 6] = [1, 4, 8, 10, 13, 14];

/// Servers of one etcd cluster, and the keys that the fleet has there.
#[derive(Debug)]
pub struct EtcdOptions {
    pub endpoints: Vec<Endpoint>,
    /// The prefix of all keys, without a slash at the end.
    pub prefix: String,
    pub ttl: Duration,
    /// User and password.
    pub login: Option<(String, SecretString)>,
}

/// A fleet's claims in etcd.
#[derive(Debug)]
pub struct Etcd {
    options: EtcdOptions,
    state: Mutex<EtcdState>,
}

#[derive(Debug, Default)]
struct EtcdState {
    /// The lease of the session, and the member in it.
    lease: Option<String>,
    member: String,
    /// The revision of the last look.
    revision: i64,
    token: Option<SecretString>,
    /// The server that answered last.
    endpoint: usize,
}

impl Etcd {
    #[must_use]
    pub fn new(options: EtcdOptions) -> Self {
        Self { options, state: Mutex::default() }
    }

    fn key(&self, kind: &str, name: &str) -> String {
        BASE64_STANDARD.encode(format!("{}/{kind}/{name}", self.options.prefix))
    }

    /// Returns all keys of the fleet.
    fn range(&self) -> Value {
        let of = |end: &str| BASE64_STANDARD.encode(format!("{}{end}", self.options.prefix));
        // '0' comes after '/'.
        json!({ "key": of("/"), "range_end": of("0") })
    }

    fn lease(&self) -> Result<String, EngineError> {
        self.state.lock().lease.clone().ok_or(EngineError::SessionEnded)
    }

    /// Sends a request to one server after the other, until one decides.
    async fn call(&self, path: &str, body: &Value) -> Result<Value, EngineError> {
        let limit = self.options.ttl / 4;
        let answer = timeout(limit, async {
            let has_token = self.state.lock().token.is_some();
            if let Some((user, password)) = &self.options.login
                && !has_token
            {
                self.log_in(user, password).await?;
            }
            self.send(path, body).await.map_err(|failure| self.failed(failure))
        });
        answer.await.unwrap_or_else(|_| Err(EngineError::Away(format!("no answer in {limit:?}"))))
    }

    /// Returns the error to show. After one of the token the next attempt logs in again.
    fn failed(&self, failure: EtcdFailure) -> EngineError {
        if self.options.login.is_none() || !failure.is_of_token() {
            return failure.into();
        }
        self.state.lock().token = None;
        EngineError::Away(format!("the token has ended: {}", failure.text))
    }

    async fn log_in(&self, user: &str, password: &SecretString) -> Result<(), EngineError> {
        let login = json!({ "name": user, "password": password.expose_secret() });
        let answer =
            self.send("/v3/auth/authenticate", &login).await.map_err(|failure| match TRANSIENT
                .contains(&failure.code)
            {
                true => EngineError::Away(failure.text),
                false => EngineError::Refused(format!("claims.user: {}", failure.text)),
            })?;
        let token = answer["token"].as_str().unwrap_or_default();
        self.state.lock().token = Some(token.into());
        Ok(())
    }

    async fn send(&self, path: &str, body: &Value) -> Result<Value, EtcdFailure> {
        let reply = self.open(path, body).await?;
        let text = reply.text().await.map_err(|error| EtcdFailure::away(&error))?;
        // A request that could be a stream is answered by a line of its own.
        let line = text.lines().next().unwrap_or_default();
        let mut answer: Value =
            serde_json::from_str(line).map_err(|error| EtcdFailure::away(&error))?;
        Ok(match answer.get_mut("result") {
            Some(result) => result.take(),
            None => answer,
        })
    }

    async fn open(&self, path: &str, body: &Value) -> Result<Reply, EtcdFailure> {
        let (first, token) = {
            let state = self.state.lock();
            (state.endpoint, state.token.clone())
        };
        let token = token.as_ref().map(|token| ("authorization", token.expose_secret()));
        let endpoints = &self.options.endpoints;
        // The first one may swallow everything; the others need time too.
        let limit = self.options.ttl / 5 / u32::try_from(endpoints.len().max(1)).unwrap_or(1);
        let mut failure = EtcdFailure { code: 14, text: "no endpoint".to_owned() };
        let mut said: Vec<String> = Vec::new();
        for attempt in 0..endpoints.len() {
            let number = (first + attempt) % endpoints.len();
            let endpoint = &endpoints[number];
            let sent = endpoint.send(Method::POST, path, token.as_slice(), Some(body));
            failure = match timeout(limit, sent).await {
                Ok(Ok(reply)) if reply.status == 200 => {
                    self.state.lock().endpoint = number;
                    return Ok(reply);
                }
                Ok(Ok(reply)) => EtcdFailure::of(reply).await,
                Ok(Err(error)) => EtcdFailure::away(&error),
                Err(_) => EtcdFailure::away(&"no answer"),
            };
            said.push(format!("{endpoint:?}: {}", failure.text));
            failure.text = said.join("; ");
            if !TRANSIENT.contains(&failure.code) {
                break;
            }
        }
        Err(failure)
    }

    /// Sends these operations as transactions of their own, some at a time; returns which succeeded.
    async fn transactions(&self, each: Vec<Value>) -> Result<Vec<bool>, EngineError> {
        let mut succeeded = Vec::new();
        for batch in each.chunks(BATCH) {
            let batch: Vec<Value> = batch.iter().map(|one| json!({ "request_txn": one })).collect();
            let answer = self.call("/v3/kv/txn", &json!({ "success": batch })).await?;
            let answers = answer["responses"].as_array().cloned().unwrap_or_default();
            succeeded.extend(answers.iter().map(|one| has_succeeded(&one["response_txn"])));
        }
        Ok(succeeded)
    }
}

/// The transaction did what it is for, in one of its branches.
fn has_succeeded(transaction: &Value) -> bool {
    let is_set = |transaction: &Value| transaction["succeeded"].as_bool() == Some(true);
    is_set(transaction) || is_set(&transaction["responses"][0]["response_txn"])
}

impl Engine for Etcd {
    async fn join(&self, member: &Member) -> Result<(), EngineError> {
        if self.lease().is_ok() {
            match self.renew().await {
                Err(EngineError::SessionEnded) => self.state.lock().lease = None,
                renewed => renewed?,
            }
        }
        let key = self.key("members", &member.name);
        let known = self.call("/v3/kv/range", &json!({ "key": key })).await?;
        let known = &known["kvs"][0];
        if is_of_another(known, &member.id) {
            return Err(EngineError::Refused(format!(
                "claims.name: another daemon is in the fleet as {:?}; set another name, or wait {:?} if it \
                 was this one with another state_dir",
                member.name, self.options.ttl
            )));
        }
        if self.lease().is_err() {
            let seconds = self.options.ttl.as_secs().max(1).to_string();
            let granted = self.call("/v3/lease/grant", &json!({ "TTL": seconds })).await?;
            let lease = granted["ID"].as_str().ok_or_else(|| unexpected(&granted))?.to_owned();
            let mut state = self.state.lock();
            state.lease = Some(lease);
            state.member.clone_from(&member.name);
        }
        let value =
            serde_json::to_string(member).map_err(|error| EngineError::Away(error.to_string()))?;
        let value = BASE64_STANDARD.encode(value);
        let seen = known["mod_revision"].as_str().unwrap_or("0");
        let put = json!({ "key": key, "value": value, "lease": self.lease()? });
        let transaction = json!({
            "compare": [{ "key": key, "target": "MOD", "mod_revision": seen }],
            "success": [{ "request_put": put }],
        });
        match self.call("/v3/kv/txn", &transaction).await?["succeeded"].as_bool() {
            Some(true) => Ok(()),
            _ => Err(EngineError::Away("the member changed meanwhile".to_owned())),
        }
    }

    async fn renew(&self) -> Result<(), EngineError> {
        let lease = self.lease()?;
        let answer = self.call("/v3/lease/keepalive", &json!({ "ID": lease })).await?;
        // Without a lease, etcd leaves the time out.
        match answer["TTL"].as_str().is_some_and(|left| left != "0") {
            true => Ok(()),
            false => Err(EngineError::SessionEnded),
        }
    }

    async fn claim(&self, channels: &[String]) -> Result<Vec<String>, EngineError> {
        let lease = self.lease()?;
        let holder = BASE64_STANDARD.encode(&self.state.lock().member);
        let claim = |channel: &String| {
            let key = self.key("claims", channel);
            let put = json!([{ "request_put": { "key": key, "value": holder, "lease": lease } }]);
            let own = json!({
                "compare": [{ "key": key, "target": "VALUE", "value": holder }],
                "success": put,
            });
            json!({
                "compare": [{ "key": key, "target": "CREATE", "create_revision": "0" }],
                "success": put,
                "failure": [{ "request_txn": own }],
            })
        };
        let succeeded = self.transactions(channels.iter().map(claim).collect()).await?;
        let got = channels.iter().zip(succeeded).filter(|(_, succeeded)| *succeeded);
        Ok(got.map(|(channel, _)| channel.clone()).collect())
    }

    async fn release(&self, channels: &[String]) -> Result<(), EngineError> {
        let holder = BASE64_STANDARD.encode(&self.state.lock().member);
        let release = |channel: &String| {
            let key = self.key("claims", channel);
            json!({
                "compare": [{ "key": key, "target": "VALUE", "value": holder }],
                "success": [{ "request_delete_range": { "key": key } }],
            })
        };
        self.transactions(channels.iter().map(release).collect()).await.map(drop)
    }

    async fn look(&self) -> Result<Fleet, EngineError> {
        let answer = self.call("/v3/kv/range", &self.range()).await?;
        let revision = answer["header"]["revision"].as_str().and_then(|text| text.parse().ok());
        let lease = self.lease().ok();
        let mut fleet = Fleet::default();
        let (members, claims) = (
            format!("{}/members/", self.options.prefix),
            format!("{}/claims/", self.options.prefix),
        );
        for pair in answer["kvs"].as_array().into_iter().flatten() {
            let key = text(&pair["key"]).unwrap_or_default();
            if key.starts_with(&members) {
                match decode(&pair["value"]) {
                    Some(member) => fleet.members.push(member),
                    None => warn!(key, "not a member as this version knows them: left out"),
                }
            } else if let Some(channel) = key.strip_prefix(&claims) {
                let is_current = lease.is_some() && pair["lease"].as_str() == lease.as_deref();
                let holder = text(&pair["value"]).unwrap_or_default();
                fleet.claims.insert(channel.to_owned(), Claim { holder, is_current });
            }
        }
        self.state.lock().revision = revision.ok_or_else(|| unexpected(&answer))?;
        Ok(fleet)
    }

    async fn changed(&self) -> Result<(), EngineError> {
        let mut request = self.range();
        let next = self.state.lock().revision + 1;
        request["start_revision"] = next.to_string().into();
        let request = json!({ "create_request": request });
        let mut reply =
            self.open("/v3/watch", &request).await.map_err(|failure| self.failed(failure))?;
        let lost = |error: std::io::Error| EngineError::Away(error.to_string());
        while let Some(line) = reply.line().await.map_err(lost)? {
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            // Anything but the confirmation that the watch exists: events, or the reason why it ended, such
            // as a compaction, after which the next look sees all.
            if event["result"]["created"].as_bool() != Some(true)
                || event["result"].get("events").is_some()
            {
                return Ok(());
            }
        }
        Err(EngineError::Away("the watch has ended".to_owned()))
    }

    async fn leave(&self) -> Result<(), EngineError> {
        let lease = self.lease()?;
        self.state.lock().lease = None;
        self.call("/v3/lease/revoke", &json!({ "ID": lease })).await.map(drop)
    }
}

/// A refusal by etcd, or no answer at all.
#[derive(Debug)]
struct EtcdFailure {
    code: u64,
    text: String,
}

impl EtcdFailure {
    fn away(why: &dyn std::fmt::Display) -> Self {
        Self { code: 14, text: why.to_string() }
    }

    /// Returns true if a new token may be taken. One that etcd signs (`--auth-token=jwt`) ends with each change of users
    /// or roles, and only the text says so.
    fn is_of_token(&self) -> bool {
        self.code == UNAUTHENTICATED || OLD_TOKEN.iter().any(|words| self.text.contains(words))
    }

    async fn of(reply: Reply) -> Self {
        let status = reply.status;
        let body = reply.text().await.unwrap_or_default();
        let said: BTreeMap<String, Value> =
            serde_json::from_str(body.lines().next().unwrap_or_default()).unwrap_or_default();
        let text = ["message", "error"].iter().find_map(|key| said.get(*key)?.as_str());
        let code = said.get("code").and_then(Value::as_u64).unwrap_or(14);
        Self { code, text: text.map_or_else(|| format!("HTTP status {status}"), str::to_owned) }
    }
}

impl From<EtcdFailure> for EngineError {
    fn from(EtcdFailure { code, text }: EtcdFailure) -> Self {
        match code {
            NOT_FOUND if text.contains("lease not found") => Self::SessionEnded,
            code if TRANSIENT.contains(&code) => Self::Away(text),
            _ => Self::Refused(text),
        }
    }
}

fn unexpected(answer: &Value) -> EngineError {
    EngineError::Away(format!("unexpected answer: {answer}"))
}

fn text(value: &Value) -> Option<String> {
    let bytes = BASE64_STANDARD.decode(value.as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

fn decode<T: serde::de::DeserializeOwned>(value: &Value) -> Option<T> {
    serde_json::from_str(&text(value)?).ok()
}

/// Decides by the id alone whether another daemon has the member's key: the rest may be of another version.
fn is_of_another(known: &Value, id: &str) -> bool {
    let there = decode::<Value>(&known["value"]).unwrap_or_default();
    !known.is_null() && there["id"].as_str() != Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_of_another_version_keeps_its_name() {
        let known = |text: &str| json!({ "value": BASE64_STANDARD.encode(text) });
        assert!(!is_of_another(&Value::Null, "1"), "the name is free");
        let member = known(r#"{"name": "a", "id": "1", "form": []}"#);
        assert!(decode::<Member>(&member["value"]).is_none(), "another version wrote it");
        assert!(!is_of_another(&member, "1"));
        assert!(is_of_another(&member, "2"));
        for unreadable in ["", "{", "[]", "7", r#"{"id": 1}"#] {
            assert!(is_of_another(&known(unreadable), "1"), "{unreadable}");
        }
    }
}
