//! Differences between two configuration files, key by key. Pure.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::{ChannelConfig, DaemonConfig};

/// Keys of `[daemon]` in which `new` differs from `old`. Both are valid. A default that is written
/// out is no difference, nor is another spelling of the same value.
pub(crate) fn daemon_changes(old: &Table, new: &Table) -> Vec<String> {
    differing::<DaemonConfig>(old, new)
}

/// The same of a channel, with sections.
pub(crate) fn channel_changes(old: &Table, new: &Table) -> Vec<String> {
    differing::<ChannelConfig>(old, new)
}

/// Keys, with their sections, whose change alone makes another configuration.
fn differing<C>(old: &Table, new: &Table) -> Vec<String>
where
    C: serde::de::DeserializeOwned + std::fmt::Debug,
{
    let (before, after) = (leaves(old), leaves(new));
    let paths: BTreeSet<&Vec<String>> = before.iter().chain(&after).map(|(path, _)| path).collect();
    let value = |leaves: &[(Vec<String>, Value)], path: &[String]| {
        leaves.iter().find(|(known, _)| known == path).map(|(_, value)| value.clone())
    };
    let known = read::<C>(old);
    let mut differing = Vec::new();
    for path in paths {
        let (before, after) = (value(&before, path), value(&after, path));
        if before == after {
            continue;
        }
        let mut one = old.clone();
        put(&mut one, path, after);
        // Configurations are compared by their Debug output, which hides passwords.
        let is_password = path.last().is_some_and(|key| key == "password");
        if is_password || known.is_none() || read::<C>(&one) != known {
            differing.push(path.join("."));
        }
    }
    differing
}

fn read<C>(table: &Table) -> Option<String>
where
    C: serde::de::DeserializeOwned + std::fmt::Debug,
{
    C::deserialize(Value::Table(table.clone())).ok().map(|config| format!("{config:?}"))
}

/// Values by their paths; values of a section are leaves, deeper tables are values.
fn leaves(table: &Table) -> Vec<(Vec<String>, Value)> {
    let mut leaves = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(section) => leaves.extend(
                section
                    .iter()
                    .map(|(inner, value)| (vec![key.clone(), inner.clone()], value.clone())),
            ),
            value => leaves.push((vec![key.clone()], value.clone())),
        }
    }
    leaves
}

fn put(table: &mut Table, path: &[String], value: Option<Value>) {
    let (mut table, Some((key, sections))) = (table, path.split_last()) else { return };
    for section in sections {
        let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(inner) = inner else { return };
        table = inner;
    }
    match value {
        Some(value) => drop(table.insert(key.clone(), value)),
        None => drop(table.remove(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = r#"
name = "a"
[source]
host = "h"
user = "u"
password = "old"
server_id = 1
connect_retry = "1s"
[target]
user = "u"
"#;

    fn changed(edits: &[(&str, &str)]) -> Vec<String> {
        let new = edits.iter().fold(OLD.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        let parse = |text: &str| text.parse::<Table>().expect("TOML");
        channel_changes(&parse(OLD), &parse(&new))
    }

    #[test]
    fn only_what_means_something_else_is_a_change() {
        assert!(changed(&[]).is_empty());
        let same = [("\"1s\"", "\"1000ms\""), ("[target]", "port = 3306\n[target]")];
        assert!(changed(&same).is_empty(), "{:?}", changed(&same));
        let others = [
            ("\"old\"", "\"new\""),
            ("host = \"h\"", "host = \"other\"\nport = 3307"),
            ("[target]\nuser = \"u\"", "[target]\nuser = \"v\"\n[applier]\nworker_count = 9"),
        ];
        assert_eq!(
            changed(&others),
            [
                "applier.worker_count",
                "source.host",
                "source.password",
                "source.port",
                "target.user"
            ]
        );
        let daemon = |text: &str| text.parse::<Table>().expect("TOML");
        let (old, new) = (daemon("log_filter = \"info\""), daemon("log_filter = \"debug\""));
        assert_eq!(daemon_changes(&old, &new), ["log_filter"]);
        assert!(daemon_changes(&Table::new(), &old).is_empty(), "the default, written down");
    }
}
