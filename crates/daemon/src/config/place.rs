//! The place of a mistake: file, line, and the channel.

use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

use super::error::ConfigError;

/// A file as it was read.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// A file, or one of its channels.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextPlace<'a> {
    pub(super) file: &'a Text,
    /// The file with `[defaults]`.
    pub(super) main: Option<&'a Text>,
    /// Counted within the file.
    pub(super) channel: Option<usize>,
}

impl TextPlace<'_> {
    /// Returns the error, which begins with the path of the key, with file and line.
    pub(super) fn named(&self, error: &ConfigError) -> ConfigError {
        let (file, line) = self.of(path(&error.0));
        let file = file.path.display();
        ConfigError(match line {
            Some(line) => format!("{file}: line {line}: {error}"),
            None => format!("{file}: {error}"),
        })
    }

    /// Returns the line with the key, or else with the table that lacks it. A key that the channel
    /// has from `[defaults]` is there.
    fn of(&self, path: &str) -> (&Text, Option<usize>) {
        let keys: Vec<&str> = path.split('.').collect();
        let own = line(&self.file.text, self.channel, &keys);
        let found = own.as_ref().is_some_and(|found| found.is_whole);
        if let (Some(_), false, Some(main)) = (self.channel, found, self.main) {
            let keys: Vec<&str> = std::iter::once("defaults").chain(keys).collect();
            if let Some(KeyLine { line, is_whole: true }) = line(&main.text, None, &keys) {
                return (main, Some(line));
            }
        }
        (self.file, own.map(|found| found.line))
    }
}

/// Returns the part of an error before its text: `channel "a": source.host: missing`.
fn path(error: &str) -> &str {
    let rest = match error.strip_prefix("channel") {
        // Names are checked later, and may hold anything.
        Some(rest) if rest.starts_with([' ', '[']) => {
            rest.split_once("\": ").or(rest.split_once("]: ")).map_or(rest, |(_, rest)| rest)
        }
        _ => error,
    };
    rest.split(": ").next().unwrap_or_default()
}

struct KeyLine {
    line: usize,
    /// Not only the table around it.
    is_whole: bool,
}

fn line(text: &str, channel: Option<usize>, keys: &[&str]) -> Option<KeyLine> {
    let parsed = DeTable::parse(text).ok()?;
    let mut table = parsed.get_ref();
    let mut at = None;
    if let Some(index) = channel {
        let DeValue::Array(channels) = table.get("channel")?.get_ref() else { return None };
        let channel = channels.get(index)?;
        at = Some(channel.span());
        table = channel.get_ref().as_table()?;
    }
    let mut is_whole = true;
    for (number, key) in keys.iter().enumerate() {
        let Some((name, value)) = table.get_key_value(*key) else {
            is_whole = false;
            break;
        };
        at = Some(name.span());
        match value.get_ref() {
            DeValue::Table(below) => table = below,
            _ => {
                is_whole = number + 1 == keys.len();
                break;
            }
        }
    }
    let before = text.get(..at?.start)?;
    Some(KeyLine { line: before.matches('\n').count() + 1, is_whole })
}
