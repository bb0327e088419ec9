//! Finds out whether a silent session still works.
//!
//! A statement may take hours, so silence proves nothing; and TCP notices a dead link after a quarter of
//! an hour, or never where something in between still acknowledges. The server knows: over a separate
//! connection, its process list shows whether the session executes.

use std::future::Future;
use std::time::Duration;

use csa_provider::server::link::{Limits, Opening, rows_as, rule_of};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::error::{Error, Result};
use crate::server::processes::{self, Process, ProcessRow};
use crate::server::search;
use crate::server::target::{AFTER_MAKING_WAY, Target};

/// Time after which an answer that the server has sent would have arrived, unless `net_timeout` is shorter.
const UNDER_WAY: Duration = Duration::from_secs(5);
/// Time until the server is asked for the first time, unless `net_timeout` is shorter. A server that hangs shows soon,
/// and a statement that lasts longer costs one connection.
const FIRST: Duration = Duration::from_secs(10);
/// Time to wait for an answer that is on its way before asking again, or half of `net_timeout`.
const AGAIN: Duration = Duration::from_secs(2);

/// The state of a session as another connection sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionLiveness {
    Executes,
    /// It has just answered.
    Answered,
    /// Its answer was lost, or it is gone.
    Lost,
}

/// Watches over one session.
#[derive(Debug, Clone)]
pub(crate) struct Liveness {
    target: Target,
    /// The server of the session.
    address: String,
    connection: u32,
}

impl Liveness {
    pub(crate) fn of(target: &Target, connection: u32) -> Self {
        Self { target: target.clone(), address: target.address(), connection }
    }

    /// Waits for the answer as long as the server works on it.
    ///
    /// # Errors
    /// [`Error::Silent`] if the answer won't come; the session can't be used any more.
    pub(crate) async fn watch<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::pin!(answer);
        let limit = self.target.net_timeout;
        let mut patience = limit.min(FIRST);
        let mut answered: Option<Instant> = None;
        let mut was_down = false;
        // Keeps the room for the question free until it is asked again.
        let mut _way = None;
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                () = self.target.route.moved_from(&self.address) => {
                    return Err(self.silent(&format!("{} is the target now", self.target.address())));
                }
                () = tokio::time::sleep(patience) => {}
            }
            // What follows from a look belongs to it.
            if !was_down && _way.is_none() {
                patience = self.target.refusals.pause();
                if !patience.is_zero() {
                    continue;
                }
            }
            // Boxed, not to enlarge the future of every answer: it is large and seldom needed.
            // An answer that comes while the server is asked still counts.
            let asked = tokio::select! {
                biased;
                answer = &mut answer => return answer,
                asked = tokio::time::timeout(limit, Box::pin(self.ask(answered))) => asked,
            };
            _way = None;
            let is_down = matches!(&asked, Ok(Err(error)) if error.is_of_network());
            patience = match asked {
                Ok(Ok((SessionLiveness::Executes, _))) => limit,
                Ok(Ok((SessionLiveness::Lost, line))) => {
                    return Err(self.silent(&lost(line.as_ref())));
                }
                Ok(Ok((SessionLiveness::Answered, _))) => {
                    answered.get_or_insert_with(Instant::now);
                    AGAIN.min(limit / 2)
                }
                Ok(Err(error @ Error::Silent { .. })) => return Err(error),
                // The name may not have been found for a moment, and the session's work may have taken hours.
                Ok(Err(_)) if is_down && !was_down => AGAIN.min(limit / 2),
                // What stands between says nothing about the server. Where TLS fails, no other session could take the
                // place of this one.
                Ok(Err(error))
                    if !error.is_of_protection() && error.code().is_none_or(is_between) =>
                {
                    return Err(self.silent(&error.to_string()));
                }
                // Sessions of ours may be all that there is room for, and wait for the answer to this one.
                Ok(Err(error)) if error.code().is_some_and(is_full) => {
                    _way = tokio::select! {
                        biased;
                        answer = &mut answer => return answer,
                        way = Box::pin(self.target.make_way()) => way,
                    };
                    if _way.is_some() { AFTER_MAKING_WAY } else { limit }
                }
                // The server is there, and is too busy or not allowed to say more.
                Ok(Err(error)) => self.refused(&error),
                Err(_) => return Err(self.silent("the server answers no other connection either")),
            };
            was_down = is_down;
        }
    }

    /// Notes that the server refuses to be asked. Returns the time after which the pause is looked at again.
    fn refused(&self, error: &Error) -> Duration {
        let limit = self.target.net_timeout;
        if self.target.refusals.begin(limit) {
            let connection = self.connection;
            warn!(
                connection, %error,
                "it can't be asked what a silent session does; until it can, a server that hangs is not noticed"
            );
        }
        limit
    }

    /// Asks the server about the session, which was first seen to have answered at `answered`.
    async fn ask(&self, answered: Option<Instant>) -> Result<(SessionLiveness, Option<Process>)> {
        let mut link = self.target.connect().await?;
        let query = processes::query(self.connection.into());
        let found = link.query(&query, Limits::SETTING).await;
        let found: Vec<ProcessRow> = found
            .and_then(|rows| rows_as(&query, rows))
            .map_err(|source| Error::Target { address: self.target.address(), source })?;
        self.target.refusals.end();
        let found = found.into_iter().next().map(Process::from);
        debug!(connection = self.connection, ?found, "asked what a silent session does");
        // A member that has lost the majority of its group may execute a COMMIT for ever.
        let fault = match self.target.route.discovers() {
            true => search::fault(link, &self.address).await,
            false => {
                link.quit().await;
                None
            }
        };
        if let Some(why) = fault {
            return Err(self.silent(&why));
        }
        let command = found.as_ref().map(|line| line.command.as_str());
        let since_answer = answered.map(|since| since.elapsed());
        Ok((verdict(command, self.target.net_timeout, since_answer), found))
    }

    pub(crate) fn silent(&self, why: &str) -> Error {
        Error::Silent {
            address: self.address.clone(),
            connection: self.connection,
            why: why.to_owned(),
        }
    }
}

