//! Asks other daemons for their channels. Each is asked for its own `/status` alone, never for what it
//! knows of others, so daemons that name each other do not ask in circles.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex as SyncMutex;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::task::{JoinSet, spawn_blocking};
use ureq::Agent;

use crate::config::{AdminPeers, tls_client};
use crate::host::tls_agent;
use crate::observe::view::{API, ErrorAnswer, PeerChannelView, PeerView, PeersView};

/// The time from the request to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time for which an answer is good for others who ask.
const FRESH: Duration = Duration::from_secs(1);
/// Bytes of an answer: a dozen channels with two GTID sets of 1 MB each, or thousands of others. Each peer's is in memory as a whole,
/// those of all peers at the same time.
const ANSWER_MAX: u64 = 32 << 20;
/// Letters of a reason.
const REASON_MAX: usize = 300;

/// The part of `/status` that counts.
#[derive(Debug, Deserialize)]
struct StatusAnswer {
    #[serde(default)]
    daemon: AnswerDaemon,
    channels: Vec<PeerChannelView>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AnswerDaemon {
    version: Option<String>,
    id: String,
}

/// The last answers of all.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    // Held while they are asked: many who ask at the same time cost one request to each peer.
    last: Mutex<Option<(Instant, AdminPeers, PeersView)>>,
    asking: Asking,
}

/// Addresses whose last question still runs. A peer that lets each one hang costs one thread.
type Asking = Arc<SyncMutex<BTreeSet<String>>>;

/// A question that runs.
struct PeerQuestion {
    address: String,
    asking: Asking,
}

impl PeerQuestion {
    fn begin(address: &str, asking: &Asking) -> Result<Self, String> {
        match asking.lock().insert(address.to_owned()) {
            true => Ok(Self { address: address.to_owned(), asking: Arc::clone(asking) }),
            false => Err("an earlier question is still not answered".to_owned()),
        }
    }
}

impl Drop for PeerQuestion {
    fn drop(&mut self) {
        self.asking.lock().remove(&self.address);
    }
}

impl Peers {
    /// Returns the channels of all peers; `own`: the id of this daemon.
    pub(crate) async fn view(&self, peers: &AdminPeers, own: &str) -> PeersView {
        let mut last = self.last.lock().await;
        if let Some((at, of, view)) = &*last
            && at.elapsed() < FRESH
            && of == peers
        {
            return view.clone();
        }
        let view = ask_all(peers, own, &self.asking).await;
        *last = Some((Instant::now(), peers.clone(), view.clone()));
        view
    }
}

async fn ask_all(peers: &AdminPeers, own: &str, asking: &Asking) -> PeersView {
    let mut questions = JoinSet::new();
    for (place, address) in peers.addresses.iter().enumerate() {
        let (address, token) = (address.clone(), peers.token.clone());
        let authorities = peers.authorities.clone();
        let begun = PeerQuestion::begin(&address, asking);
        questions.spawn(async move {
            let asked = async {
                let begun = begun?;
                let asked = spawn_blocking(move || {
                    ask(&begun.address, authorities.as_deref(), token.as_ref())
                });
                // The request itself has the same limit; a look-up of the name may not keep to it.
                match tokio::time::timeout(PATIENCE + FRESH, asked).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(panic)) => Err(panic.to_string()),
                    Err(_) => Err(late()),
                }
            };
            let answer: Result<StatusAnswer, String> = asked.await;
            (place, address, answer)
        });
    }
    let mut answers = questions.join_all().await;
    answers.sort_by_key(|(place, ..)| *place);
    let mut known = vec![own.to_owned()];
    let peers = answers.into_iter().map(|(_, address, answer)| view(address, answer, &mut known));
    PeersView { peers: peers.collect() }
}

