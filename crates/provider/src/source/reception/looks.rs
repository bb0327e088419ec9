//! The looks at an idle source, over connections of their own: the dump carries nothing but events until it ends, and
//! its events are taken meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::executed::{executed, not_under_way};
use super::membership;
use crate::binlog::gtid::GtidSet;
use crate::server::group::Address;
use crate::source::clock_difference::{ClockDifference, ask};
use crate::source::connection::{ConnectionError, SourceConnection};
use crate::source::history::SharedForeign;
use crate::source::options::SourceOptions;
use crate::source::side_logins::SideLogins;

/// The interval at which an idle source is checked for still having the history that was received.
const HISTORY_CHECK: Duration = Duration::from_secs(10);
/// The interval at which a member of a group is checked for still following its group.
const MEMBER_CHECK: Duration = Duration::from_secs(5);
/// The looks in turn that have to find the same other server, and the same transactions there, before a link is ended.
const LOOKS_ELSEWHERE: u32 = 2;
/// `ER_UNKNOWN_COM_ERROR`: the answer of a node of a Galera cluster that has lost its majority. Its dumps continue.
const NOT_READY: u16 = 1047;

/// The answers of a source.
#[derive(Default)]
pub(super) struct Look {
    /// The received transactions that it no longer has.
    lacking: GtidSet,
    clock: Option<ClockDifference>,
    /// The reason why another member of its group should take its place.
    fault: Option<String>,
    /// Set where another server has answered: nothing else is known then.
    elsewhere: Option<Elsewhere>,
}

/// A server that is not the dump's, and has the dump's address.
struct Elsewhere {
    uuid: String,
    /// The transactions that it has, and that the dump has neither sent nor still to send.
    more: GtidSet,
    /// The looks in turn that have found this.
    looks: u32,
}

/// The server that was left last for another one with its address.
#[derive(Debug)]
pub(super) struct LeftServer {
    pub(super) uuid: String,
    /// The looks that it takes the next time, twice as many each time: an address that leads to several servers in turn
    /// would otherwise end one link after another.
    looks: u32,
}

type Looking = Pin<Box<dyn Future<Output = Result<Look, ConnectionError>> + Send>>;

/// Checks from time to time that the source still has what was received from it.
///
/// A source that is reset during a dump sends heartbeats and nothing else: its dump waits at the
/// end of a file that no longer exists. It refuses a new dump, though, so the link is then closed
/// to begin one.
pub(super) struct Looks {
    checked: Instant,
    lacking: GtidSet,
    /// The other server that the last look has found.
    elsewhere: Option<Elsewhere>,
    /// The last look was refused by a node that is not ready.
    is_unready: bool,
    /// The look under way.
    looking: Option<Looking>,
}

impl Looks {
    pub(super) fn new() -> Self {
        Self {
            checked: Instant::now(),
            lacking: GtidSet::new(),
            elsewhere: None,
            is_unready: false,
            looking: None,
        }
    }

    /// Returns true if it is time for a look.
    pub(super) fn is_due(&self, options: &SourceOptions, logins: &SideLogins) -> bool {
        let every = if options.group.is_some() { MEMBER_CHECK } else { HISTORY_CHECK };
        let due = (self.checked + every).max(logins.earliest());
        self.looking.is_none() && Instant::now() >= due
    }

    pub(super) fn begin(
        &mut self,
        look: impl Future<Output = Result<Look, ConnectionError>> + Send + 'static,
    ) {
        self.looking = Some(Box::pin(look));
    }

    /// Waits for the end of the look under way, and without one for ever. Nothing is lost if it is dropped meanwhile.
    pub(super) async fn ended(&mut self) -> Result<Look, ConnectionError> {
        let Some(looking) = &mut self.looking else { return std::future::pending().await };
        let looked = looking.await;
        self.looking = None;
        looked
    }

