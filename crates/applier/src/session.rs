//! One connection to the target, held for life: what a statement costs and what it returned.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use csa_provider::FormatDescription;
use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, DriverError, Row};

use crate::dml::{self, Answer, Warning};
use crate::error::server_code;
use crate::options::{ExecMode, TargetGtids, TargetOptions};
use crate::{Error, Result, TlsMode, Vendor, mariadb};

/// Every session runs READ COMMITTED: gap locks would make independent groups wait for each other.
/// Time-outs are ours, so that an operator's global settings can't end a session that waits its turn.
const PRELUDE: &str = "SET SESSION transaction_isolation='READ-COMMITTED', autocommit=1, \
     completion_type='NO_CHAIN', transaction_read_only=0, sql_safe_updates=0, \
     sql_select_limit=18446744073709551615, sql_mode='', time_zone='+00:00', wait_timeout=2147483, interactive_timeout=2147483, \
     net_read_timeout=600, net_write_timeout=600, \
     innodb_lock_wait_timeout=10, lock_wait_timeout=60, information_schema_stats_expiry=0";

const ER_NET_PACKET_TOO_LARGE: u16 = 1153;

#[derive(Debug)]
pub(crate) struct Session {
    conn: Conn,
    address: String,
    vendor: Vendor,
    /// Bytes the server takes in one packet.
    max_allowed_packet: usize,
    /// What BINLOG was last told to read row images with.
    format: Option<Arc<FormatDescription>>,
    /// It takes statements made of row values.
    for_statements: bool,
}

impl Session {
    /// Connects and sets the session up.
    pub(crate) async fn connect(target: &TargetOptions) -> Result<Self> {
        let address = target.address();
        let conn = connect(target).await?;
        let mut session = Self {
            conn,
            address,
            vendor: Vendor::default(),
            max_allowed_packet: usize::MAX,
            format: None,
            for_statements: false,
        };
        let version: Vec<String> = session.rows("SELECT @@version").await?;
        session.vendor = Vendor::of(version.first().map_or("", String::as_str));
        session.set_up().await?;
        if target.gtids == TargetGtids::Mirror {
            session.run("SET SESSION sql_log_bin=0").await?;
        }
        let limit: Vec<usize> = session.rows("SELECT @@SESSION.max_allowed_packet").await?;
        session.max_allowed_packet = limit.first().copied().unwrap_or(usize::MAX);
        Ok(session)
    }

    /// Gives the session the settings that all of ours have.
    pub(crate) async fn set_up(&mut self) -> Result<()> {
        let prelude = match self.vendor {
            Vendor::MySql => PRELUDE,
            Vendor::MariaDb => mariadb::PRELUDE,
        };
        self.run(prelude).await.map(drop)
    }

    pub(crate) fn vendor(&self) -> Vendor {
        self.vendor
    }

    /// Whether the server has executed a transaction of this GTID, by whomever.
    pub(crate) async fn has_executed(&mut self, gtid: &str) -> Result<bool> {
        let query = format!("SELECT GTID_SUBSET('{gtid}', @@GLOBAL.gtid_executed)");
        let rows: Vec<bool> = self.rows(&query).await?;
        Ok(rows.first() == Some(&true))
    }

    /// The server's number of this connection.
    pub(crate) fn id(&self) -> u32 {
        self.conn.id()
    }

    /// Runs one packet of statements and reads every result; matched rows of each statement.
    ///
    /// Nothing may follow a BINLOG statement in a packet: its OK lacks the more-results flag.
    pub(crate) async fn run(&mut self, statements: impl AsRef<[u8]> + Send) -> Result<Vec<u64>> {
        let answers = self.run_counting(statements).await?;
        Ok(answers.into_iter().map(|answer| answer.rows).collect())
    }

    /// As [`Self::run`], with the warnings of each statement, and what a `SHOW WARNINGS` showed.
    pub(crate) async fn run_counting(
        &mut self,
        statements: impl AsRef<[u8]> + Send,
    ) -> Result<Vec<Answer>> {
        let address = &self.address;
        let target = |source| Error::Target { address: address.clone(), source };
        let text = statements.as_ref();
        self.check_packet(text.len()).map_err(target)?;
        let mut result = self.conn.query_iter(text).await.map_err(target)?;
        let mut answers = Vec::new();
        loop {
            let (rows, warnings) = (result.affected_rows(), result.warnings());
            let mut shown = Vec::new();
            let is_last = result.is_empty();
            if !is_last {
                result.for_each(|row| shown.extend(warning(row))).await.map_err(target)?;
            }
            answers.push(Answer { rows, warnings, shown });
            // Behind rows there may be no other answer.
            if is_last || result.columns().is_none() {
                break;
            }
        }
        // The error of a statement that is not the first counts as a result not yet looked at.
        result.drop_result().await.map_err(target)?;
        Ok(answers)
    }

