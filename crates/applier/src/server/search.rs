//! Finds the server that is the target now, among those that may be: the configured one, those of `target.failover`, and the
//! members of its group.

use std::sync::atomic::Ordering;

use csa_provider::binlog::ParseGtidError;
use csa_provider::server::Version;
use csa_provider::server::ask::{Ask, TextRow, first, texts};
use csa_provider::server::group::{Address, Candidates, GroupView, MEMBERS_PRIVILEGE, Standing};
use csa_provider::server::link::{Limits, Link, Side};
use tracing::info;

use crate::error::{Error, Result};
use crate::options::TargetOptions;
use crate::server::port::TargetLink;

/// `ER_TABLEACCESS_DENIED_ERROR`.
const DENIED: u16 = 1142;

/// Finds the server that is the target now, if it is not known.
///
/// # Errors
/// Those of the server that was asked last; [`Error::Unfit`] if it can't be the target now.
pub(super) async fn settle(target: &TargetOptions) -> Result<()> {
    let route = &target.route.0;
    if route.failover.is_empty() && !route.discovers || target.socket.is_some() {
        return Ok(());
    }
    let _one = route.settling.lock().await;
    if route.is_settled.load(Ordering::SeqCst) {
        return Ok(());
    }
    let configured = (target.host.clone(), target.port);
    let last = target.route.now().unwrap_or_else(|| configured.clone());
    let named = std::iter::once(configured).chain(route.failover.iter().cloned());
    let mut candidates =
        Candidates::new(std::iter::once(last.clone()).chain(named).chain(route.known.get()));
    let mut refusal = None;
    while let Some(address) = candidates.next() {
        match look(target, &address, &mut candidates).await {
            Ok(()) => {
                if address != last {
                    info!(host = %address.0, port = address.1, "another server is the target now");
                }
                let is_same = target.route.now().as_ref() == Some(&address);
                if !is_same {
                    route.now.send_replace(Some(address));
                }
                route.is_settled.store(true, Ordering::SeqCst);
                return Ok(());
            }
            // A server that answers says more than one that does not.
            Err(error) if !matches!(refusal, Some(Error::Unfit { .. })) => refusal = Some(error),
            Err(error @ Error::Unfit { .. }) => refusal = Some(error),
            Err(_) => {}
        }
    }
    Err(refusal.unwrap_or(Error::Unfit { address: target.address(), why: "no address".to_owned() }))
}

/// Finds out whether the server at `address` can be the target; other members of its group become candidates.
async fn look(
    target: &TargetOptions,
    address: &Address,
    candidates: &mut Candidates,
) -> Result<()> {
    let name = format!("{}:{}", address.0, address.1);
    let link = Link::connect(&target.link_at(Side::Target, address)).await;
    let link = link.map_err(|source| Error::Target { address: name.clone(), source })?;
    let mut asked = Asked { link: Box::new(link), address: name.clone() };
    let limit = target.connect_timeout;
    // A server that hangs must not keep all sessions of the channel from the next address.
    let judged = judge(target, address, candidates, &mut asked);
    let Ok(outcome) = tokio::time::timeout(limit, judged).await else {
        return Err(Error::Timeout { address: name, seconds: limit.as_secs() });
    };
    asked.link.quit().await;
    outcome?.map_err(|why| Error::Unfit { address: name, why })
}

/// Returns the reason why a server can't be the target now.
async fn judge(
    target: &TargetOptions,
    address: &Address,
    candidates: &mut Candidates,
    asked: &mut Asked,
) -> Result<std::result::Result<(), String>> {
    let version = asked.version().await?;
    if version.is_mariadb() {
        return writable(address, candidates, asked).await;
    }
    let route = &target.route.0;
    let view = match GroupView::read(asked, &version).await {
        Ok(view) => view,
        Err(error) if error.code() == Some(DENIED) && !route.discovers => GroupView::default(),
        Err(error) if error.code() == Some(DENIED) => {
            return Ok(Err(format!(
                "target.discover needs GRANT {MEMBERS_PRIVILEGE} for the account ({error})"
            )));
        }
        Err(error) => return Err(error),
    };
    if route.discovers {
        let members = view.addresses(true);
        candidates.learn(members.iter().cloned());
        if matches!(view.standing(), Standing::Healthy { .. }) {
            route.known.note(members);
        }
    }
    match primary(&view, route.discovers) {
        Ok(()) => writable(address, candidates, asked).await,
        Err(why) => Ok(Err(why)),
    }
}

