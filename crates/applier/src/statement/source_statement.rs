//! A transaction's statement, as the source logged it.

use csa_provider::binlog::{EventType, QueryEvent, SessionContext, TransactionHeader};
use csa_provider::sql_text::{Dialect, Lexer, Statement, XaVerb, first_words, identifier};
use csa_scheduler::events::flattened_events;
use csa_scheduler::filter::{altered_tables, model_table};
use csa_scheduler::group::Group;

use super::differences::{self, Reader};
use super::next_steps::by_hand;
use super::{context, text};
use crate::error::{Error, Invariant, Result};
use crate::options::{CollationMap, ConvergingTables, first_of};
use crate::server::reached::FIRST_CHECKS;

/// A transaction's first statement with its session on the source.
pub(super) struct SourceStatement {
    pub(super) gtid: String,
    /// The target records it under this GTID.
    pub(super) under_gtid: bool,
    pub(super) kind: Statement,
    /// Its first words, for the status.
    pub(super) words: String,
    /// Default database, by its name on the target.
    pub(super) database: String,
    /// The xid of an XA START.
    pub(super) xid: Option<String>,
    /// The text to run instead of its own.
    pub(super) changed: Option<Vec<u8>>,
    /// The source's own text of a definition, with the target's collations, in which objections are found.
    pub(super) judged: Vec<u8>,
    /// REFERENCES of a column, and whether the source made a foreign key of it.
    pub(super) inline_references: Option<bool>,
    /// It has CHECK clauses that its first source has ignored.
    pub(super) ignored_checks: bool,
    pub(super) context: SessionContext,
    pub(super) timestamp: u32,
    /// Error the statement ended with on the source; 0 for none.
    pub(super) error_code: u16,
    /// The reason why it must neither be executed nor left out.
    pub(super) refusal: Option<String>,
}

/// First words of statements that may be executed again: they change no content and no definition.
const REPEATABLE: [&str; 4] = ["ANALYZE", "CHECK", "OPTIMIZE", "REPAIR"];

/// The first version that makes foreign keys of REFERENCES of columns.
const FIRST_INLINE: u32 = 90_000;

impl SourceStatement {
    /// The reason why it must not be sent to a target of this kind as it is.
    pub(super) fn objection(&self, target: Reader) -> Option<String> {
        differences::objection(&self.judged, &self.context, target)
    }

    /// Returns true if it changes only what MySQL 8.0 or newer keeps beside the contents.
    pub(super) fn is_of_histograms(&self) -> bool {
        text::is_of_histograms(&self.judged, &self.context)
    }

    /// Returns the schema and the name of a table to which it adds a column that numbers the rows.
    pub(super) fn numbered_table(&self) -> Option<(String, String)> {
        let table = text::numbered_table(&self.judged, &self.context)?;
        Some((table.schema.unwrap_or_else(|| self.database.clone()), table.name))
    }

    /// Returns the reason why it must not be executed while rows of these tables converge.
    pub(super) fn disturbs(&self, tables: &ConvergingTables) -> Option<String> {
        let (text, dialect) = (&self.judged, Dialect::of(&self.context));
        if let Some(model) = model_table(text, dialect, &self.database)
            && first_of(&tables.keyless, std::slice::from_ref(&model)).is_some()
        {
            let (schema, table) = model;
            return Some(format!(
                "it makes a table like {schema}.{table}, whose keys the target does not have before the copy of it has \
                 ended. Run there the CREATE TABLE that SHOW CREATE TABLE returns on the source for the new table"
            ));
        }
        let altered = altered_tables(text, dialect, &self.database);
        if let [_] = altered.as_slice() {
            let (schema, table) = first_of(&tables.absent, &altered)?;
            return Some(format!(
                "the target lacked {schema}.{table} when it was copied, and the copy may have made it as it is after \
                 this statement: then values of changes before it are in wrong columns. Leave it out. Once the channel \
                 is running, or the copy is given up (csa-daemon copy --cancel), run there: DROP TABLE {}.{}, and copy \
                 the table again",
                identifier(schema),
                identifier(table)
            ));
        }
        let (schema, table) = first_of(&tables.converging, &altered)?;
        let named = altered.iter().map(|(schema, table)| format!(" --table {schema}.{table}"));
        Some(format!(
            "it renames {schema}.{table} or exchanges a partition of it, while rows converge that a copy has read by \
             that name: before the statement they were those of another table. Copy everything again \
             (docs/provisioning.md#copy-again), or execute it by hand and give a copy up that is not finished \
             (csa-daemon copy --cancel). Then, once the channel is running, copy what is there of its tables: \
             csa-daemon copy{}",
            named.collect::<String>()
        ))
    }

