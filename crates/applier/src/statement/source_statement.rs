//! A transaction's statement, as the source logged it.

use csa_provider::{
    Dialect, EventType, Lexer, QueryEvent, SessionContext, Statement, XaVerb, first_words,
};
use csa_scheduler::{Group, flattened_events};

use super::{context, mariadb, text};
use crate::{Error, Invariant, Result};

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
    /// The reason why MariaDB would execute it differently.
    pub(super) objection: Option<String>,
    pub(super) context: SessionContext,
    pub(super) timestamp: u32,
    /// Error the statement ended with on the source; 0 for none.
    pub(super) error_code: u16,
    /// The reason why it must neither be executed nor left out.
    pub(super) refusal: Option<String>,
}

impl SourceStatement {
    /// Rows follow it in the same transaction.
    pub(super) fn has_rows(&self) -> bool {
        matches!(self.kind, Statement::CreateTableStartTransaction | Statement::Xa(XaVerb::Start))
    }
}

/// Reads the first statement of the group's one transaction.
///
/// # Errors
/// [`Error::Unsupported`] for one that can't be read or repeated.
pub(super) fn read(group: &Group) -> Result<SourceStatement> {
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
            let objection = match kind {
                Statement::Ddl => mariadb::differences::objection(query.statement, &context),
                _ => None,
            };
            let database = String::from_utf8_lossy(query.database);
            return Ok(SourceStatement {
                kind,
                words: first_words(query.statement, dialect),
                database: transaction.filters.schema(&database).into_owned(),
                xid: started_xid(kind, query.statement),
                changed,
                objection,
                context,
                timestamp: event.header().timestamp,
                error_code: query.error_code,
                refusal: transaction.refusal.clone(),
                gtid,
            });
        }
    }
    Err(unsupported("no statement in it".to_owned()))
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
