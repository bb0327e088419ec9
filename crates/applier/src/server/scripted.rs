//! A target for tests that keeps one checkpoint row and loses the answers that a test names.

use std::collections::VecDeque;
use std::sync::Arc;

use csa_provider::server::link::{Limits, LinkError, NextRows, Row, RowPart};
use csa_provider::test_util::row;
use parking_lot::Mutex;

use super::answer::Answer;
use super::generation::Place;
use super::port::{Pending, TargetLink};
use super::target::{Connector, Target};
use crate::error::Result;
use crate::options::{TargetGtids, TargetOptions, TlsOptions};

/// The fate of a COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The link dies before the server has it.
    Lost,
    /// The server commits, and the link dies before its answer arrives.
    AnswerLost,
    /// The server answers with this error.
    Refused(u16),
    /// The one that was lost takes effect now, and the server ends this transaction as the victim of a deadlock.
    Overtaken,
}

/// The server; clones are the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scripted {
    state: Arc<Mutex<ScriptedState>>,
}

#[derive(Debug, Default)]
pub(crate) struct ScriptedState {
    /// Connections opened so far.
    pub(crate) connections: u32,
    pub(crate) begun: u32,
    pub(crate) commits: u32,
    /// `gtid_executed` in the checkpoint row.
    pub(crate) executed: String,
    /// Statements that create something.
    pub(crate) created: u32,
    /// The packets of statements so far.
    pub(crate) sent: Vec<String>,
    /// It has all of our tables.
    pub(crate) has_tables: bool,
    /// The seconds by which its clock has moved at each answer about the time.
    pub(crate) seconds_between: i64,
    seconds: i64,
    /// It has no binary log.
    pub(crate) has_no_log: bool,
    /// Connections that wait for a lock, each with the one under which the lock is shown.
    pub(crate) lock_waits: Vec<(u32, u32)>,
    /// Connections that wait for a lock, each with the one whose transaction has it.
    pub(crate) lock_waits_by_transaction: Vec<(u32, u32)>,
    /// The fates of the COMMITs to come; those after them succeed.
    pub(crate) fates: VecDeque<Fate>,
    /// It is a node of a Galera cluster.
    pub(crate) is_galera: bool,
    /// The error of the next COM_SET_OPTION.
    pub(crate) option_error: Option<LinkError>,
    /// The errors of the INSERTs to come; those after them succeed.
    pub(crate) refusals: VecDeque<u16>,
    /// The row of `csa.statement`, which no statement changes: its GTID and `executed`.
    pub(crate) entry: Option<(String, i8)>,
}

#[derive(Debug)]
struct Connection {
    id: u32,
    state: Arc<Mutex<ScriptedState>>,
    sent: String,
    takes_several: bool,
    /// The GTID set that the open transaction wrote to the checkpoint row.
    written: Option<String>,
}

impl Scripted {
    pub(crate) const EPOCH: u64 = 3;

    pub(crate) fn losing(fates: &[Fate]) -> Self {
        let scripted = Self::default();
        scripted.state.lock().fates.extend(fates);
        scripted
    }

    pub(crate) fn state(&self) -> parking_lot::MutexGuard<'_, ScriptedState> {
        self.state.lock()
    }

    /// Returns the place where its channel's lock is held.
    pub(crate) fn place() -> Place {
        Place { server: "scripted".to_owned(), holder: 7 }
    }

    pub(crate) fn target(&self) -> Target {
        Target::new(options(), self.clone())
    }
}

/// Returns the options of a scripted target.
pub(crate) fn options() -> TargetOptions {
    TargetOptions {
        host: "scripted".to_owned(),
        port: 3306,
        socket: None,
        user: "csa".to_owned(),
        password: String::new().into(),
        tls: TlsOptions::default(),
        connect_timeout: std::time::Duration::from_secs(1),
        net_timeout: std::time::Duration::from_secs(60),
        gtids: TargetGtids::Own,
        executor: None,
        collation_map: Default::default(),
        route: Default::default(),
    }
}

impl Connector for Scripted {
    fn connect<'a>(&'a self, _: &'a TargetOptions) -> Pending<'a, Result<Box<dyn TargetLink>>> {
        let mut state = self.state.lock();
        state.connections += 1;
        let link: Box<dyn TargetLink> = Box::new(Connection {
            id: state.connections,
            state: Arc::clone(&self.state),
            sent: String::new(),
            takes_several: true,
            written: None,
        });
        Box::pin(async { Ok(link) })
    }
}

fn refused(code: u16) -> LinkError {
    LinkError::Server { code, message: "refused".to_owned() }
}

