//! Keeps a second daemon off a channel, and ends sessions that an earlier one left behind, by named locks
//! of the target. One of three guards; claim.rs names the others.
//!
//! Each session of ours that writes transactions or the checkpoint holds a named lock for as long as it lives.
//! The server releases it only after it has rolled back or committed the session's transaction. So the holder
//! of a name is the session that it stands for, whatever became of its connection.
//!
//! A copy of a whole host, as of a virtual machine, has this daemon's identity, too. So a session counts as our own
//! only if the server sees it under the address from which we connect.

use tracing::{info, warn};

use crate::error::{Error, Result};
use crate::ownership::checkpoint;
use crate::server::lock_names::{daemon_lock, lock_name, worker_lock};
use crate::server::lock_wait::FoundLock;
use crate::server::processes::Process;
use crate::server::session::Session;
use csa_provider::sql_text::quote;

/// Seconds to wait for a lock that is about to be released.
const PATIENCE: u32 = 2;
/// Seconds that the target may take to end a session and to roll back its transaction.
const END_PATIENCE: u32 = 10;
/// No such thread: the session has ended on its own.
const NO_SUCH_THREAD: u16 = 1094;
/// The session is of another account, as after a change of `target.user`.
const NOT_OWNER: u16 = 1095;
/// ER_UNKNOWN_ERROR and ER_NOT_SUPPORTED_YET: the answers of Percona XtraDB Cluster and of MariaDB in a Galera cluster.
const NO_LOCKS: [u16; 2] = [1105, 1235];

/// The opener of a session that has our identity and another address.
const NAMESAKE: &str = "another daemon with the same identity (a copy of this state directory)";
const NAMESAKE_FIX: &str = "if it is a copy, stop one of the two and delete the file replica_uuid in its state \
     directory; a session that this daemon left under an earlier address ends on its own";

/// The opener of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opener {
    /// This daemon, before its connection was lost or the process ended.
    Us,
    /// A daemon with our identity, under another address: it has a copy of our state directory, or this host had
    /// that address before.
    Namesake,
    Another,
}

/// Another session that holds the channel's lock.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ChannelLockHolder {
    connection: u64,
    opener: Opener,
    process: Option<Process>,
}

/// The daemon that wants a channel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimant<'a> {
    /// The daemon keeps it over restarts. Only a copy of its state directory has it, too.
    pub(crate) identity: &'a str,
    /// The session with which this process held the channel last. It is our own, whatever address the server sees.
    pub(crate) earlier: Option<u32>,
}

impl<'a> Claimant<'a> {
    /// Returns a process that has not held the channel yet.
    pub(crate) fn new(identity: &'a str) -> Self {
        Self { identity, earlier: None }
    }
}

/// How to treat a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deal {
    /// It is our own and idle.
    End,
    /// It is our own and executes: hours of work may be in it, and its GTID shows later whether it
    /// took effect.
    LetFinish,
    /// It is not ours.
    Wait,
}

impl ChannelLockHolder {
    fn deal(&self) -> Deal {
        let idle = self.process.as_ref().is_some_and(|process| process.command == "Sleep");
        match (self.opener, idle) {
            (Opener::Us, true) => Deal::End,
            (Opener::Us, false) => Deal::LetFinish,
            (Opener::Namesake | Opener::Another, _) => Deal::Wait,
        }
    }

    fn is_ours(&self) -> bool {
        self.opener == Opener::Us
    }

    fn describe(&self) -> String {
        let mut text = format!("connection {} there", self.connection);
        if let Some(process) = &self.process {
            let Process { host, command, stage, .. } = process;
            text.push_str(&format!(" from {host}, {command} for {}", process.time()));
            if !stage.is_empty() {
                text.push_str(&format!(": {stage}"));
            }
        }
        match self.opener {
            Opener::Another => format!("another daemon holds it on this target ({text})"),
            Opener::Namesake => {
                format!("{NAMESAKE} holds it on this target ({text}); {NAMESAKE_FIX}")
            }
            Opener::Us => format!(
                "an earlier session of this daemon still executes on the target ({text}); its work counts when \
                 it ends, and KILL {} there abandons it",
                self.connection
            ),
        }
    }
}

