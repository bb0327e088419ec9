//! A session in the server: a task of its own, because a server finishes a statement whatever became of
//! the client.

use std::future::Future;

use csa_provider::server::link::LinkError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Duration, Instant, sleep, timeout, timeout_at};

use super::Server;
use super::core::{Answered, Step, deadlock, refused};
use super::faults::{Run, Transit};
use super::row_locks::Woken;
use super::sql;

/// Missing rows, duplicate keys, references, deadlocks and waits that took too long.
const CONFLICTS: [u16; 6] = [1032, 1062, 1451, 1452, 1213, 1205];

/// Fails unless the statement before it matched one row; a SET SESSION ends with it.
const ONE_ROW_OR_ERROR: &str = "completion_type=ELT(ROW_COUNT(),'NO_CHAIN')";

/// Fails unless a GTID is executed within some seconds.
const EXECUTED_OR_ERROR: &str =
    "SET SESSION completion_type=ELT(1-WAIT_FOR_EXECUTED_GTID_SET(_utf8mb4'";

/// Statements of a client.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) packet: String,
    pub(super) reply: oneshot::Sender<Reply>,
}

/// Answers, and the time at which they arrive; `None`: never, and the client does not notice.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) at: Instant,
    pub(super) answers: Option<Result<Vec<Answered>, LinkError>>,
}

/// The link is lost; the server notices after this time.
struct Lost(Duration);

pub(super) struct Session {
    server: Server,
    id: u32,
}

