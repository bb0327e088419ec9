//! A Prometheus that scrapes a daemon and evaluates rules.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::config::free_port;
use crate::daemon::Running;
use crate::tool;

/// The longest wait until it serves, and until an alert fires or resolves.
const PATIENCE: Duration = Duration::from_secs(60);

/// Killed when dropped.
#[derive(Debug)]
pub struct Prometheus {
    _running: Running,
    directory: TempDir,
    http: ureq::Agent,
    port: u16,
}

/// An alert that fires: its name, and the channel where it has one.
pub type Firing = (String, Option<String>);

impl Prometheus {
    /// Scrapes `address` every second under the job name csa-daemon, with the token that is in
    /// [`Prometheus::token_file`] at that moment, and evaluates `rules` as often.
    ///
    /// # Panics
    /// With its log if it does not come up.
    #[track_caller]
    #[must_use]
    pub fn start(address: &str, rules: &str) -> Self {
        let directory = TempDir::with_prefix("csa-prometheus-").expect("a temporary directory");
        let path = directory.path();
        let port = free_port();
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: [alerts.yml]\n\
             scrape_configs:\n  \
               - job_name: csa-daemon\n    \
                 authorization: {{ credentials_file: token }}\n    \
                 static_configs: [{{ targets: [\"{address}\"] }}]\n"
        );
        fs::write(path.join("alerts.yml"), rules).expect("writing the rules");
        fs::write(path.join("token"), "none").expect("writing a token");
        fs::write(path.join("prometheus.yml"), config).expect("writing the configuration");
        let log = File::create(path.join("log")).expect("creating the log");
        let child = tool("prometheus")
            .arg(format!("--config.file={}", path.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", path.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--log.level=warn")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log a second time"))
            .stderr(log)
            .spawn()
            .expect("starting Prometheus");
        let settings = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(5)))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        let prometheus =
            Self { _running: Running::new(child), directory, http: settings.new_agent(), port };
        let started = Instant::now();
        while prometheus.get("/api/v1/alerts").is_none() {
            assert!(
                started.elapsed() < PATIENCE,
                "Prometheus serves nothing\n{}",
                prometheus.log()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        prometheus
    }

    /// Prometheus reads it again for every scrape.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.directory.path().join("token")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Returns the data of an answer of its API.
    fn get(&self, path: &str) -> Option<Value> {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        let body = self.http.get(url).call().ok()?.body_mut().read_to_string().ok()?;
        let answer: Value = serde_json::from_str(&body).ok()?;
        (answer["status"] == "success").then(|| answer["data"].clone())
    }

    /// Returns the values of a query that needs no escaping, with their labels.
    ///
    /// # Panics
    /// When it is not answered.
    #[must_use]
    pub fn query(&self, query: &str) -> Vec<Value> {
        let data = self.get(&format!("/api/v1/query?query={query}"));
        let data = data.unwrap_or_else(|| panic!("{query}\n{}", self.log()));
        data["result"].as_array().cloned().unwrap_or_default()
    }

    /// Returns the alerts that fire now, not those pending.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn firing(&self) -> BTreeSet<Firing> {
        let data = self.get("/api/v1/alerts").unwrap_or_else(|| panic!("{}", self.log()));
        let alerts = data["alerts"].as_array().cloned().unwrap_or_default();
        let text = |label: &Value| label.as_str().map(str::to_owned);
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        firing
            .map(|alert| {
                let labels = &alert["labels"];
                (text(&labels["alertname"]).unwrap_or_default(), text(&labels["channel"]))
            })
            .collect()
    }

    /// Waits until the firing alerts are as expected.
    ///
    /// # Panics
    /// When they are not within a minute, naming `what`.
    pub async fn wait(&self, what: &str, mut is_so: impl FnMut(&BTreeSet<Firing>) -> bool) {
        let started = Instant::now();
        loop {
            let firing = self.firing();
            if is_so(&firing) {
                return;
            }
            let elapsed = started.elapsed();
            assert!(elapsed < PATIENCE, "{what}: after {elapsed:?} firing are {firing:#?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
