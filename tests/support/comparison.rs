//! Compares two servers: every definition and the content of every row.

mod rows;
mod schema;

use std::fmt;

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::Server;

/// Counts of the tables and rows found equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compared {
    pub tables: u64,
    pub rows: u64,
}

/// The differences, one sentence each.
#[derive(Debug, Clone)]
pub struct Difference {
    pub compared: Compared,
    pub differences: Vec<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} differences:", self.differences.len())?;
        self.differences.iter().try_for_each(|text| write!(formatter, "\n- {text}"))
    }
}

/// The scope of a comparison: by default all schemas but MySQL's own and `csa`, without users.
#[derive(Debug, Clone, Default)]
pub struct Compare {
    users: bool,
    contents_only: bool,
    ignored_schemas: Vec<String>,
    ignored_tables: Vec<String>,
}

impl Compare {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Accounts and grants too, except MySQL's own, root and the sandbox's.
    #[must_use]
    pub fn users(mut self) -> Self {
        self.users = true;
        self
    }

    /// Names of tables and columns, and all rows, but no definitions: servers of two vendors write
    /// these differently.
    #[must_use]
    pub fn contents() -> Self {
        Self { contents_only: true, ..Self::default() }
    }

    /// Leaves out a schema.
    #[must_use]
    pub fn ignore_schema(mut self, schema: &str) -> Self {
        self.ignored_schemas.push(schema.into());
        self
    }

    /// Leaves out a table or view, named `schema.table`.
    #[must_use]
    pub fn ignore_table(mut self, table: &str) -> Self {
        self.ignored_tables.push(table.into());
        self
    }

    /// Compares; neither server may be changing.
    ///
    /// # Errors
    /// All differences found.
    ///
    /// # Panics
    /// If a query fails.
    pub async fn run(&self, source: &Server, target: &Server) -> Result<Compared, Difference> {
        let mut source = Side::connect(source).await;
        let mut target = Side::connect(target).await;
        let mut differences = Vec::new();
        let (left, right) = match self.contents_only {
            false => tokio::join!(
                schema::definitions(&mut source, self),
                schema::definitions(&mut target, self)
            ),
            true => tokio::join!(
                schema::names_of_columns(&mut source, self),
                schema::names_of_columns(&mut target, self)
            ),
        };
        schema::diff(&left, &right, &mut differences);
        let (left, right) =
            tokio::join!(schema::tables(&mut source, self), schema::tables(&mut target, self));
        let mut compared = Compared { tables: 0, rows: 0 };
        // The definitions report a table that only one side has.
        for table in left.iter().filter(|table| right.contains(table)) {
            compared.tables += 1;
            compared.rows += rows::compare(&mut source, &mut target, table, &mut differences).await;
        }
        source.close().await;
        target.close().await;
        if differences.is_empty() {
            Ok(compared)
        } else {
            Err(Difference { compared, differences })
        }
    }

    fn ignores_schema(&self, schema: &str) -> bool {
        const OWN: [&str; 5] = ["mysql", "sys", "performance_schema", "information_schema", "csa"];
        OWN.contains(&schema) || self.ignored_schemas.iter().any(|ignored| ignored == schema)
    }

    fn ignores_table(&self, schema: &str, table: &str) -> bool {
        self.ignored_tables.iter().any(|ignored| ignored.split_once('.') == Some((schema, table)))
    }
}

/// Compares everything but users; see [`Compare`] for more.
///
/// # Panics
/// With the differences if there are any.
pub async fn compare(source: &Server, target: &Server) -> Compared {
    match Compare::new().run(source, target).await {
        Ok(compared) => compared,
        Err(difference) => panic!("{} and {}: {difference}", source.name, target.name),
    }
}

/// A session on one of the two servers.
struct Side {
    name: String,
    conn: Conn,
}

impl Side {
    async fn connect(server: &Server) -> Self {
        let mut side = Self { name: server.name.clone(), conn: server.conn().await };
        // A zone without gaps, and no mode that changes how the server prints values or definitions.
        side.run("SET time_zone='+00:00', sql_mode=''").await;
        // Digests of passwords as bytes; old versions and MariaDB do not have the variable.
        let known =
            side.rows::<(String, String)>("SHOW VARIABLES LIKE 'print_identified_with_as_hex'");
        if !known.await.is_empty() {
            side.run("SET print_identified_with_as_hex=ON").await;
        }
        side.run("SET NAMES utf8mb4").await;
        side
    }

    async fn run(&mut self, sql: &str) {
        if let Err(error) = self.conn.query_drop(sql).await {
            panic!("on {}: {error}\n{sql}", self.name);
        }
    }

    async fn rows<T>(&mut self, sql: &str) -> Vec<T>
    where
        T: mysql_async::prelude::FromRow + Send + 'static,
    {
        match self.conn.query(sql).await {
            Ok(rows) => rows,
            Err(error) => panic!("on {}: {error}\n{sql}", self.name),
        }
    }

    async fn close(self) {
        let _ = self.conn.disconnect().await;
    }
}

/// Returns a name in backticks.
fn quote(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A string literal; needs a session without `NO_BACKSLASH_ESCAPES`.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
