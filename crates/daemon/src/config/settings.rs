//! From the file's words to what the components take.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use csa_applier::{ApplierOptions, StartFrom, TargetOptions, TlsOptions};
use csa_provider::{SourceOptions, TlsMode, Uuid};
use csa_relaystore::{RelayStoreOptions, SyncPolicy};
use csa_scheduler::{FilterRules, GroupLimits, Until};
use secrecy::SecretString;

use super::{
    ApplierConfig, ChannelConfig, ConfigError, DaemonConfig, DurationValue, RelayConfig,
    SourceConfig, TargetConfig, Tls, replication, start_from, unsupported,
};

/// `max_allowed_packet` of a default server: an event memory below it could not hold one packet.
const EVENT_MEMORY_MIN: u64 = 64 << 20;
/// The most a channel name may have; it is a directory, a lock and a key.
const NAME_LEN_MAX: usize = 64;

/// One channel, ready to be built.
#[derive(Debug, Clone)]
pub(crate) struct ChannelSettings {
    pub(crate) name: String,
    pub(crate) source: SourceOptions,
    pub(crate) relay: RelayStoreOptions,
    pub(crate) target: TargetOptions,
    pub(crate) applier: ApplierOptions,
    pub(crate) limits: GroupLimits,
    pub(crate) worker_count: u16,
    pub(crate) event_memory_limit: u64,
    pub(crate) start_from: StartFrom,
    pub(crate) source_delay: Duration,
    pub(crate) until: Option<Until>,
    pub(crate) filters: FilterRules,
}

type Result<T> = std::result::Result<T, ConfigError>;

fn wrong<T>(text: impl Into<String>) -> Result<T> {
    Err(ConfigError(text.into()))
}

pub(super) fn resolve(
    channel: ChannelConfig,
    daemon: &DaemonConfig,
    warnings: &mut Vec<String>,
) -> Result<ChannelSettings> {
    let name = channel.name;
    let named_well =
        name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b));
    if name.is_empty() || name.len() > NAME_LEN_MAX || !named_well {
        return wrong("name: 1 to 64 of a-z, 0-9, _ and - are allowed");
    }
    unsupported::check_words(&channel.applier)?;
    unsupported::check(&channel.applier)?;
    if !(1..=1024).contains(&channel.applier.worker_count) {
        return wrong(format!(
            "applier.worker_count: {} is not in 1..1024",
            channel.applier.worker_count
        ));
    }
    let mut event_memory_limit = channel.applier.event_memory_limit.0;
    if event_memory_limit < EVENT_MEMORY_MIN {
        warnings.push(format!(
            "channel {name:?}: event_memory_limit raised to 64MiB, the packet limit"
        ));
        event_memory_limit = EVENT_MEMORY_MIN;
    }
    let filters = replication::filters(&channel.applier)?;
    warnings
        .extend(replication::without_effect(&filters).map(|w| format!("channel {name:?}: {w}")));
    let directory = daemon.state_dir.join(&name);
    Ok(ChannelSettings {
        source: source(channel.source)?,
        relay: relay(&channel.relay, directory.join("relay"))?,
        applier: ApplierOptions {
            channel: name.clone(),
            preserve_commit_order: channel.applier.preserve_commit_order,
            transaction_retries: channel.applier.transaction_retries,
            connect_retry: channel.target.connect_retry.0,
            connect_retry_max: channel.target.connect_retry_max.0,
            statement_bytes: ApplierOptions::STATEMENT_BYTES,
        },
        target: target(channel.target, &channel.applier)?,
        limits: GroupLimits::default(),
        worker_count: u16::try_from(channel.applier.worker_count).unwrap_or(u16::MAX),
        event_memory_limit,
        start_from: start_from(&channel.applier.start_from)?,
        source_delay: channel.applier.source_delay.0,
        until: channel.applier.until.as_ref().map(replication::until).transpose()?,
        filters,
        name,
    })
}

