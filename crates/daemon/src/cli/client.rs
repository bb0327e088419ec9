//! Talks to the admin port of the running daemon.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use csa_provider::server::visible::one_line;
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body};

use super::arguments::{Admin, All};
use super::pattern::{chosen, is_pattern};
use crate::config::{AdminFiles, DaemonConfig, tls_client, token};
use crate::host::{Failure, Route, agent, tls_agent};
use crate::observe::view::{API, ChannelView, ErrorAnswer};

/// Bytes of an answer. The status of a channel has whole GTID sets, of 1 MB each if they have many gaps.
const ANSWER_MAX: u64 = 1 << 30;

/// The channels that a command acts on.
pub(super) enum Chosen {
    One(String),
    /// Chosen by a pattern or with `--all`.
    Several(Vec<String>),
}

/// The part of `/status` that every version has.
#[derive(Deserialize)]
struct Names {
    channels: Vec<Name>,
}

#[derive(Deserialize)]
struct Name {
    channel_name: String,
}

/// The running daemon.
pub(super) struct Client {
    agent: Agent,
    base: String,
    token: Option<SecretString>,
    channel: Option<String>,
    /// The user's name, for the daemon's log; a daemon on this host finds one out itself.
    by: Option<String>,
}

impl Client {
    pub(crate) fn new(config: &Path, admin: &Admin) -> Result<Self, Failure> {
        let Door { base, agent, token_file } = door(config, admin)?;
        let token_file = admin.token_file.clone().or(token_file);
        let token =
            token_file.map(|path| token("--token-file", &path, &mut Vec::new())).transpose()?;
        Ok(Self {
            agent,
            base,
            token,
            channel: admin.channel.clone(),
            by: std::env::var("USER").ok(),
        })
    }

    /// Returns the channel to act on.
    pub(super) fn channel(&self) -> Result<String, Failure> {
        if let Some(channel) = &self.channel {
            return Ok(channel.clone());
        }
        let mut names = self.names()?;
        match (names.pop(), names.is_empty()) {
            (Some(only), true) => Ok(only),
            (last, _) => {
                names.extend(last);
                let all = names.join(", ");
                Err(Failure::Input(format!(
                    "name one with --channel, several with a pattern like 'shard-*', or give --all: {all}"
                )))
            }
        }
    }

    /// Returns the channels to act on.
    pub(super) fn channels(&self, All { all }: All) -> Result<Chosen, Failure> {
        match &self.channel {
            _ if all => Ok(Chosen::Several(self.names()?)),
            Some(channel) if is_pattern(channel) => {
                chosen(channel, self.names()?).map(Chosen::Several).map_err(Failure::Input)
            }
            _ => self.channel().map(Chosen::One),
        }
    }

    /// Returns all channels, in the order of the configuration.
    fn names(&self) -> Result<Vec<String>, Failure> {
        let status: Names = self.get("/status")?;
        Ok(status.channels.into_iter().map(|channel| channel.channel_name).collect())
    }

    /// Returns the name or pattern of `--channel`, if any.
    pub(super) fn named_channel(&self) -> Option<&str> {
        self.channel.as_deref()
    }

    /// Returns a channel as the daemon shows it.
    pub(super) fn view_of(&self, channel: &str) -> Result<ChannelView, Failure> {
        self.get(&format!("/channels/{channel}/status"))
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.parse(path, &self.get_text(path)?)
    }

    pub(super) fn get_text(&self, path: &str) -> Result<String, Failure> {
        let request = self.agent.get(self.uri(path));
        let answer =
            self.headers(request).call().map_err(|error| self.unreachable(path, &error))?;
        self.text(path, self.accepted(path, answer)?)
    }

