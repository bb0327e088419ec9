//! Requests to the admin port of a running daemon, and commands.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Daemon, guard};

/// The output and exit code of a command.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub error: String,
}

impl Said {
    /// It ended with `code` and one line of error that contains `words`.
    ///
    /// # Panics
    /// Otherwise.
    #[track_caller]
    pub fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.error.lines().count(), 1, "{self:?}");
        for word in words {
            assert!(self.error.contains(word), "{word:?} is missing in {self:?}");
        }
    }
}

impl Daemon {
    /// Any request to the admin port, with these headers and no token of its own: code and body.
    ///
    /// # Panics
    /// When it does not answer within a minute.
    #[track_caller]
    #[must_use]
    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String) {
        let port = guard(&self.builder).admin_port;
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://127.0.0.1:{port}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let minute = Some(Duration::from_secs(60));
        let sent = if method == "GET" {
            let request = request.body(()).expect("a request");
            self.http.run(self.http.configure_request(request).timeout_global(minute).build())
        } else {
            let request = request.body(body.to_owned()).expect("a request");
            self.http.run(self.http.configure_request(request).timeout_global(minute).build())
        };
        let mut response =
            sent.unwrap_or_else(|error| panic!("{method} {path}: {error}\n{}", self.log_tail()));
        let body = response.body_mut().read_to_string().expect("a body");
        (response.status().as_u16(), body)
    }

    /// Runs `csa-daemon` with this daemon's configuration: a command to it.
    ///
    /// # Panics
    /// When it can't be run.
    #[track_caller]
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Said {
        let output = Command::new(Self::executable())
            .arg("--config")
            .arg(self.config_path())
            .args(arguments)
            .env("USER", "tester")
            .stdin(Stdio::null())
            .output()
            .expect("running csa-daemon");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Said { code: output.status.code(), out: text(&output.stdout), error: text(&output.stderr) }
    }

    /// [`Daemon::command`] that has to succeed; returns its output.
    ///
    /// # Panics
    /// With its output when it fails.
    #[track_caller]
    pub fn commanded(&self, arguments: &[&str]) -> String {
        let said = self.command(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}\n{}", self.log_tail());
        said.out
    }
}
