//! The two ways of writing rows: row images through BINLOG, or statements of their values.

use std::sync::Arc;

use bytes::Bytes;
use csa_provider::binlog::{FormatDescription, SessionContext};
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::options::{ApplierOptions, ConvergingTables, ExecMode, Executor, RowImageColumns};
use crate::rows::binlog_statements::RowImages;
use crate::rows::converging::Segment;
use crate::rows::dml::{self, Packet, Refusal, SessionSettings};
use crate::server::answer::Answer;
use crate::server::as_source;
use crate::server::definitions::tables::TargetTables;
use crate::server::row_session;
use crate::server::session::{Session, push_binlog};
use crate::threads::computed;

/// Writes the rows of one attempt at a group on one session.
#[derive(Debug)]
pub(crate) struct RowExecutor {
    executor: Executor,
    exec_mode: ExecMode,
    converging: Option<Arc<ConvergingTables>>,
    row_image: RowImageColumns,
    statement_bytes: usize,
    /// Statements run under their source's GTID, so the session may still have one in `gtid_next`.
    gtids: bool,
    /// Tables that are not transactional are written too.
    any_engine: bool,
    /// See [`Self::for_created_table`].
    is_created: bool,
    /// See [`FormatDescription::years_have_signs`]; of the format that was prepared last. For statements.
    years_have_signs: bool,
    tables: Arc<TargetTables>,
    settings: SessionSettings,
}

/// Bytes of row images made into statements at once. As text they take two to four times the space.
const IMAGE_BYTES: usize = 1 << 20;
/// Making statements of so few bytes takes less time than a switch to another thread and back.
const BYTES_AT_ONCE: usize = 16 << 10;

impl RowExecutor {
    pub(crate) fn new(options: &ApplierOptions, tables: Arc<TargetTables>) -> Self {
        Self {
            executor: options.executor,
            exec_mode: options.exec_mode,
            converging: options.converging.clone(),
            row_image: options.row_image,
            statement_bytes: options.statement_bytes,
            gtids: options.statement_gtids,
            any_engine: false,
            is_created: false,
            years_have_signs: false,
            tables,
            settings: SessionSettings::default(),
        }
    }

    /// Also writes tables that are not transactional; the caller is prepared for rows that can't be
    /// rolled back.
    pub(crate) fn for_any_engine(self) -> Self {
        Self { any_engine: true, ..self }
    }

    /// Writes the rows of a table that the same transaction has created. Between the two the server takes no SET (3977),
    /// and none is needed: the table was empty, and the statement's session is that of its rows.
    pub(crate) fn for_created_table(self) -> Self {
        Self { is_created: true, ..self }
    }

    /// Sets the session up for rows of this format; call it outside of a transaction.
    pub(crate) async fn prepare(
        &mut self,
        session: &mut Session,
        format: &Arc<FormatDescription>,
    ) -> Result<()> {
        match self.executor {
            Executor::RowImage => {
                session.use_format(format, self.exec_mode).await?;
                // Rows of tables that converge may have left the other mode.
                if self.is_created && self.converging.is_some() {
                    session.run(self.exec_mode.set()).await?;
                }
                Ok(())
            }
            Executor::Sql => {
                self.years_have_signs = format.years_have_signs();
                session.use_statements(&dml::SESSION).await
            }
        }
    }

    /// The columns that rows are sent with; statements check all that the source logged.
    pub(crate) fn columns(&self) -> RowImageColumns {
        match self.executor {
            Executor::RowImage => self.row_image,
            Executor::Sql => RowImageColumns::Full,
        }
    }

    /// Returns true if rows go as row images.
    pub(crate) fn takes_row_images(&self) -> bool {
        self.executor == Executor::RowImage
    }

    /// Bytes of row images in one step.
    pub(crate) fn step_bytes(&self, session: &Session) -> usize {
        self.statement_bytes.min(match self.executor {
            Executor::RowImage => session.server().packet_bytes(),
            Executor::Sql => IMAGE_BYTES,
        })
    }

