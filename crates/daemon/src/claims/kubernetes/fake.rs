//! An API server for Leases in this process, with the versions, preconditions, selectors, pages and watches of
//! the real one, and with faults on demand. It serves HTTP on links in memory, so that tests run in virtual
//! time.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::super::http::{Dial, Endpoint};
use super::{Kubernetes, KubernetesOptions};

/// Objects in a page, however many are asked for, so that tests have several.
const PAGE: usize = 7;
/// The latency of a request, so that those of several members overlap.
const LATENCY: Duration = Duration::from_millis(2);

/// The trouble with one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Refused with this status.
    Status(u16),
    /// It takes effect, and the connection is lost before the answer.
    CutAfter,
    /// Time passes before it takes effect.
    Late(Duration),
    /// It takes effect, and the answer takes time.
    SlowAnswer(Duration),
}

#[derive(Debug)]
struct Fault {
    method: Method,
    /// Part of the path and query.
    part: String,
    trouble: Trouble,
}

#[derive(Debug, Default)]
struct Store {
    objects: BTreeMap<String, Value>,
    revision: u64,
    /// All changes: kind, and the object as it is after that (or was before it was deleted).
    changes: Vec<(u64, &'static str, Value)>,
    /// Changes up to this one are forgotten.
    compacted: u64,
    /// The rest of each list that was asked for in pages.
    pages: BTreeMap<String, Vec<Value>>,
    token: Option<String>,
    faults: Vec<Fault>,
    requests: Vec<String>,
}

#[derive(Debug, Clone)]
pub(in super::super) struct ApiServer {
    ttl: Duration,
    store: Arc<Mutex<Store>>,
    revision: Arc<watch::Sender<u64>>,
}

/// A body that comes piece by piece.
struct Pieces(mpsc::UnboundedReceiver<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

type Answer = Result<Value, (u16, String)>;

fn refused(status: u16, why: impl Into<String>) -> Answer {
    Err((status, why.into()))
}

fn answer(status: u16, value: &Value) -> Response<Pieces> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let _ = sender.send(Bytes::from(value.to_string()));
    Response::builder().status(status).body(Pieces(receiver)).expect("an answer")
}

impl ApiServer {
    pub(in super::super) fn new(ttl: Duration) -> Self {
        Self { ttl, store: Arc::default(), revision: Arc::new(watch::Sender::new(0)) }
    }

    /// Returns an engine, and the switch that cuts its link.
    pub(in super::super) fn link(&self) -> (Kubernetes, Arc<AtomicBool>) {
        self.link_with("fleet", None)
    }

    pub(super) fn link_with(
        &self,
        prefix: &str,
        token: Option<&std::path::Path>,
    ) -> (Kubernetes, Arc<AtomicBool>) {
        let is_cut = Arc::new(AtomicBool::new(false));
        let (server, cut) = (self.clone(), Arc::clone(&is_cut));
        let dial: Dial = Arc::new(move || {
            if cut.load(Ordering::Relaxed) {
                return Err(io::Error::other("the link is cut"));
            }
            let (client, stream) = tokio::io::duplex(1 << 16);
            tokio::spawn(server.clone().serve(stream, Arc::clone(&cut)));
            Ok(client)
        });
        let engine = Kubernetes::new(KubernetesOptions {
            endpoints: vec![Endpoint::within(dial)],
            namespace: "default".to_owned(),
            prefix: prefix.to_owned(),
            ttl: self.ttl,
            token_file: token.map(Into::into),
        });
        (engine, is_cut)
    }

