//! The client's side of a connection.

use std::collections::VecDeque;

use csa_applier::{Answer, Connector, Error, Linked, Pending, TargetLink, TargetOptions};
use csa_provider::server::link::{Limits, LinkError, NextRows, Row, RowPart, Value};
use csa_provider::test_util::row_with_nulls;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::Server;
use super::core::{Answered, refused};
use super::faults::Transit;
use super::session::{Reply, Request, Session};
use super::sql;
use super::state::NULL;

#[derive(Debug)]
struct Connection {
    id: u32,
    requests: mpsc::UnboundedSender<Request>,
    /// An answer that was not read yet.
    reply: Option<oneshot::Receiver<Reply>>,
    /// Statements of a packet in which some follow a BINLOG statement: the OK to that one lacks the
    /// more-results flag, so the client has to count.
    unannounced: Option<usize>,
    /// Rows of an answer that is read in parts, until its end was read.
    unread: Option<VecDeque<Row>>,
    takes_several: bool,
}

impl Connector for Server {
    fn connect<'a>(
        &'a self,
        target: &'a TargetOptions,
    ) -> Pending<'a, csa_applier::Result<Box<dyn TargetLink>>> {
        Box::pin(async move {
            let opened = self.open().await;
            opened.map_err(|source| Error::Target { address: target.address(), source })
        })
    }
}

impl Server {
    /// Returns a new session.
    pub(super) async fn open(&self) -> Linked<Box<dyn TargetLink>> {
        let fate = self.core().faults.connect();
        match fate {
            Transit::Arrive => {}
            Transit::Late(time) => sleep(time).await,
            Transit::Cut(_) => return Err(LinkError::Closed),
            Transit::Vanish(time) => {
                sleep(time).await;
                return Err(LinkError::Timeout(time));
            }
            Transit::Crash(crash) => self.core().crash(crash),
        }
        let (id, number, ended) = {
            let mut core = self.core();
            if core.is_down() {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into());
            }
            let sessions = core.sessions.len();
            if let Some(code) = core.faults.refuses(sessions) {
                return Err(LinkError::Server { code, message: "refused".to_owned() });
            }
            let (id, ended) = core.open();
            (id, core.connection_of(id), ended)
        };
        let (requests, receiver) = mpsc::unbounded_channel();
        Session::serve(self.clone(), id, ended.cancelled_owned(), receiver);
        let (reply, unannounced, unread) = (None, None, None);
        let takes_several = true;
        Ok(Box::new(Connection { id: number, requests, reply, unannounced, unread, takes_several }))
    }
}

impl Connection {
    fn send(&mut self, packet: String) -> Linked<()> {
        if self.reply.is_some() || self.unread.is_some() {
            return Err(LinkError::OutOfStep);
        }
        let statements = sql::split(&packet);
        if !self.takes_several && statements.len() > 1 {
            return Err(refused(1064, "a second statement"));
        }
        let last_image = statements.iter().rposition(|text| text.starts_with("BINLOG"));
        let is_followed = last_image.is_some_and(|place| place + 1 < statements.len());
        self.unannounced = is_followed.then_some(statements.len());
        let (reply, receiver) = oneshot::channel();
        let sent = self.requests.send(Request { packet, reply });
        sent.map_err(|_| LinkError::Closed)?;
        self.reply = Some(receiver);
        Ok(())
    }

    async fn receive(&mut self, least: usize) -> Linked<Vec<Answered>> {
        let unannounced = self.unannounced.unwrap_or(least);
        assert_eq!(unannounced, least, "the client must count answers after BINLOG");
        let reply = self.reply.as_mut().ok_or(LinkError::OutOfStep)?;
        let answers = match reply.await {
            Ok(Reply { at, answers: Some(answers) }) => {
                if at > Instant::now() {
                    sleep_until(at).await;
                }
                answers
            }
            Ok(Reply { answers: None, .. }) => std::future::pending().await,
            Err(_) => Err(LinkError::Closed),
        };
        if !matches!(answers, Err(LinkError::Closed)) {
            self.reply = None;
        }
        answers
    }

    /// Returns the rows of the query that was sent.
    async fn rows(&mut self) -> Linked<Vec<Row>> {
        let answers = self.receive(0).await?;
        let rows = answers.into_iter().flat_map(|answer| answer.shown);
        let shown = |values: Vec<String>| {
            let values = values.iter().map(|text| (text != NULL).then_some(text.as_str()));
            row_with_nulls(&values.collect::<Vec<_>>())
        };
        Ok(rows.map(shown).collect())
    }
}

impl TargetLink for Connection {
    fn id(&self) -> u32 {
        self.id
    }

    fn begin<'a>(&'a mut self, statements: &'a [u8]) -> Pending<'a, Linked<()>> {
        let packet = String::from_utf8(statements.to_vec()).expect("statements in UTF-8");
        let sent = self.send(packet);
        Box::pin(async { sent })
    }

    fn answers(&mut self, _: Limits, least: usize) -> Pending<'_, Linked<Vec<Answer>>> {
        Box::pin(async move {
            let answers = self.receive(least).await?;
            let answer = |Answered { rows, .. }| Answer { rows, ..Answer::default() };
            Ok(answers.into_iter().map(answer).collect())
        })
    }

    fn query<'a>(&'a mut self, query: &'a str, _: Limits) -> Pending<'a, Linked<Vec<Row>>> {
        Box::pin(async {
            self.send(query.to_owned())?;
            self.rows().await
        })
    }

    fn next_rows(&mut self, part: RowPart) -> Pending<'_, Linked<NextRows>> {
        Box::pin(async move {
            let mut unread = match self.unread.take() {
                Some(unread) => unread,
                None => self.rows().await?.into(),
            };
            let (mut rows, mut bytes) = (Vec::new(), 0);
            while rows.len() < part.rows && bytes < part.bytes {
                // The end comes in a packet of its own.
                let Some(row) = unread.pop_front() else {
                    return Ok(NextRows { rows, has_more: false });
                };
                bytes += size(&row);
                rows.push(row);
            }
            self.unread = Some(unread);
            Ok(NextRows { rows, has_more: true })
        })
    }

    fn take_several(&mut self, several: bool) -> Pending<'_, Linked<()>> {
        self.takes_several = several;
        Box::pin(async { Ok(()) })
    }

    fn quit(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async {})
    }
}

/// Returns the bytes of a row's values.
fn size(row: &Row) -> usize {
    let bytes = |place| match row.as_ref(place) {
        Some(Value::Bytes(bytes)) => 1 + bytes.len(),
        _ => 1,
    };
    (0..row.len()).map(bytes).sum()
}
