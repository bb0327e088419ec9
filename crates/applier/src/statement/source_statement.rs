//! A transaction's statement, as the source logged it.

use csa_provider::binlog::{EventType, QueryEvent, SessionContext, TransactionHeader};
use csa_provider::sql_text::{Dialect, Lexer, Statement, XaVerb, first_words};
use csa_scheduler::events::flattened_events;
use csa_scheduler::group::Group;

use super::differences::{self, Reader};
use super::next_steps::by_hand;
use super::{context, text};
use crate::collation_map::CollationMap;
use crate::error::{Error, Invariant, Result};
use csa_provider::server::Vendor;

/// A transaction's first statement with its session on the source.
pub(super) struct SourceStatement {
    pub(super) gtid: String,
    pub(super) kind: Statement,
    /// Its first words, for the status.
    pub(super) words: String,
    /// Default database, by its name on the target.
    pub(super) database: String,
    /// The xid of an XA START.
    pub(super) xid: Option<String>,
    /// The text to run instead of its own.
    pub(super) changed: Option<Vec<u8>>,
    pub(super) objections: Objections,
    /// REFERENCES of a column, and whether the source made a foreign key of it.
    pub(super) inline_references: Option<bool>,
    pub(super) context: SessionContext,
    pub(super) timestamp: u32,
    /// Error the statement ended with on the source; 0 for none.
    pub(super) error_code: u16,
    /// The reason why it must neither be executed nor left out.
    pub(super) refusal: Option<String>,
}

/// The first version that makes foreign keys of REFERENCES of columns.
const FIRST_INLINE: u32 = 90_000;

/// The reasons why it must not be sent to servers that would execute it differently.
#[derive(Debug, Default)]
pub(super) struct Objections {
    mysql57: Option<String>,
    mariadb: Option<String>,
}

impl Objections {
    fn of(statement: &[u8], context: &SessionContext) -> Self {
        let of = |reader| differences::objection(statement, context, reader);
        Self { mysql57: of(Reader::MySql57), mariadb: of(Reader::MariaDb) }
    }
}

impl SourceStatement {
    /// The reason why it must not be sent to a target of this kind as it is.
    pub(super) fn objection(&self, vendor: Vendor) -> Option<&str> {
        match vendor {
            Vendor::MySql => None,
            Vendor::MySql57 => self.objections.mysql57.as_deref(),
            Vendor::MariaDb => self.objections.mariadb.as_deref(),
        }
    }

    /// Rows follow it in the same transaction.
    pub(super) fn has_rows(&self) -> bool {
        matches!(self.kind, Statement::CreateTableStartTransaction | Statement::Xa(XaVerb::Start))
    }
}

/// Reads the first statement of the group's one transaction.
///
/// # Errors
/// [`Error::Unsupported`] for one that can't be read or repeated.
pub(super) fn read(group: &Group, collations: &CollationMap) -> Result<SourceStatement> {
    let Some(transaction) = group.transactions.first() else {
        return Err(Error::Broken(Invariant::GroupHasTransactions));
    };
    let gtid = transaction.relayed.header.gtid.to_string();
    let unsupported = |what: String| Error::Unsupported { gtid: gtid.clone(), what };
    let unreadable = |what, source| Error::Unreadable { gtid: gtid.clone(), what, source };
    for event in flattened_events(&transaction.relayed) {
        let event = event?;
        if event.event_type() == EventType::QUERY {
            let query = QueryEvent::parse(event.body())
                .map_err(|source| unreadable("query event", source))?;
            let mut context =
                query.context().map_err(|source| unreadable("statement context", source))?;
            let (kind, dialect) = Statement::read(&query);
            if kind == Statement::Begin {
                continue;
            }
            // Only a text that the server wrote itself is not in the character set that the event
            // states.
            if dialect.is_utf8()
                && !Dialect::of(&context).is_utf8()
                && let Some(charset) = &mut context.charset
            {
                charset.client = context::UTF8MB4_GENERAL_CI;
            }
            let changed = match kind {
                Statement::Ddl => text::on_replica(query.statement, &context)
                    .map_err(|why| unsupported(format!("statement can't be repeated: {why}")))?,
                _ => None,
            };
            let text = changed.as_deref().unwrap_or(query.statement);
            let mapped = text::with_collations(text, &context, collations);
            if mapped.is_some() && kind == Statement::CreateTableStartTransaction {
                let why = "CREATE TABLE … SELECT can't have another collation (applier.collation_map); use \
                     CREATE TABLE and INSERT … SELECT on the source";
                return Err(by_hand(&gtid, why));
            }
            let changed = mapped.filter(|_| kind == Statement::Ddl).or(changed);
            let objections = match kind {
                Statement::Ddl => {
                    Objections::of(changed.as_deref().unwrap_or(query.statement), &context)
                }
                _ => Objections::default(),
            };
            let version = transaction.relayed.header.immediate_server_version;
            let is_new = version != TransactionHeader::UNKNOWN_VERSION && version >= FIRST_INLINE;
            let inline_references = (kind == Statement::Ddl
                && text::has_inline_references(query.statement, &context))
            .then_some(is_new);
            let database = String::from_utf8_lossy(query.database);
            return Ok(SourceStatement {
                kind,
                words: first_words(query.statement, dialect),
                database: transaction.filters.schema(&database).into_owned(),
                xid: started_xid(kind, query.statement),
                changed,
                objections,
                inline_references,
                context,
                timestamp: event.header().timestamp,
                error_code: query.error_code,
                refusal: transaction.verdict.refusal().map(str::to_owned),
                gtid,
            });
        }
    }
    // Rows, which were given to this executor only to be refused in their turn.
    let refusal = transaction.verdict.refusal().map(str::to_owned);
    Err(unsupported(refusal.unwrap_or_else(|| "no statement in it".to_owned())))
}

fn started_xid(kind: Statement, statement: &[u8]) -> Option<String> {
    if kind != Statement::Xa(XaVerb::Start) {
        return None;
    }
    // The server writes this statement itself, in ASCII.
    let start = Lexer::new(statement, Dialect::default()).nth(1)?.ok()?;
    let xid = String::from_utf8_lossy(statement.get(start.range().end..)?);
    Some(xid.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use csa_scheduler::admission::Verdict;

    use super::*;
    use crate::group::worker::tests::{group_of, transaction};

    /// Rows that come back to a target that has lost a part of them.
    #[test]
    fn rows_that_must_not_be_applied_stop_the_channel_with_the_reason() {
        let mut refused = transaction();
        refused.verdict = Verdict::Refused("it was restored to an earlier state".to_owned());
        let error =
            read(&group_of(refused), &CollationMap::default()).err().expect("refused").to_string();
        assert!(error.contains("it was restored to an earlier state"), "{error}");
    }
}
