//! The settings that rows need, as the server has them at the moment.

use std::sync::Arc;

use csa_provider::binlog::SessionContext;

use super::row_session;

/// Says whose settings a session of ours has, and which statements change them. Whoever sends such statements calls
/// [`Self::settled`] once they are executed.
#[derive(Debug)]
pub(crate) struct RowSettings {
    /// The source session whose settings it has instead of ours.
    under: Option<Arc<SessionContext>>,
    /// The server has executed the statements that made it so.
    is_settled: bool,
    /// Present value of `default_collation_for_utf8mb4`; `None` if the server has no such variable.
    pub(super) default_collation: Option<u16>,
    /// It is set up for statements made of row values.
    pub(super) for_statements: bool,
    /// The server takes statements as bytes (`Session::use_bytes`).
    pub(super) takes_bytes: bool,
}

impl RowSettings {
    /// Returns the settings of a new session.
    pub(super) fn own() -> Self {
        Self {
            under: None,
            is_settled: true,
            default_collation: None,
            for_statements: false,
            takes_bytes: false,
        }
    }

    /// Returns the statements to run before rows that were written in another session; `None` if nothing has to
    /// be set.
    pub(crate) fn enter(&mut self, session: Option<&Arc<SessionContext>>) -> Option<String> {
        let session = session?;
        if self.is_settled && self.under.as_ref() == Some(session) {
            return None;
        }
        // The collation of an unknown session is none that could be wanted.
        let has = self.default_collation.map(|has| if self.is_settled { has } else { 0 });
        let mut set = row_session::statements(session, has);
        if self.takes_bytes {
            set.push_str(row_session::AND_BYTES);
        }
        self.under = Some(Arc::clone(session));
        // `leave` does not restore this one, so its present value is remembered.
        if self.default_collation.is_some() && session.default_collation_for_utf8mb4.is_some() {
            self.default_collation = session.default_collation_for_utf8mb4;
        }
        self.is_settled = false;
        Some(set)
    }

    /// Returns [`Self::enter`] for rows that are written as SQL, which need our own settings again
    /// where they have no session. `zone`: as [`row_session::zone_for_statements`] returns it for the session.
    pub(crate) fn enter_for_statements(
        &mut self,
        session: Option<&Arc<SessionContext>>,
        zone: Option<&str>,
    ) -> Option<String> {
        if self.is_settled && self.under.as_ref() == session {
            return None;
        }
        self.under = session.cloned();
        self.is_settled = false;
        Some(match session {
            Some(session) => row_session::for_statements(session, zone),
            None => row_session::OWN_FOR_STATEMENTS.to_owned(),
        })
    }

    /// Returns the statements to run before our own, if rows of another session came before.
    pub(crate) fn leave(&mut self) -> Option<String> {
        if self.under.take().is_none() && self.is_settled {
            return None;
        }
        self.is_settled = false;
        Some(match (self.for_statements, self.takes_bytes) {
            (true, _) => row_session::OWN_FOR_STATEMENTS.to_owned(),
            (false, true) => format!("{}{}", row_session::OWN, row_session::AND_BYTES),
            (false, false) => row_session::OWN.to_owned(),
        })
    }

    /// The statements of the last [`Self::enter`] or [`Self::leave`] have been executed. Until then the
    /// next of them sets everything: a packet that is too long, or never made, sets nothing.
    pub(crate) fn settled(&mut self) {
        self.is_settled = true;
    }
}