    /// Bytes of row images that fit one packet, BASE64 and the opening of a group included.
    pub(crate) fn row_image_bytes(&self) -> usize {
        self.max_allowed_packet / 2
    }

    /// Bytes of statements that fit one packet beside the opening of a group.
    pub(crate) fn packet_bytes(&self) -> usize {
        self.max_allowed_packet / 2
    }

    /// The server would answer a larger packet by closing the connection, which would look like an
    /// outage for ever.
    fn check_packet(&self, bytes: usize) -> mysql_async::Result<()> {
        let limit = self.max_allowed_packet;
        if bytes < limit {
            return Ok(());
        }
        Err(mysql_async::Error::Server(mysql_async::ServerError {
            code: ER_NET_PACKET_TOO_LARGE,
            message: format!(
                "a row needs a packet of {bytes} bytes, the target's max_allowed_packet is \
                 {limit}: {} max_allowed_packet=1073741824 there, then restart the channel",
                self.vendor.set()
            ),
            state: "08S01".to_owned(),
        }))
    }

    /// Rows of one query.
    pub(crate) async fn rows<R>(&mut self, query: &str) -> Result<Vec<R>>
    where
        R: FromRow + Send + 'static,
    {
        let address = self.address.clone();
        self.conn.query(query).await.map_err(|source| Error::Target { address, source })
    }

    /// Tells the server how the row images to come are laid out, if that is news to it.
    ///
    /// The statement leaves `gtid_next` undetermined, hence the SET behind it.
    pub(crate) async fn use_format(
        &mut self,
        format: &Arc<FormatDescription>,
        mode: ExecMode,
    ) -> Result<()> {
        if self.format.as_ref().is_some_and(|known| known.raw() == format.raw()) {
            return Ok(());
        }
        self.format = None;
        // The GTID of a transaction that is over would be in the way.
        self.run("SET SESSION gtid_next='AUTOMATIC'").await?;
        let mut statement = Vec::new();
        push_binlog(&mut statement, &format.for_binlog_statement());
        self.run(statement).await?;
        self.run("SET SESSION gtid_next='AUTOMATIC'").await?;
        if mode == ExecMode::Idempotent {
            self.run("SET SESSION rbr_exec_mode='IDEMPOTENT'").await?;
        }
        self.format = Some(Arc::clone(format));
        Ok(())
    }

    /// Sets the session up for statements made of row values, if it is not.
    pub(crate) async fn use_statements(&mut self) -> Result<()> {
        if !self.for_statements {
            for statement in dml::SESSION {
                self.run(statement).await?;
            }
            self.for_statements = true;
        }
        Ok(())
    }

    /// Ends the connection in good order; an error no longer matters.
    pub(crate) async fn close(self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), self.conn.disconnect()).await;
    }
}

/// Level, code and message.
fn warning(mut row: Row) -> Option<Warning> {
    Some(Warning { code: row.take_opt(1)?.ok()?, message: row.take_opt(2)?.ok()? })
}

/// Logs in to a server, with nothing set up there.
///
/// # Errors
/// [`Error::Target`] or [`Error::Timeout`].
pub async fn connect(target: &TargetOptions) -> Result<Conn> {
    let address = target.address();
    match tokio::time::timeout(target.connect_timeout, log_in(target)).await {
        Ok(connected) => connected.map_err(|source| Error::Target { address, source }),
        Err(_) => Err(Error::Timeout { address, seconds: target.connect_timeout.as_secs() }),
    }
}

async fn log_in(target: &TargetOptions) -> mysql_async::Result<Conn> {
    match target.tls.mode {
        TlsMode::Disabled => Conn::new(target.driver(false)).await,
        TlsMode::Preferred => match Conn::new(target.driver(true)).await {
            Err(mysql_async::Error::Driver(DriverError::NoClientSslFlagFromServer)) => {
                Conn::new(target.driver(false)).await
            }
            other => other,
        },
        _ => Conn::new(target.driver(true)).await,
    }
}

/// Appends a BINLOG statement for whole events without checksums.
pub(crate) fn push_binlog(statement: &mut Vec<u8>, events: &[u8]) {
    statement.extend_from_slice(b"BINLOG '");
    let start = statement.len();
    statement.resize(start + events.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(events, &mut statement[start..]).unwrap_or_default();
    statement.truncate(start + written);
    statement.push(b'\'');
}

/// Whether a server refused the login itself rather than being away.
pub(crate) fn is_login_refused(error: &Error) -> bool {
    match error {
        Error::Target { source, .. } => {
            matches!(
                server_code(source),
                Some(1044 | 1045 | 1049 | 1227 | 1251 | 1698 | 3118 | 3955)
            )
        }
        _ => false,
    }
}