    async fn serve(self, stream: tokio::io::DuplexStream, is_cut: Arc<AtomicBool>) {
        let serve = service_fn(|request| self.clone().handle(request, Arc::clone(&is_cut)));
        // Its end is the client's.
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), serve).await;
    }

    /// The next request of this method whose path and query have this part gets this trouble.
    pub(super) fn fault(&self, method: Method, part: &str, trouble: Trouble) {
        self.store.lock().faults.push(Fault { method, part: part.to_owned(), trouble });
    }

    pub(super) fn faults_left(&self) -> usize {
        self.store.lock().faults.len()
    }

    pub(super) fn require_token(&self, token: &str) {
        self.store.lock().token = Some(token.to_owned());
    }

    /// Watches of what is past have to begin again.
    pub(super) fn compact(&self) {
        let mut store = self.store.lock();
        store.compacted = store.revision;
        store.changes.clear();
        store.pages.clear();
    }

    /// Methods and paths so far.
    pub(in super::super) fn requests(&self) -> Vec<String> {
        self.store.lock().requests.clone()
    }

    pub(super) fn objects(&self) -> Vec<Value> {
        self.store.lock().objects.values().cloned().collect()
    }

    fn find(&self, kind: &str, name: &str) -> Option<Value> {
        let is_it = |object: &Value| {
            object["metadata"]["annotations"]["csa-daemon.internal/name"] == name
                && object["metadata"]["labels"]["csa-daemon.internal/kind"] == kind
        };
        self.objects().into_iter().find(is_it)
    }

    /// Name of the daemon that has the claim.
    pub(in super::super) fn holder(&self, channel: &str) -> Option<String> {
        let claim = self.find("claim", channel)?;
        claim["spec"]["holderIdentity"].as_str()?.split('/').next().map(str::to_owned)
    }

    /// Ends a member's session, as if it had not been renewed.
    pub(in super::super) fn end_session(&self, member: &str) {
        let lease = self.find("member", member).expect("a member");
        let object = lease["metadata"]["name"].as_str().expect("a name").to_owned();
        self.write(|store| store.delete(&object, &Value::Null)).expect("deleted");
    }

    /// Somebody else changes a Lease.
    pub(super) fn edit(&self, kind: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.find(kind, name).expect("an object");
        change(&mut object);
        self.write(|store| store.update(&object)).expect("changed");
    }

    fn write(&self, change: impl FnOnce(&mut Store) -> Answer) -> Answer {
        let mut store = self.store.lock();
        let done = change(&mut store);
        self.revision.send_replace(store.revision);
        done
    }

    async fn handle(
        self,
        request: Request<Incoming>,
        is_cut: Arc<AtomicBool>,
    ) -> io::Result<Response<Pieces>> {
        let lost = || io::Error::other("cut");
        let (method, uri) = (request.method().clone(), request.uri().to_string());
        let token = request.headers().get("authorization").cloned();
        let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        sleep(LATENCY).await;
        if is_cut.load(Ordering::Relaxed) {
            return Err(lost());
        }
        let (trouble, is_known) = {
            let mut store = self.store.lock();
            store.requests.push(format!("{method} {uri}"));
            let hit = |fault: &Fault| fault.method == method && uri.contains(&fault.part);
            let place = store.faults.iter().position(hit);
            let wanted = store.token.as_ref().map(|token| format!("Bearer {token}"));
            let given = token.as_ref().and_then(|token| token.to_str().ok());
            (
                place.map(|place| store.faults.remove(place).trouble),
                wanted.is_none() || wanted.as_deref() == given,
            )
        };
        if !is_known {
            return Ok(answer(401, &json!({ "message": "Unauthorized" })));
        }
        match trouble {
            Some(Trouble::Status(status)) => {
                return Ok(answer(status, &json!({ "message": "as the test wants" })));
            }
            Some(Trouble::Late(time)) => sleep(time).await,
            _ => {}
        }
        let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
        let query: BTreeMap<String, String> =
            form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
        let Some(object) = path.strip_prefix(leases) else {
            return Ok(answer(404, &json!({ "message": "no such path" })));
        };
        let object = object.trim_start_matches('/').to_owned();
        if query.contains_key("watch") {
            return Ok(self.watch(&query, is_cut));
        }
        let done = self.write(|store| match (method.as_str(), object.is_empty()) {
            ("GET", true) => store.list(&query),
            ("GET", false) => store.get(&object),
            ("POST", true) => store.create(&body),
            ("PUT", false) if body["metadata"]["name"] == object.as_str() => store.update(&body),
            ("DELETE", false) => store.delete(&object, &body["preconditions"]),
            _ => refused(405, "not allowed"),
        });
        match trouble {
            Some(Trouble::CutAfter) => return Err(lost()),
            Some(Trouble::SlowAnswer(time)) => sleep(time).await,
            _ => {}
        }
        Ok(match done {
            Ok(value) => answer(if method == Method::POST { 201 } else { 200 }, &value),
            Err((status, why)) => {
                answer(status, &json!({ "kind": "Status", "message": why, "code": status }))
            }
        })
    }

    fn watch(self, query: &BTreeMap<String, String>, is_cut: Arc<AtomicBool>) -> Response<Pieces> {
        let selector = query["labelSelector"].clone();
        let mut position: u64 = query["resourceVersion"].parse().expect("a revision");
        let seconds = query["timeoutSeconds"].parse().expect("a number");
        let (sender, receiver) = mpsc::unbounded_channel::<Bytes>();
        let mut revision = self.revision.subscribe();
        tokio::spawn(async move {
            let send = |kind: &str, object: &Value| {
                let line = json!({ "type": kind, "object": object });
                sender.send(Bytes::from(format!("{line}\n"))).is_ok()
            };
            let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
            loop {
                let (compacted, changes) = {
                    let store = self.store.lock();
                    let later = |change: &&(u64, _, Value)| {
                        change.0 > position && is_selected(&change.2, &selector)
                    };
                    (
                        store.compacted,
                        store.changes.iter().filter(later).cloned().collect::<Vec<_>>(),
                    )
                };
                if position < compacted {
                    send("ERROR", &json!({ "kind": "Status", "code": 410, "message": "too old" }));
                    return;
                }
                for (revision, kind, object) in changes {
                    position = revision;
                    // Without the link nothing comes, and nothing says so.
                    if is_cut.load(Ordering::Relaxed) || !send(kind, &object) {
                        sleep(Duration::from_secs(seconds)).await;
                        return;
                    }
                }
                tokio::select! {
                    _ = revision.changed() => {}
                    () = tokio::time::sleep_until(end) => return,
                    () = sender.closed() => return,
                }
            }
        });
        Response::new(Pieces(receiver))
    }
}

