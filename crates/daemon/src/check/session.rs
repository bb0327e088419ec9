//! A session that only reads, and gives up on what takes long.

use std::time::Duration;

use csa_applier::TargetOptions;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row, Value};

use crate::verify::connect_error;

use super::Side;

/// Each by itself: a server that does not know one goes without it.
const PRELUDE: [&str; 5] = [
    "SET NAMES utf8mb4",
    "SET SESSION transaction_read_only=1, sql_mode='', sql_big_selects=1, \
     sql_select_limit=18446744073709551615, lock_wait_timeout=5",
    "SET SESSION max_execution_time=30000",
    "SET SESSION information_schema_stats_expiry=86400",
    "SET SESSION show_gipk_in_create_table_and_information_schema=ON",
];
/// A little more than the server is given.
const PATIENCE: Duration = Duration::from_secs(40);

/// A row as text; `None` for NULL.
pub(super) type TextRow = Vec<Option<String>>;

pub(super) struct Session {
    conn: Conn,
    address: String,
}

/// What a server had to say against a query, on one line.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: Option<u16>,
    pub(super) text: String,
}

impl Session {
    /// Logs in; else why not, on one line.
    pub(super) async fn connect(side: Side, server: &TargetOptions) -> Result<Self, String> {
        let conn = csa_applier::connect(server)
            .await
            .map_err(|error| connect_error(side, server, error).to_string().replace('\n', " "))?;
        let mut session = Self { conn, address: server.address() };
        for statement in PRELUDE {
            if let Err(Refusal { code: None, text }) = session.rows(statement).await {
                return Err(format!("{side} {text}"));
            }
        }
        Ok(session)
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) async fn rows(&mut self, query: &str) -> Result<Vec<TextRow>, Refusal> {
        match tokio::time::timeout(PATIENCE, self.conn.query(query)).await {
            Ok(Ok(rows)) => Ok(rows.into_iter().map(texts).collect()),
            Ok(Err(error)) => {
                let code = match &error {
                    mysql_async::Error::Server(error) => Some(error.code),
                    _ => None,
                };
                let text = format!("{}: {error}", self.address).replace('\n', " ");
                Err(Refusal { code, text })
            }
            Err(_) => {
                let seconds = PATIENCE.as_secs();
                let text = format!("{}: no answer within {seconds} s", self.address);
                Err(Refusal { code: None, text })
            }
        }
    }

    /// First column of the first row; `None` for NULL and no row.
    pub(super) async fn value(&mut self, query: &str) -> Result<Option<String>, Refusal> {
        let rows = self.rows(query).await?;
        Ok(rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten())
    }

    pub(super) async fn close(self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), self.conn.disconnect()).await;
    }
}

fn texts(row: Row) -> TextRow {
    let text = |value: Option<Value>| match value? {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        other => Some(other.as_sql(true)),
    };
    row.unwrap_raw().into_iter().map(text).collect()
}
