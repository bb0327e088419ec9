//! Statements collected into packets, with the answer that each must give. Pure.

use std::sync::Arc;

use csa_provider::seams::planted::{Bug, is_planted};

use super::refusal::{Refusal, codes};
use super::warnings::{Tolerated, column_of};
use crate::server::answer::{Answer, Warning};

/// Statements in one packet, separated by semicolons.
#[derive(Debug, Default)]
pub(crate) struct Packet {
    pub(crate) text: Vec<u8>,
    /// One for each statement.
    expected: Vec<Expected>,
}

/// The answer that a statement must give.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// Rows matched; `None` for a statement without rows.
    pub(super) rows: Option<u64>,
    /// The answer lists the warnings of the statement before, which may be these.
    pub(super) tolerated: Option<Arc<Tolerated>>,
    /// Operation, table and key, for error messages.
    pub(super) what: Arc<str>,
}

impl Packet {
    /// Checks that every statement matched its rows and gave no warning but tolerated ones.
    ///
    /// # Errors
    /// The first statement that did not.
    pub(crate) fn check(&self, answers: &[Answer]) -> Result<(), Refusal> {
        if answers.len() != self.expected.len() {
            return Err(Refusal::new(
                codes::UNSUPPORTED,
                format!("{} answers to {} statements", answers.len(), self.expected.len()),
            ));
        }
        let mut warned = 0;
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
            if let Some(tolerated) = &expected.tolerated {
                check_warnings(tolerated, warned, &answer.shown, &expected.what)?;
            }
            warned = answer.warnings;
        }
        Ok(())
    }
}

/// Checks the warnings of a packet.
///
/// # Errors
/// The first warning about a value that is not stored as it is, or warnings that were not shown.
fn check_warnings(
    tolerated: &Tolerated,
    count: u16,
    shown: &[Warning],
    what: &str,
) -> Result<(), Refusal> {
    let refused = |why: String| Err(Refusal::new(codes::TRUNCATED, why));
    if let Some(warning) = shown.iter().find(|warning| !tolerated.takes(warning)) {
        let column = column_of(&warning.message).map(|name| format!(", column {name}"));
        let (code, column) = (warning.code, column.unwrap_or_default());
        return refused(format!("data truncated: {what}{column} (warning {code})"));
    }
    if shown.len() != usize::from(count) {
        return refused(format!(
            "{what}: {count} warnings, of which the target shows {}; run there: SET PERSIST \
             max_error_count=65535 (MySQL 5.7: SET GLOBAL), then restart the channel",
            shown.len()
        ));
    }
    Ok(())
}

/// Session settings that differ from statement to statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) foreign_key_checks: bool,
    pub(super) unique_checks: bool,
    pub(super) strict: bool,
}

/// Part of every `sql_mode`: zero and invalid values are stored as they are
/// (<https://dev.mysql.com/doc/refman/en/sql-mode.html>).
const STORED_AS_THEY_ARE: &str = "ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO";

impl Settings {
    pub(super) fn sql_mode(self) -> String {
        let strict = if self.strict { "STRICT_ALL_TABLES," } else { "" };
        format!("{strict}{STORED_AS_THEY_ARE}")
    }

    fn statement(self) -> String {
        format!(
            "SET SESSION foreign_key_checks={},unique_checks={},sql_mode='{}'",
            u8::from(self.foreign_key_checks),
            u8::from(self.unique_checks),
            self.sql_mode()
        )
    }
}

/// Settings made once for each session, so that the server's global settings have no influence.
pub(crate) const SESSION: [&str; 2] = [
    "SET NAMES utf8mb4",
    "SET SESSION sql_safe_updates=0, sql_auto_is_null=0, time_zone='+00:00', lc_messages='en_US', \
     sql_notes=1",
];

/// Bytes of statements in one packet, where the target takes them.
const PACKET_BYTES: usize = 1 << 20;

/// Collects statements.
#[derive(Debug)]
pub(super) struct PacketWriter {
    /// Bytes of a packet; a single larger statement still goes alone.
    limit: usize,
    /// Bytes that the target takes in one packet.
    pub(super) most: usize,
    packets: Vec<Packet>,
    packet: Packet,
    /// The session's after the statements so far; `None` before the first.
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
    tolerated: Option<Arc<Tolerated>>,
}

/// Follows a statement that is not strict.
pub(super) const SHOW_WARNINGS: &str = ";SHOW WARNINGS";

/// Rows and bytes of a statement with several rows: more make the server no faster.
const LIST_ROWS: u64 = 1000;
const LIST_BYTES: usize = 256 << 10;
/// Rows of a statement whose warnings are checked: by default the server keeps no more than 1024 of them
/// (`max_error_count`), and a row may have several.
const LIST_ROWS_SHOWN: u64 = 64;

impl PacketWriter {
    /// Returns a writer for a target that takes packets of twice so many bytes.
    pub(super) fn new(limit: usize, settings: Option<Settings>) -> Self {
        Self {
            limit: limit.min(PACKET_BYTES),
            most: limit.saturating_mul(2),
            packets: Vec::new(),
            packet: Packet::default(),
            settings,
            list: None,
        }
    }

