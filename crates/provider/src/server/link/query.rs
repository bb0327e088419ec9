//! Text queries: statements in one packet, and their results
//! (<https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_query_response.html>).

use std::sync::Arc;

use mysql_common::constants::{ColumnType, StatusFlags};
use mysql_common::packets::Column;
use mysql_common::row::new_row;

use super::limits::named;
use super::{Budget, FromRow, Limits, Link, LinkError, Packets, Row, Value};
use crate::binlog::bytes_reader::{Malformed, Reader};

const COM_QUIT: u8 = 1;
const COM_QUERY: u8 = 3;
const COM_SET_OPTION: u8 = 27;
const SEVERAL_STATEMENTS: u16 = 0;
const ONE_STATEMENT: u16 = 1;
const NULL: u8 = 0xfb;
const OK: u8 = 0x00;
const LOCAL_FILE: u8 = 0xfb;
const END: u8 = 0xfe;
/// Bytes of a packet that begins or ends a result: no OK packet, error or column is longer.
const HEAD_BYTES_MAX: usize = 64 << 10;
const COLUMNS_MAX: u64 = 4096;
/// The protocol's limit for a row that is read in a part: whoever reads in parts holds few rows, of any length.
const ROW_BYTES_MAX: usize = 1 << 30;
/// A packet that begins like the last one but has this length is a row with a long first value.
const END_BYTES_MAX: usize = 0xff_ffff;
const OLD_END_BYTES_MAX: usize = 9;

/// The state of a link between commands and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    /// A result is expected.
    Answering,
    /// More rows of so many columns are expected.
    Rows(usize),
    /// Something was begun and not finished. If its future is dropped, this state remains, and the
    /// link can't be used again.
    Inside,
}

/// The end of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    pub affected_rows: u64,
    pub warnings: u16,
    more: bool,
}

/// A part of a result: it ends with the row that reaches one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPart {
    pub rows: usize,
    pub bytes: usize,
}

/// The next rows of a result.
#[derive(Debug, Default)]
pub struct NextRows {
    pub rows: Vec<Row>,
    /// False once the result has ended.
    pub has_more: bool,
}

/// The first packet of a result.
enum Head {
    Done(Outcome),
    Columns(usize),
}

impl Link {
    /// Sends statements; the caller reads all of their results with [`Self::next_result`].
    ///
    /// # Errors
    /// The link is lost, or still has an earlier answer on it.
    pub async fn begin(&mut self, statements: &[u8]) -> Result<(), LinkError> {
        self.command(COM_QUERY, statements).await?;
        self.state = State::Answering;
        Ok(())
    }

    /// Returns the next result; `None` after the last.
    ///
    /// # Errors
    /// A statement failed, and no more results follow; the link is lost; an answer exceeds its
    /// limits, after which the link can't be used.
    pub async fn next_result(
        &mut self,
        budget: &mut Budget<'_>,
        mut on_row: impl FnMut(Row),
    ) -> Result<Option<Outcome>, LinkError> {
        match self.state {
            State::Idle => return Ok(None),
            State::Inside | State::Rows(_) => return Err(LinkError::OutOfStep),
            State::Answering => self.state = State::Inside,
        }
        let outcome = self.read_result(budget, &mut on_row).await;
        match &outcome {
            Ok(Outcome { more: true, .. }) => self.state = State::Answering,
            // The server skips all statements after a failed one.
            Ok(_) | Err(LinkError::Server { .. }) => self.state = State::Idle,
            Err(_) => {}
        }
        outcome.map(Some).map_err(|error| budget.named(error))
    }

    /// Another result comes although the last one did not announce it: the server's OK to a BINLOG
    /// statement lacks the flag (`Rows_log_event::do_apply_event` resets it), but it continues with the
    /// packet's next statement.
    pub fn expect_unannounced(&mut self) {
        if self.state == State::Idle {
            self.state = State::Answering;
        }
    }

    async fn read_result(
        &mut self,
        budget: &mut Budget<'_>,
        on_row: &mut impl FnMut(Row),
    ) -> Result<Outcome, LinkError> {
        let columns = match self.read_head().await? {
            Head::Done(outcome) => {
                budget.answer()?;
                return Ok(outcome);
            }
            Head::Columns(count) => count,
        };
        let described = described(columns);
        self.packets.allow(budget.row_bytes());
        loop {
            let packet = self.packets.look(self.silence).await?;
            if is_end(packet, self.deprecate_eof) {
                return end(packet, self.deprecate_eof);
            }
            budget.row(packet.len(), columns)?;
            on_row(row(packet, &described)?);
        }
    }

