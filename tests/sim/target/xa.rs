//! Distributed transactions: a session begins one and prepares it, and then it belongs to no session, also
//! after a restart, until any session ends it.

use super::core::{Answered, Core, Step, refused};
use super::sql::{Statement, XaStep};
use super::state::Branch;
use super::transaction::Transaction;

/// `XAER_RMFAIL`: only steps of XA can end a distributed transaction.
pub(super) const IN_OTHER_STATE: u16 = 1399;
/// `XAER_NOTA`: it is not known.
const UNKNOWN: u16 = 1397;
/// `XAER_DUPID`
const EXISTS: u16 = 1440;

/// Returns the statements that would end the transaction before them.
pub(super) fn ends_transaction(statement: &Statement) -> bool {
    let ends = matches!(statement, Statement::Begin | Statement::Commit | Statement::Rollback);
    ends || statement.is_definition()
}

fn done() -> Step {
    Step::Done(Answered::default())
}

impl Core {
    /// Returns true while the session's transaction is a distributed one that is not prepared.
    pub(super) fn is_distributed(&self, id: u32) -> bool {
        self.own_xid(id).is_some()
    }

    fn own_xid(&self, id: u32) -> Option<&String> {
        self.sessions.get(&id)?.transaction.as_ref()?.xid.as_ref()
    }

    pub(super) fn distributed(&mut self, id: u32, step: XaStep, xid: &str) -> Step {
        let is_own = self.own_xid(id).is_some_and(|own| own == xid);
        match step {
            XaStep::Start if self.state.prepared.contains_key(xid) => {
                Step::Failed(refused(EXISTS, "XAER_DUPID"))
            }
            XaStep::Start => self.start(id, xid),
            XaStep::End if is_own => done(),
            XaStep::Prepare if is_own => self.prepare(id, xid),
            XaStep::Rollback if is_own => {
                self.roll_back(id);
                done()
            }
            XaStep::Commit | XaStep::Rollback if self.state.prepared.contains_key(xid) => {
                self.finish(id, xid, step == XaStep::Commit)
            }
            _ => Step::Failed(refused(UNKNOWN, "XAER_NOTA: Unknown XID")),
        }
    }

    fn start(&mut self, id: u32, xid: &str) -> Step {
        let Some(session) = self.sessions.get_mut(&id) else { return done() };
        if session.transaction.is_some() {
            return Step::Failed(refused(1400, "XAER_OUTSIDE"));
        }
        session.transaction = Some(Transaction::distributed(xid));
        done()
    }

    /// Its locks remain; the GTID is used up.
    fn prepare(&mut self, id: u32, xid: &str) -> Step {
        let (owner, locks) = (self.next_owner(), self.locks.held_by(id));
        let Some(session) = self.sessions.get_mut(&id) else { return done() };
        let Some(changes) = session.transaction.take() else { return done() };
        let logs = session.logs;
        let next = session.take_gtid();
        self.locks.give(owner, &locks);
        let branch = Branch { changes, owner, locks };
        self.publish(&next, logs, |state| {
            state.prepared.insert(xid.to_owned(), branch);
        });
        self.locks.release_all(id);
        done()
    }

    fn finish(&mut self, id: u32, xid: &str, is_commit: bool) -> Step {
        let Some(session) = self.sessions.get_mut(&id) else { return done() };
        let logs = session.logs;
        let next = session.take_gtid();
        let mut owner = None;
        self.publish(&next, logs, |state| {
            let Some(branch) = state.prepared.remove(xid) else { return };
            owner = Some(branch.owner);
            if is_commit {
                branch.changes.commit(state);
            }
        });
        owner.into_iter().for_each(|owner| self.locks.release_all(owner));
        self.locks.release_all(id);
        done()
    }
}
