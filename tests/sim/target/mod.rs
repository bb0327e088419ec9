//! A model of a MySQL 9.7 server as the applier sees it: tables with keys and references, sessions with
//! transactions and row locks, GTIDs, and faults. It is pure state apart from the sessions, which are
//! tasks on tokio's clock; nothing depends on a wall clock or on chance.

mod binlog;
mod catalogue;
mod core;
mod define;
mod execute;
mod faults;
mod link;
mod row_locks;
mod rows;
mod session;
mod sql;
mod state;
mod transaction;
mod xa;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use csa_applier::{Target, TargetGtids, TargetOptions, TlsOptions};
use csa_provider::binlog::{Gtid, Uuid};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Duration;

use crate::branches::PREPARED;
use crate::history::{Contents, Transaction};

pub(crate) use self::core::Conflicts;
use self::core::Core;
pub(crate) use faults::{Crash, Faults, NoFaults, Run, Transit};
pub(crate) use state::{Row, Rows, State, TableName, Value};

/// Sees every state that a client could see.
pub(crate) trait Observer: Send {
    /// After a commit.
    fn committed(&mut self, state: &State);

    /// After a crash, which may have lost commits.
    fn restarted(&mut self, _state: &State) {}
}

/// The server; clones are the same one.
#[derive(Clone)]
pub(crate) struct Server {
    core: Arc<Mutex<Core>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    /// Returns an empty server. A crash may lose as many of its last commits as `may_lose`.
    pub(crate) fn new(
        uuid: Uuid,
        may_lose: usize,
        faults: impl Faults + 'static,
        observer: impl Observer + 'static,
    ) -> Self {
        let core = Core::new(uuid, may_lose, Box::new(faults), Box::new(observer));
        Self { core: Arc::new(Mutex::new(core)) }
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    /// Runs definitions and changes outside of the simulation, as a provisioned copy has them.
    pub(crate) fn provision(&self, statements: &[&str]) {
        for text in statements {
            assert!(self.operate(text), "{text}");
        }
        self.core().sync();
    }

    /// Defines tables without a trace in the log, as a source has them before its history.
    pub(crate) fn define(&self, statements: &[&str]) {
        let mut core = self.core();
        for text in statements {
            let defined = define::defined(&core.state, &sql::parse(text, ""));
            core.state = defined.unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }

    /// Returns true if the history's definition was run: it would fail.
    pub(crate) fn has_defined(&self, definition: &str) -> bool {
        define::defined(&self.core().state, &sql::parse(definition, "app")).is_err()
    }

    /// Refuses queries of replicated tables for more rows.
    pub(crate) fn limit_rows(&self, most: u64) {
        self.core().most_rows = Some(most);
    }

    /// A transaction of the history is in the log, and nobody sees it yet.
    pub(crate) fn log(&self, gtid: &Gtid) {
        self.core().log.add(gtid);
    }

    /// Everyone sees the next transaction of the history, and `gtid_executed` lacks it still.
    pub(crate) fn show(&self, transaction: &Transaction, contents: &Contents) {
        let mut core = self.core();
        if let Some(text) = &transaction.definition {
            let defined = define::defined(&core.state, &sql::parse(text, "app"));
            core.state = defined.unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        for (name, rows) in contents.iter().filter(|(name, _)| *name != PREPARED) {
            let table = core.state.tables.get_mut(&("app".to_owned(), name.clone()));
            table.expect("a table of the history").rows = Arc::new(rows.clone());
        }
        core.log.prepared = contents[PREPARED].len();
    }

    /// A transaction of the history is committed.
    pub(crate) fn executed(&self, gtid: &Gtid) {
        self.core().state.executed.add(gtid);
    }

    /// Runs a statement as an operator does, without faults; false if it would have to wait or fails.
    pub(crate) fn operate(&self, text: &str) -> bool {
        let mut core = self.core();
        let (id, _) = core.open();
        let step = core.step(id, &sql::parse(text, ""), false);
        core.end(id);
        matches!(step, core::Step::Done(_))
    }

    /// Prints every statement and its outcome from now on.
    pub(crate) fn trace(&self) {
        self.core().is_traced = true;
    }

    /// Looks at everything that is committed.
    pub(crate) fn with_state<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.core().state)
    }

    /// Returns a number that two runs share only if the same happened at the same times.
    pub(crate) fn digest(&self) -> u64 {
        self.core().digest()
    }

    /// Returns the sessions that were in each other's way so far.
    pub(crate) fn conflicts(&self) -> Conflicts {
        self.core().conflicts
    }

    /// Waits for a session to panic; its message is on standard error.
    pub(crate) async fn broken(&self) {
        let broken = self.core().broken.clone();
        broken.cancelled().await;
    }

    /// Ends a session: one with a named lock, or any.
    pub(crate) fn end_session(&self, with_lock: bool, number: usize) {
        let core = self.core();
        let sessions: Vec<u32> = match with_lock {
            true => core.named.values().copied().collect(),
            false => core.sessions.keys().copied().collect(),
        };
        let Some(id) = sessions.get(number % sessions.len().max(1)) else { return };
        if let Some(session) = core.sessions.get(id) {
            session.ended.cancel();
        }
    }

    /// A restart.
    pub(crate) fn crash(&self, crash: Crash) {
        self.core().crash(crash);
    }

    /// Returns the server as a target of the applier.
    pub(crate) fn target(&self, gtids: TargetGtids) -> Target {
        Target::new(Self::options(gtids), self.clone())
    }

    pub(crate) fn options(gtids: TargetGtids) -> TargetOptions {
        TargetOptions {
            host: "simulated".to_owned(),
            port: 3306,
            socket: None,
            user: "csa".to_owned(),
            password: String::new().into(),
            tls: TlsOptions::default(),
            connect_timeout: Duration::from_secs(10),
            net_timeout: Duration::from_secs(60),
            gtids,
            executor: None,
            collation_map: Default::default(),
            route: Default::default(),
        }
    }
}