fn is_selected(object: &Value, selector: &str) -> bool {
    selector.split(',').all(|term| {
        let (label, value) = term.split_once('=').expect("a term");
        object["metadata"]["labels"][label] == value
    })
}

impl Store {
    fn note(&mut self, kind: &'static str, mut object: Value) -> Value {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.changes.push((self.revision, kind, object.clone()));
        object
    }

    fn get(&self, object: &str) -> Answer {
        let found = self.objects.get(object).cloned();
        found.ok_or_else(|| (404, format!("leases {object:?} not found")))
    }

    fn list(&mut self, query: &BTreeMap<String, String>) -> Answer {
        let token = query.get("continue").filter(|token| !token.is_empty());
        let (mut items, revision) = match token {
            Some(token) => {
                let rest = self.pages.remove(token);
                let rest = rest.ok_or_else(|| (410, "the list has expired".to_owned()))?;
                (VecDeque::from(rest), token.split('.').next().unwrap_or_default().to_owned())
            }
            None => {
                let selected = self
                    .objects
                    .values()
                    .filter(|object| is_selected(object, &query["labelSelector"]));
                (selected.cloned().collect(), self.revision.to_string())
            }
        };
        let rest = items.split_off(items.len().min(PAGE));
        let mut metadata = json!({ "resourceVersion": revision });
        if !rest.is_empty() {
            let token = format!("{revision}.{}", self.requests.len());
            metadata["continue"] = token.as_str().into();
            self.pages.insert(token, rest.into());
        }
        Ok(json!({ "kind": "LeaseList", "metadata": metadata, "items": items }))
    }

    fn check(lease: &Value) -> Result<String, (u16, String)> {
        let name = lease["metadata"]["name"].as_str().unwrap_or_default();
        let known =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        let (spec, invalid) =
            (&lease["spec"], |what: &str| (422, format!("{what}: Invalid value")));
        if name.is_empty() || name.len() > 253 || !name.bytes().all(known) {
            return Err(invalid("metadata.name"));
        }
        if spec["holderIdentity"].as_str().is_none_or(str::is_empty) {
            return Err(invalid("spec.holderIdentity"));
        }
        if spec
            .get("leaseDurationSeconds")
            .is_some_and(|seconds| seconds.as_u64().unwrap_or(0) == 0)
        {
            return Err(invalid("spec.leaseDurationSeconds"));
        }
        Ok(name.to_owned())
    }

    fn create(&mut self, lease: &Value) -> Answer {
        let name = Self::check(lease)?;
        if self.objects.contains_key(&name) {
            return refused(409, format!("leases {name:?} already exists"));
        }
        let mut lease = lease.clone();
        lease["metadata"]["uid"] = format!("uid-{}", self.revision + 1).into();
        let lease = self.note("ADDED", lease);
        self.objects.insert(name, lease.clone());
        Ok(lease)
    }

    fn update(&mut self, lease: &Value) -> Answer {
        let name = Self::check(lease)?;
        let known = self.get(&name)?;
        Self::same(&known, &lease["metadata"])?;
        let mut lease = lease.clone();
        lease["metadata"]["uid"] = known["metadata"]["uid"].clone();
        let lease = self.note("MODIFIED", lease);
        self.objects.insert(name, lease.clone());
        Ok(lease)
    }

    fn delete(&mut self, object: &str, preconditions: &Value) -> Answer {
        let known = self.get(object)?;
        Self::same(&known, preconditions)?;
        self.objects.remove(object);
        self.note("DELETED", known);
        Ok(json!({ "kind": "Status", "status": "Success" }))
    }

    fn same(known: &Value, wanted: &Value) -> Result<(), (u16, String)> {
        for field in ["uid", "resourceVersion"] {
            if wanted.get(field).is_some_and(|wanted| *wanted != known["metadata"][field]) {
                return Err((409, "the object has been modified".to_owned()));
            }
        }
        Ok(())
    }
}