impl Connection {
    fn answer(&mut self, statement: &str) -> std::result::Result<Answer, LinkError> {
        let mut state = self.state.lock();
        let mut rows = 0;
        if let Some((_, rest)) = statement.split_once("gtid_executed='") {
            self.written = rest.split_once('\'').map(|(executed, _)| executed.to_owned());
            rows = 1;
        }
        match statement {
            "BEGIN" => state.begun += 1,
            "ROLLBACK" => self.written = None,
            _ if statement.starts_with("CREATE ") => state.created += 1,
            _ if statement.starts_with("INSERT ") => {
                if let Some(code) = state.refusals.pop_front() {
                    return Err(refused(code));
                }
            }
            "COMMIT" => {
                let fate = state.fates.pop_front();
                match fate {
                    Some(Fate::Lost) => return Err(LinkError::Closed),
                    Some(Fate::Refused(code)) => {
                        return Err(refused(code));
                    }
                    Some(Fate::AnswerLost | Fate::Overtaken) | None => {}
                }
                if let Some(written) = self.written.take() {
                    state.executed = written;
                    state.commits += 1;
                }
                match fate {
                    Some(Fate::AnswerLost) => return Err(LinkError::Closed),
                    Some(Fate::Overtaken) => return Err(refused(1213)),
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(Answer { rows, ..Answer::default() })
    }

    fn rows(&self, query: &str) -> Vec<Row> {
        let mut state = self.state.lock();
        state.seconds += state.seconds_between;
        let pair = |(waits, blocks): &(u32, u32)| row(&[&waits.to_string(), &blocks.to_string()]);
        if query.contains("JOIN performance_schema.data_locks") {
            return state.lock_waits_by_transaction.iter().map(pair).collect();
        }
        if query.contains("data_lock_waits") {
            return state.lock_waits.iter().map(pair).collect();
        }
        if query.contains("FROM csa.statement") {
            let found = |(gtid, executed): &(String, i8)| row(&[gtid, &executed.to_string()]);
            return state.entry.iter().map(found).collect();
        }
        if query.contains("'wsrep_on'") {
            return state.is_galera.then(|| row(&["wsrep_on", "ON"])).into_iter().collect();
        }
        let Place { server, holder } = Scripted::place();
        let found: &[&str] = match query {
            "SELECT @@version, @@version_comment, CONNECTION_ID() LIMIT 1" => {
                &["9.7.4", "MySQL Community Server - GPL", &self.id.to_string()]
            }
            "SELECT @@SESSION.max_allowed_packet" => &["67108864"],
            "SELECT UNIX_TIMESTAMP()" => &[&(1000 + state.seconds).to_string()],
            "SHOW GLOBAL STATUS LIKE 'Uptime'" => &["Uptime", "100"],
            "SELECT @@GLOBAL.log_bin" => &[if state.has_no_log { "0" } else { "1" }],
            _ if query.contains("information_schema.tables") => {
                &[if state.has_tables { "1" } else { "0" }]
            }
            "SHOW SESSION VARIABLES LIKE 'default_collation_for_utf8mb4'" => {
                &["default_collation_for_utf8mb4", "utf8mb4_0900_ai_ci"]
            }
            _ if query.contains("server_uuid") => &[&server, &holder.to_string()],
            _ if query.contains("GET_LOCK(") => &["1"],
            // It has executed whatever it is asked about.
            _ if query.contains("GTID_SUBSET(") => &["1"],
            _ if query.ends_with("FOR UPDATE") => &[&state.executed, &Scripted::EPOCH.to_string()],
            _ => panic!("not in the script: {query}"),
        };
        vec![row(found)]
    }
}

impl TargetLink for Connection {
    /// Returns another number than the server's, as a router does.
    fn id(&self) -> u32 {
        0
    }

    fn begin<'a>(
        &'a mut self,
        statements: &'a [u8],
    ) -> Pending<'a, std::result::Result<(), LinkError>> {
        self.sent = String::from_utf8_lossy(statements).into_owned();
        self.state.lock().sent.push(self.sent.clone());
        Box::pin(async { Ok(()) })
    }

    fn answers(
        &mut self,
        _: Limits,
        _: usize,
    ) -> Pending<'_, std::result::Result<Vec<Answer>, LinkError>> {
        let sent = std::mem::take(&mut self.sent);
        if !self.takes_several && sent.contains(';') {
            let message = "a second statement".to_owned();
            return Box::pin(async { Err(LinkError::Server { code: 1064, message }) });
        }
        let answers = sent.split(';').map(|statement| self.answer(statement.trim())).collect();
        Box::pin(async { answers })
    }

    fn query<'a>(
        &'a mut self,
        query: &'a str,
        _: Limits,
    ) -> Pending<'a, std::result::Result<Vec<Row>, LinkError>> {
        let rows = self.rows(query);
        Box::pin(async { Ok(rows) })
    }

    fn next_rows(&mut self, _: RowPart) -> Pending<'_, std::result::Result<NextRows, LinkError>> {
        panic!("not in the script: rows in parts")
    }

    fn take_several(&mut self, several: bool) -> Pending<'_, std::result::Result<(), LinkError>> {
        let error = self.state.lock().option_error.take();
        if error.is_none() {
            self.takes_several = several;
        }
        Box::pin(async { error.map_or(Ok(()), Err) })
    }

    fn quit(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async {})
    }
}
