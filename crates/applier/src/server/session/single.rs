//! Statements of the source, which the server must not take for several.

use super::Session;
use crate::error::{Error, Result};

impl Session {
    /// Runs a statement of the source; calls `sent` before it is sent. The filters have read it as one, so the server's
    /// parser has to refuse a second.
    pub(crate) async fn run_single(
        &mut self,
        statement: impl AsRef<[u8]> + Send,
        sent: impl FnOnce() + Send,
    ) -> Result<()> {
        // Nothing else separates statements, in any character set of a session.
        if statement.as_ref().contains(&b';') {
            self.take_several(false).await?;
        }
        sent();
        self.run(statement).await.map(drop)
    }

    /// Lets the server take several statements in a packet, or only one.
    pub(crate) async fn take_several(&mut self, several: bool) -> Result<()> {
        if self.takes_several == several {
            return Ok(());
        }
        let address = self.server.address.clone();
        let liveness = self.liveness()?;
        let answer = async {
            let answer = self.link.take_several(several).await;
            answer.map_err(|source| Error::Target { address, source })
        };
        let answer = liveness.watch(answer).await;
        self.note(answer)?;
        self.takes_several = several;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::server::link::LinkError;

    use super::*;
    use crate::server::scripted::Scripted;

    #[tokio::test]
    async fn a_statement_of_the_source_contains_no_second_one() {
        let scripted = Scripted::default();
        let mut session = Session::connect(&scripted.target()).await.expect("connects");
        session.run_single("CREATE TABLE t (a INT)", || ()).await.expect("one statement");
        let second = session.run_single("CREATE TABLE t (a INT);DROP TABLE csa.u", || ()).await;
        assert_eq!(second.expect_err("refused").code(), Some(1064));
        session.take_several(true).await.expect("answers");
        session.run("BEGIN;COMMIT").await.expect("several statements of our own");
        assert_eq!(scripted.state().created, 1);
    }

    /// The channel asked whether the statement had taken effect.
    #[tokio::test]
    async fn a_link_that_is_lost_before_a_statement_has_sent_nothing_of_it() {
        let scripted = Scripted::default();
        let mut session = Session::connect(&scripted.target()).await.expect("connects");
        scripted.state().option_error = Some(LinkError::Closed);
        let mut is_sent = false;
        let lost = session.run_single("CREATE TABLE t (a INT);", || is_sent = true).await;
        lost.expect_err("lost");
        assert!(!is_sent);
        session.run_single("CREATE TABLE t (a INT)", || is_sent = true).await.expect("executed");
        assert!(is_sent);
    }
}