/// Takes the channel's lock, ending an idle session that this daemon left behind.
///
/// # Errors
/// [`Error::Held`] while somebody else holds it.
pub(crate) async fn take(
    session: &mut Session,
    channel: &str,
    claimant: Claimant<'_>,
) -> Result<()> {
    let name = quote(&lock_name(channel));
    let own = quote(&daemon_lock(claimant.identity));
    let earlier = claimant.earlier.map(u64::from);
    let mut found = take_or_find(session, [&name, &own], earlier, 0).await?;
    // An idle session of our own is not waited for: its connection is lost, or its process has ended.
    if found.as_ref().is_some_and(|holder| holder.deal() != Deal::End) {
        found = take_or_find(session, [&name, &own], earlier, PATIENCE).await?;
    }
    if let Some(holder) = found {
        // Returned, not waited for here: the caller tries again, and shows who holds it meanwhile.
        if holder.deal() != Deal::End {
            return Err(held(channel, holder.describe(), !holder.is_ours()));
        }
        let connection = holder.connection;
        info!(connection, "ending an earlier session of this daemon");
        kill(session, connection).await?;
        if !get(session, &name, END_PATIENCE).await? {
            return Err(held(channel, holder.describe(), !holder.is_ours()));
        }
    }
    if !get(session, &own, PATIENCE).await? {
        // No reason to stop: the lock only serves to recognise this session later.
        warn!("another session on the target uses this daemon's identity");
    }
    Ok(())
}

/// Takes the lock `name`, or finds who holds it after these seconds.
async fn take_or_find(
    session: &mut Session,
    [name, own]: [&str; 2],
    earlier: Option<u64>,
    seconds: u32,
) -> Result<Option<ChannelLockHolder>> {
    let query = format!(
        "SELECT COALESCE(GET_LOCK({name}, {seconds}), 0), COALESCE(IS_USED_LOCK({name}), 0), \
         COALESCE(IS_USED_LOCK({own}), 0)"
    );
    // One query: asked for later, the holder might be another.
    let rows: Vec<(bool, u64, u64)> = session.rows(&query).await.map_err(without_locks)?;
    let (taken, connection, of_ours) = rows.into_iter().next().unwrap_or_default();
    if taken {
        return Ok(None);
    }
    let process = session.process(connection).await?;
    let opener = match connection != 0 && connection == of_ours {
        false => Opener::Another,
        true if earlier == Some(connection) => Opener::Us,
        true => opener(session, process.as_ref()).await?,
    };
    Ok(Some(ChannelLockHolder { connection, opener, process }))
}

/// Says what a server has to permit that refuses named locks.
fn without_locks(error: Error) -> Error {
    match error {
        Error::Target { source, .. }
            if source.code().is_some_and(|code| NO_LOCKS.contains(&code)) =>
        {
            let what = "the target refuses GET_LOCK, without which no channel starts (a node of Percona XtraDB Cluster permits \
                 it with SET GLOBAL pxc_strict_mode=MASTER, on every node)";
            Error::Server { what: what.into(), source }
        }
        other => other,
    }
}

/// Tells whether a session with our identity comes from our address. One that the server does not show is taken for
/// our own, because it is not ended then.
async fn opener(session: &mut Session, there: Option<&Process>) -> Result<Opener> {
    let id = u64::from(session.id());
    let here = session.process(id).await?;
    Ok(match (there, here) {
        (Some(there), Some(here)) if address(&there.host) != address(&here.host) => {
            Opener::Namesake
        }
        _ => Opener::Us,
    })
}

