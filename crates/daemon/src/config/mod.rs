//! The configuration file: its keys, their defaults, and its errors.

mod admin;
mod admin_files;
mod admin_tls;
mod difference;
mod keys;
mod replication;
mod settings;
mod units;
mod words;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use csa_applier::StartFrom;
use secrecy::SecretString;
use serde::Deserialize;

pub(crate) use admin::{Access, token};
pub(crate) use admin_files::AdminFiles;
pub(crate) use admin_tls::{AdminTls, authorities};
pub(crate) use difference::{channel_changes, daemon_changes};
pub(crate) use keys::{Applies, applies, reference};
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    daemon: DaemonConfig,
    #[serde(default)]
    channel: Vec<ChannelConfig>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DaemonConfig {
    pub(crate) state_dir: PathBuf,
    pub(crate) admin_listen: String,
    /// The admin port accepts commands.
    pub(crate) admin_control: bool,
    /// Has the bearer token that permits everything.
    pub(crate) admin_token_file: Option<PathBuf>,
    /// Has one that permits reading.
    pub(crate) admin_read_token_file: Option<PathBuf>,
    /// Host names for the admin port, other than `localhost` and the one it listens on.
    pub(crate) admin_hosts: Vec<String>,
    /// Group that may use the admin socket; without it the daemon's own.
    pub(crate) admin_socket_group: Option<String>,
    pub(crate) admin_tls_cert: Option<PathBuf>,
    pub(crate) admin_tls_key: Option<PathBuf>,
    pub(crate) log_format: LogFormat,
    pub(crate) log_filter: String,
    /// Time that a stop allows for running groups to finish.
    pub(crate) stop_timeout: DurationValue,
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self {
            state_dir: "/var/lib/csa-daemon".into(),
            admin_listen: "127.0.0.1:9104".to_owned(),
            admin_control: true,
            admin_token_file: None,
            admin_read_token_file: None,
            admin_hosts: Vec::new(),
            admin_socket_group: None,
            admin_tls_cert: None,
            admin_tls_key: None,
            log_format: LogFormat::Text,
            log_filter: "info".to_owned(),
            stop_timeout: DurationValue(Duration::from_secs(10)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChannelConfig {
    pub(super) name: String,
    pub(super) source: SourceConfig,
    #[serde(default)]
    pub(super) relay: RelayConfig,
    pub(super) target: TargetConfig,
    #[serde(default)]
    pub(super) applier: ApplierConfig,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Tls {
    Disabled,
    #[default]
    Preferred,
    Required,
    VerifyCa,
    VerifyIdentity,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Address {
    pub(super) host: String,
    #[serde(default = "mysql_port")]
    pub(super) port: u16,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceConfig {
    pub(super) host: String,
    #[serde(default = "mysql_port")]
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) password: Option<SecretString>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) password_env: Option<String>,
    pub(super) server_id: u32,
    #[serde(default)]
    pub(super) tls: Tls,
    pub(super) tls_ca: Option<PathBuf>,
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    pub(super) public_key_file: Option<PathBuf>,
    #[serde(default)]
    pub(super) get_public_key: bool,
    #[serde(default = "seconds::<5>")]
    pub(super) heartbeat_interval: DurationValue,
    #[serde(default = "seconds::<10>")]
    pub(super) connect_timeout: DurationValue,
    #[serde(default = "seconds::<1>")]
    pub(super) connect_retry: DurationValue,
    #[serde(default = "seconds::<30>")]
    pub(super) connect_retry_max: DurationValue,
    #[serde(default)]
    pub(super) failover: Vec<Address>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RelayConfig {
    pub(super) segment_size: Size,
    pub(super) space_limit: Size,
    pub(super) min_free_disk: Size,
    pub(super) sync: String,
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            segment_size: Size(128 << 20),
            space_limit: Size(10 << 30),
            min_free_disk: Size(1 << 30),
            sync: "1s".to_owned(),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TargetConfig {
    #[serde(default = "loopback")]
    pub(super) host: String,
    #[serde(default = "mysql_port")]
    pub(super) port: u16,
    pub(super) socket: Option<PathBuf>,
    pub(super) user: String,
    pub(super) password: Option<SecretString>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) password_env: Option<String>,
    #[serde(default)]
    pub(super) tls: Tls,
    pub(super) tls_ca: Option<PathBuf>,
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    pub(super) public_key_file: Option<PathBuf>,
    #[serde(default)]
    pub(super) get_public_key: bool,
    #[serde(default = "seconds::<10>")]
    pub(super) connect_timeout: DurationValue,
    #[serde(default = "seconds::<1>")]
    pub(super) connect_retry: DurationValue,
    #[serde(default = "seconds::<30>")]
    pub(super) connect_retry_max: DurationValue,
    #[serde(default = "seconds::<30>")]
    pub(super) net_timeout: DurationValue,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ApplierConfig {
    pub(super) start_from: String,
    pub(super) worker_count: u32,
    pub(super) event_memory_limit: Size,
    pub(super) commit: String,
    pub(super) target_gtids: String,
    pub(super) preserve_commit_order: bool,
    pub(super) executor: String,
    pub(super) exec_mode: String,
    pub(super) transaction_retries: u32,
    /// Transactions per second; 0 for no limit.
    pub(super) throttle: u32,
    pub(super) source_delay: DurationValue,
    pub(super) until: Option<toml::Table>,
    pub(super) replicate_do_db: Vec<String>,
    pub(super) replicate_ignore_db: Vec<String>,
    pub(super) replicate_accounts: bool,
    pub(super) replicate_do_table: Vec<String>,
    pub(super) replicate_ignore_table: Vec<String>,
    pub(super) replicate_wild_do_table: Vec<String>,
    pub(super) replicate_wild_ignore_table: Vec<String>,
    pub(super) replicate_rewrite_db: toml::Table,
}

impl Default for ApplierConfig {
    fn default() -> Self {
        Self {
            start_from: "target".to_owned(),
            worker_count: 8,
            event_memory_limit: Size(256 << 20),
            commit: "grouped".to_owned(),
            target_gtids: "own".to_owned(),
            preserve_commit_order: true,
            executor: "auto".to_owned(),
            exec_mode: "strict".to_owned(),
            transaction_retries: 10,
            throttle: 0,
            source_delay: DurationValue(Duration::ZERO),
            until: None,
            replicate_do_db: Vec::new(),
            replicate_ignore_db: Vec::new(),
            replicate_accounts: false,
            replicate_do_table: Vec::new(),
            replicate_ignore_table: Vec::new(),
            replicate_wild_do_table: Vec::new(),
            replicate_wild_ignore_table: Vec::new(),
            replicate_rewrite_db: toml::Table::new(),
        }
    }
}

const fn mysql_port() -> u16 {
    3306
}

fn loopback() -> String {
    "127.0.0.1".to_owned()
}

const fn seconds<const N: u64>() -> DurationValue {
    DurationValue(Duration::from_secs(N))
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

/// The start of a channel without a checkpoint.
fn start_from(text: &str) -> Result<StartFrom, ConfigError> {
    match text {
        "target" => Ok(StartFrom::Target),
        "source" => Ok(StartFrom::Source),
        set => set.parse().map(StartFrom::Executed).map_err(|error| {
            ConfigError(format!(
                "applier.start_from: \"target\", \"source\" or a GTID set: {error}"
            ))
        }),
    }
}
