//! Talks to the admin port of the running daemon.

use std::io::{BufRead as _, BufReader};
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::Response;
use ureq::{Agent, Body};

use super::{Admin, Failure};
use crate::config::{DaemonConfig, token};
use crate::view::{ErrorAnswer, StatusView};

/// The running daemon.
pub(super) struct Client {
    agent: Agent,
    base: String,
    token: Option<SecretString>,
    channel: Option<String>,
    /// Who asks, for the daemon's log.
    by: String,
}

impl Client {
    /// `--admin` makes the configuration file unnecessary.
    pub(super) fn new(config: &Path, admin: &Admin) -> Result<Self, Failure> {
        let (address, token_file) = match &admin.admin {
            Some(address) => (address.clone(), None),
            None => {
                let daemon = DaemonConfig::load(config)?;
                (daemon.admin_listen, daemon.admin_token_file)
            }
        };
        let token_file = admin.token_file.clone().or(token_file);
        let token =
            token_file.map(|path| token("--token-file", &path, &mut Vec::new())).transpose()?;
        // Requests go to the daemon itself: a proxy for the web has no business with them.
        let settings = Agent::config_builder().http_status_as_error(false).proxy(None).build();
        Ok(Self {
            agent: settings.new_agent(),
            base: format!("http://{address}"),
            token,
            channel: admin.channel.clone(),
            by: std::env::var("USER").unwrap_or_else(|_| "unknown".to_owned()),
        })
    }

    /// The channel that is meant.
    pub(super) fn channel(&self) -> Result<String, Failure> {
        if let Some(channel) = &self.channel {
            return Ok(channel.clone());
        }
        let status: StatusView = self.get("/status")?;
        let mut names: Vec<String> =
            status.channels.into_iter().map(|channel| channel.channel_name).collect();
        match (names.pop(), names.is_empty()) {
            (Some(only), true) => Ok(only),
            (last, _) => {
                names.extend(last);
                Err(Failure::Input(format!("say which --channel is meant: {}", names.join(", "))))
            }
        }
    }

    /// The channel named with `--channel`, if one is.
    pub(super) fn named_channel(&self) -> Option<&str> {
        self.channel.as_deref()
    }

    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.parse(path, &self.get_text(path)?)
    }

    pub(super) fn get_text(&self, path: &str) -> Result<String, Failure> {
        let request = self.agent.get(self.url(path));
        let answer =
            self.headers(request).call().map_err(|error| self.unreachable(path, &error))?;
        self.text(path, self.accepted(path, answer)?)
    }

    /// Lines of an answer, as they come.
    pub(super) fn get_lines(
        &self,
        path: &str,
        mut each: impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let request = self.agent.get(self.url(path));
        let answer =
            self.headers(request).call().map_err(|error| self.unreachable(path, &error))?;
        let body = self.accepted(path, answer)?.into_body();
        let lines = BufReader::new(body.into_with_config().limit(u64::MAX).reader()).lines();
        for line in lines {
            each(&line.map_err(|error| Failure::Runtime(format!("{}: {error}", self.url(path))))?)?;
        }
        Ok(())
    }

    pub(super) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_string(body)
            .map_err(|error| Failure::Runtime(format!("making a request: {error}")))?;
        let request = self.agent.post(self.url(path)).header("content-type", "application/json");
        self.send(path, request, &body)
    }

    pub(super) fn put<T: DeserializeOwned>(&self, path: &str, body: &str) -> Result<T, Failure> {
        self.send(path, self.agent.put(self.url(path)), body)
    }

    fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        request: ureq::RequestBuilder<ureq::typestate::WithBody>,
        body: &str,
    ) -> Result<T, Failure> {
        let answer =
            self.headers(request).send(body).map_err(|error| self.unreachable(path, &error))?;
        self.parse(path, &self.text(path, self.accepted(path, answer)?)?)
    }

    fn headers<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        let request = request.header("csa-by", &self.by);
        match &self.token {
            Some(token) => {
                request.header("authorization", format!("Bearer {}", token.expose_secret()))
            }
            None => request,
        }
    }

    /// An answer that is not a refusal.
    fn accepted(&self, path: &str, answer: Response<Body>) -> Result<Response<Body>, Failure> {
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let text = self.text(path, answer)?;
        let why = match serde_json::from_str(&text) {
            Ok(ErrorAnswer { error, fix }) => format!("{error}; {fix}"),
            Err(_) => format!("{}: HTTP {status}", self.url(path)),
        };
        // What was asked for is wrong, or it can't be done now.
        Err(match status.as_u16() {
            400..=405 | 422 => Failure::Input(why),
            _ => Failure::Runtime(why),
        })
    }

    fn text(&self, path: &str, mut answer: Response<Body>) -> Result<String, Failure> {
        answer.body_mut().read_to_string().map_err(|error| self.unreachable(path, &error))
    }

    fn parse<T: DeserializeOwned>(&self, path: &str, text: &str) -> Result<T, Failure> {
        serde_json::from_str(text).map_err(|error| {
            Failure::Runtime(format!("{}: unexpected answer: {error}", self.url(path)))
        })
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn unreachable(&self, path: &str, error: &ureq::Error) -> Failure {
        let url = self.url(path);
        Failure::Runtime(format!("{url}: {error}; is csa-daemon running with this configuration?"))
    }
}
