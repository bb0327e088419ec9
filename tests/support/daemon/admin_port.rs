//! Questions to the admin port.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::{Daemon, guard};

impl Daemon {
    /// Returns a path on the admin port, for other programs.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", guard(&self.builder).admin_port)
    }

    /// Returns the file with the token that the daemon makes at its start.
    #[must_use]
    pub fn token_path(&self) -> PathBuf {
        self.state_dir().join(format!("admin-{}.token", guard(&self.builder).admin_port))
    }

    /// Returns the socket of its commands.
    #[must_use]
    pub fn socket_path(&self) -> PathBuf {
        self.token_path().with_extension("sock")
    }

    /// The text of that file; empty where the test keeps its state elsewhere.
    #[must_use]
    pub fn own_token(&self) -> String {
        fs::read_to_string(self.token_path()).unwrap_or_default().trim().to_owned()
    }

    /// Status code and body of a path on the admin port, asked for with its own token; `None` when it
    /// does not answer.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        let ask = || {
            let request = self.http.get(self.url(path));
            request.header("authorization", format!("Bearer {}", self.own_token())).call()
        };
        // A daemon that was halted closes connections that the client has kept.
        let mut response = ask().or_else(|_| ask()).ok()?;
        let body = response.body_mut().read_to_string().ok()?;
        Some((response.status().as_u16(), body))
    }

    /// PUT to the admin port, with its own token: code and body.
    #[must_use]
    pub fn put(&self, path: &str, body: &str) -> Option<(u16, String)> {
        let request = self.http.put(self.url(path));
        let request = request.header("authorization", format!("Bearer {}", self.own_token()));
        let mut response = request.send(body).ok()?;
        let body = response.body_mut().read_to_string().ok()?;
        Some((response.status().as_u16(), body))
    }

    /// Returns `/status`; `None` when the admin port does not answer.
    #[must_use]
    pub fn try_status(&self) -> Option<Value> {
        let (code, body) = self.get("/status")?;
        if code == 200 { serde_json::from_str(&body).ok() } else { None }
    }

    /// Returns `/status`.
    ///
    /// # Panics
    /// With the log when the admin port does not answer.
    #[track_caller]
    #[must_use]
    pub fn status(&self) -> Value {
        self.try_status().unwrap_or_else(|| panic!("no /status\n{}", self.log_tail()))
    }

    /// Returns `/metrics`.
    ///
    /// # Panics
    /// With the log when the admin port does not answer.
    #[track_caller]
    #[must_use]
    pub fn metrics(&self) -> String {
        match self.get("/metrics") {
            Some((200, body)) => body,
            other => panic!("no /metrics: {other:?}\n{}", self.log_tail()),
        }
    }
}
