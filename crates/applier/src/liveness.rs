//! Whether a session that says nothing still works.
//!
//! A statement may take hours, so silence proves nothing; and what a dead link swallowed is noticed by
//! TCP after a quarter of an hour, or never where something in between still acknowledges. The server
//! knows: asked over a connection of its own, it says whether the session executes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use csa_provider::link::{Limits, Side};
use tracing::debug;

use crate::options::TargetOptions;
use crate::session::connect;
use crate::{Error, Result};

/// An answer that was sent this long ago would be here.
const UNDER_WAY: i64 = 5;
/// After this it is looked again whether an answer comes that is under way.
const AGAIN: Duration = Duration::from_secs(2);

/// What is known of a session from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Executes,
    /// It has just answered.
    Answered,
    /// Its answer was lost, or it is gone.
    Lost,
}

/// Watches over one session.
#[derive(Debug, Clone)]
pub(crate) struct Liveness {
    target: Arc<TargetOptions>,
    connection: u32,
}

impl Liveness {
    pub(crate) fn of(target: &TargetOptions, connection: u32) -> Self {
        Self { target: Arc::new(target.clone()), connection }
    }

    /// Waits for the answer to what was sent as long as the server is at it.
    ///
    /// # Errors
    /// [`Error::Silent`] when the answer won't come; the session is of no use then.
    pub(crate) async fn watch<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::pin!(answer);
        let limit = self.target.net_timeout;
        let mut patience = limit;
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                () = tokio::time::sleep(patience) => {}
            }
            // Apart from the future of every answer: it is large, and seldom asked for.
            let asked = tokio::select! {
                biased;
                answer = &mut answer => return answer,
                asked = tokio::time::timeout(limit, Box::pin(self.ask())) => asked,
            };
            patience = match asked {
                Ok(Ok(Verdict::Executes)) => limit,
                Ok(Ok(Verdict::Answered)) => AGAIN,
                Ok(Ok(Verdict::Lost)) => {
                    return Err(self.silent("the server does nothing for it any more"));
                }
                // It is there and too busy to say more.
                Ok(Err(error)) if error.code().is_some() => limit,
                Ok(Err(error)) => return Err(self.silent(&error.to_string())),
                Err(_) => return Err(self.silent("nor does the server answer anybody else")),
            };
        }
    }

    async fn ask(&self) -> Result<Verdict> {
        let mut link = connect(&self.target, Side::Target).await?;
        let query = format!(
            "SELECT COMMAND, CAST(TIME AS SIGNED) FROM information_schema.PROCESSLIST WHERE ID={}",
            self.connection
        );
        let found = link.query::<(String, i64)>(&query, Limits::SETTING).await;
        let found = found
            .map_err(|source| Error::Target { address: self.target.address(), source })?
            .into_iter()
            .next();
        debug!(connection = self.connection, ?found, "asked what a silent session does");
        link.quit().await;
        Ok(verdict(found.as_ref().map(|(command, seconds)| (command.as_str(), *seconds))))
    }

    pub(crate) fn silent(&self, why: &str) -> Error {
        Error::Silent {
            address: self.target.address(),
            connection: self.connection,
            why: why.to_owned(),
        }
    }
}

/// By its line of the process list: what it does, and for how many seconds.
fn verdict(line: Option<(&str, i64)>) -> Verdict {
    match line {
        Some(("Sleep", seconds)) if seconds < UNDER_WAY => Verdict::Answered,
        None | Some(("Sleep" | "Killed", _)) => Verdict::Lost,
        Some(_) => Verdict::Executes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_session_that_executes_is_waited_for() {
        for (line, expected) in [
            (Some(("Query", 7200)), Verdict::Executes),
            (Some(("Sleep", 0)), Verdict::Answered),
            (Some(("Sleep", 30)), Verdict::Lost),
            (Some(("Killed", 1)), Verdict::Lost),
            (None, Verdict::Lost),
        ] {
            assert_eq!(verdict(line), expected, "{line:?}");
        }
    }
}