/// Returns true if the error was sent by a router or proxy.
fn is_between(code: u16) -> bool {
    rule_of(code).is_some_and(|rule| rule.is_between)
}

fn is_full(code: u16) -> bool {
    rule_of(code).is_some_and(|rule| rule.opening == Opening::Full)
}

/// Says what the process list has of a session whose answer won't come.
fn lost(line: Option<&Process>) -> String {
    let found = match line {
        Some(line) => format!("{} for {}", line.command, line.time()),
        None => "it is not in the process list".to_owned(),
    };
    format!("the server no longer executes anything for it ({found})")
}

/// Judges by the command in the session's line of the process list, and by the time since it was first seen to have
/// answered. After that it does nothing until it is sent more; if it does, the server has restarted, and another
/// session has its number. The seconds in the line say nothing: MySQL counts those of `Sleep` from the beginning of
/// the command before.
fn verdict(
    command: Option<&str>,
    net_timeout: Duration,
    since_answer: Option<Duration>,
) -> SessionLiveness {
    let is_due = since_answer.is_none_or(|since| since < UNDER_WAY.min(net_timeout));
    match command {
        Some("Sleep") if is_due => SessionLiveness::Answered,
        None | Some("Sleep" | "Killed") => SessionLiveness::Lost,
        Some(_) if since_answer.is_some() => SessionLiveness::Lost,
        Some(_) => SessionLiveness::Executes,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use csa_provider::server::link::LinkError;

    use super::*;
    use crate::options::TargetOptions;
    use crate::server::port::{Pending, TargetLink};
    use crate::server::scripted::options;
    use crate::server::target::Connector;

    /// Two errors in turn, with which all connections fail.
    #[derive(Debug)]
    struct Failing(Arc<AtomicU32>, fn() -> LinkError, fn() -> LinkError);

    impl Connector for Failing {
        fn connect<'a>(
            &'a self,
            target: &'a TargetOptions,
        ) -> Pending<'a, Result<Box<dyn TargetLink>>> {
            let Self(attempts, first, second) = self;
            let is_first = attempts.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
            let source = if is_first { first() } else { second() };
            Box::pin(async move { Err(Error::Target { address: target.address(), source }) })
        }
    }

    /// Waits for an answer that takes five minutes; returns the time waited, whether it was given up, and the number of
    /// connections.
    async fn watched(first: fn() -> LinkError, second: fn() -> LinkError) -> (u64, bool, u32) {
        let attempts = Arc::new(AtomicU32::new(0));
        let target = Target::new(options(), Failing(Arc::clone(&attempts), first, second));
        let begun = Instant::now();
        let answer = async {
            tokio::time::sleep(Duration::from_secs(300)).await;
            Ok(())
        };
        let answer = Liveness::of(&target, 7).watch(answer).await;
        let is_given_up = matches!(answer, Err(Error::Silent { .. }));
        (begun.elapsed().as_secs(), is_given_up, attempts.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_not_given_up_for_what_says_nothing_about_it() {
        let tls: fn() -> LinkError = || LinkError::Tls("another authority".to_owned());
        let login: fn() -> LinkError = || LinkError::Login("another plugin".to_owned());
        let account: fn() -> LinkError =
            || LinkError::Server { code: 1045, message: "another password".to_owned() };
        let name: fn() -> LinkError = || LinkError::Io(std::io::ErrorKind::NotFound.into());
        let timeout: fn() -> LinkError = || LinkError::Timeout(Duration::from_secs(1));
        for (first, second, expected) in [
            // After 10 s, and then after pauses of 60 and 120 s.
            (tls, login, (300, false, 3)),
            (account, account, (300, false, 3)),
            (name, tls, (300, false, 6)),
            (name, name, (12, true, 2)),
            (timeout, tls, (10, true, 1)),
        ] {
            assert_eq!(watched(first, second).await, expected, "{} and {}", first(), second());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_counts_for_all_answers_until_a_login_succeeds() {
        let attempts = Arc::new(AtomicU32::new(0));
        let account: fn() -> LinkError =
            || LinkError::Server { code: 1045, message: "another password".to_owned() };
        let target = Target::new(options(), Failing(Arc::clone(&attempts), account, account));
        let answered = async |connection| {
            let answer = async {
                tokio::time::sleep(Duration::from_secs(12)).await;
                Ok(())
            };
            Liveness::of(&target, connection).watch(answer).await.expect("not given up");
            attempts.load(Ordering::Relaxed)
        };
        for connection in 0..4 {
            assert_eq!(answered(connection).await, 1, "the next look is 60 s after the first");
        }
        target.refusals.end();
        assert_eq!(answered(4).await, 2);
    }

    #[test]
    fn a_lost_answer_is_told_with_what_the_server_shows() {
        let line = |command: &str| {
            Process::from(("db1:4711".to_owned(), command.to_owned(), 7, String::new()))
        };
        for (line, said) in [
            (Some(line("Sleep")), "(Sleep for up to 7 s)"),
            (Some(line("Query")), "(Query for 7 s)"),
            (None, "(it is not in the process list)"),
        ] {
            assert!(lost(line.as_ref()).ends_with(said), "{said}");
        }
    }

    #[test]
    fn only_a_session_that_executes_is_waited_for() {
        for (command, expected) in [
            (Some("Query"), SessionLiveness::Executes),
            (Some("Sleep"), SessionLiveness::Answered),
            (Some("Killed"), SessionLiveness::Lost),
            (None, SessionLiveness::Lost),
        ] {
            assert_eq!(verdict(command, Duration::from_secs(30), None), expected, "{command:?}");
        }
    }

    /// After a restart another session can have the number, and use it all the time.
    #[test]
    fn a_session_that_has_answered_does_nothing_more() {
        for (command, seconds, expected) in [
            ("Sleep", 2, SessionLiveness::Answered),
            ("Sleep", 4, SessionLiveness::Answered),
            ("Sleep", 6, SessionLiveness::Lost),
            ("Query", 2, SessionLiveness::Lost),
        ] {
            let since = Some(Duration::from_secs(seconds));
            let judged = verdict(Some(command), Duration::from_secs(30), since);
            assert_eq!(judged, expected, "{command} after {seconds} s");
        }
    }

    #[test]
    fn an_answer_is_awaited_no_longer_than_the_operator_bears_silence() {
        for (seconds, net_timeout, expected) in [
            (4, 30, SessionLiveness::Answered),
            (5, 30, SessionLiveness::Lost),
            (1, 2, SessionLiveness::Answered),
            (2, 2, SessionLiveness::Lost),
            (0, 1, SessionLiveness::Answered),
            (1, 1, SessionLiveness::Lost),
        ] {
            let since = Some(Duration::from_secs(seconds));
            let judged = verdict(Some("Sleep"), Duration::from_secs(net_timeout), since);
            assert_eq!(judged, expected, "{seconds} s, net_timeout {net_timeout} s");
        }
    }
}
