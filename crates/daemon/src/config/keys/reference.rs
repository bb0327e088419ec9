//! The reference of the configuration file, from the keys themselves.

use std::fmt::Write as _;

use super::{Applies, Key, SECTIONS};

const HEAD: &str = "\
# Configuration

Made from the code (`csa-daemon generate`). The file is TOML, by default `/etc/csa-daemon/csa-daemon.toml`;
[config/csa-daemon.toml](../config/csa-daemon.toml) is a whole one with comments,
[config/minimal.toml](../config/minimal.toml) the least. Durations are written \"500ms\", \"5s\", \"2m\", \"1h\", sizes
\"64MiB\", \"10GiB\". A key that does not exist is an error that names the nearest one.

A change counts **at once** with `csa-daemon reload`, with the next start of the **channel** (`csa-daemon reload`, then
`csa-daemon restart`), or with that of the **daemon**. `reload` names what it could not change.
";

/// `docs/configuration.md`.
pub(crate) fn reference() -> String {
    let mut text = HEAD.to_owned();
    for section in SECTIONS {
        let table = match section.path {
            "channel" => "[[channel]]".to_owned(),
            path => format!("[{path}]"),
        };
        // Writing to a String can't fail.
        let _ = writeln!(text, "\n## {table}\n");
        text.push_str(
            "| key | takes | default | a change counts | |\n| --- | --- | --- | --- | --- |\n",
        );
        for key in section.keys {
            let Key { name, takes, meaning, .. } = key;
            let (default, applies) = (default(key), applies(key.applies));
            let _ = writeln!(text, "| `{name}` | {takes} | {default} | {applies} | {meaning} |");
        }
    }
    text
}

fn default(key: &Key) -> String {
    match key.default {
        None => "must be set".to_owned(),
        Some("") => String::new(),
        Some(value) => format!("`{value}`"),
    }
}

const fn applies(applies: Applies) -> &'static str {
    match applies {
        Applies::AtOnce => "at once",
        Applies::Channel => "channel",
        Applies::Daemon => "daemon",
    }
}

#[cfg(test)]
mod tests {
    use toml::{Table, Value};

    use super::*;
    use crate::config::{channel_changes, daemon_changes};

    const LEAST: &str = "name='c'\nsource={host='h',user='u',server_id=1}\ntarget={user='u'}";

    #[test]
    fn the_checked_in_reference_is_what_the_keys_say() {
        let checked_in = include_str!("../../../../../docs/configuration.md");
        assert!(
            checked_in == reference(),
            "run: csa-daemon generate DIRECTORY; copy configuration.md"
        );
    }

    #[test]
    fn defaults_are_what_a_file_without_the_key_comes_to() {
        let mut checked = 0;
        for section in SECTIONS {
            for key in section.keys {
                let Some(default) = key.default.filter(|default| !default.is_empty()) else {
                    continue;
                };
                let value: Table = format!("v={default}").parse().expect(key.name);
                let value = value["v"].clone();
                let least: Table = LEAST.parse().expect("a channel");
                let with = |value: Value| put(&least, section.path, key.name, value);
                let differs = |value: Value| match section.path {
                    "daemon" => {
                        let table = Table::from_iter([(key.name.to_owned(), value)]);
                        !daemon_changes(&Table::new(), &table).is_empty()
                    }
                    _ => !channel_changes(&least, &with(value)).is_empty(),
                };
                assert!(!differs(value.clone()), "{} is not {default} by default", key.name);
                assert!(differs(other(&value)), "{} does nothing", key.name);
                checked += 1;
            }
        }
        assert!(checked > 30, "{checked}");
    }

    /// A value of the same type.
    fn other(value: &Value) -> Value {
        match value {
            Value::Boolean(value) => Value::Boolean(!value),
            Value::Integer(value) => Value::Integer(value + 1),
            Value::Array(_) => "v=[{host='h'}]".parse::<Table>().expect("a list")["v"].clone(),
            Value::Table(_) => "v={a='b'}".parse::<Table>().expect("a table")["v"].clone(),
            Value::String(text) if text.ends_with("iB") => "3MiB".into(),
            Value::String(text) if text.ends_with('s') && text.len() < 4 => "77s".into(),
            Value::String(text) if text == "text" => "json".into(),
            Value::String(text) if text == "preferred" => "required".into(),
            _ => "something else".into(),
        }
    }

    fn put(least: &Table, path: &str, name: &str, value: Value) -> Table {
        let mut table = least.clone();
        let section = path.strip_prefix("channel.");
        let into = match section {
            None => &mut table,
            Some(section) => {
                let entry = table.entry(section).or_insert_with(|| Table::new().into());
                entry.as_table_mut().expect("a section")
            }
        };
        into.insert(name.to_owned(), value);
        table
    }

    #[test]
    fn the_commented_file_has_every_key() {
        let text = include_str!("../../../../../config/csa-daemon.toml");
        for section in SECTIONS {
            for key in section.keys {
                assert!(text.contains(key.name), "{} is missing", key.name);
            }
        }
    }
}
