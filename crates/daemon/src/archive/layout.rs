//! The names of objects. Pure.
//!
//! ```text
//! CHANNEL/histories/00000001.json                    the first history: its folder, and where it began; written once
//! CHANNEL/20261126T081500Z-1f8a22c4/00000001.json    index of the first file; written once, after the file
//! CHANNEL/20261126T081500Z-1f8a22c4/00000001-9c41d0ab.binlog
//! CHANNEL/pins/NAME.json                             a backup that needs everything after its GTID set
//! ```

/// Digits of a file's number.
const DIGITS: usize = 8;

pub(super) const HISTORIES: &str = "histories";
pub(super) const PINS: &str = "pins";

/// Returns the name of a history that begins at this time. Names sort by time; the random part keeps two apart that
/// begin in the same second.
pub(super) fn history_name(time: &str, random: u32) -> String {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let (day, clock) = time.split_once('T').unwrap_or((time, ""));
    let clock = clock.get(..8).unwrap_or(clock);
    format!("{}T{}Z-{random:08x}", digits(day), digits(clock))
}

pub(super) fn index_name(number: u64) -> String {
    format!("{number:0DIGITS$}.json")
}

/// Returns the number in the name of an index; `None` for any other object.
pub(super) fn index_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".json")?;
    let is_number = digits.len() >= DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// Returns the name of a file. The random part keeps a file apart from what a killed daemon has left under the same
/// number.
pub(super) fn file_name(number: u64, random: u32, extension: &str) -> String {
    format!("{number:0DIGITS$}-{random:08x}.{extension}")
}

/// Returns the number in the name of a file; `None` for any other object.
pub(super) fn file_number(name: &str) -> Option<u64> {
    let (digits, rest) = name.split_once('-')?;
    let is_file = rest.ends_with(".binlog") || rest.ends_with(".binlog.zst");
    let is_number = digits.len() >= DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_file && is_number).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let history = history_name("2026-11-26T08:15:00.123456Z", 0x1f8a_22c4);
        assert_eq!(history, "20261126T081500Z-1f8a22c4");
        for number in [1, 99_999_999, 123_456_789] {
            assert_eq!(index_number(&index_name(number)), Some(number));
            let file = file_name(number, 7, "binlog.zst");
            assert_eq!(file_number(&file), Some(number));
            assert_eq!((index_number(&file), file_number(&index_name(number))), (None, None));
        }
        assert_eq!(index_number("full-backup.json"), None);
    }
}