/// Returns the client's address without its port. A socket has none.
fn address(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((address, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => address,
        _ => host,
    }
}

/// Returns the session with our identity in words if another daemon opened it.
pub(crate) async fn namesake(session: &mut Session, connection: u64) -> Result<Option<String>> {
    let there = session.process(connection).await?;
    let is_namesake = opener(session, there.as_ref()).await? == Opener::Namesake;
    Ok(there.filter(|_| is_namesake).map(|there| {
        format!("{NAMESAKE}: connection {connection} there from {}; {NAMESAKE_FIX}", there.host)
    }))
}

/// Releases the channel's lock.
pub(crate) async fn release(session: &mut Session, channel: &str) -> Result<()> {
    session.run(format!("DO RELEASE_LOCK({})", quote(&lock_name(channel)))).await.map(drop)
}

/// Takes a worker's lock, ending the session that had it: its connection was lost, or the channel has
/// passed from its daemon to this one. Its transaction has ended when this returns.
pub(crate) async fn take_worker(session: &mut Session, channel: &str, worker: u16) -> Result<()> {
    let name = quote(&worker_lock(channel, worker));
    // Without a wait: a holder is ended in any case.
    if get(session, &name, 0).await? {
        return Ok(());
    }
    let holder = holder(session, &name).await?;
    if holder != 0 {
        info!(worker, connection = holder, "ending the worker's earlier session");
        kill(session, holder).await?;
    }
    if get(session, &name, END_PATIENCE).await? {
        return Ok(());
    }
    let what = format!(
        "an earlier session of worker {worker} (connection {holder} on the target) has not ended yet"
    );
    Err(held(channel, what, false))
}

/// Ends sessions of these workers that an earlier daemon left behind. The caller holds the channel.
pub(crate) async fn end_workers(
    session: &mut Session,
    channel: &str,
    workers: impl Iterator<Item = u16>,
) -> Result<()> {
    for worker in workers {
        let holder = holder(session, &quote(&worker_lock(channel, worker))).await?;
        if holder != 0 {
            info!(worker, connection = holder, "ending a session that was left behind");
            kill(session, holder).await?;
        }
    }
    Ok(())
}

/// Ends a session if it is a worker's of this channel; false if it is not. The caller holds the channel, and
/// the session is none of its own.
pub(crate) async fn end_worker(
    session: &mut Session,
    channel: &str,
    connection: u32,
) -> Result<bool> {
    for worker in checkpoint::workers(session, channel).await? {
        if holder(session, &quote(&worker_lock(channel, worker))).await? == u64::from(connection) {
            info!(worker, connection, "ending a session that was left behind");
            kill(session, u64::from(connection)).await?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Ends the sessions that hold a lock which only the holder of the channel may have. The caller is that holder.
pub(crate) async fn end_holders(session: &mut Session, found: &FoundLock) -> Result<()> {
    for connection in found.holders.iter().filter_map(|holder| holder.connection) {
        info!(connection, lock = found.lock, "ending a session that was left behind");
        kill(session, connection).await?;
    }
    Ok(())
}

/// As [`end_workers`]; their transactions have ended when this returns.
///
/// # Errors
/// [`Error::Held`] if one takes longer.
pub(crate) async fn end_workers_now(
    session: &mut Session,
    channel: &str,
    workers: impl Iterator<Item = u16>,
) -> Result<()> {
    for worker in workers {
        let name = quote(&worker_lock(channel, worker));
        if holder(session, &name).await? != 0 {
            take_worker(session, channel, worker).await?;
            session.run(format!("DO RELEASE_LOCK({name})")).await?;
        }
    }
    Ok(())
}

/// Ends every session of this daemon on the channel, from another session.
pub(crate) async fn end_all(
    session: &mut Session,
    channel: &str,
    claimant: Claimant<'_>,
    workers: impl Iterator<Item = u16>,
) -> Result<()> {
    let Claimant { identity, earlier } = claimant;
    let control = holder(session, &quote(&lock_name(channel))).await?;
    // The workers' locks don't say whose they are, the control session's do.
    if control == 0 || control != holder(session, &quote(&daemon_lock(identity))).await? {
        return Ok(());
    }
    if earlier.map(u64::from) != Some(control) && namesake(session, control).await?.is_some() {
        return Ok(());
    }
    end_workers(session, channel, workers).await?;
    kill(session, control).await
}

async fn get(session: &mut Session, name: &str, seconds: u32) -> Result<bool> {
    let query = format!("SELECT COALESCE(GET_LOCK({name}, {seconds}), 0)");
    let rows: Vec<bool> = session.rows(&query).await?;
    Ok(rows.first() == Some(&true))
}

/// Returns the connection that holds the lock; 0 for none.
async fn holder(session: &mut Session, name: &str) -> Result<u64> {
    let query = format!("SELECT COALESCE(IS_USED_LOCK({name}), 0)");
    let rows: Vec<u64> = session.rows(&query).await?;
    Ok(rows.first().copied().unwrap_or_default())
}

async fn kill(session: &mut Session, connection: u64) -> Result<()> {
    match session.run(format!("KILL {connection}")).await {
        Err(error) if error.code() == Some(NO_SUCH_THREAD) => Ok(()),
        // Whatever then waits for its locks reports it.
        Err(error) if error.code() == Some(NOT_OWNER) => {
            warn!(connection, %error, "a session that was left behind can't be ended");
            Ok(())
        }
        other => other.map(drop),
    }
}

/// The daemon with this connection, as far as the server says.
pub(crate) async fn describe(session: &mut Session, connection: u64) -> Result<String> {
    let from = session.process(connection).await?.map(|process| format!(" from {}", process.host));
    Ok(format!("connection {connection} there{}", from.unwrap_or_default()))
}

fn held(channel: &str, what: String, by_another: bool) -> Error {
    Error::Held { channel: channel.to_owned(), what, by_another }
}

#[cfg(test)]
mod tests {
    use csa_provider::server::link::LinkError;

    use super::*;

    #[test]
    fn a_server_that_refuses_named_locks_is_told_from_others() {
        for (code, is_named) in [(1105, true), (1235, true), (1045, false)] {
            let source =
                LinkError::Server { code, message: "prohibits use of GET_LOCK".to_owned() };
            let error = without_locks(Error::Target { address: "db1:3306".to_owned(), source });
            assert_eq!(error.to_string().contains("pxc_strict_mode=MASTER"), is_named, "{error}");
            assert_eq!(error.code(), Some(code));
        }
    }

    #[test]
    fn only_an_own_session_that_does_nothing_is_ended() {
        let process = |command: &str| Process {
            host: "db1:4711".to_owned(),
            command: command.to_owned(),
            seconds: 12,
            stage: "altering table".to_owned(),
        };
        use Opener::{Another, Namesake, Us};
        for (opener, process, deal, said) in [
            (Us, Some(process("Sleep")), Deal::End, "earlier session"),
            (Us, Some(process("Query")), Deal::LetFinish, "Query for 12 s: altering table"),
            (Us, Some(process("Killed")), Deal::LetFinish, "KILL 7 there"),
            (Us, None, Deal::LetFinish, "connection 7 there"),
            (Namesake, Some(process("Sleep")), Deal::Wait, "a copy of this state directory"),
            (Namesake, Some(process("Query")), Deal::Wait, "from db1:4711"),
            (Another, Some(process("Sleep")), Deal::Wait, "Sleep for up to 12 s"),
            (Another, Some(process("Query")), Deal::Wait, "from db1:4711"),
            (Another, None, Deal::Wait, "another daemon holds it"),
        ] {
            let holder = ChannelLockHolder { connection: 7, opener, process };
            assert_eq!(holder.deal(), deal, "{holder:?}");
            assert!(holder.describe().contains(said), "{}", holder.describe());
        }
    }

    #[test]
    fn an_address_is_that_of_the_client_without_its_port() {
        for (host, expected) in [
            ("10.0.0.7:4711", "10.0.0.7"),
            ("db1.example:4711", "db1.example"),
            ("2001:db8::7:4711", "2001:db8::7"),
            ("localhost:4711", "localhost"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(address(host), expected);
        }
    }
}
