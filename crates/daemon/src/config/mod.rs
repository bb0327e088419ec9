//! The configuration file: its keys, their defaults, and its errors.

mod admin;
mod admin_files;
mod admin_tls;
mod declared_keys;
mod keys;
mod replication;
mod settings;
mod units;

#[cfg(test)]
mod tests;

use std::path::Path;

use declared_keys::File;
use serde::Deserialize as _;

pub(crate) use admin::{Access, token};
pub(crate) use admin_files::AdminFiles;
pub(crate) use admin_tls::{AdminTls, authorities};
pub(crate) use declared_keys::{DaemonConfig, LogFormat};
pub(crate) use keys::{
    Applies, applies, channel_changes, check_key, daemon_changes, example, manual, reference,
    schema,
};
pub(crate) use replication::parse_until;
pub(crate) use settings::{ChannelSettings, Written, event_memory_limit, throttle, worker_count};
pub(crate) use units::{Duration as DurationValue, Size};

/// Bad input: one line that names the file and the key.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(pub(crate) String);

/// A file that was read and checked.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) daemon: DaemonConfig,
    pub(crate) channels: Vec<ChannelSettings>,
    pub(crate) access: Access,
    /// For the log, once it is open.
    pub(crate) warnings: Vec<String>,
    /// `[daemon]` as written in the file.
    pub(crate) written: Written,
}

impl DaemonConfig {
    /// `[daemon]` alone, for those who only need to know where it listens.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        let named = |text: String| ConfigError(format!("{}: {text}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let mut table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| named(one_line(&error, &text)))?;
        let daemon = table.remove("daemon").unwrap_or_else(|| toml::Table::new().into());
        Self::deserialize(daemon).map_err(|error| named(error.message().to_owned()))
    }
}

impl Config {
    /// Reads and checks a file. Nothing is written, and no server is contacted.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        let named = |text: String| ConfigError(format!("{}: {text}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let mut config = Self::parse(&text).map_err(|error| named(error.0))?;
        if settings::holds_password(&text) && settings::is_world_readable(path) {
            config.warnings.push(format!(
                "{} holds a password and everybody can read it; chmod 600, or use password_file",
                path.display()
            ));
        }
        Ok(config)
    }

    fn parse(text: &str) -> Result<Self, ConfigError> {
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| ConfigError(one_line(&error, text)))?;
        keys::check(&table)?;
        let file: File =
            toml::from_str(text).map_err(|error| ConfigError(one_line(&error, text)))?;
        if file.channel.is_empty() {
            return Err(ConfigError("no [[channel]] in it".to_owned()));
        }
        let mut warnings = Vec::new();
        let access = admin::resolve(&file.daemon, &mut warnings)?;
        let mut channels: Vec<ChannelSettings> = Vec::new();
        let written = |index: usize| table.get("channel")?.get(index)?.as_table().cloned();
        for (index, channel) in file.channel.into_iter().enumerate() {
            let name = channel.name.clone();
            let written = Written(written(index).unwrap_or_default());
            let settings = settings::resolve(channel, written, &file.daemon, &mut warnings)
                .map_err(|error| ConfigError(format!("channel {name:?}: {}", error.0)))?;
            if channels.iter().any(|known| known.name == settings.name) {
                return Err(ConfigError(format!("channel name {name:?} is used twice")));
            }
            channels.push(settings);
        }
        let daemon = table.get("daemon").and_then(toml::Value::as_table).cloned();
        let written = Written(daemon.unwrap_or_default());
        Ok(Self { daemon: file.daemon, channels, access, warnings, written })
    }
}

/// A TOML error with its line, on one line.
fn one_line(error: &toml::de::Error, text: &str) -> String {
    let line = error
        .span()
        .map(|span| text.get(..span.start).unwrap_or_default().matches('\n').count() + 1);
    let message = error.message().replace('\n', " ");
    match line {
        Some(line) => format!("line {line}: {message}"),
        None => message,
    }
}