fn source(config: SourceConfig) -> Result<SourceOptions> {
    if config.server_id == 0 {
        return wrong("source.server_id: 0 is not allowed; take a number unique in the topology");
    }
    if config.heartbeat_interval.0 < Duration::from_millis(1) {
        return wrong("source.heartbeat_interval: at least 1ms");
    }
    let mode = tls_mode(config.tls);
    check_tls(
        "source",
        mode,
        config.tls_ca.as_ref(),
        config.tls_cert.as_ref(),
        config.tls_key.as_ref(),
    )?;
    Ok(SourceOptions {
        password: password("source", config.password, config.password_file, config.password_env)?,
        host: config.host,
        port: config.port,
        user: config.user,
        server_id: config.server_id,
        // Replaced by the one in the state directory once there is one.
        replica_uuid: Uuid::nil(),
        tls: mode,
        tls_ca: config.tls_ca,
        tls_cert: config.tls_cert,
        tls_key: config.tls_key,
        heartbeat_interval: config.heartbeat_interval.0,
        connect_timeout: config.connect_timeout.0,
        connect_retry: config.connect_retry.0,
        connect_retry_max: config.connect_retry_max.0,
        failover: config.failover.into_iter().map(|a| (a.host, a.port)).collect(),
    })
}

fn relay(config: &RelayConfig, directory: PathBuf) -> Result<RelayStoreOptions> {
    let sync = match config.sync.as_str() {
        "transaction" => SyncPolicy::Transaction,
        "os" => SyncPolicy::Os,
        text => match DurationValue::parse(text) {
            Some(interval) => SyncPolicy::Interval(interval.0),
            None => {
                return wrong(format!(
                    "relay.sync: {text:?} is not \"transaction\", \"os\" or a duration like \"1s\""
                ));
            }
        },
    };
    if config.segment_size.0 < 1 << 20 {
        return wrong("relay.segment_size: at least 1MiB");
    }
    Ok(RelayStoreOptions {
        directory,
        segment_size: config.segment_size.0,
        space_limit: config.space_limit.0,
        min_free_disk: config.min_free_disk.0,
        sync,
        tail_bytes: RelayStoreOptions::TAIL_BYTES,
        frame_bytes: RelayStoreOptions::FRAME_BYTES,
    })
}

fn target(config: TargetConfig, applier: &ApplierConfig) -> Result<TargetOptions> {
    let mode = tls_mode(config.tls);
    check_tls(
        "target",
        mode,
        config.tls_ca.as_ref(),
        config.tls_cert.as_ref(),
        config.tls_key.as_ref(),
    )?;
    Ok(TargetOptions {
        password: password("target", config.password, config.password_file, config.password_env)?,
        host: config.host,
        port: config.port,
        socket: config.socket,
        user: config.user,
        tls: TlsOptions { mode, ca: config.tls_ca, cert: config.tls_cert, key: config.tls_key },
        connect_timeout: config.connect_timeout.0,
        write_binlog: applier.target_gtids != "mirror",
    })
}

fn tls_mode(tls: Tls) -> TlsMode {
    match tls {
        Tls::Disabled => TlsMode::Disabled,
        Tls::Preferred => TlsMode::Preferred,
        Tls::Required => TlsMode::Required,
        Tls::VerifyCa => TlsMode::VerifyCa,
        Tls::VerifyIdentity => TlsMode::VerifyIdentity,
    }
}

fn check_tls(
    side: &str,
    mode: TlsMode,
    ca: Option<&PathBuf>,
    cert: Option<&PathBuf>,
    key: Option<&PathBuf>,
) -> Result<()> {
    if matches!(mode, TlsMode::VerifyCa | TlsMode::VerifyIdentity) && ca.is_none() {
        return wrong(format!("{side}.tls: a mode that verifies needs tls_ca"));
    }
    if cert.is_some() != key.is_some() {
        return wrong(format!("{side}: tls_cert and tls_key go together"));
    }
    Ok(())
}

fn password(
    side: &str,
    literal: Option<SecretString>,
    file: Option<PathBuf>,
    env: Option<String>,
) -> Result<SecretString> {
    match (literal, file, env) {
        (Some(password), None, None) => Ok(password),
        (None, Some(path), None) => {
            let text = std::fs::read_to_string(&path).map_err(|error| {
                ConfigError(format!("{side}.password_file: {}: {error}", path.display()))
            })?;
            Ok(text.strip_suffix('\n').unwrap_or(&text).into())
        }
        (None, None, Some(name)) => std::env::var(&name).map(Into::into).map_err(|_| {
            ConfigError(format!("{side}.password_env: the environment has no {name}"))
        }),
        (None, None, None) => {
            wrong(format!("{side}: password_file, password_env or password is missing"))
        }
        _ => wrong(format!("{side}: one of password_file, password_env and password, not several")),
    }
}

/// Whether a file states a password itself.
pub(super) fn holds_password(text: &str) -> bool {
    text.lines().any(|line| {
        line.trim_start()
            .strip_prefix("password")
            .is_some_and(|rest| rest.trim_start().starts_with('='))
    })
}

pub(super) fn is_world_readable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}
