//! The target's definitions, as far as they decide which groups may run at the same time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use csa_provider::binlog::{GtidSet, Uuid};
use csa_provider::seams::{Backoff, Chance};
use csa_provider::sql_text::{identifier, quote};
use csa_scheduler::key_source::{KeySource, KeySourceError};
use csa_scheduler::keys::{TableId, TableKeys};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::collations::Collations;
use super::doubts::Doubts;
use super::keys;
use super::known::KnownDefinitions;
use super::references::{self, References};
use super::{TableName, folding};
use crate::commits::Commits;
use crate::error::{Error, Result};
use crate::options::ApplierOptions;
use crate::server::facts;
use crate::server::generation::Generation;
use crate::server::port::Pending;
use crate::server::reachability::Reachability;
use crate::server::room::{Party, SessionClaim};
use crate::server::session::Session;
use crate::server::target::Target;

/// Pauses between attempts, if no channel sets them.
const RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
const USER_SCHEMAS: &str =
    "TABLE_SCHEMA NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema')";
const UNKNOWN_DATABASE: u16 = 1049;
/// The time that a server may take to commit what it has sent to replicas.
const COMMIT_SECONDS: u32 = 10;
const NO_SUCH_TRIGGER: u16 = 1360;

/// Reads keys from the target, for the task that admits transactions.
///
/// Definitions stay valid until a statement is executed; [`KeySource::forget`] must then be called. What others change
/// on the target shows only in groups that it refuses ([`KeySource::is_doubted`]).
#[derive(Debug)]
pub struct TargetCatalogue {
    target: Target,
    end: CancellationToken,
    channel: Option<OfChannel>,
    /// The pauses between attempts to reach the target, from the first.
    retry: Backoff,
    session: Option<Session>,
    /// `lower_case_table_names` is not 0.
    folds_case: bool,
    collations: Collations,
    known: KnownDefinitions,
    gtids: ServerGtids,
}

/// The target's GTIDs, as far as they were read; another server in its place has others.
#[derive(Debug, Default)]
struct ServerGtids {
    /// The target's `server_uuid`, once it was read.
    server: Option<Option<Uuid>>,
    /// The target's `gtid_executed` when it was last read.
    executed: GtidSet,
    /// Transactions of the target's own for which the catalogue has waited without success.
    lost: GtidSet,
}

/// The channel that definitions are read for.
#[derive(Debug)]
struct OfChannel {
    name: String,
    generation: Generation,
    reachability: Reachability,
    /// Servers that have been its target.
    own_servers: BTreeSet<Uuid>,
    chance: Arc<dyn Chance>,
    doubts: Doubts,
}

impl TargetCatalogue {
    /// Reads nothing before the first table is asked for. Cancelling `end` ends the wait for a target
    /// that is away.
    #[must_use]
    pub fn new(target: Target, end: CancellationToken) -> Self {
        Self {
            target,
            end,
            channel: None,
            retry: RETRY,
            session: None,
            folds_case: false,
            collations: Collations::default(),
            known: KnownDefinitions::default(),
            gtids: ServerGtids::default(),
        }
    }

    /// Reads only where the channel is held: another server may have other keys, or older ones. A lost
    /// target shows in `reachability`.
    #[must_use]
    pub fn of_channel(
        mut self,
        options: &ApplierOptions,
        generation: Generation,
        reachability: Reachability,
        own_servers: BTreeSet<Uuid>,
        commits: Commits,
    ) -> Self {
        self.retry = options.backoff();
        let (name, chance) = (options.channel.clone(), Arc::clone(&options.chance));
        let doubts = Doubts::of(commits);
        self.channel =
            Some(OfChannel { name, generation, reachability, own_servers, chance, doubts });
        self
    }

    /// Waits for the target.
    async fn lost(&mut self, error: &Error, backoff: &mut Backoff) {
        self.session = None;
        let usual = backoff.pause();
        let pause = self.channel.as_ref().map_or(usual, |it| error.pause(usual, &*it.chance));
        match &self.channel {
            Some(channel) => {
                channel.reachability.lost(Party::Catalogue, error);
                channel.reachability.waits(Party::Catalogue, pause);
                channel.generation.suspect();
                tokio::select! {
                    biased;
                    () = channel.generation.next() => {}
                    () = self.target.password.pause(pause) => {}
                }
            }
            None => {
                warn!(%error, "the target's definitions can't be read, trying again in {pause:?}");
                tokio::time::sleep(pause).await;
            }
        }
    }

    fn reached(&self) {
        if let Some(channel) = &self.channel {
            channel.reachability.reached(Party::Catalogue);
        }
    }

