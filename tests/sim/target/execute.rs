//! One try at one statement.

use std::sync::Arc;

use csa_provider::binlog::{Gtid, GtidSet};
use csa_provider::server::link::LinkError;
use tokio::time::Duration;

use super::binlog::{self, Events};
use super::catalogue::{types, unique_keys};
use super::core::{Answered, Core, NextGtid, Step, read_only, refused};
use super::row_locks::{LockName, Mode};
use super::rows::{Stop, Writer};
use super::sql::{Expression, Statement};
use super::state::{State, TableName};
use super::transaction::Transaction;
use super::xa::{IN_OTHER_STATE, ends_transaction};

const NOT_DETERMINED: u16 = 1837;
/// `ER_CANT_SET_GTID_NEXT_WHEN_OWNING_GTID`
const OWNS_GTID: u16 = 1790;

fn done() -> Step {
    Step::Done(Answered::default())
}

fn shown(rows: Vec<Vec<String>>) -> Step {
    Step::Done(Answered { rows: 0, shown: rows })
}

impl Core {
    /// Tries a statement; `expired`: its time for a named lock has passed.
    pub(crate) fn step(&mut self, id: u32, statement: &Statement, expired: bool) -> Step {
        if !self.sessions.contains_key(&id) {
            return Step::Failed(LinkError::Closed);
        }
        if statement.is_write() && self.is_read_only() {
            return Step::Failed(read_only());
        }
        if self.is_distributed(id) && ends_transaction(statement) {
            return Step::Failed(refused(IN_OTHER_STATE, "XAER_RMFAIL"));
        }
        if self.needs_gtid(statement) {
            match &self.sessions[&id].next_gtid {
                NextGtid::Used => {
                    let message =
                        "When @@SESSION.GTID_NEXT is set to a GTID, you must set it again";
                    return Step::Failed(refused(NOT_DETERMINED, message));
                }
                // It was executed before: the server passes over all of it.
                NextGtid::Assigned(gtid)
                    if self.state.executed.contains(gtid) && *statement != Statement::Begin =>
                {
                    return done();
                }
                _ => {}
            }
        }
        match statement {
            Statement::Begin => {
                if let Err(error) = self.commit(id) {
                    return Step::Failed(error);
                }
                self.begin(id, Transaction::explicit());
                done()
            }
            Statement::Commit => match self.commit(id) {
                Ok(()) => done(),
                Err(error) => Step::Failed(error),
            },
            Statement::Rollback => {
                self.roll_back(id);
                done()
            }
            Statement::Xa(step, xid) => self.distributed(id, *step, xid),
            Statement::Set(assignments) => self.set(id, assignments),
            Statement::Kill(session) => self.kill(*session),
            Statement::Show(expressions) => self.show(id, expressions, expired),
            Statement::Snapshot => {
                if let Err(error) = self.commit(id) {
                    return Step::Failed(error);
                }
                self.begin(id, Transaction::explicit());
                let state = Arc::new(self.state.clone());
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.snapshot = Some(state);
                }
                done()
            }
            Statement::Catalogue(query) => {
                let snapshot = self.sessions[&id].snapshot.clone();
                self.catalogue(query, snapshot.as_deref().unwrap_or(&self.state))
            }
            _ if statement.is_definition() => self.define(id, statement),
            _ => match self.look(id, statement) {
                Some(step) => step,
                None => self.change(id, statement),
            },
        }
    }

    fn needs_gtid(&self, statement: &Statement) -> bool {
        let is_transactional = matches!(
            statement,
            Statement::Begin
                | Statement::Select(_)
                | Statement::TypesOf(_)
                | Statement::UniqueKeysOf(_)
        );
        is_transactional || statement.is_write() || statement.is_step()
    }

    fn begin(&mut self, id: u32, transaction: Transaction) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.transaction = Some(transaction);
        }
    }

    fn set(&mut self, id: u32, assignments: &[(String, String)]) -> Step {
        for (name, value) in assignments {
            let seconds = || Duration::from_secs(value.parse().expect("seconds"));
            if name == "gtid_next" {
                if let Some(step) = self.set_gtid(id, value) {
                    return step;
                }
                continue;
            }
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            match name.as_str() {
                "sql_log_bin" => session.logs = value == "1",
                "foreign_key_checks" => session.checks_references = value == "1",
                "rbr_exec_mode" => session.is_idempotent = value == "IDEMPOTENT",
                "innodb_lock_wait_timeout" => session.row_lock_wait = seconds(),
                "lock_wait_timeout" => session.table_lock_wait = seconds(),
                "wait_timeout" => session.idle_limit = seconds(),
                _ => assert!(WITHOUT_EFFECT.contains(&name.as_str()), "SET SESSION {name}={value}"),
            }
        }
        done()
    }

    /// Owns the GTID until the transaction ends, as no other session may meanwhile.
    fn set_gtid(&mut self, id: u32, value: &str) -> Option<Step> {
        let gtid: Option<Gtid> = match value {
            "AUTOMATIC" => None,
            _ => Some(value.parse().expect("a GTID")),
        };
        if self.owns_unused(id) {
            // The statement fails, and with it the session gives the GTID up, unused.
            self.roll_back(id);
            return Some(Step::Failed(refused(OWNS_GTID, "a client that owns a GTID")));
        }
        if let Some(gtid) = &gtid {
            let owned = LockName::Gtid(gtid.to_string());
            if !self.locks.take(id, &owned, Mode::Exclusive) {
                return Some(self.block(id, owned, Mode::Exclusive));
            }
            // One that is executed is owned by nobody: what follows is passed over.
            if self.state.executed.contains(gtid) {
                self.locks.release(id, &owned);
            }
        } else if self.sessions.get(&id)?.transaction.is_none() {
            self.locks.release_all(id);
        }
        let next = gtid.map_or(NextGtid::Automatic, NextGtid::Assigned);
        self.sessions.get_mut(&id)?.next_gtid = next;
        None
    }

    /// True between two transactions if the GTID of the last one was not used: it changed nothing.
    fn owns_unused(&self, id: u32) -> bool {
        let Some(session) = self.sessions.get(&id) else { return false };
        let NextGtid::Assigned(gtid) = &session.next_gtid else { return false };
        session.transaction.is_none() && self.locks.holds(id, &LockName::Gtid(gtid.to_string()))
    }

    fn kill(&mut self, connection: u32) -> Step {
        match self.sessions.get(&self.session_of(connection)) {
            Some(session) => {
                session.ended.cancel();
                done()
            }
            None => Step::Failed(refused(1094, format!("Unknown thread id: {connection}"))),
        }
    }

    fn show(&mut self, id: u32, expressions: &[Expression], expired: bool) -> Step {
        let mut row = Vec::new();
        for expression in expressions {
            row.push(match expression {
                Expression::Variable(name) => self.variable(name),
                Expression::IsUsedLock(name) => {
                    let holder = self.named.get(&name.to_lowercase());
                    holder.map_or(0, |&holder| self.connection_of(holder)).to_string()
                }
                Expression::ConnectionId => self.connection_of(id).to_string(),
                Expression::UuidShort => {
                    self.short_uuids += 1;
                    self.short_uuids.to_string()
                }
                Expression::IsExecuted(set) => {
                    let set: GtidSet = set.parse().expect("a GTID set");
                    u8::from(set.is_subset_of(&self.state.executed)).to_string()
                }
                Expression::GetLock(name, seconds) => {
                    let holder = *self.named.entry(name.to_lowercase()).or_insert(id);
                    if holder != id && !expired && *seconds > 0 {
                        let patience = Duration::from_secs(u64::from(*seconds));
                        let changed = Arc::clone(&self.named_changed).notified_owned();
                        return Step::Named { changed, patience };
                    }
                    u8::from(holder == id).to_string()
                }
            });
        }
        shown(vec![row])
    }

    /// Returns a global variable as SHOW writes it; `None` if the server has no such variable.
    fn shown_variable(&self, name: &str) -> Option<String> {
        let on = |is_on| if is_on { "ON" } else { "OFF" };
        Some(match name {
            "version"
            | "max_allowed_packet"
            | "server_uuid"
            | "gtid_mode"
            | "lower_case_table_names" => self.variable(name),
            "log_bin" | "log_bin_trust_function_creators" | "enforce_gtid_consistency" => {
                on(true).to_owned()
            }
            "read_only" => on(self.is_read_only()).to_owned(),
            "super_read_only" => on(false).to_owned(),
            "binlog_row_image" => "FULL".to_owned(),
            "binlog_row_value_options" => String::new(),
            _ => return None,
        })
    }

    fn variable(&self, name: &str) -> String {
        match name {
            "version" => "9.7.4".to_owned(),
            "version_comment" => "MySQL Community Server - GPL".to_owned(),
            "max_allowed_packet" => (64 << 20).to_string(),
            "server_uuid" => self.uuid.to_string(),
            "gtid_executed" => self.state.executed.to_string(),
            "gtid_mode" => "ON".to_owned(),
            // What a copy needs is in the logs of both.
            "gtid_purged" => String::new(),
            "log_bin" | "binlog_order_commits" | "explicit_defaults_for_timestamp" => {
                "1".to_owned()
            }
            "sql_generate_invisible_primary_key"
            | "sql_require_primary_key"
            | "restrict_fk_on_non_standard_key" => "0".to_owned(),
            // Nothing stands between two of them, as on a server.
            "gtid_owned" => {
                let owned = self.locks.gtids();
                owned.map(|(gtid, id)| format!("{gtid}#{}", self.connection_of(id))).collect()
            }
            "xa_detach_on_prepare" => "1".to_owned(),
            "lower_case_table_names" => "0".to_owned(),
            _ => panic!("the simulated target has no variable {name}"),
        }
    }

    /// Returns the statements that neither change rows nor wait.
    fn look(&mut self, id: u32, statement: &Statement) -> Option<Step> {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Some(match statement {
            Statement::Nothing => done(),
            Statement::Fixed(row) => shown(row.iter().map(|row| texts(row)).collect()),
            Statement::Variables(names) => {
                let row = |name: &String| Some(vec![name.clone(), self.shown_variable(name)?]);
                shown(names.iter().filter_map(row).collect())
            }
            Statement::Use(database) => {
                let is_there =
                    database == "information_schema" || self.state.schemas.contains(database);
                if !is_there {
                    return Some(Step::Failed(refused(1049, "Unknown database")));
                }
                self.sessions.get_mut(&id)?.database.clone_from(database);
                done()
            }
            Statement::Release(name) => {
                let name = name.to_lowercase();
                if self.named.get(&name) == Some(&id) {
                    self.named.remove(&name);
                    self.named_changed.notify_waiters();
                }
                done()
            }
            Statement::IsHeld(name, connection) => {
                let holder = self.named.get(&name.to_lowercase());
                let is_held = holder.map(|&id| self.connection_of(id)) == Some(*connection);
                shown(if is_held { vec![vec!["1".to_owned()]] } else { Vec::new() })
            }
            Statement::AddPurged(set) => {
                let set: GtidSet = set.parse().expect("a GTID set");
                self.publish(&NextGtid::Automatic, false, |state| state.executed.union(&set));
                done()
            }
            Statement::LockWaits => {
                let number = |session| self.connection_of(session).to_string();
                let pair = |(waiting, on)| vec![number(waiting), number(on)];
                let waits = self.locks.waits().into_iter();
                // A prepared transaction has no session.
                let waits = waits.filter(|(_, on)| self.sessions.contains_key(on));
                shown(waits.map(pair).collect())
            }
            Statement::Process(connection) => shown(self.process(self.session_of(*connection))),
            Statement::HasTable(name) => {
                let count = u8::from(self.state.tables.contains_key(name));
                shown(vec![vec![count.to_string()]])
            }
            Statement::TypesOf(name) => {
                shown(self.state.tables.get(name).map_or_else(Vec::new, types))
            }
            Statement::UniqueKeysOf(name) => {
                shown(self.state.tables.get(name).map_or_else(Vec::new, unique_keys))
            }
            Statement::Tables => {
                let names = self.state.tables.keys().filter(|(schema, _)| schema != "csa");
                shown(names.map(|(schema, name)| vec![schema.clone(), name.clone()]).collect())
            }
            _ => return None,
        })
    }

    fn process(&self, id: u32) -> Vec<Vec<String>> {
        let Some(session) = self.sessions.get(&id) else { return Vec::new() };
        let command = if session.is_busy { "Query" } else { "Sleep" };
        let seconds = session.since.elapsed().as_secs().to_string();
        vec![vec!["client:1".to_owned(), command.to_owned(), seconds, String::new()]]
    }

    /// Returns the statements about rows. One that is blocked undoes what it has done, keeps its locks, and
    /// begins again once it has the one that was in its way.
    fn change(&mut self, id: u32, statement: &Statement) -> Step {
        let now = self.now();
        let Some(session) = self.sessions.get_mut(&id) else {
            return Step::Failed(LinkError::Closed);
        };
        let snapshot = session.snapshot.clone();
        if let Statement::Select(select) = statement {
            let most = self.most_rows.filter(|_| select.table.0 != "csa");
            assert!(
                most.is_none_or(|most| select.limit.is_some_and(|limit| limit <= most)),
                "a query asks for too many rows at once: {select:?}"
            );
            if let Some(error) =
                snapshot.as_deref().and_then(|then| redefined(then, &self.state, &select.table))
            {
                return Step::Failed(error);
            }
        }
        let (checks_references, is_idempotent) = (session.checks_references, session.is_idempotent);
        let has_format = &mut session.has_format;
        let transaction = session.transaction.get_or_insert_default();
        let place = transaction.place();
        let mut writer = Writer {
            session: id,
            state: match statement {
                Statement::Select(_) => snapshot.as_deref().unwrap_or(&self.state),
                _ => &self.state,
            },
            transaction,
            locks: &mut self.locks,
            checks_references,
            is_idempotent: is_idempotent && matches!(statement, Statement::Binlog(_)),
            now,
        };
        let outcome = match statement {
            Statement::Savepoint(name) => {
                writer.transaction.savepoint(name);
                Ok(Answered::default())
            }
            Statement::RollbackTo(name) => match writer.transaction.roll_back_to(name) {
                true => return done(),
                false => Err(Stop::Failed(1305, format!("SAVEPOINT {name} does not exist"))),
            },
            Statement::Insert(insert) => writer.insert(insert).map(affected),
            Statement::Update { table, set, conditions } => {
                writer.update(table, set, conditions).map(affected)
            }
            Statement::Delete { table, conditions } => {
                writer.delete(table, conditions).map(affected)
            }
            Statement::Select(select) => {
                writer.select(select).map(|shown| Answered { rows: 0, shown })
            }
            Statement::Binlog(events) => match binlog::read(events) {
                Events::Format => {
                    *has_format = true;
                    Ok(Answered::default())
                }
                Events::Rows(_) if !*has_format => {
                    Err(Stop::Failed(1609, "no format description event before".to_owned()))
                }
                Events::Rows(changes) => {
                    let applied = changes.iter().try_for_each(|change| writer.apply(change));
                    applied.map(|()| Answered::default())
                }
            },
            other => panic!("not about rows: {other:?}"),
        };
        let is_explicit = writer.transaction.is_explicit;
        match outcome {
            Ok(answer) if is_explicit => Step::Done(answer),
            Ok(answer) => match self.commit_statement(id) {
                Ok(()) => Step::Done(answer),
                Err(error) => Step::Failed(error),
            },
            Err(stop) => {
                writer.transaction.undo_to(place);
                match stop {
                    Stop::Blocked(name, mode) => self.block(id, name, mode),
                    Stop::Failed(code, message) => {
                        self.end_implicit(id);
                        Step::Failed(refused(code, message))
                    }
                }
            }
        }
    }
}

