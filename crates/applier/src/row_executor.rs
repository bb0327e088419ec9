//! The two ways of writing rows: row images through BINLOG, or statements of their values.

use std::sync::Arc;

use bytes::Bytes;
use csa_provider::FormatDescription;
use tokio::task::spawn_blocking;

use crate::dml::{self, Answer, Packet, Refusal, SessionSettings};
use crate::error::{ErrorClass, class_of_code};
use crate::options::{ApplierOptions, ExecMode, Executor};
use crate::session::{Session, push_binlog};
use crate::target_tables::TargetTables;
use crate::{Error, Result};

/// Writes the rows of one attempt at a group on one session.
#[derive(Debug)]
pub(crate) struct RowExecutor {
    executor: Executor,
    exec_mode: ExecMode,
    statement_bytes: usize,
    /// The session may have a GTID of the source's before it.
    gtids: bool,
    tables: Arc<TargetTables>,
    settings: SessionSettings,
}

/// Bytes of row images made into statements at once. As text they take two to four times as much.
const IMAGE_BYTES: usize = 1 << 20;
/// Making statements of so few takes less than the way to another thread and back.
const BYTES_AT_ONCE: usize = 16 << 10;
/// Bytes of statements in one packet.
const PACKET_BYTES: usize = 1 << 20;

impl RowExecutor {
    pub(crate) fn new(options: &ApplierOptions, tables: Arc<TargetTables>) -> Self {
        Self {
            executor: options.executor,
            exec_mode: options.exec_mode,
            statement_bytes: options.statement_bytes,
            gtids: options.statement_gtids,
            tables,
            settings: SessionSettings::default(),
        }
    }

    /// Sets the session up for rows of this format; outside of a transaction.
    pub(crate) async fn prepare(
        &self,
        session: &mut Session,
        format: &Arc<FormatDescription>,
    ) -> Result<()> {
        match self.executor {
            Executor::RowImage => session.use_format(format, self.exec_mode).await,
            Executor::Sql => session.use_statements().await,
        }
    }

    /// Whether they go as row images, which no setting of the session changes.
    pub(crate) fn takes_row_images(&self) -> bool {
        self.executor == Executor::RowImage
    }

    /// Bytes of row images in one step.
    pub(crate) fn step_bytes(&self, session: &Session) -> usize {
        self.statement_bytes.min(match self.executor {
            Executor::RowImage => session.row_image_bytes(),
            Executor::Sql => IMAGE_BYTES,
        })
    }

    /// Sends whole events without checksums, behind `opening` in the first packet. Returns what the
    /// opening's statements matched.
    pub(crate) async fn send(
        &mut self,
        session: &mut Session,
        opening: Option<Opening>,
        images: Vec<u8>,
    ) -> Result<Vec<u64>> {
        match self.executor {
            Executor::RowImage => {
                let mut statement = opening.map(|opening| opening.text).unwrap_or_default();
                push_separator(&mut statement);
                push_binlog(&mut statement, &images);
                session.run(&statement).await
            }
            Executor::Sql => self.send_statements(session, opening, images).await,
        }
    }

    async fn send_statements(
        &mut self,
        session: &mut Session,
        mut opening: Option<Opening>,
        images: Vec<u8>,
    ) -> Result<Vec<u64>> {
        let packets = self.packets(session, opening.is_none(), images).await?;
        let mut opened = Vec::new();
        for packet in packets {
            let Opening { mut text, statements } = opening.take().unwrap_or_default();
            push_separator(&mut text);
            text.extend_from_slice(&packet.text);
            let answers = session.run_counting(&text).await.map_err(without_values)?;
            let (first, rest) = answers.split_at_checked(statements).unwrap_or_default();
            opened.extend(first.iter().map(|answer: &Answer| answer.rows));
            packet.check(rest)?;
        }
        // Nothing to write in them: the opening goes alone.
        if let Some(Opening { text, .. }) = opening {
            opened = session.run(&text).await?;
        }
        Ok(opened)
    }

    async fn packets(
        &mut self,
        session: &mut Session,
        opened: bool,
        images: Vec<u8>,
    ) -> Result<Vec<Packet>> {
        let images = Bytes::from(images);
        let names = dml::tables_in(&images)?;
        if self.gtids && !opened && !self.tables.has_all(&names) {
            // A transaction under the source's GTID that was rolled back leaves the session with it,
            // and then even a look at the tables is refused.
            session.run("SET SESSION gtid_next='AUTOMATIC'").await?;
        }
        let tables = self.tables.of(session, names).await?;
        let (limit, settings) = (session.packet_bytes().min(PACKET_BYTES), self.settings);
        let is_large = images.len() > BYTES_AT_ONCE;
        let make = move || dml::statements(&images, &tables, limit, settings);
        let made = if is_large { spawn_blocking(make).await } else { Ok(make()) };
        let (packets, settings) =
            made.map_err(|error| Error::Relay(format!("making statements: {error}")))??;
        self.settings = settings;
        Ok(packets)
    }
}

/// What a unit's transaction begins with, and of how many statements that is.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    pub(crate) text: Vec<u8>,
    pub(crate) statements: usize,
}

fn push_separator(statements: &mut Vec<u8>) {
    if !statements.is_empty() {
        statements.push(b';');
    }
}

impl From<Refusal> for Error {
    fn from(Refusal { code, message }: Refusal) -> Self {
        Self::Rows { code, message }
    }
}

/// Server errors whose text names tables, columns and constraints only.
const NAMING: [u16; 20] = [
    1020, 1044, 1048, 1054, 1114, 1136, 1142, 1143, 1146, 1205, 1213, 1216, 1217, 1264, 1364, 1406,
    1451, 1452, 3819, 4025,
];
const DUPLICATE: u16 = 1062;

/// The server may quote values of the statement it refuses, and errors are logged.
fn without_values(error: Error) -> Error {
    let Error::Target { address, source: mysql_async::Error::Server(server) } = error else {
        return error;
    };
    // A server that goes away or refuses all writes says nothing of values.
    let known = NAMING.contains(&server.code);
    let message = match server.message.rfind(" for key ").or(server.message.rfind(" for column ")) {
        _ if known || class_of_code(server.code) != ErrorClass::Stop => server.message,
        Some(at) => {
            let end = server.message.get(at..).unwrap_or_default();
            let what = if server.code == DUPLICATE { "Duplicate entry" } else { "Value refused" };
            format!("{what}{end}")
        }
        None => "the target refused a statement made of row values, which its message may quote"
            .to_owned(),
    };
    let source = mysql_async::Error::Server(mysql_async::ServerError { message, ..server });
    Error::Target { address, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(code: u16, text: &str) -> String {
        let server =
            mysql_async::ServerError { code, message: text.to_owned(), state: "HY000".to_owned() };
        let error =
            Error::Target { address: "t".to_owned(), source: mysql_async::Error::Server(server) };
        without_values(error).server_message()
    }

    #[test]
    fn values_in_the_servers_words_are_left_out() {
        for (code, text, expected) in [
            (
                1062,
                "Duplicate entry 'secret for key x' for key 't.u'",
                "Duplicate entry for key 't.u'",
            ),
            (
                1366,
                "Incorrect string value: '\\xF0' for column 'c' at row 1",
                "Value refused for column 'c' at row 1",
            ),
            (
                1264,
                "Out of range value for column 'c' at row 1",
                "Out of range value for column 'c' at row 1",
            ),
            (1213, "Deadlock found", "Deadlock found"),
        ] {
            assert_eq!(message(code, text), expected);
        }
        assert!(!message(1064, "syntax near 'secret'").contains("secret"));
    }
}