    /// Returns true if it does no harm to execute it twice.
    pub(super) fn is_repeatable(&self) -> bool {
        let first = self.words.split(' ').next().unwrap_or_default();
        self.kind == Statement::Ddl && REPEATABLE.contains(&first)
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
pub(super) fn read(
    group: &Group,
    collations: &CollationMap,
    under_gtid: bool,
) -> Result<SourceStatement> {
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
            let mapped = text::with_collations(query.statement, &context, collations);
            if mapped.is_some() && kind == Statement::CreateTableStartTransaction {
                let why = "CREATE TABLE … SELECT can't have another collation (applier.collation_map); use \
                     CREATE TABLE and INSERT … SELECT on the source";
                return Err(by_hand(&gtid, under_gtid, why));
            }
            let judged = match kind {
                Statement::Ddl | Statement::CreateTableStartTransaction => {
                    mapped.as_deref().unwrap_or(query.statement).to_vec()
                }
                _ => Vec::new(),
            };
            let changed = match kind {
                Statement::Ddl => replicas_text(query.statement, &context, collations, mapped)
                    .map_err(|why| unsupported(format!("statement can't be repeated: {why}")))?,
                _ => None,
            };
            let changed =
                changed.or_else(|| transaction.filters.emptying(query.statement, dialect));
            let header = &transaction.relayed.header;
            let is_new = is_from(header.immediate_server_version, FIRST_INLINE);
            // A replica ignores them by the first source's version, whatever its own is.
            let ignored_checks = kind == Statement::Ddl
                && !is_from(header.original_server_version, FIRST_CHECKS)
                && text::has_checks(query.statement, &context);
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
                judged,
                inline_references,
                ignored_checks,
                context,
                timestamp: event.header().timestamp,
                error_code: query.error_code,
                refusal: transaction.verdict.refusal().map(str::to_owned),
                gtid,
                under_gtid,
            });
        }
    }
    // Rows, which were given to this executor only to be refused in their turn.
    let refusal = transaction.verdict.refusal().map(str::to_owned);
    Err(unsupported(refusal.unwrap_or_else(|| "no statement in it".to_owned())))
}

/// Returns true if a server is known to have this version or a later one.
fn is_from(version: u32, first: u32) -> bool {
    version != TransactionHeader::UNKNOWN_VERSION && version >= first
}