    /// Reads the begin of a result up to its rows.
    async fn read_head(&mut self) -> Result<Head, LinkError> {
        self.packets.allow(HEAD_BYTES_MAX);
        let head = head(self.packets.look(self.silence).await?)?;
        if let Head::Columns(columns) = head {
            // Column definitions, and an EOF packet after them unless it is deprecated.
            for _ in 0..columns + usize::from(!self.deprecate_eof) {
                self.packets.look(self.silence).await?;
            }
        }
        Ok(head)
    }

    /// Returns the next rows of one query that was begun with [`Self::begin`]. The server holds back those that
    /// follow until they are asked for.
    ///
    /// # Errors
    /// The query failed; the link is lost; a row exceeds its limit, after which the link can't be used.
    pub async fn next_rows(&mut self, part: RowPart) -> Result<NextRows, LinkError> {
        let columns = match self.state {
            State::Rows(columns) => Some(columns),
            State::Answering => None,
            State::Idle | State::Inside => return Err(LinkError::OutOfStep),
        };
        self.state = State::Inside;
        let read = self.read_part(columns, part).await;
        match &read {
            Ok((_, Some(columns))) => self.state = State::Rows(*columns),
            Ok((_, None)) | Err(LinkError::Server { .. }) => self.state = State::Idle,
            Err(_) => {}
        }
        read.map(|(rows, columns)| NextRows { rows, has_more: columns.is_some() })
    }

    /// Returns the columns of the rows that follow; `None` after the last.
    async fn read_part(
        &mut self,
        columns: Option<usize>,
        part: RowPart,
    ) -> Result<(Vec<Row>, Option<usize>), LinkError> {
        let columns = match columns {
            Some(columns) => columns,
            None => match self.read_head().await? {
                Head::Columns(columns) => columns,
                Head::Done(_) => return Ok((Vec::new(), None)),
            },
        };
        let described = described(columns);
        self.packets.allow(ROW_BYTES_MAX);
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while rows.len() < part.rows && bytes < part.bytes {
            let packet = self.packets.look(self.silence).await?;
            if is_end(packet, self.deprecate_eof) {
                end(packet, self.deprecate_eof)?;
                return Ok((rows, None));
            }
            bytes += packet.len();
            rows.push(row(packet, &described)?);
        }
        Ok((rows, Some(columns)))
    }

    /// Returns the rows of one query.
    ///
    /// # Errors
    /// Those of [`Self::next_result`]; a row that does not convert to `R`.
    pub async fn query<R: FromRow>(
        &mut self,
        query: &str,
        limits: Limits,
    ) -> Result<Vec<R>, LinkError> {
        let mut found = Vec::new();
        let mut strange = false;
        let mut first = true;
        let mut budget = Budget::new(limits, named(query));
        self.begin(query.as_bytes()).await?;
        while self
            .next_result(&mut budget, |row| match R::from_row_opt(row) {
                _ if !first => {}
                Ok(row) => found.push(row),
                // The text of this error would hold the row's values.
                Err(_) => strange = true,
            })
            .await?
            .is_some()
        {
            first = false;
        }
        match strange {
            true => Err(unexpected(query)),
            false => Ok(found),
        }
    }

    /// Lets the server take several statements in one packet, as after the login of
    /// [`super::Purpose::Statements`], or only one: its own parser then refuses a text with a second.
    ///
    /// # Errors
    /// The server does not know the command; the link is lost, or still has an answer on it.
    pub async fn take_several(&mut self, several: bool) -> Result<(), LinkError> {
        let option = if several { SEVERAL_STATEMENTS } else { ONE_STATEMENT };
        self.command(COM_SET_OPTION, &option.to_le_bytes()).await?;
        self.packets.allow(HEAD_BYTES_MAX);
        let answer = match self.packets.look(self.silence).await {
            Ok([OK | END, ..]) => Ok(()),
            Ok(_) => Err(LinkError::Protocol("no answer to COM_SET_OPTION".to_owned())),
            Err(error) => Err(error),
        };
        if matches!(answer, Ok(()) | Err(LinkError::Server { .. })) {
            self.state = State::Idle;
        }
        answer
    }

    /// Sends one command; the caller reads its answer.
    pub(crate) async fn command(&mut self, code: u8, body: &[u8]) -> Result<(), LinkError> {
        if self.state != State::Idle {
            return Err(LinkError::OutOfStep);
        }
        // Before the first await: a send that is dropped halfway must not leave the link idle.
        self.state = State::Inside;
        self.packets.begin_command();
        self.packets.send(&[code], body).await
    }

