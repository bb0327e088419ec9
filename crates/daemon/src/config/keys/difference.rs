//! Differences between two configuration files, key by key. Pure.

use serde_json::{Map, Value};
use toml::Table;

use super::SCHEMA;
use crate::config::units::{Duration, Size};

/// Returns the keys of `[daemon]` in which `new` differs from `old`. Both are valid. A default that
/// is written out is no difference, nor is another spelling of the same value.
pub(crate) fn daemon_changes(old: &Table, new: &Table) -> Vec<String> {
    let daemon = &SCHEMA["properties"]["daemon"];
    differing(daemon, "", &json(old), &json(new))
}

/// The same of `[claims]`, with its name.
pub(crate) fn claims_changes(old: &Table, new: &Table) -> Vec<String> {
    differing(&SCHEMA["properties"]["claims"], "claims.", &json(old), &json(new))
}

/// Returns the same of a channel, with sections.
pub(crate) fn channel_changes(old: &Table, new: &Table) -> Vec<String> {
    let channel = &SCHEMA["properties"]["channel"]["items"];
    differing(channel, "", &json(old), &json(new))
}

fn json(table: &Table) -> Value {
    // Every TOML value has a JSON form.
    serde_json::to_value(table).unwrap_or_default()
}

/// Sections, which have keys that must be set or have defaults, are compared key by key.
fn differing(schema: &Value, path: &str, old: &Value, new: &Value) -> Vec<String> {
    let mut differing = Vec::new();
    for (name, schema) in properties(schema) {
        let (old, new) = (&old[name], &new[name]);
        if path.is_empty() && schema.get("properties").is_some() {
            differing.extend(self::differing(schema, &format!("{name}."), old, new));
        } else if meaning(schema, old) != meaning(schema, new) {
            differing.push(format!("{path}{name}"));
        }
    }
    differing
}

/// Returns a value without its spelling; null where the key is not set and has no default.
fn meaning(schema: &Value, value: &Value) -> Value {
    let value = if value.is_null() { &schema["default"] } else { value };
    let measured = |measure: fn(&toml::Value) -> Option<u64>| {
        let value = toml::Value::try_from(value).ok();
        value.and_then(|value| measure(&value)).map_or(Value::Null, Value::from)
    };
    match (schema["x-takes"].as_str(), value) {
        (_, Value::Null) => Value::Null,
        (Some("duration"), _) => measured(Duration::millis),
        (Some("size"), _) => measured(Size::bytes),
        (_, Value::Array(items)) => {
            items.iter().map(|item| meaning(&schema["items"], item)).collect()
        }
        (_, Value::Object(_)) if schema.get("properties").is_some() => {
            let key =
                |(name, schema): (&String, &Value)| (name.clone(), meaning(schema, &value[name]));
            Value::Object(properties(schema).map(key).collect::<Map<_, _>>())
        }
        _ => value.clone(),
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
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
        let same = [("\"1s\"", "\"1000ms\""), ("[target]", "port = 3306\nfailover = []\n[target]")];
        assert!(changed(&same).is_empty(), "{:?}", changed(&same));
        let others = [
            ("\"old\"", "\"new\""),
            ("host = \"h\"", "host = \"other\"\nport = 3307\nfailover = [{ host = \"h\" }]"),
            ("[target]\nuser = \"u\"", "[target]\nuser = \"v\"\n[applier]\nworker_count = 9"),
        ];
        assert_eq!(
            changed(&others),
            [
                "applier.worker_count",
                "source.failover",
                "source.host",
                "source.password",
                "source.port",
                "target.user"
            ]
        );
        let failover = |to: &str| {
            let of = |servers: &str| {
                let text = OLD.replace("[target]", &format!("failover = [{servers}]\n[target]"));
                text.parse::<Table>().expect("TOML")
            };
            channel_changes(&of("{ host = \"h\" }"), &of(to))
        };
        assert!(failover("{ host = \"h\", port = 3306 }").is_empty(), "the default of an item");
        assert_eq!(failover("{ host = \"h\", port = 3307 }"), ["source.failover"]);
        let daemon = |text: &str| text.parse::<Table>().expect("TOML");
        let (old, new) = (daemon("log_filter = \"info\""), daemon("log_filter = \"debug\""));
        assert_eq!(daemon_changes(&old, &new), ["log_filter"]);
        assert!(daemon_changes(&Table::new(), &old).is_empty(), "the default, written down");
    }
}
