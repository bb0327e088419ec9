//! The keys of the file and all that is known of them, read from the JSON schema that `declared_keys.rs` derives.

mod check;
mod difference;
mod example;
mod manual;
mod reference;
#[cfg(test)]
mod tests;

pub(crate) use check::check_key;
pub(super) use check::{check, check_channel};
pub(crate) use difference::{channel_changes, claims_changes, daemon_changes};
pub(crate) use example::example;
pub(crate) use manual::manual;
pub(crate) use reference::reference;

use std::sync::LazyLock;

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde::Deserialize;
use serde::de::value::Error;
use serde::de::{Deserializer, Error as _, Visitor};
use serde_json::Value;

use super::declared_keys::{
    ApplierConfig, ArchiveConfig, ChannelConfig, ClaimsConfig, CopyConfig, DaemonConfig, File,
    MoveConfig, NotifyConfig, RelayConfig, SourceConfig, TargetConfig, ThrottleByConfig,
    VerifyConfig,
};

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    SchemaSettings::draft07()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(RecursiveTransform(as_toml))
        .into_generator()
        .into_root_schema_for::<File>()
        .to_value()
});

static SECTIONS: LazyLock<[Section; 13]> = LazyLock::new(|| {
    [
        section("daemon", fields::<DaemonConfig>()),
        section("claims", fields::<ClaimsConfig>()),
        section("channel", fields::<ChannelConfig>()),
        section("channel.source", fields::<SourceConfig>()),
        section("channel.relay", fields::<RelayConfig>()),
        section("channel.target", fields::<TargetConfig>()),
        section("channel.applier", fields::<ApplierConfig>()),
        section("channel.copy", fields::<CopyConfig>()),
        section("channel.archive", fields::<ArchiveConfig>()),
        section("channel.throttle_by", fields::<ThrottleByConfig>()),
        section("channel.notify", fields::<NotifyConfig>()),
        section("channel.verify", fields::<VerifyConfig>()),
        section("channel.move", fields::<MoveConfig>()),
    ]
});

/// Returns the schema for editors.
pub(crate) fn schema() -> String {
    format!("{:#}\n", *SCHEMA)
}

/// Returns the schema of a channel.
pub(crate) fn channel_schema() -> Value {
    SCHEMA["properties"]["channel"]["items"].clone()
}

/// The moment when a change in the file takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applies {
    /// It applies with `csa-daemon reload`.
    AtOnce,
    /// The same, unless `admin_listen` changes too: access is checked against the address.
    Access,
    /// It applies at the next start of the channel, or of the daemon.
    Channel,
    Daemon,
    /// Commands read it from the file; the daemon does not use it.
    Command,
}

/// Returns when a change of a key takes effect; `path` is like `applier.worker_count`, or the name
/// alone in `[daemon]`.
pub(crate) fn applies(path: &str) -> Applies {
    find(path).map_or(Applies::Daemon, |key| key.applies())
}

/// Returns the paths of all keys that `reload` changes at once.
#[cfg(test)]
pub(crate) fn keys_at_once() -> Vec<String> {
    let named = |section: &Section, key: &Key| match section.path.strip_prefix("channel.") {
        Some(section) => format!("{section}.{}", key.name),
        None => key.name.to_owned(),
    };
    let at_once = |section: &'static Section| {
        let keys = section.keys.iter().filter(|key| key.applies() == Applies::AtOnce);
        keys.map(|key| named(section, key))
    };
    SECTIONS.iter().flat_map(at_once).collect()
}

fn find(path: &str) -> Option<&'static Key> {
    // A channel has keys outside of its sections, whose names are not those of `[daemon]`.
    let (sections, name) = match path.split_once('.') {
        Some(("claims", name)) => (vec!["claims".to_owned()], name),
        Some((section, name)) => (vec![format!("channel.{section}")], name),
        None => (vec!["daemon".to_owned(), "channel".to_owned()], path),
    };
    let mut keys = SECTIONS
        .iter()
        .filter(|section| sections.iter().any(|path| path == section.path))
        .flat_map(|section| &section.keys);
    keys.find(|key| key.name == name)
}

