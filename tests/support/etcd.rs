//! etcd servers from Debian's package: one of its own, or several of a cluster.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::config::free_port;
use crate::daemon::Running;
use crate::tool;

/// The longest wait until it serves.
const PATIENCE: Duration = Duration::from_secs(30);

/// Files of a server that speaks TLS alone, and demands a certificate of each client.
#[derive(Debug, Clone)]
pub struct EtcdTls {
    /// Authority of all certificates.
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// A server; killed when dropped.
#[derive(Debug)]
pub struct Etcd {
    running: Mutex<Option<Running>>,
    directory: TempDir,
    http: ureq::Agent,
    name: String,
    port: u16,
    /// Metrics and health, without TLS.
    metrics_port: u16,
    peer_port: u16,
    /// Name and address of each server of the cluster.
    cluster: String,
    tls: Option<EtcdTls>,
    /// It signs its tokens.
    signs: bool,
}

impl Etcd {
    /// Returns one server.
    ///
    /// # Panics
    /// With its log if it does not come up.
    #[track_caller]
    #[must_use]
    pub fn start() -> Self {
        let etcd = Self::new("default", free_port(), None);
        etcd.start_again();
        etcd
    }

    /// Returns one server that speaks TLS alone.
    ///
    /// # Panics
    /// With its log if it does not come up.
    #[track_caller]
    #[must_use]
    pub fn start_with_tls(tls: EtcdTls) -> Self {
        let etcd = Self::new("default", free_port(), Some(tls));
        etcd.start_again();
        etcd
    }

    /// Returns one server that signs its tokens, which end with each change of its accounts.
    ///
    /// # Panics
    /// With its log if it does not come up.
    #[track_caller]
    #[must_use]
    pub fn start_with_signed_tokens() -> Self {
        let etcd = Self { signs: true, ..Self::new("default", free_port(), None) };
        fs::write(etcd.signing_key(), "the key of a test, longer than it has to be")
            .expect("a key");
        etcd.start_again();
        etcd
    }

    fn signing_key(&self) -> PathBuf {
        self.directory.path().join("token.key")
    }

    /// Returns the servers that are one cluster.
    ///
    /// # Panics
    /// With the log of one that does not come up.
    #[track_caller]
    #[must_use]
    pub fn cluster(count: usize) -> Vec<Self> {
        let mut servers: Vec<Self> =
            (0..count).map(|number| Self::new(&format!("e{number}"), free_port(), None)).collect();
        let all: Vec<String> = servers.iter().map(|server| server.cluster.clone()).collect();
        for server in &mut servers {
            server.cluster = all.join(",");
            server.spawn();
        }
        servers.iter().for_each(Self::wait);
        servers
    }

    fn new(name: &str, peer_port: u16, tls: Option<EtcdTls>) -> Self {
        let settings = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(5)))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        Self {
            running: Mutex::new(None),
            directory: TempDir::with_prefix("csa-etcd-").expect("a temporary directory"),
            http: settings.new_agent(),
            name: name.to_owned(),
            port: free_port(),
            metrics_port: free_port(),
            peer_port,
            cluster: format!("{name}=http://127.0.0.1:{peer_port}"),
            tls,
            signs: false,
        }
    }

    /// Starts it with the data that it has.
    ///
    /// # Panics
    /// With its log if it does not come up.
    #[track_caller]
    pub fn start_again(&self) {
        self.spawn();
        self.wait();
    }

    fn spawn(&self) {
        let path = self.directory.path();
        let log = File::create(path.join("log")).expect("creating the log");
        let clients = self.endpoint();
        let peers = format!("http://127.0.0.1:{}", self.peer_port);
        let mut etcd = tool("etcd");
        etcd.arg(format!("--name={}", self.name))
            .arg(format!("--data-dir={}", path.join("data").display()))
            .arg(format!("--listen-client-urls={clients}"))
            .arg(format!("--advertise-client-urls={clients}"))
            .arg(format!("--listen-metrics-urls=http://127.0.0.1:{}", self.metrics_port))
            .arg(format!("--listen-peer-urls={peers}"))
            .arg(format!("--initial-advertise-peer-urls={peers}"))
            .arg(format!("--initial-cluster={}", self.cluster));
        if let Some(EtcdTls { ca, cert, key }) = &self.tls {
            etcd.arg("--client-cert-auth")
                .arg(format!("--trusted-ca-file={}", ca.display()))
                .arg(format!("--cert-file={}", cert.display()))
                .arg(format!("--key-file={}", key.display()));
        }
        if self.signs {
            let key = self.signing_key();
            let option = format!("jwt,priv-key={},sign-method=HS256,ttl=10m", key.display());
            etcd.arg(format!("--auth-token={option}"));
        }
        let child = etcd
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log a second time"))
            .stderr(log)
            .spawn()
            .expect("starting etcd");
        *self.running.lock().expect("not poisoned") = Some(Running::new(child));
    }

    #[track_caller]
    fn wait(&self) {
        let started = Instant::now();
        while !self.get("/health").is_some_and(|text| text.contains("true")) {
            let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            assert!(started.elapsed() < PATIENCE, "etcd serves nothing\n{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// `kill -9`; its data stays.
    ///
    /// # Panics
    /// If it is not running.
    pub fn kill9(&self) {
        let running = self.running.lock().expect("not poisoned").take();
        drop(running.expect("etcd is not running"));
    }

    /// Returns the address for clients.
    #[must_use]
    pub fn endpoint(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    fn get(&self, path: &str) -> Option<String> {
        let url = format!("http://127.0.0.1:{}{path}", self.metrics_port);
        self.http.get(url).call().ok()?.body_mut().read_to_string().ok()
    }

    /// Returns the answer of its JSON gateway, without TLS.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn post(&self, path: &str, body: &Value) -> Value {
        self.post_as(None, path, body)
    }

    /// Returns the same for a request with a token.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn post_as(&self, token: Option<&str>, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.endpoint());
        let mut request = self.http.post(url);
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let mut answer = request.send(body.to_string()).expect("an answer");
        let text = answer.body_mut().read_to_string().expect("text");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }

    /// Requests answered since its start.
    ///
    /// # Panics
    /// If it serves no metrics.
    #[must_use]
    pub fn requests(&self) -> u64 {
        let metrics = self.get("/metrics").expect("metrics");
        let handled = metrics.lines().filter(|line| line.starts_with("grpc_server_handled_total"));
        handled
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .map(|count| count as u64)
            .sum()
    }
}