fn affected(rows: u64) -> Answered {
    Answered { rows, shown: Vec::new() }
}

/// Returns the error of a query whose snapshot has another definition of its table.
fn redefined(then: &State, now: &State, name: &TableName) -> Option<LinkError> {
    let Some(present) = now.tables.get(name) else {
        return Some(refused(1146, format!("Table '{}' doesn't exist", name.1)));
    };
    let is_same = then.tables.get(name).is_some_and(|table| table.columns == present.columns);
    (!is_same).then(|| refused(1412, "Table definition has changed, please retry transaction"))
}

/// Variables of a session that mean nothing to integers and plain texts.
const WITHOUT_EFFECT: [&str; 41] = [
    "max_sort_length",
    "sql_quote_show_create",
    "show_gipk_in_create_table_and_information_schema",
    "enable_cascade_triggers",
    "character_set_results",
    "sql_big_selects",
    "max_error_count",
    "range_optimizer_max_mem_size",
    "max_execution_time",
    "sql_notes",
    "transaction_isolation",
    "autocommit",
    "completion_type",
    "transaction_read_only",
    "sql_safe_updates",
    "sql_select_limit",
    "sql_mode",
    "time_zone",
    "interactive_timeout",
    "net_read_timeout",
    "net_write_timeout",
    "information_schema_stats_expiry",
    "immediate_server_version",
    "original_server_version",
    "original_commit_timestamp",
    "timestamp",
    "unique_checks",
    "sql_auto_is_null",
    "lc_time_names",
    "character_set_client",
    "collation_connection",
    "collation_server",
    "collation_database",
    "default_collation_for_utf8mb4",
    "auto_increment_increment",
    "auto_increment_offset",
    "explicit_defaults_for_timestamp",
    "sql_require_primary_key",
    "default_table_encryption",
    "xa_detach_on_prepare",
    "lc_messages",
];
