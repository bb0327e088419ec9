//! The sessions that wrote rows, for transactions where it matters.

use std::sync::Arc;

use csa_provider::binlog::{EventError, QueryEvent, RawEvent, SessionContext};

/// The most sessions remembered. They differ in few settings, but their logged form may hold a
/// time: beyond this number all are forgotten.
const KNOWN_MAX: usize = 256;

/// Follows the current transaction. BEGIN carries its session, which is parsed only if a table
/// depends on it; settings seen before are not parsed again.
#[derive(Debug, Default)]
pub(crate) struct RowSessions {
    begin: Option<RawEvent>,
    matters: bool,
    /// By the logged status variables; equal sessions are shared.
    known: foldhash::HashMap<Box<[u8]>, Arc<SessionContext>>,
}

impl RowSessions {
    pub(crate) fn next_transaction(&mut self) {
        self.begin = None;
        self.matters = false;
    }

    /// Takes the event that begins the transaction.
    pub(crate) fn begin(&mut self, event: &RawEvent) {
        self.begin = Some(event.clone());
    }

    /// A table of the transaction depends on the session.
    pub(crate) fn matters(&mut self) {
        self.matters = true;
    }

    /// Returns the transaction's session, if it matters or `always` is set.
    ///
    /// # Errors
    /// It holds something that this version does not know.
    pub(crate) fn session(
        &mut self,
        always: bool,
    ) -> Result<Option<Arc<SessionContext>>, EventError> {
        let Some(begin) = self.begin.take().filter(|_| self.matters || always) else {
            return Ok(None);
        };
        let query = QueryEvent::parse(begin.body())?;
        if let Some(known) = self.known.get(query.status_vars()) {
            return Ok(Some(Arc::clone(known)));
        }
        let session = query.context()?.for_rows();
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        // Different status variables may mean the same session, which is then kept once.
        let same = self.known.values().find(|known| ***known == session).cloned();
        let session = same.unwrap_or_else(|| Arc::new(session));
        self.known.insert(query.status_vars().into(), Arc::clone(&session));
        Ok(Some(session))
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::test_util::query_event_in;

    use super::*;

    /// BEGIN with these status variables.
    fn begin(status: &[u8]) -> RawEvent {
        query_event_in(status, "", "BEGIN")
    }

    fn session_of(sessions: &mut RowSessions, status: &[u8]) -> Option<Arc<SessionContext>> {
        sessions.next_transaction();
        sessions.begin(&begin(status));
        sessions.matters();
        sessions.session(false).expect("well-formed")
    }

    #[test]
    fn equal_settings_are_one_session_whatever_else_was_logged() {
        let mut sessions = RowSessions::default();
        let plain = session_of(&mut sessions, b"\x05\x06+03:00").expect("a session");
        // The second one also logs the fraction of a time.
        let other =
            session_of(&mut sessions, b"\x05\x06+03:00\x0d\x01\x02\x03").expect("a session");
        let again = session_of(&mut sessions, b"\x05\x06+03:00").expect("a session");
        assert!(Arc::ptr_eq(&plain, &other) && Arc::ptr_eq(&plain, &again));
        assert_eq!(plain.time_zone.as_deref(), Some("+03:00"));
        let differs = session_of(&mut sessions, b"\x05\x06+04:00").expect("a session");
        assert_ne!(plain, differs);
    }

    #[test]
    fn a_session_that_does_not_matter_is_not_read() {
        let mut sessions = RowSessions::default();
        sessions.next_transaction();
        sessions.begin(&begin(&[0xff]));
        assert_eq!(sessions.session(false).expect("not read"), None);
        sessions.begin(&begin(&[0xff]));
        assert!(sessions.session(true).is_err());
    }
}
