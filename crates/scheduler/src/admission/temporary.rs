//! Sessions of the source whose temporary tables were left out.

use std::collections::BTreeSet;

use csa_provider::binlog::{EventHeader, QueryEvent, RawEvent};
use csa_provider::sql_text::Dialect;

use crate::filter::{StatementVerdict, is_of_temporary_tables, temporary_table_refusal};

/// The most sessions that are remembered; the oldest have the lowest numbers.
const SESSIONS: usize = 10_000;

/// The sessions that have logged temporary tables since the channel started. With `binlog_format=ROW` there are none.
#[derive(Debug, Default)]
pub(super) struct TemporaryTables(BTreeSet<u32>);

impl TemporaryTables {
    /// Returns the reason to refuse a definition that the filters let pass.
    ///
    /// The source marks statements that depend on their session (`LOG_EVENT_THREAD_SPECIFIC_F`). In a routine the mark
    /// of an earlier statement stays, so it counts only for a session whose temporary tables are logged.
    pub(super) fn refusal(
        &mut self,
        event: &RawEvent,
        query: &QueryEvent<'_>,
        dialect: Dialect,
        verdict: &StatementVerdict,
    ) -> Option<String> {
        match verdict {
            StatementVerdict::Skip if is_of_temporary_tables(query.statement, dialect) => {
                self.0.insert(query.thread_id);
                if self.0.len() > SESSIONS {
                    self.0.pop_first();
                }
                None
            }
            StatementVerdict::Apply => {
                let is_marked = event.header().flags & EventHeader::FLAG_THREAD_SPECIFIC != 0;
                (is_marked && self.0.contains(&query.thread_id))
                    .then(|| temporary_table_refusal(query, dialect))
                    .flatten()
            }
            _ => None,
        }
    }
}