    /// Sends row images, after `opening` in the first packet. Returns the rows that the opening's
    /// statements matched.
    pub(crate) async fn send(
        &mut self,
        session: &mut Session,
        opening: Option<Opening>,
        images: RowImages,
    ) -> Result<Vec<u64>> {
        match self.executor {
            Executor::RowImage => {
                let mut packet = opening.unwrap_or_default();
                let is_divided = self.push_images(session, &mut packet, images).await?;
                // An OK for a BINLOG statement lacks the more-results flag, so it is the last unless they are counted.
                let least = if is_divided { packet.statements } else { 0 };
                let answers = session.run_at_least(least, &packet.text).await?;
                session.row_settings.settled();
                Ok(answers.iter().map(|answer| answer.rows).collect())
            }
            Executor::Sql => {
                let RowImages { events, session: written_in, .. } = images;
                self.send_statements(session, opening, events, written_in).await
            }
        }
    }

    /// Sends row images, and in the same packet `end`, the statement that commits them or follows their
    /// transaction. The opening must fail, not only match nothing, where the rows may not be committed. Returns
    /// the moment at which `end` began, if it is known.
    pub(crate) async fn send_and_end(
        &mut self,
        session: &mut Session,
        mut packet: Opening,
        images: RowImages,
        end: &str,
    ) -> Result<Option<Instant>> {
        self.push_images(session, &mut packet, images).await?;
        packet.push(end, 1);
        let applied = session.run_counted(packet.statements, &packet.text).await?;
        session.row_settings.settled();
        Ok(applied)
    }

    /// Appends the statements for row images: one, or one for each part that needs another session mode. Returns
    /// whether there may be several.
    async fn push_images(
        &self,
        session: &mut Session,
        packet: &mut Opening,
        images: RowImages,
    ) -> Result<bool> {
        if self.is_created {
            packet.push_images(session, &RowImages { session: None, ..images });
            return Ok(false);
        }
        let Some(tables) = self.converging.clone() else {
            packet.push_images(session, &images);
            return Ok(false);
        };
        let RowImages { events, session: written_in, is_undone, rows_before } = images;
        let is_large = events.len() > BYTES_AT_ONCE;
        let split = move || tables.split(events);
        let segments = if is_large { computed(split).await } else { Ok(split()) };
        let segments = segments
            .map_err(|source| Error::Task { task: "dividing rows of copied tables", source })??;
        for segment in segments {
            packet.push(&self.mode_for(&segment).set(), 1);
            let (events, written_in) = (segment.events, written_in.clone());
            let images = RowImages { events, session: written_in, is_undone, rows_before };
            packet.push_images(session, &images);
        }
        Ok(true)
    }

    fn mode_for(&self, segment: &Segment) -> ExecMode {
        if segment.is_converging { ExecMode::Idempotent } else { self.exec_mode }
    }

    async fn send_statements(
        &mut self,
        session: &mut Session,
        mut opening: Option<Opening>,
        images: Vec<u8>,
        written_in: Option<Arc<SessionContext>>,
    ) -> Result<Vec<u64>> {
        let takes_wide_offsets = session.server().takes_wide_offsets();
        let zone = written_in.as_deref();
        let zone = zone.and_then(|of| row_session::zone_for_statements(of, takes_wide_offsets));
        // Made before any is sent: definitions are read before BEGIN, a refusal sends nothing.
        let packets = self.packets(session, opening.is_none(), images, zone).await?;
        let mut opened = Vec::new();
        let settings = &mut session.row_settings;
        if let Some(set) = settings.enter_for_statements(written_in.as_ref(), zone) {
            opening.get_or_insert_default().push(&set, 1);
        }
        for packet in packets {
            let Opening { mut text, statements } = opening.take().unwrap_or_default();
            push_separator(&mut text);
            text.extend_from_slice(&packet.text);
            let answers = session.run_at_least(0, &text).await?;
            session.row_settings.settled();
            let (first, rest) = answers.split_at_checked(statements).unwrap_or_default();
            opened.extend(first.iter().map(|answer: &Answer| answer.rows));
            packet.check(rest)?;
        }
        // No packet carried the opening: it goes alone.
        if let Some(Opening { text, .. }) = opening {
            opened = session.run(&text).await?;
            session.row_settings.settled();
        }
        Ok(opened)
    }