/// A table of the file with its keys in the order of their declaration, without its sections.
#[derive(Debug)]
struct Section {
    path: &'static str,
    text: &'static str,
    keys: Vec<Key>,
}

impl Section {
    fn header(&self) -> String {
        match self.path {
            "channel" => "[[channel]]".to_owned(),
            path => format!("[{path}]"),
        }
    }
}

#[derive(Debug)]
struct Key {
    section: &'static str,
    name: &'static str,
    schema: &'static Value,
    required: bool,
}

impl Key {
    /// Returns its comment in `declared_keys.rs` and those of its words.
    fn text(&self) -> String {
        let own = description(self.schema).to_owned();
        let words = words(self.schema).map(|(word, said)| format!(" `{word}`: {said}"));
        std::iter::once(own).chain(words).collect()
    }

    /// Returns its values, in words.
    fn takes(&self) -> String {
        let own = self.schema.get("x-takes").and_then(Value::as_str);
        let words: Vec<String> = words(self.schema).map(|(word, _)| format!("`{word}`")).collect();
        let bound = |name| self.schema.get(name).and_then(Value::as_i64);
        let at_least = self.schema.get("x-at-least").and_then(Value::as_str);
        match (own, &words[..], bound("minimum"), bound("maximum")) {
            (Some(takes), ..) => match at_least {
                Some(least) => format!("{takes} of at least {least}"),
                None => takes.to_owned(),
            },
            (_, [_, ..], ..) => words.join(" "),
            (.., Some(min), Some(max)) => format!("{min} to {max}"),
            (.., Some(min), None) => format!("{min} or more"),
            _ => match (type_of(self.schema), self.example().or(self.default())) {
                (Some("boolean"), _) => "boolean".to_owned(),
                (_, Some(Value::String(text))) if text.starts_with('/') => "path".to_owned(),
                _ => "text".to_owned(),
            },
        }
    }

    fn applies(&self) -> Applies {
        match (self.schema.get("x-applies").and_then(Value::as_str), self.section) {
            (Some("at-once"), _) => Applies::AtOnce,
            (Some("access"), _) => Applies::Access,
            (Some("command"), _) => Applies::Command,
            (Some("daemon"), _) | (_, "daemon" | "claims") => Applies::Daemon,
            _ => Applies::Channel,
        }
    }

    fn default(&self) -> Option<&'static Value> {
        self.schema.get("default")
    }

    fn example(&self) -> Option<&'static Value> {
        self.schema.get("examples")?.get(0)
    }
}

fn section(path: &'static str, fields: &'static [&'static str]) -> Section {
    let items = |schema: &'static Value| schema.get("items").unwrap_or(schema);
    let below = |schema, name| &items(schema)["properties"][name];
    let table: &Value = path.split('.').fold(&*SCHEMA, below);
    let schema = items(table);
    let required = schema["required"].as_array();
    let keys = fields.iter().map(|name| Key {
        section: path,
        name,
        schema: &schema["properties"][name],
        required: required.is_some_and(|required| required.iter().any(|known| known == name)),
    });
    let is_section = |key: &Key| path == "channel" && type_of(key.schema) == Some("object");
    Section { path, text: description(table), keys: keys.filter(|key| !is_section(key)).collect() }
}

/// Returns a value from the schema as written in the file.
fn toml(value: &Value) -> String {
    toml::Value::try_from(value).map_or_else(|_| value.to_string(), |value| value.to_string())
}

fn type_of(schema: &Value) -> Option<&str> {
    schema.get("type")?.as_str()
}

fn description(schema: &Value) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

/// Returns the words of an enum and their comments.
fn words(schema: &Value) -> impl Iterator<Item = (&str, &str)> {
    let words = schema["oneOf"].as_array().into_iter().flatten();
    words.filter_map(|word| Some((word["const"].as_str()?, description(word))))
}

/// TOML has no null, number formats of Rust mean nothing to an editor, and comments are wrapped.
fn as_toml(schema: &mut Schema) {
    schema.remove("format");
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
}

/// Names of the fields of a struct in the order of their declaration, which the schema does not keep.
fn fields<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // The error ends it as soon as the names are known.
    let _ = T::deserialize(Names(&mut fields));
    fields
}

struct Names<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("only the names"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("not a struct"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
