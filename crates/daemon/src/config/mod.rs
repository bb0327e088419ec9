//! The configuration file: its keys, their defaults, and its errors.

mod addresses;
mod admin;
mod admin_files;
mod admin_peers;
mod admin_tls;
mod archive_only;
mod claims;
mod claims_kubernetes;
mod claims_tls;
mod declared_keys;
mod error;
mod files;
mod keys;
mod login;
mod memory;
mod moving;
mod notify;
mod place;
mod replication;
mod secrets;
mod settings;
mod stored_rules;
mod throttle_by;
mod units;
mod verify_every;

#[cfg(test)]
pub(crate) mod tests;

use std::path::Path;

use declared_keys::File;
use files::Merged;
use place::{Text, TextPlace};
use serde::Deserialize as _;

use crate::host::{available_memory, logging};
pub(crate) use admin::Access;
pub(crate) use admin_files::AdminFiles;
pub(crate) use admin_peers::AdminPeers;
pub(crate) use admin_tls::client as tls_client;
pub(crate) use claims::{BackEnd, Claims};
pub(crate) use claims_kubernetes::api_server_of_pod;
pub(crate) use declared_keys::{DaemonConfig, EventKind};
pub(crate) use error::ConfigError;
use error::one_line;
#[cfg(test)]
pub(crate) use keys::keys_at_once;
pub(crate) use keys::{
    Applies, applies, channel_changes, channel_schema, check_key, claims_changes, daemon_changes,
    example, manual, reference, schema,
};
pub(crate) use moving::{Account, FenceMeans, MoveSettings};
pub(crate) use notify::{Notify, Receiver, Webhook, program};
pub(crate) use replication::parse_until;
pub(crate) use secrets::token;
pub(crate) use settings::{ChannelSettings, Written, event_memory_limit};
pub(crate) use stored_rules::{read_rules, written_rules};
pub(crate) use throttle_by::ThrottleBy;
pub(crate) use units::{Duration as DurationValue, Size};
pub(crate) use verify_every::VerifyEvery;

/// A file that was read and checked.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) daemon: DaemonConfig,
    pub(crate) channels: Vec<ChannelSettings>,
    pub(crate) access: Access,
    /// `None`: nothing is shared with other daemons.
    pub(crate) claims: Option<Claims>,
    /// The warnings for the log, once it is open.
    pub(crate) warnings: Vec<String>,
    /// `[daemon]` and `[claims]` as written in the file.
    pub(crate) written: Written,
    pub(crate) written_claims: Written,
}

impl DaemonConfig {
    /// Returns `[daemon]` alone, for those who only need to know where it listens.
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
    /// Reads and checks a file and those in its folder. Nothing is written, and no server is contacted.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        let files = files::read(path)?;
        let mut config = Self::of(&files)?;
        // In a fleet each daemon has a part of them.
        if config.claims.is_none() {
            let warning = memory::warning(&config.channels, available_memory());
            config.warnings.extend(warning);
        }
        for Text { path, text } in &files {
            if secrets::holds_password(text) && secrets::is_world_readable(path) {
                config.warnings.push(format!(
                    "{} holds a password and everyone can read it; chmod 600, or use password_file",
                    path.display()
                ));
            }
        }
        Ok(config)
    }

    fn of(files: &[Text]) -> Result<Self, ConfigError> {
        let Merged { table, places } = files::merge(files)?;
        let in_main = |error: ConfigError| match files.first() {
            Some(file) => TextPlace { file, main: None, channel: None }.named(&error),
            None => error,
        };
        // The checks above have better words for almost everything that is wrong.
        let file = File::deserialize(table.clone())
            .map_err(|error| in_main(ConfigError(error.message().replace('\n', " "))))?;
        if file.channel.is_empty() && !file.daemon.allow_no_channels {
            let folder = files.first().map(|main| files::folder(&main.path)).unwrap_or_default();
            let why = format!("no [[channel]] in it, and none in {}/*.toml", folder.display());
            return Err(in_main(ConfigError(why)));
        }
        let mut warnings = Vec::new();
        let access = admin::resolve(&file.daemon, &mut warnings).map_err(in_main)?;
        logging::parse(&file.daemon.log_filter)
            .map_err(|why| in_main(ConfigError(format!("daemon.{why}"))))?;
        let claims = claims::resolve(file.claims, &mut warnings).map_err(in_main)?;
        let mut channels: Vec<ChannelSettings> = Vec::new();
        let written = |index: usize| table.get("channel")?.get(index)?.as_table().cloned();
        for (index, (channel, place)) in file.channel.into_iter().zip(&places).enumerate() {
            let name = channel.name.clone();
            let wrong = |why: String| place.named(&ConfigError(format!("channel {name:?}: {why}")));
            let written = Written(written(index).unwrap_or_default());
            let daemon = (&file.daemon, claims.is_some());
            let settings = settings::resolve(channel, written, daemon, &mut warnings)
                .map_err(|error| wrong(error.0))?;
            let other = channels.iter().zip(&places).find(|(known, _)| known.name == settings.name);
            if let Some((_, other)) = other {
                let other = other.file.path.display();
                return Err(wrong(format!("name: used twice; the other is in {other}")));
            }
            channels.push(settings);
        }
        let section = |name| table.get(name).and_then(toml::Value::as_table).cloned();
        let written = Written(section("daemon").unwrap_or_default());
        let written_claims = Written(section("claims").unwrap_or_default());
        Ok(Self {
            daemon: file.daemon,
            channels,
            access,
            claims,
            warnings,
            written,
            written_claims,
        })
    }
}

#[cfg(test)]
impl Config {
    /// A single file; errors without its name and line.
    pub(crate) fn parse(text: &str) -> Result<Self, ConfigError> {
        let path = std::path::PathBuf::from("main");
        Self::of(&[Text { path, text: text.to_owned() }]).map_err(|error| {
            let said = error.0.trim_start_matches("main: ");
            let rest = said.strip_prefix("line ").and_then(|rest| rest.split_once(": "));
            ConfigError(rest.map_or(said, |(_, rest)| rest).to_owned())
        })
    }
}