/// Makes the view of a peer; `known` are the ids of daemons whose channels are shown already.
fn view(
    address: String,
    answer: Result<StatusAnswer, String>,
    known: &mut Vec<String>,
) -> PeerView {
    let StatusAnswer { daemon, channels } = match answer {
        Ok(answer) => answer,
        Err(why) => return PeerView { address, error: Some(why), ..PeerView::default() },
    };
    let id = daemon.id;
    if !id.is_empty() && known.contains(&id) {
        let is = if known.first() == Some(&id) { "this daemon" } else { "one of the others" };
        let error = format!("the address leads to {is}; remove it from daemon.admin_peers");
        return PeerView { address, error: Some(error), ..PeerView::default() };
    }
    known.push(id);
    PeerView { address, error: None, version: daemon.version, channels }
}

fn late() -> String {
    format!("no answer within {} s", PATIENCE.as_secs())
}

/// Blocks.
fn ask(
    address: &str,
    authorities: Option<&Path>,
    token: Option<&SecretString>,
) -> Result<StatusAnswer, String> {
    let agent = match authorities.filter(|_| address.starts_with("https://")) {
        Some(file) => {
            let tls = tls_client("daemon.admin_peers_ca", file).map_err(|why| why.to_string())?;
            tls_agent("daemon.admin_peers", address, tls.with_no_client_auth(), Some(PATIENCE))
                .map_err(|why| why.to_string())?
        }
        None => Agent::config_builder().proxy(None).build().new_agent(),
    };
    let request = agent.get(format!("{address}{API}/status"));
    let mut request = request
        .config()
        .http_status_as_error(false)
        // Not to a server that a peer names: the token is for the peer.
        .max_redirects(0)
        .timeout_global(Some(PATIENCE))
        .build();
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {}", token.expose_secret()));
    }
    let failed = |error: ureq::Error| match error {
        ureq::Error::Timeout(_) => late(),
        ureq::Error::BodyExceedsLimit(_) => "its answer is too long".to_owned(),
        other => short(&other.to_string()),
    };
    let mut answer = request.call().map_err(failed)?;
    let status = answer.status();
    let body = answer.body_mut().with_config().limit(ANSWER_MAX).read_to_vec().map_err(failed)?;
    if !status.is_success() {
        let why = match serde_json::from_slice(&body) {
            Ok(ErrorAnswer { error, fix }) => format!("HTTP {status}: {error}; {fix}"),
            Err(_) => format!("HTTP {status}"),
        };
        let hint = match status.as_u16() {
            401 => " (daemon.admin_peers_token_file names the file with the token for it)",
            _ => "",
        };
        return Err(short(&why) + hint);
    }
    serde_json::from_slice(&body)
        .map_err(|error| short(&format!("its answer is not that of a csa-daemon: {error}")))
}

fn short(why: &str) -> String {
    why.chars().take(REASON_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_of_any_version_is_understood_or_named() {
        let read = |text: &str| serde_json::from_str::<StatusAnswer>(text);
        let old = read(r#"{"channels": [{"channel_name": "a", "state": "dreaming", "new": [1]}]}"#);
        let old = old.expect("an answer");
        let shown = old.channels[0].shown();
        assert_eq!((shown.channel_name.as_str(), shown.lag_seconds), ("a", None));
        assert!(shown.state_detail.contains("dreaming"), "{shown:?}");
        for garbage in
            ["", "[]", "{}", "null", r#"{"channels": 7}"#, r#"{"channels": [{"state": 1}]}"#]
        {
            assert!(read(garbage).is_err(), "{garbage}");
        }
        let deep = "[".repeat(100_000);
        assert!(read(&format!(r#"{{"channels": {deep}"#)).is_err());
    }

    #[test]
    fn one_daemon_is_shown_once() {
        let answer = |id: &str| {
            let daemon = AnswerDaemon { version: None, id: id.to_owned() };
            Ok(StatusAnswer { daemon, channels: vec![PeerChannelView::default()] })
        };
        let mut known = vec!["own".to_owned()];
        let mut shown = |id: &str| view("http://a:1".to_owned(), answer(id), &mut known);
        assert!(shown("own").error.is_some_and(|why| why.contains("leads to this daemon")));
        assert_eq!(shown("other").error, None);
        assert!(shown("other").error.is_some_and(|why| why.contains("one of the others")));
        // Older daemons have no id.
        assert_eq!((shown("").error, shown("").error), (None, None));
    }
}