    /// Returns what is new of the clock of the dump's server, `uuid`. A failed look does not count: the link will show if
    /// the source is gone. Only a node that is not ready does not show it. The same has to be found twice, because a link
    /// that is in order is not closed lightly. `left` is the server that was left last.
    ///
    /// # Errors
    /// The link has to end.
    pub(super) fn note(
        &mut self,
        looked: Result<Look, ConnectionError>,
        uuid: &str,
        left: &mut Option<LeftServer>,
    ) -> Result<Option<ClockDifference>, ConnectionError> {
        self.checked = Instant::now();
        let refusal = looked.as_ref().err().filter(|error| error.code() == Some(NOT_READY));
        if std::mem::replace(&mut self.is_unready, refusal.is_some())
            && let Some(refusal) = refusal
        {
            return Err(ConnectionError::Protocol(format!(
                "the source sends heartbeats and refuses to be asked; asking again: {refusal}"
            )));
        }
        let Look { lacking, clock, fault, elsewhere } = looked.unwrap_or_default();
        let before = self.elsewhere.take();
        if let Some(found) = elsewhere {
            let found = found.after(before);
            self.elsewhere = Some(found.unless_left(uuid, left)?);
            return Ok(None);
        }
        if !lacking.is_empty() && lacking == self.lacking {
            return Err(ConnectionError::Protocol(format!(
                "the source no longer has {lacking}, which was received; asking again from there"
            )));
        }
        self.lacking = lacking;
        match fault {
            Some(fault) => Err(ConnectionError::Protocol(format!(
                "leaving this member for another one: {fault}"
            ))),
            None => Ok(clock),
        }
    }
}

impl Elsewhere {
    /// Counts the looks before that have found the same. A dump that was only late has sent it by now.
    fn after(self, before: Option<Self>) -> Self {
        let Some(before) = before.filter(|before| before.uuid == self.uuid) else { return self };
        let more = before.more.intersection(&self.more);
        match more.is_empty() {
            true => self,
            false => Self { more, looks: before.looks + 1, ..self },
        }
    }

    /// Returns itself unless the dump's server, `uuid`, has to be left for it.
    fn unless_left(
        self,
        uuid: &str,
        left: &mut Option<LeftServer>,
    ) -> Result<Self, ConnectionError> {
        let again = left.as_ref().filter(|left| left.uuid == uuid);
        let needed = again.map_or(LOOKS_ELSEWHERE, |left| left.looks);
        if self.looks < needed {
            return Ok(self);
        }
        *left = Some(LeftServer { uuid: uuid.to_owned(), looks: needed.saturating_mul(2) });
        Err(ConnectionError::Protocol(format!(
            "the source {uuid} is idle, and its address leads to {} now, which has more: {}; asking there",
            self.uuid,
            self.more.brief()
        )))
    }
}

/// Asks a source for what it neither has of `received` nor is committing, for its clock, and for its place in its
/// group. Transactions of other servers count, because a replica of the source has hardly any of its own. If it is not
/// the server `uuid`, which has yet to send `awaited`, only what it has beyond that counts.
pub(super) async fn look(
    options: SourceOptions,
    (host, port): Address,
    uuid: String,
    (received, awaited): (GtidSet, GtidSet),
    foreign: SharedForeign,
) -> Result<Look, ConnectionError> {
    let mut connection = SourceConnection::connect(&options, &host, port).await?;
    let found = connection.setting("SELECT @@server_uuid").await?;
    let executed = executed(&mut connection).await?;
    if found != uuid {
        connection.quit().await;
        let more = executed.difference(&received).difference(&awaited);
        let elsewhere = Some(Elsewhere { uuid: found, more, looks: 1 });
        return Ok(Look { elsewhere, ..Look::default() });
    }
    let lacking = foreign.lacking(&received, &executed);
    let lacking = not_under_way(&mut connection, lacking).await?;
    let clock = ask(&mut connection, &*options.environment.clock).await.ok();
    let fault = match options.group {
        Some(_) => membership::fault(&mut connection).await,
        None => None,
    };
    connection.quit().await;
    Ok(Look { lacking, clock, fault, elsewhere: None })
}
