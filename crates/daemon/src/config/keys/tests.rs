use std::collections::BTreeSet;

use toml::{Table, Value};

use super::*;
use crate::config::Config;

const LEAST: &str = "name='c'\nsource={host='h',user='u',server_id=1}\ntarget={user='u'}";

#[test]
fn the_checked_in_documents_are_what_the_keys_say() {
    for (file, checked_in, made) in [
        (
            "docs/configuration.md",
            include_str!("../../../../../docs/configuration.md"),
            reference(),
        ),
        (
            "config/csa-daemon.toml",
            include_str!("../../../../../config/csa-daemon.toml"),
            example(),
        ),
        (
            "config/csa-daemon.schema.json",
            include_str!("../../../../../config/csa-daemon.schema.json"),
            schema(),
        ),
    ] {
        assert!(checked_in == made, "run csa-daemon generate DIRECTORY, and copy {file}");
    }
}

/// Defaults and examples as values of the file.
fn value(of: &serde_json::Value) -> Value {
    Value::try_from(of).expect("TOML")
}

fn keys() -> impl Iterator<Item = (&'static Section, &'static Key)> {
    SECTIONS.iter().flat_map(|section| section.keys.iter().map(move |key| (section, key)))
}

#[test]
fn defaults_are_what_a_file_without_the_key_comes_to() {
    let mut checked = 0;
    for (section, key) in keys() {
        let Some(default) = key.default().map(value) else { continue };
        let least: Table = LEAST.parse().expect("a channel");
        let with = |value: Value| put(&least, section.path, key.name, value);
        let differs = |value: Value| match section.path {
            "daemon" => {
                let table = Table::from_iter([(key.name.to_owned(), value)]);
                !daemon_changes(&Table::new(), &table).is_empty()
            }
            "claims" => {
                let table = Table::from_iter([(key.name.to_owned(), value)]);
                !claims_changes(&Table::new(), &table).is_empty()
            }
            _ => !channel_changes(&least, &with(value)).is_empty(),
        };
        assert!(!differs(default.clone()), "{} is not {default} by default", key.name);
        assert!(differs(other(&default)), "{} does nothing", key.name);
        checked += 1;
    }
    assert!(checked > 30, "{checked}");
}

/// Returns a value of the same type.
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
fn keys_are_the_fields_that_are_read() {
    let of = |schema: &serde_json::Value| -> BTreeSet<String> {
        schema["properties"].as_object().expect("a section").keys().cloned().collect()
    };
    let names = |path: &str| -> BTreeSet<String> {
        let section = SECTIONS.iter().find(|section| section.path == path).expect("a section");
        section.keys.iter().map(|key| key.name.to_owned()).collect()
    };
    let root = &SCHEMA["properties"];
    assert_eq!(names("daemon"), of(&root["daemon"]));
    assert_eq!(names("claims"), of(&root["claims"]));
    let channel = &root["channel"]["items"];
    let mut own = names("channel");
    for section in [
        "source",
        "relay",
        "target",
        "applier",
        "copy",
        "archive",
        "throttle_by",
        "notify",
        "verify",
        "move",
    ] {
        assert_eq!(names(&format!("channel.{section}")), of(&channel["properties"][section]));
        own.insert(section.to_owned());
    }
    assert_eq!(own, of(channel));
    for (section, key) in keys() {
        let name = format!("{}.{}", section.path, key.name);
        assert!(key.text().ends_with('.'), "{name} has no text");
        assert!(key.default().is_some() || key.example().is_some(), "{name} has no value to show");
        assert!(key.schema.get("enum").is_none(), "{name} has a word without a text");
    }
}

