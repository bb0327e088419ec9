//! Checks of a file against the schema, with the path of the wrong key: names, types, words, ranges.

use serde_json::Value as Json;
use toml::{Table, Value};

use super::{SCHEMA, find, type_of, words};
use crate::config::error::ConfigError;
use crate::config::units::{Duration, Size};

type Result = std::result::Result<(), ConfigError>;

fn wrong(text: String) -> Result {
    Err(ConfigError(text))
}

/// Checks a file without its channels.
pub(in crate::config) fn check(file: &Table) -> Result {
    known(file, &SCHEMA, "")?;
    let tables =
        ["daemon", "claims", "defaults"].iter().filter_map(|name| Some((name, file.get(*name)?)));
    for (name, table) in tables {
        value(table, &SCHEMA["properties"][name], name)?;
    }
    Ok(())
}

/// Checks a channel of a file, with its defaults; `index` names one without a name.
pub(in crate::config) fn check_channel(channel: &Value, index: usize) -> Result {
    let path = match channel.get("name").and_then(Value::as_str) {
        Some(name) => format!("channel {name:?}: "),
        None => format!("channel[{index}]: "),
    };
    match channel {
        Value::Table(channel) => table(channel, &SCHEMA["properties"]["channel"]["items"], &path),
        _ => wrong(format!("{path}write [[channel]]")),
    }
}

/// Checks one value; `path` as for [`applies`](super::applies). The error names the key alone.
pub(crate) fn check_key(path: &str, of: &Value) -> Result {
    find(path).map_or(Ok(()), |key| value(of, key.schema, key.name))
}

/// `path` is that of the table, ready for a name.
fn table(table: &Table, schema: &Json, path: &str) -> Result {
    known(table, schema, path)?;
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str) {
        if !table.contains_key(name) {
            return wrong(format!("{path}{name}: missing; it must be set"));
        }
    }
    table
        .iter()
        .try_for_each(|(name, of)| value(of, &schema["properties"][name], &format!("{path}{name}")))
}

fn value(value: &Value, schema: &Json, path: &str) -> Result {
    match schema["x-takes"].as_str() {
        Some("duration") => return quantity(value, schema, path, Duration::millis, Duration::LIKE),
        Some("size") => return quantity(value, schema, path, Size::bytes, Size::LIKE),
        _ => {}
    }
    let (name, may_be_secret) = match type_of(schema) {
        Some("object") => ((!value.is_table()).then_some("a table"), true),
        // A command with its arguments, as one text.
        Some("array") => ((!value.is_array()).then_some("a list"), true),
        Some("boolean") => ((!value.is_bool()).then_some("true or false"), false),
        Some("integer") => ((!value.is_integer()).then_some("an integer"), false),
        Some("string") => ((!value.is_str()).then_some("text in quotes"), true),
        _ => (None, false),
    };
    if let Some(name) = name {
        // A password of digits must not reach the log, nor what `systemctl status` shows to all users.
        let found = if may_be_secret { kind(value).to_owned() } else { value.to_string() };
        return wrong(format!("{path}: {found} is not {name}"));
    }
    let words: Vec<String> = words(schema).map(|(word, _)| format!("{word:?}")).collect();
    if !words.is_empty() && !words.contains(&value.to_string()) {
        return wrong(format!("{path}: {value} is not one of {}", words.join(", ")));
    }
    match value {
        Value::Integer(number) => in_range(*number, schema, path),
        Value::Array(items) => {
            items.iter().try_for_each(|item| self::value(item, &schema["items"], path))
        }
        Value::Table(inner) if schema.get("properties").is_some() => {
            table(inner, schema, &format!("{path}."))
        }
        Value::Table(inner) => {
            let of = &schema["additionalProperties"];
            inner
                .iter()
                .try_for_each(|(name, item)| self::value(item, of, &format!("{path}.{name}")))
        }
        _ => Ok(()),
    }
}

/// Returns the type of a value in the words of a person.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a number without quotes",
        Value::Float(_) => "a number with a point",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date without quotes",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

fn in_range(number: i64, schema: &Json, path: &str) -> Result {
    let bound = |name: &str| schema[name].as_i64();
    match (bound("minimum"), bound("maximum")) {
        (Some(min), Some(max)) if !(min..=max).contains(&number) => {
            wrong(format!("{path}: {number} is not in {min}..{max}"))
        }
        (Some(min), None) if number < min => {
            wrong(format!("{path}: {number} is not {min} or more"))
        }
        _ => Ok(()),
    }
}

/// Returns a duration or a size.
fn quantity(
    value: &Value,
    schema: &Json,
    path: &str,
    measure: fn(&Value) -> Option<u64>,
    like: &str,
) -> Result {
    let Some(measured) = measure(value) else {
        return wrong(format!("{path}: {value} is not {like}"));
    };
    let least = schema["x-at-least"].as_str();
    match least.and_then(|least| measure(&least.into())) {
        Some(minimum) if measured < minimum => {
            let least = least.unwrap_or_default();
            wrong(format!("{path}: {value} is too small; set at least {least:?}"))
        }
        _ => Ok(()),
    }
}

/// Refuses keys that do not exist.
fn known(table: &Table, schema: &Json, path: &str) -> Result {
    let properties = schema["properties"].as_object();
    let known: Vec<&str> =
        properties.into_iter().flat_map(|keys| keys.keys()).map(String::as_str).collect();
    let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
    // A shortened key ("heartbeat") is nearer than its edit distance suggests.
    let distance = |name: &str| match name.starts_with(key) || key.starts_with(name) {
        true => 1,
        false => strsim::damerau_levenshtein(key, name),
    };
    let nearest = known
        .iter()
        .map(|name| (distance(name), name))
        .min()
        .filter(|(distance, name)| *distance <= name.len().div_ceil(2));
    wrong(match nearest {
        Some((_, name)) => format!("{path}{key}: unknown key, did you mean {name}?"),
        None => format!("{path}{key}: unknown key; known are {}", known.join(", ")),
    })
}