    /// Asks until the target answers or the channel ends.
    // An AsyncFn can't promise that its futures are Send.
    async fn ask<T: Send>(
        &mut self,
        question: impl for<'c> Fn(&'c mut Self) -> Pending<'c, Result<T>> + Send + Sync,
    ) -> std::result::Result<T, KeySourceError> {
        let end = self.end.clone();
        let answer = async {
            let mut backoff = self.retry;
            let mut is_lost = false;
            loop {
                match question(self).await {
                    Err(error) if error.is_passing() => {
                        is_lost = true;
                        self.lost(&error, &mut backoff).await;
                    }
                    other => {
                        if is_lost {
                            self.reached();
                        }
                        self.park().await;
                        return other;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = end.cancelled() => Err(Error::Stopping.into()),
            answer = answer => answer.map_err(Into::into),
        }
    }

    /// Returns the target's `server_uuid`.
    async fn server(&mut self) -> std::result::Result<Option<Uuid>, KeySourceError> {
        if let Some(server) = self.gtids.server {
            return Ok(server);
        }
        let server = self
            .ask(|catalogue| {
                Box::pin(async { facts::server_uuid(catalogue.session().await?).await })
            })
            .await?;
        self.gtids.server = Some(server);
        Ok(server)
    }

    /// Leaves the session to whoever needs its room before the next question.
    async fn park(&mut self) {
        if let Some(channel) = &self.channel
            && let Some(session) = self.session.take()
            && let Some(session) = channel.reachability.room().park(Party::Catalogue, session, 0)
        {
            session.close().await;
        }
    }

    /// Returns a session where the channel is held, once there is room for it.
    // A shared borrow could not be sent to another thread: a target's link is not Sync.
    async fn opened(&mut self) -> Result<Session> {
        let Some(channel) = &self.channel else { return Session::connect(&self.target).await };
        let entry = (SessionClaim::Catalogue, Party::Catalogue);
        let target = self.target.in_room(channel.reachability.room().of_session());
        let open = || admitted(&target, &channel.generation, &channel.name);
        let OfChannel { generation, reachability, chance, .. } = channel;
        let (session, _) = reachability.open(entry, generation, &**chance, open).await?;
        Ok(session)
    }

    async fn session(&mut self) -> Result<&mut Session> {
        if self.session.is_none()
            && let Some(channel) = &self.channel
        {
            let parked = channel.reachability.room().unpark(Party::Catalogue);
            self.session = parked.map(|(session, _)| session);
        }
        let session = match self.session.take() {
            Some(session) => session,
            None => {
                let mut session = self.opened().await?;
                let rows: Vec<u8> = session.rows("SELECT @@GLOBAL.lower_case_table_names").await?;
                self.folds_case = rows.first().is_some_and(|&mode| mode != 0);
                // It may have come back as another server, or as an older one.
                self.gtids = ServerGtids::default();
                session
            }
        };
        Ok(self.session.insert(session))
    }

    async fn load(&mut self, name: &TableName) -> Result<(TableId, Option<Arc<TableKeys>>)> {
        // Connects first: `folds_case` is read with the session.
        self.session().await?;
        let fold = folding(self.folds_case);
        let name = (fold(name.0.clone()), fold(name.1.clone()));
        let id = self.known.id(&name);
        self.read(&name).await?;
        let references = self.read_references().await?;
        // A parent's keys number this table's references, and cascades change rows that no event names.
        let cascades_to = references.cascades_from(&name);
        for other in references.parents_of(&name).iter().chain(&cascades_to) {
            self.read(other).await?;
        }
        let keys = self.known.assemble(&name, &references, &cascades_to);
        debug!(
            schema = name.0,
            table = name.1,
            known = keys.is_some(),
            "keys read from the target"
        );
        Ok((id, keys.map(Arc::new)))
    }

    async fn read(&mut self, name: &TableName) -> Result<()> {
        self.known.ahead.needed(&name.0);
        if self.known.definitions.contains_key(name) {
            return Ok(());
        }
        let Some(session) = self.session.as_mut() else { return Ok(()) };
        let fold = folding(self.folds_case);
        let schema = &name.0;
        let KnownDefinitions { ahead, definitions, .. } = &mut self.known;
        let tables = ahead.along_with(session, name, fold, definitions).await?;
        let mut found = keys::read(session, &mut self.collations, schema, &tables, fold).await?;
        for table in tables {
            let definition = found.remove(&table);
            self.known.definitions.insert((schema.clone(), table), definition);
        }
        Ok(())
    }

    async fn read_references(&mut self) -> Result<Arc<References>> {
        if let Some(references) = &self.known.references {
            return Ok(Arc::clone(references));
        }
        let references = match self.session.as_mut() {
            Some(session) => references::read(session, self.folds_case).await?,
            None => References::default(),
        };
        Ok(Arc::clone(self.known.references.insert(Arc::new(references))))
    }
}

async fn admitted(
    target: &Target,
    generation: &Generation,
    channel: &str,
) -> Result<(Session, u64)> {
    let mut session = Session::connect(target).await?;
    let number = generation.admit(&mut session, channel).await.map_err(Error::connecting)?;
    Ok((session, number))
}

impl KeySource for TargetCatalogue {
    async fn table(
        &mut self,
        schema: &[u8],
        table: &[u8],
    ) -> std::result::Result<(TableId, Option<Arc<TableKeys>>), KeySourceError> {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let name = (text(schema), text(table));
        self.ask(|catalogue| {
            let name = name.clone();
            Box::pin(async move { catalogue.load(&name).await })
        })
        .await
    }

    async fn trigger_table(
        &mut self,
        schema: &str,
        trigger: &str,
    ) -> std::result::Result<Option<String>, KeySourceError> {
        let query = format!(
            "SELECT EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS \
             WHERE TRIGGER_SCHEMA={} AND TRIGGER_NAME={}",
            quote(schema),
            quote(trigger)
        );
        let show = format!("SHOW CREATE TRIGGER {}.{}", identifier(schema), identifier(trigger));
        let name = format!("{schema}.{trigger}");
        self.ask(|catalogue| {
            let (query, show, name) = (query.clone(), show.clone(), name.clone());
            Box::pin(async move {
                let session = catalogue.session().await?;
                let rows: Vec<String> = session.rows(&query).await?;
                if let Some(table) = rows.into_iter().next() {
                    return Ok(Some(table));
                }
                // information_schema also leaves out triggers that this account may not see, so an empty
                // result does not prove that there is none.
                match session.run(&show).await {
                    Err(error)
                        if matches!(error.code(), Some(NO_SUCH_TRIGGER | UNKNOWN_DATABASE)) =>
                    {
                        Ok(None)
                    }
                    Err(error) => Err(error),
                    Ok(_) => {
                        Err(session.server().unexpected(format!("the table of trigger {name}")))
                    }
                }
            })
        })
        .await
    }

    async fn has_not_transactional(&mut self) -> std::result::Result<bool, KeySourceError> {
        if let Some(known) = self.known.not_transactional {
            return Ok(known);
        }
        let found = self.ask(|catalogue| {
            Box::pin(async {
                let session = catalogue.session().await?;
                keys::has_not_transactional(session, USER_SCHEMAS).await
            })
        });
        let found = found.await?;
        self.known.not_transactional = Some(found);
        Ok(found)
    }

    async fn is_own(&mut self, server: &Uuid) -> std::result::Result<bool, KeySourceError> {
        if self.channel.as_ref().is_some_and(|channel| channel.own_servers.contains(server)) {
            return Ok(true);
        }
        Ok(self.server().await? == Some(*server))
    }

    /// The target's own transactions can come back before it has executed them: it sends them to replicas
    /// between their sync to the binary log and their commit. So they are waited for.
    async fn executed(&mut self, wanted: &GtidSet) -> std::result::Result<GtidSet, KeySourceError> {
        // One read before is enough where it has all, and saves a round trip per transaction.
        if !wanted.is_subset_of(&self.gtids.executed) {
            self.gtids.executed = self
                .ask(|catalogue| {
                    Box::pin(async { facts::executed(catalogue.session().await?).await })
                })
                .await?;
        }
        let server = self.server().await?;
        let missing = wanted.difference(&self.gtids.executed);
        let missing = missing.of_servers(|uuid| Some(*uuid) == server);
        // One that was lost must not delay each later one, nor let those pass that are still on their way.
        let missing = missing.difference(&self.gtids.lost);
        if !missing.is_empty() {
            let wait = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{missing}', {COMMIT_SECONDS})");
            self.gtids.executed = self
                .ask(|catalogue| {
                    let wait = wait.clone();
                    Box::pin(async move {
                        let session = catalogue.session().await?;
                        let _: Vec<u8> = session.rows(&wait).await?;
                        facts::executed(session).await
                    })
                })
                .await?;
            self.gtids.lost.union(&missing.difference(&self.gtids.executed));
        }
        Ok(self.gtids.executed.intersection(wanted))
    }

    fn go_on(&self) -> std::result::Result<(), KeySourceError> {
        match self.end.is_cancelled() {
            true => Err(Error::Stopping.into()),
            false => Ok(()),
        }
    }

    fn is_doubted(&mut self) -> bool {
        let is_due = self.channel.as_mut().is_some_and(|channel| channel.doubts.are_due());
        if is_due {
            info!(
                "reading the target's definitions again: a group was applied one by one, and somebody may have changed them"
            );
        }
        is_due
    }

    fn forget(&mut self) {
        self.known.forget();
    }
}