    async fn packets(
        &mut self,
        session: &mut Session,
        opened: bool,
        images: Vec<u8>,
        zone: Option<&str>,
    ) -> Result<Vec<Packet>> {
        let images = Bytes::from(images);
        let names = dml::tables_in(&images)?;
        if self.gtids && !opened && !self.tables.has_all(&names) {
            // A transaction that was rolled back leaves the source's GTID in gtid_next, and then
            // the server refuses even to read definitions.
            session.run(as_source::AUTOMATIC).await?;
        }
        let mut tables = self.tables.of(session, names).await?;
        if self.any_engine {
            for table in tables.values_mut().flatten() {
                Arc::make_mut(table).not_transactional = None;
            }
        }
        let (limit, settings) = (session.server().packet_bytes(), self.settings);
        let is_large = images.len() > BYTES_AT_ONCE;
        let zone = zone.map(str::to_owned);
        let years = self.years_have_signs;
        let make =
            move || dml::statements(&images, &tables, limit, settings, zone.as_deref(), years);
        let made = if is_large { computed(make).await } else { Ok(make()) };
        let (packets, settings) = made
            .map_err(|source| Error::Task { task: "making statements of row changes", source })??;
        self.settings = settings;
        Ok(packets)
    }
}

/// Statements of one packet, and their number: those that begin a unit's transaction, and its rows if they go
/// with them.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    pub(crate) text: Vec<u8>,
    pub(crate) statements: usize,
}

impl Opening {
    /// Appends so many statements.
    pub(crate) fn push(&mut self, text: &str, statements: usize) {
        push_separator(&mut self.text);
        self.text.extend_from_slice(text.as_bytes());
        self.statements += statements;
    }

    /// Appends the settings of the session that row images were written in, and their BINLOG statement.
    pub(crate) fn push_images(&mut self, session: &mut Session, images: &RowImages) {
        if let Some(set) = session.row_settings.enter(images.session.as_ref()) {
            self.push(&set, row_session::count(&set));
        }
        push_separator(&mut self.text);
        push_binlog(&mut self.text, &images.events);
        self.statements += 1;
    }
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

#[cfg(test)]
mod tests {
    use csa_provider::binlog::EventType;
    use csa_provider::test_util::{format_description, int_image, int_table_map, rows_event};

    use super::*;
    use crate::group::worker::tests::options;
    use crate::server::scripted::Scripted;

    fn images() -> RowImages {
        let mut events = Vec::new();
        int_table_map(7, "d", "t", 1).write_without_checksum(&mut events);
        rows_event(EventType::WRITE_ROWS, 7, 1, &int_image(&[Some(1)]))
            .write_without_checksum(&mut events);
        let session = Some(Arc::new(SessionContext::default()));
        RowImages { events, session, is_undone: false, rows_before: 0 }
    }

    /// Returns the statements for rows of `d.t`, and those before them.
    async fn sent(make: impl FnOnce(RowExecutor) -> RowExecutor) -> (Vec<String>, Vec<String>) {
        let scripted = Scripted::default();
        let mut session = Session::connect(&scripted.target()).await.expect("connects");
        let tables = ConvergingTables::new([("d".to_owned(), "t".to_owned())], []);
        let options = ApplierOptions {
            converging: Some(Arc::new(tables)),
            executor: Executor::RowImage,
            ..options()
        };
        let mut rows = make(RowExecutor::new(&options, Arc::default()));
        let format = Arc::new(format_description());
        // A second time on this session, whose mode earlier rows have changed.
        rows.prepare(&mut session, &format).await.expect("prepared");
        scripted.state().sent.clear();
        rows.prepare(&mut session, &format).await.expect("prepared");
        let before = std::mem::take(&mut scripted.state().sent);
        rows.send(&mut session, None, images()).await.expect("sent");
        (std::mem::take(&mut scripted.state().sent), before)
    }

    #[tokio::test]
    async fn between_the_creation_of_a_table_and_its_rows_nothing_is_set() {
        let (rows, before) = sent(RowExecutor::for_created_table).await;
        assert!(rows.len() == 1 && rows[0].starts_with("BINLOG '"), "{rows:?}");
        assert!(!rows[0].contains("SET "), "{rows:?}");
        assert_eq!(before, [ExecMode::Strict.set()]);
        // Elsewhere rows of this table need another mode, and their session.
        let (rows, _) = sent(|rows| rows).await;
        let mode = ExecMode::Idempotent.set();
        assert!(rows[0].starts_with(&mode) && rows[0].contains("SET NAMES"), "{rows:?}");
    }
}