/// Returns the refusal of a whole file in which one key has `value`, next to valid others; `None`:
/// accepted.
fn refusal(section: &Section, key: &str, value: Option<Value>) -> Option<String> {
    let least = "name='c'\nsource={host='h',user='u',password='p',server_id=1}\n\
                 target={user='u',password='p'}\napplier={commit='one-to-one'}\n\
                 relay={sync='transaction'}\nthrottle_by={replica_lag='5s',replicas=[{host='h'}]}";
    let mut channel: Table = least.parse().expect("a channel");
    let mut daemon = Table::new();
    let mut claims: Table = "engine='etcd'\nendpoints=['http://127.0.0.1:1']\nname='n'\n\
                             user='u'\npassword_file='/dev/null'"
        .parse()
        .expect("a section");
    let table = match (section.path, section.path.strip_prefix("channel.")) {
        ("daemon", _) => &mut daemon,
        ("claims", _) => &mut claims,
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
    if table.get("engine").and_then(Value::as_str) == Some("kubernetes") {
        table.retain(|key, _| key != "user" && key != "password_file");
        table.insert("namespace".to_owned(), "n".into());
    }
    if table.get("tls").is_some() {
        table.insert("tls_ca".to_owned(), "ca.pem".into());
    }
    if table.get("prefer").is_some() {
        table.insert("discover".to_owned(), "group".into());
    }
    if section.path == "channel.archive" && key == "required" {
        table.insert("url".to_owned(), "file:///archive".into());
    }
    if section.path != "claims" {
        claims.clear();
    }
    let file = Table::from_iter([
        ("daemon".to_owned(), daemon.into()),
        ("claims".to_owned(), claims.into()),
        ("channel".to_owned(), Value::Array(vec![channel.into()])),
    ]);
    Config::parse(&file.to_string()).err().map(|error| error.0)
}

#[test]
fn values_end_where_the_reference_says() {
    let mut checked = 0;
    for (section, key) in keys() {
        let name = format!("{}.{}", section.path, key.name);
        let takes = |value: Value| refusal(section, key.name, Some(value));
        if key.required {
            let why = refusal(section, key.name, None).expect(&name);
            assert!(why.contains(key.name), "{name}: {why}");
        }
        let stated = key.takes();
        let number = |text: &str| text.parse::<i64>().ok();
        let range = stated.split_once(" to ");
        let range = range.and_then(|(from, to)| Some((number(from)?, number(to)?)));
        let words: Vec<&str> = stated.split('`').map(str::trim).collect();
        let (is_words, words) = (
            words.len() > 3 && words.iter().step_by(2).all(|between| between.is_empty()),
            words.iter().skip(1).step_by(2),
        );
        let (kind, least) = stated.split_once(" of at least ").unwrap_or((&stated, ""));
        let refused = match (kind, range) {
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
                let value = if kind == "size" { "7GiB" } else { "7s" };
                assert_eq!(takes(value.into()), None, "{name}");
                let mut refused = vec!["7 apples".into(), (-1).into()];
                if !least.is_empty() {
                    assert_eq!(takes(least.into()), None, "{name} = {least}");
                    refused.extend([0.into(), if kind == "size" { "1KiB" } else { "0s" }.into()]);
                }
                refused
            }
            ("boolean", _) => {
                assert_eq!(takes(true.into()).or(takes(false.into())), None, "{name}");
                vec!["true".into()]
            }
            _ => continue,
        };
        for value in refused {
            let why = takes(value.clone());
            assert!(
                why.is_some_and(|why| why.contains(key.name) && !why.contains('\n')),
                "{name} = {value} is taken"
            );
        }
        checked += 1;
    }
    assert!(checked >= 25, "{checked}");
}

#[test]
fn the_commented_file_has_every_key() {
    let text = include_str!("../../../../../config/csa-daemon.toml");
    for (section, key) in keys() {
        assert!(text.contains(key.name), "{} is missing in {}", key.name, section.path);
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
    // With nothing commented out it is valid, except for the keys that exclude each other.
    let is_setting =
        |line: &&str| line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
    let shown = text.lines().map(|line| line.strip_prefix("# ").filter(is_setting).unwrap_or(line));
    let whole: Table = shown.collect::<Vec<_>>().join("\n").parse().expect("TOML");
    assert_eq!(check(&whole).map_err(|error| error.0), Ok(()));
}