    /// Lines of an answer, as they arrive.
    pub(super) fn get_lines(
        &self,
        path: &str,
        mut each: impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let request = self.agent.get(self.uri(path));
        let answer =
            self.headers(request).call().map_err(|error| self.unreachable(path, &error))?;
        let body = self.accepted(path, answer)?.into_body();
        let lines = BufReader::new(body.into_with_config().limit(u64::MAX).reader()).lines();
        for line in lines {
            each(&line.map_err(|error| Failure::Runtime(format!("{}: {error}", self.url(path))))?)?;
        }
        Ok(())
    }

    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_string(body)
            .map_err(|error| Failure::Runtime(format!("making a request: {error}")))?;
        let request = self.agent.post(self.uri(path)).header("content-type", "application/json");
        self.send(path, request, &body)
    }

    pub(super) fn put<T: DeserializeOwned>(&self, path: &str, body: &str) -> Result<T, Failure> {
        self.send(path, self.agent.put(self.uri(path)), body)
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
        let request = match &self.by {
            Some(by) => request.header("csa-by", by),
            None => request,
        };
        match &self.token {
            Some(token) => {
                request.header("authorization", format!("Bearer {}", token.expose_secret()))
            }
            None => request,
        }
    }

    /// Turns a refusal into an error.
    fn accepted(&self, path: &str, answer: Response<Body>) -> Result<Response<Body>, Failure> {
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let text = self.text(path, answer)?;
        let why = match read(&text) {
            Ok(ErrorAnswer { error, fix }) => format!("{error}; {fix}"),
            Err(_) => format!("{}: HTTP {status}", self.url(path)),
        };
        // The request is wrong, or not possible now.
        Err(match status.as_u16() {
            400..=405 | 422 => Failure::Input(why),
            _ => Failure::Runtime(why),
        })
    }

    fn text(&self, path: &str, mut answer: Response<Body>) -> Result<String, Failure> {
        let body = answer.body_mut().with_config().limit(ANSWER_MAX).lossy_utf8(true);
        body.read_to_string().map_err(|error| self.unreachable(path, &error))
    }

    fn parse<T: DeserializeOwned>(&self, path: &str, text: &str) -> Result<T, Failure> {
        read(text).map_err(|error| {
            Failure::Runtime(format!("{}: unexpected answer: {error}", self.url(path)))
        })
    }

    /// The address, as messages show it.
    fn url(&self, path: &str) -> String {
        format!("{}{API}{path}", self.base)
    }

    /// The address, as requests use it: the agent knows the way to a socket. It would look up a name all the same, and
    /// `localhost` has no address where there is no /etc/hosts.
    fn uri(&self, path: &str) -> String {
        let base = if self.base.starts_with("unix:") { "http://127.0.0.1" } else { &self.base };
        format!("{base}{API}{path}")
    }

    fn unreachable(&self, path: &str, error: &ureq::Error) -> Failure {
        let url = self.url(path);
        Failure::Runtime(format!("{url}: {error}; is csa-daemon running with this configuration?"))
    }
}

/// Parses an answer for a terminal: strings in it may come from servers, so control characters are
/// escaped.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    let mut value: Value = serde_json::from_str(text)?;
    escape(&mut value);
    serde_json::from_value(value)
}

fn escape(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(shown) = one_line(text) {
                *text = shown;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(escape),
        Value::Object(fields) => fields.values_mut().for_each(escape),
        _ => {}
    }
}

/// The way to the daemon, and the token for it.
struct Door {
    base: String,
    agent: Agent,
    token_file: Option<PathBuf>,
}

/// `--admin` makes the configuration file unnecessary. The file leads to the socket, or, if
/// the socket can't be opened or a token was given, to the port.
fn door(config: &Path, admin: &Admin) -> Result<Door, Failure> {
    let ca = admin.admin_ca.as_deref();
    let by_socket = |path: PathBuf| {
        let base = format!("unix:{}", path.display());
        Door { base, agent: agent(Some(Route::Socket(path))), token_file: None }
    };
    if let Some(address) = &admin.admin {
        return match address.starts_with('/') {
            true => Ok(by_socket(address.into())),
            false => by_port(address, ca, None),
        };
    }
    let daemon = DaemonConfig::load(config)?;
    // If the socket is missing, forbidden, or left by a daemon that was killed, the port's answer
    // tells what is wrong.
    let socket = AdminFiles::of(&daemon).socket;
    if admin.token_file.is_none() && UnixStream::connect(&socket).is_ok() {
        return Ok(by_socket(socket));
    }
    let token_file = token_file(&daemon);
    by_port(
        &port(&daemon, &daemon.admin_listen),
        ca.or(daemon.admin_tls_cert.as_deref()),
        token_file,
    )
}

