//! An etcd server of one node, from Debian's package.

use std::fs::{self, File};
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

/// Killed when dropped.
#[derive(Debug)]
pub struct Etcd {
    running: Mutex<Option<Running>>,
    directory: TempDir,
    http: ureq::Agent,
    port: u16,
    peer_port: u16,
}

impl Etcd {
    /// # Panics
    /// With its log if it does not come up.
    #[track_caller]
    #[must_use]
    pub fn start() -> Self {
        let settings = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(5)))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        let etcd = Self {
            running: Mutex::new(None),
            directory: TempDir::with_prefix("csa-etcd-").expect("a temporary directory"),
            http: settings.new_agent(),
            port: free_port(),
            peer_port: free_port(),
        };
        etcd.start_again();
        etcd
    }

    /// Starts it with the data that it has.
    ///
    /// # Panics
    /// With its log if it does not come up.
    #[track_caller]
    pub fn start_again(&self) {
        let path = self.directory.path();
        let log = File::create(path.join("log")).expect("creating the log");
        let clients = self.endpoint();
        let peers = format!("http://127.0.0.1:{}", self.peer_port);
        let child = tool("etcd")
            .arg(format!("--data-dir={}", path.join("data").display()))
            .arg(format!("--listen-client-urls={clients}"))
            .arg(format!("--advertise-client-urls={clients}"))
            .arg(format!("--listen-peer-urls={peers}"))
            .arg(format!("--initial-advertise-peer-urls={peers}"))
            .arg(format!("--initial-cluster=default={peers}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log a second time"))
            .stderr(log)
            .spawn()
            .expect("starting etcd");
        *self.running.lock().expect("not poisoned") = Some(Running::new(child));
        let started = Instant::now();
        while !self.get("/health").is_some_and(|text| text.contains("true")) {
            let log = fs::read_to_string(path.join("log")).unwrap_or_default();
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

    /// The address for clients.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn get(&self, path: &str) -> Option<String> {
        let url = format!("{}{path}", self.endpoint());
        self.http.get(url).call().ok()?.body_mut().read_to_string().ok()
    }

    /// A request to its JSON gateway.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn post(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.endpoint());
        let mut answer = self.http.post(url).send(body.to_string()).expect("an answer");
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