/// Returns the text to run instead of a definition's own; `mapped` is its own with the target's collations.
///
/// Objections are not found in this text: it may have a comment that older servers are intended to ignore.
fn replicas_text(
    statement: &[u8],
    context: &SessionContext,
    collations: &CollationMap,
    mapped: Option<Vec<u8>>,
) -> std::result::Result<Option<Vec<u8>>, &'static str> {
    let Some(text) = text::on_replica(statement, context)? else { return Ok(mapped) };
    Ok(Some(text::with_collations(&text, context, collations).unwrap_or(text)))
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
    use std::sync::Arc;

    use csa_provider::test_util::{format_description, query_event};
    use csa_relaystore::test_util::relayed_events;
    use csa_scheduler::admission::Verdict;

    use super::*;
    use crate::group::worker::tests::{group_of, transaction};

    fn read_of(statement: &str) -> SourceStatement {
        let mut logged = transaction();
        let events = [query_event("d", statement)];
        logged.relayed = relayed_events(1, &Arc::new(format_description()), &events);
        read(&group_of(logged), &CollationMap::default(), true).expect("readable")
    }

    #[test]
    fn only_maintenance_may_be_executed_twice() {
        for (expected, statement) in [
            (true, "OPTIMIZE TABLE t"),
            (true, "analyze /* c */ table t"),
            (true, "REPAIR TABLE t"),
            (true, "CHECK TABLE t"),
            (false, "ALTER TABLE t CHECK PARTITION p"),
            (false, "TRUNCATE TABLE t"),
            (false, "CREATE TABLE IF NOT EXISTS t (a INT)"),
        ] {
            assert_eq!(read_of(statement).is_repeatable(), expected, "{statement}");
        }
    }

    #[test]
    fn tables_whose_rows_converge_are_not_exchanged() {
        let name = |table: &str| ("d".to_owned(), table.to_owned());
        let tables = ConvergingTables::new([name("log")], []);
        let reason = |statement: &str| read_of(statement).disturbs(&tables);
        for statement in [
            "RENAME TABLE log TO log_1, log_new TO log",
            "/* rotate */ rename table e.log_new to D.`Log`",
            "ALTER TABLE log EXCHANGE PARTITION p WITH TABLE x",
            "ALTER TABLE x EXCHANGE PARTITION p WITH TABLE d.log WITHOUT VALIDATION",
            "ALTER TABLE log ADD COLUMN c INT, RENAME TO log_1",
        ] {
            assert!(reason(statement).is_some(), "{statement}");
        }
        for statement in [
            "RENAME TABLE e.log TO e.log_1",
            "ALTER TABLE log RENAME COLUMN a TO b, RENAME INDEX i TO log",
            "ALTER TABLE log ADD COLUMN c INT",
            "DROP TABLE log, log_1",
            "CREATE TABLE log_new LIKE log",
        ] {
            assert_eq!(reason(statement), None, "{statement}");
        }
        let why = reason("RENAME TABLE log TO log_1, log_new TO log").expect("a reason");
        assert!(why.contains("csa-daemon copy --table d.log --table d.log_1"), "{why}");
    }

    #[test]
    fn tables_that_lack_keys_are_no_model() {
        let name = |table: &str| ("d".to_owned(), table.to_owned());
        let tables = ConvergingTables::new([name("t"), name("u")], []).with_keyless([name("t")]);
        for (expected, statement) in [
            (true, "CREATE TABLE t_1 LIKE t"),
            (true, "create table if not exists e.t_1 (like d.T)"),
            (false, "CREATE TABLE t_1 LIKE u"),
            (false, "CREATE TABLE t (id INT PRIMARY KEY) COMMENT 'like t'"),
            (false, "CREATE TEMPORARY TABLE t_1 LIKE t"),
        ] {
            assert_eq!(read_of(statement).disturbs(&tables).is_some(), expected, "{statement}");
        }
    }

    #[test]
    fn tables_that_may_have_a_later_definition_are_not_altered() {
        let name = |table: &str| ("d".to_owned(), table.to_owned());
        let tables = ConvergingTables::new([name("t"), name("u")], []).with_absent([name("t")]);
        let reason = |statement: &str| read_of(statement).disturbs(&tables);
        let why = reason("ALTER TABLE t ADD COLUMN c INT AFTER a").expect("a reason");
        assert!(why.contains("run there: DROP TABLE `d`.`t`"), "{why}");
        for statement in ["ALTER TABLE u ADD COLUMN c INT AFTER a", "TRUNCATE TABLE t"] {
            assert_eq!(reason(statement), None, "{statement}");
        }
    }

    #[test]
    fn checks_are_ignored_by_the_version_of_the_first_source() {
        let ignored = |original, immediate, statement: &str| {
            let mut logged = transaction();
            let events = [query_event("d", statement)];
            logged.relayed = relayed_events(1, &Arc::new(format_description()), &events);
            logged.relayed.header.original_server_version = original;
            logged.relayed.header.immediate_server_version = immediate;
            let statement =
                read(&group_of(logged), &CollationMap::default(), true).expect("readable");
            statement.ignored_checks
        };
        let unknown = TransactionHeader::UNKNOWN_VERSION;
        for (expected, original, immediate) in [
            (true, unknown, unknown),
            (true, 80_015, 80_015),
            (true, unknown, 90_700),
            (true, 80_015, 90_700),
            (false, 80_016, 80_016),
            (false, 90_700, unknown),
        ] {
            let found = ignored(original, immediate, "CREATE TABLE t (a INT CHECK (a > 0))");
            assert_eq!(found, expected, "{original} {immediate}");
            assert!(!ignored(original, immediate, "CREATE TABLE t (a INT)"));
        }
    }

    /// The daemon disables them by a comment that these servers ignore.
    #[test]
    fn events_have_no_objection_for_the_comment_that_disables_them() {
        for text in [
            "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
            "ALTER DEFINER=a@b EVENT e ENABLE",
            "/*!50106 ALTER DEFINER=a@b EVENT e ENABLE */",
        ] {
            let statement = read_of(text);
            let changed = String::from_utf8(statement.changed.clone().expect("disabled"));
            assert!(changed.expect("UTF-8").contains(" DISABLE "), "{text}");
            for target in [Reader::MySql(80_031), Reader::MySql57, Reader::MariaDb] {
                assert_eq!(statement.objection(target), None, "{target:?} {text}");
            }
        }
        let later =
            read_of("CREATE EVENT e ON SCHEDULE EVERY 1 DAY /*!80100 ENABLE */ DO SELECT 1");
        for target in [Reader::MySql(80_031), Reader::MySql57] {
            assert!(later.objection(target).is_some_and(|why| why.contains("80100")));
        }
    }

    /// Rows that come back to a target that has lost a part of them.
    #[test]
    fn rows_that_must_not_be_applied_stop_the_channel_with_the_reason() {
        let mut refused = transaction();
        refused.verdict = Verdict::Refused("it was restored to an earlier state".to_owned());
        let error = read(&group_of(refused), &CollationMap::default(), true)
            .err()
            .expect("refused")
            .to_string();
        assert!(error.contains("it was restored to an earlier state"), "{error}");
    }
}