/// Returns the address of the daemon's port at `host`.
pub(super) fn port(daemon: &DaemonConfig, host: &str) -> String {
    let scheme = if daemon.admin_tls_cert.is_some() { "https" } else { "http" };
    format!("{scheme}://{host}")
}

/// Returns the file with the port's token.
pub(super) fn token_file(daemon: &DaemonConfig) -> Option<PathBuf> {
    // Where the daemon made the token itself, everyone may look without one.
    let own = || Some(AdminFiles::of(daemon).token).filter(|path| File::open(path).is_ok());
    daemon.admin_token_file.clone().or_else(own)
}

/// Chooses the door by the port's address; `ca` holds certificates of the authorities that may
/// vouch for the daemon.
fn by_port(address: &str, ca: Option<&Path>, token_file: Option<PathBuf>) -> Result<Door, Failure> {
    let base = with_scheme(address);
    if !base.starts_with("https://") {
        return Ok(Door { base, agent: agent(None), token_file });
    }
    let ca = ca.ok_or_else(|| {
        let why = "name the authority of its certificate with --admin-ca";
        Failure::Input(format!("--admin {address}: {why}"))
    })?;
    let tls = tls_client("--admin-ca", ca)?.with_no_client_auth();
    let agent = tls_agent("--admin", address, tls, None)?;
    Ok(Door { base, agent, token_file })
}

/// Returns an address of a port with its scheme.
pub(super) fn with_scheme(address: &str) -> String {
    match address.starts_with("http://") || address.starts_with("https://") {
        true => address.to_owned(),
        false => format!("http://{address}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use serde_json::json;

    use super::*;
    use crate::claims::fleet_view::FleetView;
    use crate::observe::view::{ChannelState, CommandView, WaitView};

    fn in_state<T: Serialize + DeserializeOwned>(view: &T, state: &str) -> T {
        let mut answer = serde_json::to_value(view).expect("JSON");
        answer["state"] = json!(state);
        read(&answer.to_string()).expect("an answer")
    }

    #[test]
    fn a_state_of_a_later_version_hides_nothing_else() {
        for (name, state) in [("future", ChannelState::Unknown), ("standby", ChannelState::Standby)]
        {
            assert_eq!(in_state(&ChannelView::default(), name).state, state);
            assert_eq!(in_state(&CommandView::default(), name).state, state);
            let wait = in_state(&WaitView { applied: true, ..WaitView::default() }, name);
            assert_eq!((wait.state, wait.applied), (state, true));
        }
        assert!(!ChannelState::Unknown.is_well());
        let status = r#"{"channels": [{"channel_name": "a", "state": 7}, {"channel_name": "b"}]}"#;
        let names: Names = read(status).expect("names");
        let names: Vec<&str> = names.channels.iter().map(|one| one.channel_name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn the_fleet_of_an_earlier_version_lacks_fields() {
        let text =
            r#"{"engine": "etcd", "name": "a", "members": [{"name": "a", "draining": true}]}"#;
        let fleet: FleetView = read(text).expect("a fleet");
        assert!(fleet.is_drained());
    }

    #[test]
    fn an_answer_may_have_many_channels_with_long_gtid_sets() {
        const LENGTH: usize = 11 << 20;
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let daemon = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let lines = BufReader::new(stream.try_clone().expect("cloned")).lines();
            let headers = lines.map_while(Result::ok).take_while(|line| !line.is_empty());
            assert!(headers.count() > 1);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n");
            stream.write_all(head.as_bytes()).expect("written");
            stream.write_all(&vec![b' '; LENGTH]).expect("written");
        });
        let base = format!("http://127.0.0.1:{port}");
        let client = Client { agent: agent(None), base, token: None, channel: None, by: None };
        let text = client.get_text("/status").expect("taken");
        assert_eq!(text.len(), LENGTH);
        daemon.join().expect("served");
    }
}
