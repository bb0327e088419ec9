//! Statements of the source, which the server must not take for several.

use csa_provider::server::link::LinkError;

use super::Session;
use crate::error::{Error, Result};

/// `ER_UNKNOWN_COM_ERROR`.
const UNKNOWN_COMMAND: u16 = 1047;
/// The beginning of the text with which a member of a Galera cluster answers every command with that number until it is ready.
const NOT_READY: &str = "WSREP";

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
            answer.map_err(|source| refused(address, source))
        };
        let answer = liveness.watch(answer).await;
        self.note(answer)?;
        self.takes_several = several;
        Ok(())
    }
}

/// Returns the error of COM_SET_OPTION. All servers know it, so nothing is gained by waiting for one that does.
fn refused(address: String, source: LinkError) -> Error {
    let is_unknown = matches!(
        &source,
        LinkError::Server { code: UNKNOWN_COMMAND, message } if !message.contains(NOT_READY)
    );
    match is_unknown {
        true => Error::UnknownCommand { address },
        false => Error::Target { address, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorClass;
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

    /// The channel waited for the target without an end, and named no cause.
    #[tokio::test]
    async fn a_proxy_that_does_not_pass_the_command_stops_the_channel() {
        for (text, class) in [
            ("Unknown command", ErrorClass::Stop),
            ("WSREP has not yet prepared node for application use", ErrorClass::Unavailable),
        ] {
            let scripted = Scripted::default();
            let mut session = Session::connect(&scripted.target()).await.expect("connects");
            let error = LinkError::Server { code: UNKNOWN_COMMAND, message: text.to_owned() };
            scripted.state().option_error = Some(error);
            let refused = session.run_single("CREATE TABLE t (a INT);", || ()).await;
            let refused = refused.expect_err("refused");
            assert_eq!(refused.class(), class, "{refused}");
            let names_it = refused.to_string().contains("pass COM_SET_OPTION");
            assert_eq!(names_it, class == ErrorClass::Stop, "{refused}");
            session.run("BEGIN;COMMIT").await.expect("several statements of our own");
        }
    }
}
