//! Statements collected into packets, with what each must answer. Pure.

use std::sync::Arc;

use super::{Refusal, codes};

/// Statements in one packet, separated by semicolons.
#[derive(Debug, Default)]
pub(crate) struct Packet {
    pub(crate) text: Vec<u8>,
    /// One for each statement.
    expected: Vec<Expected>,
}

/// What a statement must answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// Rows matched; `None` for a statement without rows.
    pub(super) rows: Option<u64>,
    /// Warnings of a statement that is not strict: as many as there are values it may warn of.
    pub(super) warnings: Option<u16>,
    /// What it does to which table, found by which key.
    pub(super) what: Arc<str>,
}

/// What a statement answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) rows: u64,
    pub(crate) warnings: u16,
}

impl Packet {
    /// Whether every statement did what it was to do.
    ///
    /// # Errors
    /// The first that did not.
    pub(crate) fn check(&self, answers: &[Answer]) -> Result<(), Refusal> {
        if answers.len() != self.expected.len() {
            return Err(Refusal::new(
                codes::UNSUPPORTED,
                format!("{} answers to {} statements", answers.len(), self.expected.len()),
            ));
        }
        for (expected, answer) in self.expected.iter().zip(answers) {
            if let Some(rows) = expected.rows
                && rows != answer.rows
            {
                let what = &expected.what;
                let missing = match answer.rows > rows {
                    true => format!("{} rows instead of {rows}", answer.rows),
                    false if rows == 1 => "the row is not there".to_owned(),
                    false => format!("{} of {rows} rows are not there", rows - answer.rows),
                };
                return Err(Refusal::new(
                    codes::KEY_NOT_FOUND,
                    format!("can't find record: {what}: {missing}"),
                ));
            }
            if let Some(warnings) = expected.warnings
                && warnings != answer.warnings
            {
                return Err(Refusal::new(
                    codes::TRUNCATED,
                    format!("data truncated: {}", expected.what),
                ));
            }
        }
        Ok(())
    }
}

/// Session settings that differ from statement to statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) foreign_key_checks: bool,
    pub(super) unique_checks: bool,
    pub(super) strict: bool,
}

/// What counts in every mode: values are stored as they are, be they zero, invalid or not
/// (<https://dev.mysql.com/doc/refman/en/sql-mode.html>).
const STORED_AS_THEY_ARE: &str = "ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO";

impl Settings {
    fn statement(self) -> String {
        let strict = if self.strict { "STRICT_ALL_TABLES," } else { "" };
        format!(
            "SET SESSION foreign_key_checks={},unique_checks={},sql_mode='{strict}{STORED_AS_THEY_ARE}'",
            u8::from(self.foreign_key_checks),
            u8::from(self.unique_checks)
        )
    }
}

/// What sessions are set up with once: nothing an administrator's global settings may change.
pub(crate) const SESSION: [&str; 2] =
    ["SET NAMES utf8mb4", "SET SESSION sql_safe_updates=0, sql_auto_is_null=0, time_zone='+00:00'"];

/// Collects statements.
#[derive(Debug)]
pub(super) struct PacketWriter {
    /// Bytes of a packet; a single larger statement still goes alone.
    limit: usize,
    packets: Vec<Packet>,
    packet: Packet,
    /// Of the session, once statements were sent; not known before.
    settings: Option<Settings>,
    list: Option<List>,
}

/// A statement of several rows that is still open.
#[derive(Debug)]
struct List {
    head: Arc<[u8]>,
    tail: &'static [u8],
    rows: Vec<u8>,
    count: u64,
    what: Arc<str>,
}

/// Rows and bytes of a statement with several rows: more make the server no faster.
const LIST_ROWS: u64 = 1000;
const LIST_BYTES: usize = 256 << 10;

impl PacketWriter {
    pub(super) fn new(limit: usize, settings: Option<Settings>) -> Self {
        Self { limit, packets: Vec::new(), packet: Packet::default(), settings, list: None }
    }

    /// Adds a row to a statement of rows that begins with `head` and ends with `tail`.
    pub(super) fn list_row(
        &mut self,
        settings: Settings,
        head: &Arc<[u8]>,
        tail: &'static [u8],
        row: &[u8],
        what: &Arc<str>,
    ) {
        let fits = self.list.as_ref().is_some_and(|list| {
            list.head == *head
                && list.tail == tail
                && list.count < LIST_ROWS
                && list.rows.len() + row.len() < LIST_BYTES.min(self.limit)
        });
        if !fits || self.settings != Some(settings) {
            self.end_list();
            self.set(settings);
        }
        let list = self.list.get_or_insert_with(|| List {
            head: Arc::clone(head),
            tail,
            rows: Vec::new(),
            count: 0,
            what: Arc::clone(what),
        });
        if list.count > 0 {
            list.rows.push(b',');
        }
        list.rows.extend_from_slice(row);
        list.count += 1;
    }

