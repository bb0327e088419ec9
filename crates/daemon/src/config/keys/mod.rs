//! The list of all keys. With it, a misspelt key is refused with its path and the nearest known
//! name, and the reference can't differ from the code.

mod known;
mod reference;

pub(crate) use reference::reference;

use toml::{Table, Value};

use super::ConfigError;

/// The description of a key.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// Its values, in words.
    pub(crate) takes: &'static str,
    /// Its default as written in the file; empty for a key that is not set, `None` for one that
    /// must be.
    pub(crate) default: Option<&'static str>,
    pub(crate) applies: Applies,
    /// Its meaning, in a few words.
    pub(crate) meaning: &'static str,
}

/// The moment when a change in the file takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applies {
    /// With `csa-daemon reload`.
    AtOnce,
    /// At the next start of the channel, or of the daemon.
    Channel,
    Daemon,
}

/// A table of the file.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) path: &'static str,
    pub(crate) keys: &'static [Key],
}

/// In the order of the file.
pub(crate) const SECTIONS: [&Section; 6] = [
    &known::DAEMON,
    &known::CHANNEL,
    &known::SOURCE,
    &known::RELAY,
    &known::TARGET,
    &known::APPLIER,
];

/// When a change of a key takes effect; `path` like `applier.worker_count`, or the name alone in
/// `[daemon]`.
pub(crate) fn applies(path: &str) -> Applies {
    let (section, name) = match path.split_once('.') {
        Some((section, name)) => (format!("channel.{section}"), name),
        None => ("daemon".to_owned(), path),
    };
    let mut keys = SECTIONS.into_iter().filter(|known| known.path == section);
    let known = keys.find_map(|section| section.keys.iter().find(|key| key.name == name));
    known.map_or(Applies::Daemon, |key| key.applies)
}

/// Refuses keys that do not exist.
pub(super) fn check(file: &Table) -> Result<(), ConfigError> {
    section(file, &["daemon", "channel"], "")?;
    if let Some(Value::Table(daemon)) = file.get("daemon") {
        section(daemon, &names(&known::DAEMON), "daemon.")?;
    }
    let parts: [(&str, &Section); 4] = [
        ("source", &known::SOURCE),
        ("relay", &known::RELAY),
        ("target", &known::TARGET),
        ("applier", &known::APPLIER),
    ];
    let mut own = names(&known::CHANNEL);
    own.extend(parts.iter().map(|(name, _)| *name));
    let channels = file.get("channel").and_then(Value::as_array).into_iter().flatten();
    for (index, channel) in channels.enumerate() {
        let Value::Table(channel) = channel else { continue };
        let path = match channel.get("name").and_then(Value::as_str) {
            Some(name) => format!("channel {name:?}: "),
            None => format!("channel[{index}]: "),
        };
        section(channel, &own, &path)?;
        for (name, known) in parts {
            if let Some(Value::Table(table)) = channel.get(name) {
                section(table, &names(known), &format!("{path}{name}."))?;
            }
        }
    }
    Ok(())
}

fn names(section: &Section) -> Vec<&'static str> {
    section.keys.iter().map(|key| key.name).collect()
}

fn section(table: &Table, known: &[&str], path: &str) -> Result<(), ConfigError> {
    for key in table.keys() {
        if known.contains(&key.as_str()) {
            continue;
        }
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
        return Err(ConfigError(match nearest {
            Some((_, name)) => format!("{path}{key}: unknown key, did you mean {name}?"),
            None => format!("{path}{key}: unknown key; known are {}", known.join(", ")),
        }));
    }
    Ok(())
}
