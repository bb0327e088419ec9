//! Warnings of statements that a strict session would refuse although they store the source's values.
//! Pure.

use std::borrow::Cow;

use crate::server::answer::Warning;

/// Warnings that a statement which is not strict may give.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tolerated {
    /// Columns that the target computes, ENUM columns with the value 0 (no member), and VECTOR columns with an empty one.
    pub(super) columns: Vec<String>,
    /// The target computes something when rows are written, if only for an index.
    pub(super) computes: bool,
}

/// Deprecated syntax or character set.
const DEPRECATED: [u16; 4] = [1287, 1681, 3719, 3778];
/// JSON and casts in expressions, and functional indexes on them: no stored column's value.
const COMPUTED: [u16; 4] = [3156, 3751, 3752, 3907];
/// "Truncated incorrect … value" in an expression, otherwise with the name of a column.
const WRONG_VALUE: u16 = 1292;

impl Tolerated {
    pub(super) fn takes(&self, warning: &Warning) -> bool {
        match column_of(&warning.message) {
            Some(column) => self.columns.iter().any(|known| known.eq_ignore_ascii_case(&column)),
            None if DEPRECATED.contains(&warning.code) => true,
            None => {
                let expression = warning.code == WRONG_VALUE
                    && warning.message.starts_with("Truncated incorrect ");
                self.computes && (expression || COMPUTED.contains(&warning.code))
            }
        }
    }
}

/// Returns the column that a message names. A value before it may have any text, so the last match
/// counts. MariaDB may name it with its table, in backticks.
pub(super) fn column_of(message: &str) -> Option<Cow<'_, str>> {
    if let Some((qualified, _)) = message.rsplit_once("` at row ")
        && let Some((_, path)) = qualified.rsplit_once("olumn `")
    {
        let column = path.rsplit_once("`.`").map_or(path, |(_, column)| column);
        return Some(column.replace("``", "`").into());
    }
    let without_default =
        || message.strip_prefix("Field '")?.strip_suffix("' doesn't have a default value");
    let Some((_, rest)) = message.rsplit_once("olumn '") else {
        return without_default().map(Cow::from);
    };
    rest.rsplit_once('\'').map(|(column, _)| column.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_computed_may_be_cut() {
        let takes = |computes, code, message: &str| {
            let tolerated = Tolerated { columns: vec!["g".to_owned(), "e".to_owned()], computes };
            tolerated.takes(&Warning { code, message: message.to_owned() })
        };
        assert!(takes(true, 1366, "Incorrect string value: '\\xC3\\xA4' for column 'g' at row 1"));
        assert!(takes(false, 1265, "Data truncated for column 'e' at row 2"));
        assert!(!takes(true, 1265, "Data truncated for column 'a' at row 2"));
        assert!(!takes(true, 1048, "Column 'a' cannot be null"));
        assert!(!takes(true, 1364, "Field 'a' doesn't have a default value"));
        assert!(takes(false, 1364, "Field 'e' doesn't have a default value"));
        // A value may say anything.
        let quoting = "Incorrect string value: 'for column 'g' at row 1' for column 'a' at row 1";
        assert!(!takes(true, 1366, quoting));
        // MariaDB's form.
        let qualified = |value: &str, column: &str| {
            format!("Incorrect string value: '{value}' for column `d`.`t`.`{column}` at row 1")
        };
        assert!(takes(true, 1366, &qualified("\\xC3\\xA4", "g")));
        assert!(!takes(true, 1366, &qualified("for column 'g'", "a")));
        assert!(!takes(true, 1366, &qualified("for column `d`.`t`.`g` at row 1", "a")));
        assert!(!takes(true, 1366, &qualified("x", "a``.``g")));
        assert!(takes(true, 1292, "Truncated incorrect DOUBLE value: 'x'"));
        assert!(!takes(false, 1292, "Truncated incorrect DOUBLE value: 'x'"), "of what?");
        assert!(!takes(true, 1292, "Incorrect datetime value: '2026-02-31'"));
        assert!(takes(true, 3907, "Data too long for functional index 'f'."));
        assert!(takes(false, 1287, "'ucs2' is deprecated and will be removed in a future release"));
        assert!(!takes(true, 1300, "Invalid utf8mb4 character string: 'FF'"));
    }
}