    /// Returns the packets after [`Self::command`], for answers that are not results.
    pub(crate) fn packets(&mut self) -> &mut Packets {
        &mut self.packets
    }

    /// The answer to a command was read to its end.
    pub(crate) fn answered(&mut self) {
        self.state = State::Idle;
    }

    /// Sends a goodbye and closes the link; takes a second at most, and ignores errors.
    pub async fn quit(mut self) {
        const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);
        if self.state == State::Idle {
            let _ = tokio::time::timeout(PATIENCE, self.packets.shutdown(COM_QUIT)).await;
        }
    }
}

/// Returns the rows of one query as values of a type.
///
/// # Errors
/// A row that does not convert to `R`.
pub fn rows_as<R: FromRow>(query: &str, rows: Vec<Row>) -> Result<Vec<R>, LinkError> {
    let found: Result<Vec<R>, _> = rows.into_iter().map(R::from_row_opt).collect();
    // The text of this error would hold the row's values.
    found.map_err(|_| unexpected(query))
}

fn unexpected(query: &str) -> LinkError {
    LinkError::Protocol(format!("the answer to {} has unexpected columns or types", named(query)))
}

fn malformed(error: Malformed) -> LinkError {
    LinkError::Protocol(error.to_string())
}

fn head(packet: &[u8]) -> Result<Head, LinkError> {
    match packet.first() {
        Some(&OK) => {
            let mut reader = Reader::new(packet);
            let outcome = ok(&mut reader).map_err(malformed)?;
            Ok(Head::Done(outcome))
        }
        Some(&LOCAL_FILE) => {
            Err(LinkError::Protocol("the server asks for a local file".to_owned()))
        }
        _ => {
            let count = Reader::new(packet).length_encoded("column count").map_err(malformed)?;
            match count {
                1..=COLUMNS_MAX => Ok(Head::Columns(count as usize)),
                _ => Err(LinkError::Protocol(format!("a result of {count} columns"))),
            }
        }
    }
}

/// Reads an OK packet, whatever its first byte.
fn ok(reader: &mut Reader<'_>) -> Result<Outcome, Malformed> {
    reader.u8("OK packet")?;
    let affected_rows = reader.length_encoded("affected rows")?;
    reader.length_encoded("insert id")?;
    let status = reader.u16("status")?;
    Ok(Outcome { affected_rows, warnings: reader.u16("warnings")?, more: has_more(status) })
}

/// Values are read by position, so columns need no real description.
fn described(columns: usize) -> Arc<[Column]> {
    (0..columns).map(|_| Column::new(ColumnType::MYSQL_TYPE_VAR_STRING)).collect()
}

fn is_end(packet: &[u8], deprecate_eof: bool) -> bool {
    let end_bytes = if deprecate_eof { END_BYTES_MAX } else { OLD_END_BYTES_MAX };
    packet.first() == Some(&END) && packet.len() < end_bytes
}

fn end(packet: &[u8], deprecate_eof: bool) -> Result<Outcome, LinkError> {
    let mut reader = Reader::new(packet);
    let outcome = match deprecate_eof {
        true => ok(&mut reader).map(|outcome| Outcome { affected_rows: 0, ..outcome }),
        false => old_end(&mut reader),
    };
    outcome.map_err(malformed)
}

fn old_end(reader: &mut Reader<'_>) -> Result<Outcome, Malformed> {
    reader.u8("EOF packet")?;
    let warnings = reader.u16("warnings")?;
    Ok(Outcome { affected_rows: 0, warnings, more: has_more(reader.u16("status")?) })
}

fn has_more(status: u16) -> bool {
    StatusFlags::from_bits_truncate(status).contains(StatusFlags::SERVER_MORE_RESULTS_EXISTS)
}

fn row(packet: &[u8], columns: &Arc<[Column]>) -> Result<Row, LinkError> {
    let mut reader = Reader::new(packet);
    let values: Result<Vec<Value>, Malformed> =
        columns.iter().map(|_| value(&mut reader)).collect();
    Ok(new_row(values.map_err(malformed)?, Arc::clone(columns)))
}

fn value(reader: &mut Reader<'_>) -> Result<Value, Malformed> {
    let mut ahead = reader.clone();
    if ahead.u8("value")? == NULL {
        *reader = ahead;
        return Ok(Value::NULL);
    }
    let len = reader.length_encoded("value length")?;
    let bytes = reader.take(usize::try_from(len).unwrap_or(usize::MAX), "value")?;
    Ok(Value::Bytes(bytes.to_vec()))
}
