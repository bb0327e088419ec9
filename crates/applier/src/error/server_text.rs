//! The server's error messages, with and without the values of rows that they quote.
//!
//! Logs, metrics and clients with read access only get them without. The list of messages is the
//! server's own, `share/messages_to_clients.txt`.

use std::borrow::Cow;
use std::fmt;

/// Takes the place of a value.
const CUT: &str = "…";
/// The server cuts its messages at 512 bytes, perhaps inside a quoted value.
const LENGTH_MAX: usize = 500;

/// A message for two kinds of readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerText {
    shown: String,
    full: String,
}

impl ServerText {
    /// `code` is the number of the server's error.
    #[must_use]
    pub fn new(code: u16, message: &str) -> Self {
        Self { shown: without_values(code, message).into_owned(), full: message.to_owned() }
    }

    /// Returns a text of our own, which holds no values.
    pub(crate) fn own(message: impl Into<String>) -> Self {
        let full = message.into();
        Self { shown: full.clone(), full }
    }

    /// Adds text of our own.
    pub(crate) fn push(&mut self, words: &str) {
        self.shown.push_str(words);
        self.full.push_str(words);
    }

    /// Returns the message with values: not for logs.
    #[must_use]
    pub fn full(&self) -> &str {
        &self.full
    }
}

/// Shows no values.
impl fmt::Display for ServerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// A message without the values it quotes.
pub(crate) fn without_values(code: u16, message: &str) -> Cow<'_, str> {
    if names_only(code) {
        return Cow::Borrowed(message);
    }
    if let Some(words) = unquoted(code) {
        return Cow::Borrowed(words);
    }
    let Some(first) = message.find(['\'', '"']) else { return Cow::Borrowed(message) };
    let head = message.get(..first).unwrap_or_default();
    let tail = if message.len() >= LENGTH_MAX { "" } else { tail(code, message) };
    Cow::Owned(format!("{head}'{CUT}'{tail}"))
}

/// Returns the part after the value: the name of a key or column, quoted too, and a row or line
/// number. It is searched from the end, and kept only where it can't be part of the value, which
/// may hold quotes and the same words.
fn tail(code: u16, message: &str) -> &str {
    let Some(last) = message.rfind(['\'', '"']) else { return "" };
    let rest = message.get(last + 1..).unwrap_or_default();
    let words = match code {
        1062 | 1569 | 1586 if rest.is_empty() => " for key '",
        _ if rest.starts_with(" at row ") || rest == "." => " for column '",
        _ => return rest,
    };
    let opened = message.get(..last).and_then(|before| before.rfind(words));
    let is_name = |at: usize| {
        message.get(at + words.len()..last).is_some_and(|name| !name.contains(['\'', '"']))
    };
    opened.filter(|at| is_name(*at)).and_then(|at| message.get(at..)).unwrap_or(rest)
}

/// Returns the replacements for messages that hold values without quotes, or text that a trigger
/// made.
const fn unquoted(code: u16) -> Option<&'static str> {
    Some(match code {
        // ER_NO_PARTITION_FOR_GIVEN_VALUE, ER_ROW_IN_WRONG_PARTITION.
        1526 => "Table has no partition for a value of the row",
        1863 => "Found a row in a wrong partition",
        // SIGNAL: its text is the trigger's or routine's.
        1642..=1644 => {
            "a condition that a trigger or routine on the target signals (its text may hold values)"
        }
        // Longitudes and latitudes.
        3616 | 3617 | 3731 | 3732 => "A longitude or latitude is out of range",
        // ER_FOREIGN_DUPLICATE_KEY and the one before it quote names after the values.
        1557 | 1761 | 1762 => {
            "A foreign key constraint would lead to a duplicate entry in a child table"
        }
        // ER_INCONSISTENT_ERROR quotes another error.
        1890 => "The statement caused different errors on source and replica",
        _ => return None,
    })
}