    /// Adds a row to a statement of rows that begins with `head` and ends with `tail`. `tolerated`
    /// goes with settings that are not strict.
    pub(super) fn list_row(
        &mut self,
        settings: Settings,
        head: &Arc<[u8]>,
        tail: &'static [u8],
        row: &[u8],
        what: &Arc<str>,
        tolerated: Option<&Arc<Tolerated>>,
    ) {
        let fits = self.list.as_ref().is_some_and(|list| {
            list.head == *head
                && list.tail == tail
                && list.count < if tolerated.is_some() { LIST_ROWS_SHOWN } else { LIST_ROWS }
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
            tolerated: tolerated.cloned(),
        });
        if list.count > 0 {
            list.rows.push(b',');
        }
        list.rows.extend_from_slice(row);
        list.count += 1;
    }

    /// Adds a statement for one row.
    pub(super) fn statement(
        &mut self,
        settings: Settings,
        text: &[&[u8]],
        what: &Arc<str>,
        tolerated: Option<&Arc<Tolerated>>,
    ) {
        self.end_list();
        self.set(settings);
        self.change(text, 1, what, tolerated);
    }

    /// Returns all packets, and the settings that the session has after them.
    pub(super) fn finish(mut self) -> (Vec<Packet>, Option<Settings>) {
        if !is_planted(Bug::LastRowsLeftOut) {
            self.end_list();
        }
        if !self.packet.text.is_empty() {
            self.packets.push(self.packet);
        }
        (self.packets, self.settings)
    }

    fn set(&mut self, settings: Settings) {
        if self.settings != Some(settings) {
            self.settings = Some(settings);
            let text = settings.statement();
            self.push(&[text.as_bytes()], [Expected::default()]);
        }
    }

    fn end_list(&mut self) {
        let Some(list) = self.list.take() else { return };
        let text: [&[u8]; 3] = [&list.head, &list.rows, list.tail];
        self.change(&text, list.count, &list.what, list.tolerated.as_ref());
    }

    fn change(
        &mut self,
        text: &[&[u8]],
        rows: u64,
        what: &Arc<str>,
        tolerated: Option<&Arc<Tolerated>>,
    ) {
        let expected = |rows, tolerated| Expected { rows, tolerated, what: Arc::clone(what) };
        let changed = expected(Some(rows), None);
        let Some(tolerated) = tolerated.cloned() else { return self.push(text, [changed]) };
        let text: Vec<&[u8]> = text.iter().copied().chain([SHOW_WARNINGS.as_bytes()]).collect();
        self.push(&text, [changed, expected(None, Some(tolerated))]);
    }

    /// Appends statements that must stay in one packet, as SHOW WARNINGS must with its statement.
    fn push<const N: usize>(&mut self, text: &[&[u8]], expected: [Expected; N]) {
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
        self.packet.expected.extend(expected);
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
            writer.list_row(STRICT, &head, b";", row.as_bytes(), &what, None);
        }
        writer.statement(STRICT, &[b"UPDATE", b" 1"], &what, None);
        let (packets, settings) = writer.finish();
        assert_eq!(texts(&packets), ["INSERT (1),(2),(3);;UPDATE 1"]);
        assert_eq!(settings, Some(STRICT));
        let answer = |rows| Answer { rows, ..Answer::default() };
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
        let tolerated = Tolerated { columns: vec!["e".to_owned()], computes: false };
        writer.statement(STRICT, &[&[b'a'; 50]], &what, None);
        writer.statement(STRICT, &[&[b'b'; 50]], &what, None);
        writer.statement(lenient, &[b"c"], &what, Some(&Arc::new(tolerated)));
        let (packets, _) = writer.finish();
        let texts = texts(&packets);
        assert_eq!(texts.len(), 5, "{texts:?}");
        assert!(
            texts[0].ends_with(
                "sql_mode='STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'"
            )
        );
        assert!(texts[3].ends_with("sql_mode='ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'"));
        assert_eq!(texts[4], "c;SHOW WARNINGS");
        let check = |warnings, columns: &[&str]| {
            let message = |column| format!("Data truncated for column '{column}' at row 1");
            let shown =
                columns.iter().map(|column| Warning { code: 1265, message: message(column) });
            let shown = shown.collect();
            let changed = Answer { rows: 1, warnings, ..Answer::default() };
            packets[4].check(&[changed, Answer { shown, ..Answer::default() }])
        };
        assert_eq!(check(0, &[]), Ok(()));
        assert_eq!(check(1, &["e"]), Ok(()));
        let error = check(2, &["e", "v"]).expect_err("a value is cut");
        assert_eq!(error.message, "data truncated: row, column v (warning 1265)");
        assert_eq!(error.code, 1265);
        assert!(check(2, &["e"]).is_err(), "one is not shown");
    }
}
