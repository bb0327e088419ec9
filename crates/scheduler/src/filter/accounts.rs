//! Account management: statements about accounts, roles and privileges, and changes of the tables
//! that hold them. A source must not decide who may log in to the target, so they are left out
//! unless `replicate_accounts` is on.

use csa_provider::binlog::QueryEvent;
use csa_provider::sql_text::Dialect;

use super::Filters;
use super::objects::{Object, is_about_accounts, is_maintenance, object};
use super::statement::{StatementVerdict, refuse};
use super::tokens::{leading, tokens};

/// Account management counts as a change of these tables of schema `mysql`, in this order
/// (<https://dev.mysql.com/doc/refman/en/grant-tables.html>).
const GRANT_TABLES: [&str; 10] = [
    "user",
    "db",
    "tables_priv",
    "columns_priv",
    "procs_priv",
    "proxies_priv",
    "role_edges",
    "default_roles",
    "global_grants",
    "password_history",
];
/// Further grant tables of servers before 8.0 and of MariaDB.
const OLDER_GRANT_TABLES: [&str; 4] = ["global_priv", "roles_mapping", "host", "proxy_priv"];

/// Returns true for tables that hold accounts or privileges.
pub(super) fn is_grant_table(schema: &str, table: &str) -> bool {
    schema.eq_ignore_ascii_case("mysql")
        && (GRANT_TABLES.iter().chain(&OLDER_GRANT_TABLES))
            .any(|name| table.eq_ignore_ascii_case(name))
}

impl Filters {
    /// Returns true if rows of this table are account management that is left out.
    pub(crate) fn leaves_out_accounts_of(&self, schema: &str, table: &str) -> bool {
        !self.rules.accounts && is_grant_table(schema, table)
    }

    /// Returns true if the table rules let account management pass.
    pub(super) fn accounts_ok(&self) -> bool {
        self.rules.tables_ok(GRANT_TABLES.map(|table| ("mysql", table)))
    }

    /// Decides about a statement that is account management and left out; `None` for other statements.
    pub(super) fn account_statement(
        &self,
        query: &QueryEvent<'_>,
        dialect: Dialect,
    ) -> Option<StatementVerdict> {
        if self.rules.accounts {
            return None;
        }
        if is_about_accounts(&leading(query.statement, dialect), dialect) {
            return Some(StatementVerdict::LeaveOutAccounts);
        }
        // Such as `ALTER TABLE mysql.user` and `TRUNCATE TABLE mysql.db`.
        let tokens = tokens(query.statement, dialect)?;
        let Object::Tables(tables) = object(&tokens, dialect) else { return None };
        let database = String::from_utf8_lossy(query.database);
        let of_accounts = tables.iter().filter(|table| {
            is_grant_table(table.schema.as_deref().unwrap_or(&database), &table.name)
        });
        match of_accounts.count() {
            0 => None,
            all if all == tables.len() => Some(StatementVerdict::LeaveOutAccounts),
            // Such as `mysqlcheck --optimize` sends for schema mysql.
            _ if is_maintenance(&tokens) => Some(StatementVerdict::LeaveOutAccounts),
            _ => Some(refuse(
                "the statement changes tables that hold accounts, which are left out \
                 (replicate_accounts = false), and others",
            )),
        }
    }
}