/// Checks that a member of a group is a primary that the group follows.
///
/// # Errors
/// Returns the reason why it is none.
pub(crate) fn primary(view: &GroupView, must_be_member: bool) -> std::result::Result<(), String> {
    if view.members.is_empty() && !must_be_member {
        return Ok(());
    }
    match view.standing() {
        Standing::Unfit(why) => Err(why),
        Standing::Healthy { is_primary: Some(true) } => Ok(()),
        Standing::Healthy { .. } => Err("it is a secondary of its group".to_owned()),
    }
}

/// Returns the reason why a server is no target any more, as its group is now.
pub(super) async fn fault(link: Box<dyn TargetLink>, address: &str) -> Option<String> {
    let mut asked = Asked { link, address: address.to_owned() };
    let version = asked.version().await.ok()?;
    let view = GroupView::read(&mut asked, &version).await;
    asked.link.quit().await;
    primary(&view.ok()?, true).err()
}

/// A server with `read_only` may take the writes of our account, and is taken only if no other server is writable.
async fn writable(
    address: &Address,
    candidates: &mut Candidates,
    asked: &mut Asked,
) -> Result<std::result::Result<(), String>> {
    const QUERY: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'super_read_only', \
         'innodb_read_only')";
    let rows = asked.ask(QUERY, Limits::LIST).await?;
    let is_on = |name: &str| {
        rows.iter().any(|row| {
            matches!(row.as_slice(), [Some(variable), Some(value)] if variable == name && value == "ON")
        })
    };
    // The second is that of a reader of Aurora, where `read_only` may be OFF.
    if let Some(name) = ["super_read_only", "innodb_read_only"].into_iter().find(|name| is_on(name))
    {
        return Ok(Err(format!("{name}=ON: nobody can write there")));
    }
    match is_on("read_only") && candidates.set_aside(address) {
        true => Ok(Err("read_only=ON".to_owned())),
        false => Ok(Ok(())),
    }
}

/// A server that may be the target.
struct Asked {
    link: Box<dyn TargetLink>,
    address: String,
}

impl Asked {
    /// Asks for the version: a proxy greets with one of its own.
    async fn version(&mut self) -> Result<Version> {
        let version = self.ask("SELECT @@version", Limits::SETTING).await?;
        Ok(Version::parse(&first(version).unwrap_or_default()))
    }
}

impl Ask for Asked {
    type Error = Error;

    async fn ask(&mut self, query: &str, limits: Limits) -> Result<Vec<TextRow>> {
        let rows = self.link.query(query, limits).await;
        let rows =
            rows.map_err(|source| Error::Target { address: self.address.clone(), source })?;
        Ok(rows.into_iter().map(texts).collect())
    }

    fn unreadable(&self, variable: &str, why: ParseGtidError) -> Error {
        Error::GtidSet { place: format!("{variable} of target {}", self.address), source: why }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use csa_provider::test_util::packets;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::options::Route;
    use crate::server::scripted::options;

    /// No test takes that long; what waits for ever fails here.
    const PATIENCE: Duration = Duration::from_secs(60);

    async fn send(stream: &mut TcpStream, sequence: u8, payload: &[u8]) {
        let mut packet = u32::try_from(payload.len()).expect("short").to_le_bytes().to_vec();
        packet[3] = sequence;
        packet.extend_from_slice(payload);
        stream.write_all(&packet).await.expect("the client listens");
    }

    /// Logs a client in, and answers nothing that it asks.
    async fn hang(mut stream: TcpStream) {
        let greeting = packets::greeting("9.7.4", 7, &[7; 20], "caching_sha2_password", 0);
        send(&mut stream, 0, &greeting).await;
        let mut header = [0; 4];
        stream.read_exact(&mut header).await.expect("a packet");
        let mut login = vec![0; usize::from(header[0]) | usize::from(header[1]) << 8];
        stream.read_exact(&mut login).await.expect("a login");
        send(&mut stream, 2, packets::CACHED).await;
        send(&mut stream, 3, packets::OK).await;
        tokio::time::sleep(2 * PATIENCE).await;
    }

    async fn hanging_server() -> Address {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("the address bound").port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(hang(stream));
            }
        });
        ("127.0.0.1".to_owned(), port)
    }

    #[tokio::test]
    async fn a_server_that_hangs_keeps_nobody_from_the_next_address() {
        let (host, port) = hanging_server().await;
        let next = hanging_server().await;
        let target = TargetOptions {
            host,
            port,
            connect_timeout: Duration::from_secs(1),
            route: Route::new(vec![next], false),
            ..options()
        };
        let settled = tokio::time::timeout(PATIENCE, settle(&target)).await.expect("an answer");
        assert!(matches!(settled, Err(Error::Timeout { seconds: 1, .. })), "{settled:?}");
        let is_free = target.route.0.settling.try_lock().is_ok();
        assert!(is_free, "no session waits for the look");
    }
}
