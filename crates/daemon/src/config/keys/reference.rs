//! The reference of the configuration file, made from the keys themselves.

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
    use std::collections::BTreeSet;

    use serde::de::DeserializeOwned;
    use toml::{Table, Value};

    use super::super::{Section, known};
    use super::*;
    use crate::config::{
        ApplierConfig, ChannelConfig, Config, DaemonConfig, RelayConfig, SourceConfig,
        TargetConfig, channel_changes, daemon_changes,
    };

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

    /// Names of the fields that a type accepts, from its own error message.
    fn fields<C: DeserializeOwned + std::fmt::Debug>() -> BTreeSet<String> {
        let table = Table::from_iter([("no_such_key".to_owned(), 1.into())]);
        let error = C::deserialize(Value::Table(table)).expect_err("unknown").to_string();
        let known = error.split_once("expected one of ").expect("a list").1;
        known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn keys_are_the_fields_that_are_read() {
        let keys = |section: &Section| -> BTreeSet<String> {
            section.keys.iter().map(|key| key.name.to_owned()).collect()
        };
        assert_eq!(keys(&known::DAEMON), fields::<DaemonConfig>());
        let mut channel = keys(&known::CHANNEL);
        channel.extend(["source", "relay", "target", "applier"].map(str::to_owned));
        assert_eq!(channel, fields::<ChannelConfig>());
        assert_eq!(keys(&known::SOURCE), fields::<SourceConfig>());
        assert_eq!(keys(&known::RELAY), fields::<RelayConfig>());
        assert_eq!(keys(&known::TARGET), fields::<TargetConfig>());
        assert_eq!(keys(&known::APPLIER), fields::<ApplierConfig>());
    }

    /// The refusal of a whole file in which one key has `value`, next to valid others; `None`:
    /// accepted.
    fn refusal(section: &Section, key: &str, value: Option<Value>) -> Option<String> {
        let least = "name='c'\nsource={host='h',user='u',password='p',server_id=1}\n\
                     target={user='u',password='p'}\napplier={commit='one-to-one'}";
        let mut channel: Table = least.parse().expect("a channel");
        let mut daemon = Table::new();
        let table = match (section.path, section.path.strip_prefix("channel.")) {
            ("daemon", _) => &mut daemon,
            (_, Some(name)) => channel
                .entry(name)
                .or_insert_with(|| Table::new().into())
                .as_table_mut()
                .expect("a section"),
            _ => &mut channel,
        };
        match value {
            Some(value) => table.insert(key.to_owned(), value),
            None => table.remove(key),
        };
        if table.get("tls").is_some() {
            table.insert("tls_ca".to_owned(), "ca.pem".into());
        }
        let file = Table::from_iter([
            ("daemon".to_owned(), daemon.into()),
            ("channel".to_owned(), Value::Array(vec![channel.into()])),
        ]);
        Config::parse(&file.to_string()).err().map(|error| error.0)
    }

    #[test]
    fn values_end_where_the_reference_says() {
        let mut checked = 0;
        for (section, key) in SECTIONS.iter().flat_map(|s| s.keys.iter().map(move |key| (s, key))) {
            let name = format!("{}.{}", section.path, key.name);
            let takes = |value: Value| refusal(section, key.name, Some(value));
            if key.default.is_none() {
                let why = refusal(section, key.name, None).expect(&name);
                assert!(why.contains(key.name), "{name}: {why}");
            }
            let number = |text: &str| text.parse::<i64>().ok();
            let range = key.takes.split_once(" to ");
            let range = range.and_then(|(from, to)| Some((number(from)?, number(to)?)));
            let words: Vec<&str> = key.takes.split('`').map(str::trim).collect();
            let (is_words, words) = (
                words.len() > 3 && words.iter().step_by(2).all(|between| between.is_empty()),
                words.iter().skip(1).step_by(2),
            );
            let refused = match (key.takes, range) {
                (_, Some((from, to))) => {
                    for value in [from, to] {
                        assert_eq!(takes(value.into()), None, "{name} = {value}");
                    }
                    vec![Value::from(from - 1), Value::from(to + 1)]
                }
                _ if is_words => {
                    for &word in words {
                        assert_eq!(takes(word.into()), None, "{name} = {word}");
                    }
                    vec!["no-such-word".into()]
                }
                ("duration" | "size", _) => {
                    let value = if key.takes == "size" { "7GiB" } else { "7s" };
                    assert_eq!(takes(value.into()), None, "{name}");
                    vec!["7 apples".into(), (-1).into()]
                }
                ("boolean", _) => {
                    assert_eq!(takes(true.into()).or(takes(false.into())), None, "{name}");
                    vec!["true".into()]
                }
                _ => continue,
            };
            for value in refused {
                let why = takes(value.clone());
                assert!(why.is_some_and(|why| !why.contains('\n')), "{name} = {value} is taken");
            }
            checked += 1;
        }
        assert!(checked >= 25, "{checked}");
    }

    #[test]
    fn the_commented_file_has_every_key() {
        let text = include_str!("../../../../../config/csa-daemon.toml");
        for section in SECTIONS {
            for key in section.keys {
                assert!(text.contains(key.name), "{} is missing", key.name);
            }
        }
        // No other key may be in it: comments that hold a setting count too.
        let mut header = String::new();
        for line in text.lines() {
            if line.starts_with('[') {
                let path = line.trim_start_matches('[').split(']').next().unwrap_or_default();
                path.clone_into(&mut header);
                continue;
            }
            let Some((key, _)) = line.trim_start_matches("# ").split_once(" = ") else { continue };
            let mut here = SECTIONS.iter().filter(|section| section.path == header);
            let is_known = here.any(|section| section.keys.iter().any(|known| known.name == key));
            assert!(is_known || key.contains(' '), "{header}: {key} is no key");
        }
    }
}