    /// Adds a statement that is about one row.
    pub(super) fn statement(
        &mut self,
        settings: Settings,
        text: &[&[u8]],
        warnings: Option<u16>,
        what: &Arc<str>,
    ) {
        self.end_list();
        self.set(settings);
        let what = Arc::clone(what);
        self.push(text, Expected { rows: Some(1), warnings, what });
    }

    /// All packets, and the settings that the session has behind them.
    pub(super) fn finish(mut self) -> (Vec<Packet>, Option<Settings>) {
        self.end_list();
        if !self.packet.text.is_empty() {
            self.packets.push(self.packet);
        }
        (self.packets, self.settings)
    }

    fn set(&mut self, settings: Settings) {
        if self.settings != Some(settings) {
            self.settings = Some(settings);
            let text = settings.statement();
            self.push(&[text.as_bytes()], Expected::default());
        }
    }

    fn end_list(&mut self) {
        let Some(list) = self.list.take() else { return };
        let expected = Expected { rows: Some(list.count), warnings: None, what: list.what };
        self.push(&[&list.head, &list.rows, list.tail], expected);
    }

    fn push(&mut self, text: &[&[u8]], expected: Expected) {
        let len: usize = text.iter().map(|part| part.len()).sum();
        if !self.packet.text.is_empty() && self.packet.text.len() + len >= self.limit {
            self.packets.push(std::mem::take(&mut self.packet));
        }
        if !self.packet.text.is_empty() {
            self.packet.text.push(b';');
        }
        for part in text {
            self.packet.text.extend_from_slice(part);
        }
        self.packet.expected.push(expected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: Settings =
        Settings { foreign_key_checks: true, unique_checks: true, strict: true };

    fn texts(packets: &[Packet]) -> Vec<String> {
        packets.iter().map(|p| String::from_utf8_lossy(&p.text).into_owned()).collect()
    }

    #[test]
    fn rows_share_statements_and_statements_packets() {
        let mut writer = PacketWriter::new(1 << 20, Some(STRICT));
        let head: Arc<[u8]> = Arc::from(&b"INSERT "[..]);
        let what: Arc<str> = Arc::from("rows");
        for row in ["(1)", "(2)", "(3)"] {
            writer.list_row(STRICT, &head, b";", row.as_bytes(), &what);
        }
        writer.statement(STRICT, &[b"UPDATE", b" 1"], None, &what);
        let (packets, settings) = writer.finish();
        assert_eq!(texts(&packets), ["INSERT (1),(2),(3);;UPDATE 1"]);
        assert_eq!(settings, Some(STRICT));
        let answer = |rows| Answer { rows, warnings: 0 };
        assert!(packets[0].check(&[answer(3), answer(1)]).is_ok());
        let error = packets[0].check(&[answer(2), answer(1)]).expect_err("one is missing");
        assert_eq!(error.code, 1032);
        assert!(error.message.contains("1 of 3 rows are not there"), "{}", error.message);
        assert!(packets[0].check(&[answer(3)]).is_err(), "every statement answers");
    }

    #[test]
    fn packets_end_at_their_limit_and_settings_change_in_between() {
        let mut writer = PacketWriter::new(60, None);
        let what: Arc<str> = Arc::from("row");
        let lenient = Settings { strict: false, ..STRICT };
        writer.statement(STRICT, &[&[b'a'; 50]], None, &what);
        writer.statement(STRICT, &[&[b'b'; 50]], None, &what);
        writer.statement(lenient, &[b"c"], Some(1), &what);
        let (packets, _) = writer.finish();
        let texts = texts(&packets);
        assert_eq!(texts.len(), 5, "{texts:?}");
        assert!(
            texts[0].ends_with(
                "sql_mode='STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'"
            )
        );
        assert!(texts[3].ends_with("sql_mode='ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'"));
        assert!(packets[4].check(&[Answer { rows: 1, warnings: 1 }]).is_ok());
        let error = packets[4].check(&[Answer { rows: 1, warnings: 2 }]).expect_err("one too many");
        assert_eq!(error.code, 1265);
    }
}