impl Session {
    /// Serves requests until the client is gone, or somebody ends the session.
    pub(super) fn serve(
        server: Server,
        id: u32,
        ended: impl Future<Output = ()> + Send + 'static,
        requests: mpsc::UnboundedReceiver<Request>,
    ) {
        let session = Self { server, id };
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = ended => {}
                () = session.converse(requests) => {}
            }
        });
    }

    async fn converse(&self, mut requests: mpsc::UnboundedReceiver<Request>) {
        loop {
            let Some(limit) = self.server.core().idle_limit(self.id) else { return };
            match timeout(limit, requests.recv()).await {
                Ok(Some(request)) => {
                    if let Err(Lost(noticed)) = self.handle(request).await {
                        // Waiting for the next statement, the server ends the session in any case.
                        return sleep(noticed.min(limit)).await;
                    }
                }
                Ok(None) => {
                    let noticed = self.server.core().faults.hang_up();
                    return sleep(noticed.min(limit)).await;
                }
                Err(_) => return,
            }
        }
    }

    async fn handle(&self, Request { packet, reply }: Request) -> Result<(), Lost> {
        let there = self.server.core().faults.request(&packet);
        if let Err((lost, answers)) = self.pass(there).await {
            // The client may have given up.
            let _ = reply.send(Reply { at: Instant::now(), answers });
            return Err(lost);
        }
        self.server.core().busy(self.id, true);
        let answers = self.run_all(&packet).await;
        self.server.core().busy(self.id, false);
        let back = self.server.core().faults.answer(&packet);
        let mut at = Instant::now();
        let (answers, outcome) = match back {
            Transit::Late(time) => {
                at += time;
                (Some(answers), Ok(()))
            }
            other => match self.pass(other).await {
                Ok(()) => (Some(answers), Ok(())),
                Err((lost, answers)) => (answers, Err(lost)),
            },
        };
        let _ = reply.send(Reply { at, answers });
        outcome
    }

    /// The way of bytes over the link. A lost link comes with what the client sees of it.
    async fn pass(
        &self,
        transit: Transit,
    ) -> Result<(), (Lost, Option<Result<Vec<Answered>, LinkError>>)> {
        self.server.core().note(self.id, &format!("{transit:?}"));
        match transit {
            Transit::Arrive => Ok(()),
            Transit::Late(time) => {
                sleep(time).await;
                Ok(())
            }
            Transit::Cut(noticed) => Err((Lost(noticed), Some(Err(LinkError::Closed)))),
            Transit::Vanish(noticed) => Err((Lost(noticed), None)),
            Transit::Crash(crash) => {
                self.server.core().crash(crash);
                Err((Lost(Duration::ZERO), Some(Err(LinkError::Closed))))
            }
        }
    }

    /// Answers up to the first error, which ends a packet.
    async fn run_all(&self, packet: &str) -> Result<Vec<Answered>, LinkError> {
        let statements = sql::split(packet);
        let mut answers = Vec::new();
        let mut rows = 0;
        for text in statements {
            let outcome = match text {
                _ if text.ends_with(ONE_ROW_OR_ERROR) => match rows {
                    1 => Ok(Answered::default()),
                    _ => Err(refused(1231, "completion_type")),
                },
                _ if text.starts_with(EXECUTED_OR_ERROR) => self.wait_for_executed(text).await,
                _ => self.run_one(text).await,
            };
            rows = outcome.as_ref().map_or(0, |answer| answer.rows);
            let mut core = self.server.core();
            core.note(self.id, text);
            core.note(self.id, &format!("{outcome:?}"));
            let is_conflict = |code: &u16| CONFLICTS.contains(code);
            if let Err(LinkError::Server { code, .. }) = &outcome
                && is_conflict(code)
            {
                core.conflicts.failures += 1;
            }
            answers.push(outcome?);
        }
        Ok(answers)
    }

    async fn wait_for_executed(&self, text: &str) -> Result<Answered, LinkError> {
        let rest = text.strip_prefix(EXECUTED_OR_ERROR).expect("the statement");
        let (gtid, rest) = rest.split_once("',").expect("a GTID");
        let (seconds, _) = rest.split_once(')').expect("seconds");
        let gtid = gtid.parse().expect("a GTID");
        let deadline = Instant::now() + Duration::from_secs(seconds.parse().expect("seconds"));
        loop {
            let changed = {
                let core = self.server.core();
                if core.state.executed.contains(&gtid) {
                    return Ok(Answered::default());
                }
                core.committed.clone().notified_owned()
            };
            if timeout_at(deadline, changed).await.is_err() {
                return Err(refused(1231, "completion_type"));
            }
        }
    }

    async fn run_one(&self, text: &str) -> Result<Answered, LinkError> {
        let fate = self.server.core().faults.statement(text);
        match fate {
            Run::Normally => {}
            Run::Slow(time) => sleep(time).await,
            Run::ReadOnly(time) => self.server.core().read_only_for(time),
            Run::Crash(crash) => {
                self.server.core().crash(crash);
                return Err(LinkError::Closed);
            }
            Run::Fail(code) => return Err(self.fail(code)),
        }
        let statement = {
            let core = self.server.core();
            let database = core.sessions.get(&self.id).map(|session| session.database.as_str());
            sql::parse(text, database.unwrap_or_default())
        };
        let mut deadline = None;
        loop {
            let expired = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let step = self.server.core().step(self.id, &statement, expired);
            match step {
                Step::Done(answer) => return Ok(answer),
                Step::Failed(error) => return Err(error),
                Step::Again => {}
                Step::Lock { woken, limit } => match timeout(limit, woken).await {
                    Ok(Ok(Woken::Granted)) => {}
                    Ok(Ok(Woken::Victim)) => return Err(deadlock()),
                    // The server has crashed; this task ends next.
                    Ok(Err(_)) => return Err(LinkError::Closed),
                    Err(_) => return Err(self.server.core().time_out(self.id)),
                },
                Step::Named { changed, patience } => {
                    let deadline = *deadline.get_or_insert(Instant::now() + patience);
                    // An error is the deadline, which the next try sees.
                    let _ = timeout_at(deadline, changed).await;
                }
            }
        }
    }

    fn fail(&self, code: u16) -> LinkError {
        let mut core = self.server.core();
        match code {
            1213 => core.roll_back(self.id),
            _ => core.end_implicit(self.id),
        }
        refused(code, "injected")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut core = self.server.core();
        if std::thread::panicking() {
            core.broken.cancel();
        }
        core.end(self.id);
    }
}