/// Errors whose messages hold names, types and numbers of rows, and no values.
const fn names_only(code: u16) -> bool {
    matches!(
        code,
        // Files, tables, databases.
        1004..=1010 | 1016..=1018 | 1020 | 1021 | 1026 | 1030..=1032 | 1034..=1037 | 1040 | 1041
        // Access, and limits of accounts.
        | 1044..=1047 | 1129 | 1130 | 1133 | 1142 | 1143 | 1203 | 1226 | 1227 | 1370 | 1396 | 1410 | 1449 | 1820 | 1862 | 3118
        | 3530 | 3955 | 4047 | 4151
        // Names of objects, and which of them are there or not.
        | 1048..=1055 | 1059..=1061 | 1067..=1075 | 1082 | 1086 | 1090 | 1091 | 1101 | 1102
        | 1103 | 1109 | 1112..=1120 | 1146 | 1148 | 1170 | 1176 | 1205 | 1206 | 1213..=1217 | 1253
        | 1267 | 1273 | 1286 | 1290 | 1304 | 1305 | 1347 | 1356 | 1359 | 1360 | 1364 | 1418 | 1419
        // Columns and rows by number: cannot be null, out of range, truncated, too long.
        | 1136 | 1261..=1265 | 1406 | 1552 | 1742 | 3751 | 3752 | 3904..=3908
        // Foreign keys and checks name the constraint.
        | 1451 | 1452 | 1822..=1826 | 1832..=1834 | 3819
        // Replication, read-only modes, GTIDs, storage.
        | 1153 | 1158..=1161 | 1236 | 1317 | 1534 | 1535 | 1593 | 1594 | 1665 | 1666 | 1677 | 1785
        | 1792 | 1836 | 1837 | 1927 | 3024 | 3098 | 3100 | 3101 | 3161 | 3169 | 3635
        | 4031
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_cut_and_names_stay() {
        for (code, message, shown) in [
            (
                1062,
                "Duplicate entry 'a@b' for key 't.mail'",
                "Duplicate entry '…' for key 't.mail'",
            ),
            (1062, "Duplicate entry '1' for key 2", "Duplicate entry '…' for key 2"),
            (1586, "Doppelter Eintrag 'x-y' für Schlüssel 't.PRIMARY'", "Doppelter Eintrag '…'"),
            (
                1366,
                "Incorrect integer value: 'abc' for column 'c' at row 3",
                "Incorrect integer value: '…' for column 'c' at row 3",
            ),
            (
                1366,
                "Incorrect integer value: 'abc' for column `d`.`t`.`c` at row 3",
                "Incorrect integer value: '…' for column `d`.`t`.`c` at row 3",
            ),
            (
                1292,
                "Truncated incorrect DOUBLE value: '12x'",
                "Truncated incorrect DOUBLE value: '…'",
            ),
            (
                1292,
                "Incorrect datetime value: '0' for column 'd' at row 1",
                "Incorrect datetime value: '…' for column 'd' at row 1",
            ),
            (
                1411,
                "Incorrect datetime value: '0' for function str_to_date",
                "Incorrect datetime value: '…' for function str_to_date",
            ),
            (1525, "Incorrect DATE value: '0'", "Incorrect DATE value: '…'"),
            (
                1367,
                "Illegal double '1e999' value found during parsing",
                "Illegal double '…' value found during parsing",
            ),
            (
                1300,
                "Invalid utf8mb4 character string: '\\xFF'",
                "Invalid utf8mb4 character string: '…'",
            ),
            (
                1690,
                "BIGINT UNSIGNED value is out of range in '(`d`.`t`.`a` - 5)'",
                "BIGINT UNSIGNED value is out of range in '…'",
            ),
            (
                3140,
                "Invalid JSON text: \"Invalid value.\" at position 1 in value for column 't.j'.",
                "Invalid JSON text: '…' for column 't.j'.",
            ),
            (
                3854,
                "Cannot convert string 'x' from utf8mb4 to latin1",
                "Cannot convert string '…' from utf8mb4 to latin1",
            ),
            (
                1064,
                "You have an error in your SQL syntax near ''secret') x' at line 1",
                "You have an error in your SQL syntax near '…' at line 1",
            ),
            (
                1526,
                "Table has no partition for value 77",
                "Table has no partition for a value of the row",
            ),
            (
                1644,
                "no such customer: 77",
                "a condition that a trigger or routine on the target signals (its text may hold values)",
            ),
            (
                3617,
                "Latitude 95.200000 is out of range in function st_geomfromtext.",
                "A longitude or latitude is out of range",
            ),
            (
                1452,
                "Cannot add or update a child row: a foreign key constraint fails (`d`.`c`, CONSTRAINT `f`)",
                "Cannot add or update a child row: a foreign key constraint fails (`d`.`c`, CONSTRAINT `f`)",
            ),
            (
                1264,
                "Out of range value for column 'c' at row 1",
                "Out of range value for column 'c' at row 1",
            ),
            (
                1406,
                "Data too long for column 'c' at row 1",
                "Data too long for column 'c' at row 1",
            ),
            (1048, "Column 'c' cannot be null", "Column 'c' cannot be null"),
            (
                3819,
                "Check constraint 'positive' is violated.",
                "Check constraint 'positive' is violated.",
            ),
            (
                1226,
                "User 'csa' has exceeded the 'max_user_connections' resource (current value: 1)",
                "User 'csa' has exceeded the 'max_user_connections' resource (current value: 1)",
            ),
            (9999, "Something new about 'secret'.", "Something new about '…'."),
        ] {
            assert_eq!(without_values(code, message), shown);
        }
    }

    /// Whoever writes rows on the source chooses their values.
    #[test]
    fn a_value_can_not_pass_for_a_name() {
        for value in [
            "secret' for key 'x",
            "secret' for column 'y",
            "it's a secret",
            "'secret",
            "secret'",
            "' for key 'secret",
            "' for column 'secret' at row 1",
            "secret\" for key \"z",
            "a' for key 'b' for key 'secret",
        ] {
            for (code, message) in [
                (1062, format!("Duplicate entry '{value}' for key 't.PRIMARY'")),
                (1366, format!("Incorrect integer value: '{value}' for column 'c' at row 1")),
                (1292, format!("Truncated incorrect DOUBLE value: '{value}'")),
                (9999, format!("Something new: '{value}' at line 1")),
            ] {
                let shown = without_values(code, &message);
                assert!(!shown.contains("secret"), "{message} -> {shown}");
            }
        }
        let long = format!("Duplicate entry '{}it's secret' for key 't", "x".repeat(480));
        assert!(!without_values(1062, &long).contains("secret"));
    }

    #[test]
    fn our_own_words_stay_whole() {
        let mut text = ServerText::new(1062, "Duplicate entry 'v' for key 'k'");
        text.push("; SET x='y'");
        assert_eq!(text.to_string(), "Duplicate entry '…' for key 'k'; SET x='y'");
        assert_eq!(text.full(), "Duplicate entry 'v' for key 'k'; SET x='y'");
        assert_eq!(ServerText::own("say 'this'").to_string(), "say 'this'");
    }
}
