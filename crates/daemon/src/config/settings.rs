//! Conversion from the file's values to the components' options.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use csa_applier::{
    ApplierOptions, ExecMode, Executor, Route, RowImageColumns, StartFrom, Target, TargetGtids,
    TargetOptions,
};
use csa_provider::binlog::Uuid;
use csa_provider::server::Environment;
use csa_provider::source::{GroupDiscovery, SourceOptions};
use csa_relaystore::disk::{RealFs, RelayStoreOptions, SyncPolicy};
use csa_scheduler::filter::FilterRules;
use csa_scheduler::group::GroupLimits;
use csa_scheduler::until::Until;

use super::archive_only::{archives_only, no_target};
use super::declared_keys::{
    ApplierConfig, ArchiveConfig, ChannelConfig, Commit, CopyConfig, DaemonConfig, Discover, Gtids,
    Mode, Prefer, RelayConfig, RowImage, Rows, SourceConfig, TargetConfig,
};
use super::error::{ConfigError, Result, refuse};
use super::moving::{self, MoveSettings};
use super::notify::{self, Notify};
use super::replication;
use super::secrets::is_world_readable;
use super::throttle_by::{self, ThrottleBy};
use super::units::{Duration as DurationValue, Size};
use super::verify_every::{self, VerifyEvery};
use crate::archive::replay::RecordedUpTo;
use crate::archive::store::ArchiveLocation;
use crate::archive::upload::ArchiveOptions;

/// `max_allowed_packet` of a default server: a smaller event memory could not hold one packet.
const EVENT_MEMORY_MIN: u64 = 64 << 20;
const ARCHIVE_INTERVAL_MIN: std::time::Duration = std::time::Duration::from_secs(1);
const MAX_LANES: u32 = 64;
/// Length limit of a channel name, which is a directory, a lock and a key.
const NAME_LEN_MAX: usize = 64;

/// One channel, ready to be built.
#[derive(Debug, Clone)]
pub(crate) struct ChannelSettings {
    pub(crate) name: String,
    pub(crate) source: SourceOptions,
    pub(crate) relay: RelayStoreOptions,
    /// A channel that only archives has no address here, and never connects to it.
    pub(crate) target: Target,
    pub(crate) applier: ApplierOptions,
    pub(crate) limits: GroupLimits,
    /// Bytes; `None` for never.
    pub(crate) begin_early: Option<u64>,
    pub(crate) throttle_by: Arc<ThrottleBy>,
    pub(crate) notify: Arc<Notify>,
    pub(crate) verify: Arc<VerifyEvery>,
    /// `None`: the applications of this channel do not move.
    pub(crate) moving: Option<MoveSettings>,
    pub(crate) start_from: StartFrom,
    /// The configuration leaves `start_from` out.
    pub(crate) is_start_unsaid: bool,
    /// A channel without a checkpoint begins with a copy of the source.
    pub(crate) copies_first: bool,
    pub(crate) copy: CopyConfig,
    /// `None` for a channel without an archive.
    pub(crate) archive: Option<ArchiveOptions>,
    /// The recording in the place of a source, whose options only carry its name then.
    pub(crate) recorded: Option<RecordedUpTo>,
    pub(crate) until: Option<Until>,
    pub(crate) filters: FilterRules,
    /// `[channel.applier]`, for the settings that change while the channel runs.
    pub(crate) declared: ApplierConfig,
    pub(crate) written: Written,
}

impl ChannelSettings {
    /// Returns the channel's part of the state directory.
    pub(crate) fn directory(&self) -> &Path {
        self.relay.directory.parent().unwrap_or(&self.relay.directory)
    }

    /// The channel has no target: what it receives is archived, and nothing is applied.
    pub(crate) fn archives_only(&self) -> bool {
        self.archive.as_ref().is_some_and(|archive| archive.is_alone)
    }

    /// Checks that something that needs a target can be done with this channel.
    ///
    /// # Errors
    /// It only archives.
    pub(crate) fn check_target(&self, what: &str) -> std::result::Result<(), String> {
        match self.archives_only() {
            true => Err(format!(
                "channel {} has no [channel.target], it only archives: {what} needs a target",
                self.name
            )),
            false => Ok(()),
        }
    }
}

/// A section as written in the file; Debug does not show it, because it may hold passwords.
#[derive(Clone, Default)]
pub(crate) struct Written(pub(crate) toml::Table);

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Written")
    }
}

pub(super) fn resolve(
    channel: ChannelConfig,
    written: Written,
    (daemon, is_shared): (&DaemonConfig, bool),
    warnings: &mut Vec<String>,
) -> Result<ChannelSettings> {
    let name = channel.name.clone();
    check_name(&name)?;
    let mut said = Vec::from_iter(event_memory_limit(channel.applier.event_memory_limit).1);
    said.extend(readable_secrets(&channel));
    let filters = replication::filters(&channel.applier)?;
    said.extend(replication::without_effect(&filters).map(str::to_owned));
    let applier = applier(&channel, is_shared);
    let is_alone = archives_only(&written.0, is_shared)?;
    let archive = archive(channel.archive, is_alone)?;
    let relay = RelayStoreOptions {
        // Without a target the archive is the only reader, whose progress counts as the target's.
        archived: archive.is_some() && !is_alone,
        ..relay(&channel.relay, daemon.state_dir.join(&name).join("relay"))?
    };
    if channel.source.semi_sync {
        check_semi_sync(channel.standby, is_shared, &relay)?;
    }
    let notify = notify::settings(channel.notify, &mut said)?;
    warnings.extend(said.into_iter().map(|warning| format!("channel {name:?}: {warning}")));
    let source = source(channel.source)?;
    let target = match channel.target {
        Some(config) => target(config, &channel.applier)?,
        None => no_target(),
    };
    Ok(ChannelSettings {
        source,
        relay,
        applier,
        target: target.into(),
        limits: limits(channel.applier.commit),
        begin_early: Some(channel.applier.begin_early.0).filter(|&bytes| bytes > 0),
        throttle_by: Arc::new(throttle_by::settings(channel.throttle_by)?),
        notify: Arc::new(notify),
        verify: Arc::new(verify_every::settings(&channel.verify)?),
        moving: moving::settings(channel.moving)?,
        start_from: start_from(channel.applier.start_from.as_deref())?,
        is_start_unsaid: channel.applier.start_from.is_none(),
        copies_first: channel.applier.start_from.as_deref() == Some(COPY),
        copy: copy(channel.copy)?,
        archive,
        recorded: None,
        until: channel.applier.until.as_ref().map(replication::until).transpose()?,
        filters,
        declared: channel.applier,
        written,
        name,
    })
}

fn check_name(name: &str) -> Result<()> {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
    match (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_allowed) {
        true => Ok(()),
        false => refuse("name: 1 to 64 of a-z, 0-9, _ and - are allowed"),
    }
}

fn check_semi_sync(standby: bool, is_shared: bool, relay: &RelayStoreOptions) -> Result<()> {
    if relay.sync != SyncPolicy::Transaction {
        return refuse(
            "source.semi_sync requires [channel.relay] sync = \"transaction\": an acknowledgement \
             promises that the transaction is on disk",
        );
    }
    if standby || is_shared {
        let key = if standby { "standby" } else { "claims.engine" };
        return refuse(format!(
            "{key}: not together with source.semi_sync: a transaction that one daemon has acknowledged \
             would be missing on the disk of the one that takes over"
        ));
    }
    Ok(())
}

fn applier(channel: &ChannelConfig, is_shared: bool) -> ApplierOptions {
    let (first, longest) = match &channel.target {
        Some(target) => (target.connect_retry, target.connect_retry_max),
        None => (channel.source.connect_retry, channel.source.connect_retry_max),
    };
    ApplierOptions {
        channel: channel.name.clone(),
        // A claim can be wrong for a while: the target's lock decides.
        standby: channel.standby || is_shared,
        // Until preflight, which takes what the target permits.
        executor: Executor::RowImage,
        statement_gtids: true,
        preserve_commit_order: channel.applier.preserve_commit_order,
        exec_mode: match channel.applier.exec_mode {
            Mode::Strict => ExecMode::Strict,
            Mode::Idempotent => ExecMode::Idempotent,
        },
        converging: None,
        row_image: match channel.applier.row_image {
            RowImage::Full => RowImageColumns::Full,
            RowImage::Minimal => RowImageColumns::Minimal,
        },
        transaction_retries: channel.applier.transaction_retries,
        connect_retry: first.0,
        connect_retry_max: longest.0,
        statement_bytes: ApplierOptions::STATEMENT_BYTES,
        chance: Environment::default().chance,
    }
}

fn copy(config: CopyConfig) -> Result<CopyConfig> {
    match config.lanes {
        1..=MAX_LANES => Ok(config),
        lanes => refuse(format!("copy.lanes: {lanes} is not from 1 to {MAX_LANES}")),
    }
}

fn archive(config: ArchiveConfig, is_alone: bool) -> Result<Option<ArchiveOptions>> {
    let Some(url) = config.url else {
        // Somebody relies on it.
        return match config.required || !config.options.is_empty() {
            false => Ok(None),
            true => refuse("archive.url is missing: s3://BUCKET/PREFIX or file:///DIRECTORY"),
        };
    };
    let location = ArchiveLocation { url, options: config.options };
    location.check().map_err(|error| ConfigError(format!("archive.url: {error}")))?;
    if config.interval.0 < ARCHIVE_INTERVAL_MIN {
        return refuse("archive.interval: at least 1s, because each file is several requests");
    }
    Ok(Some(ArchiveOptions {
        location,
        interval: config.interval.0,
        keep: Some(config.keep.0).filter(|keep| !keep.is_zero()),
        is_required: config.required || is_alone,
        is_alone,
        compression: config.compression,
        file_size: config.file_size.0,
    }))
}

/// Returns the bytes, and a warning where they differ from those requested.
pub(crate) fn event_memory_limit(wanted: Size) -> (u64, Option<String>) {
    if wanted.0 >= EVENT_MEMORY_MIN {
        return (wanted.0, None);
    }
    let raised = "event_memory_limit raised to 64MiB, the packet limit";
    (EVENT_MEMORY_MIN, Some(raised.to_owned()))
}

fn source(config: SourceConfig) -> Result<SourceOptions> {
    let (password, tls) = config.login()?;
    Ok(SourceOptions {
        password,
        host: config.host,
        port: config.port,
        user: config.user,
        server_id: config.server_id,
        // Replaced by the one in the state directory once that exists.
        replica_uuid: Uuid::nil(),
        environment: Environment::default(),
        tls,
        heartbeat_interval: config.heartbeat_interval.0,
        connect_timeout: config.connect_timeout.0,
        connect_retry: config.connect_retry.0,
        connect_retry_max: config.connect_retry_max.0,
        semi_sync: config.semi_sync,
        failover: config.failover.into_iter().map(|a| (a.host, a.port)).collect(),
        group: group(config.discover, config.prefer)?,
    })
}

fn group(discover: Discover, prefer: Prefer) -> Result<Option<GroupDiscovery>> {
    let prefers_secondary = prefer == Prefer::Secondary;
    match discover {
        Discover::Group => {
            Ok(Some(GroupDiscovery { prefers_secondary, ..GroupDiscovery::default() }))
        }
        Discover::None if prefers_secondary => {
            refuse("source.prefer: \"secondary\" needs discover = \"group\"")
        }
        Discover::None => Ok(None),
    }
}

fn relay(config: &RelayConfig, directory: PathBuf) -> Result<RelayStoreOptions> {
    let sync = match config.sync.as_str() {
        "transaction" => SyncPolicy::Transaction,
        "os" => SyncPolicy::Os,
        text => match DurationValue::parse(text) {
            Some(interval) => SyncPolicy::Interval(interval.0),
            None => {
                return refuse(format!(
                    "relay.sync: {text:?} is not \"transaction\", \"os\" or a duration like \"1s\""
                ));
            }
        },
    };
    Ok(RelayStoreOptions {
        directory,
        segment_size: config.segment_size.0,
        space_limit: config.space_limit.0,
        min_free_disk: config.min_free_disk.0,
        sync,
        archived: false,
        tail_bytes: RelayStoreOptions::TAIL_BYTES,
        frame_bytes: RelayStoreOptions::FRAME_BYTES,
        wake_bytes: RelayStoreOptions::WAKE_BYTES,
        files: RealFs::shared(),
    })
}

fn target(config: TargetConfig, applier: &ApplierConfig) -> Result<TargetOptions> {
    let (password, tls) = config.login()?;
    let discovers = config.discover == Discover::Group;
    let failover: Vec<_> = config.failover.into_iter().map(|a| (a.host, a.port)).collect();
    if config.socket.is_some() && (discovers || !failover.is_empty()) {
        return refuse(
            "target.socket: not together with failover or discover, which need host and port",
        );
    }
    Ok(TargetOptions {
        password,
        host: config.host,
        port: config.port,
        socket: config.socket,
        user: config.user,
        tls,
        connect_timeout: config.connect_timeout.0,
        net_timeout: config.net_timeout.0,
        gtids: target_gtids(applier)?,
        executor: match applier.executor {
            Rows::RowImage => Some(Executor::RowImage),
            Rows::Sql => Some(Executor::Sql),
            Rows::Auto => None,
        },
        collation_map: replication::collations(applier)?.into(),
        route: Route::new(failover, discovers),
    })
}

fn target_gtids(applier: &ApplierConfig) -> Result<TargetGtids> {
    match (applier.target_gtids, applier.commit) {
        (Gtids::Own, _) => Ok(TargetGtids::Own),
        (Gtids::Mirror, _) => Ok(TargetGtids::Mirror),
        (Gtids::Source, Commit::OneToOne) => Ok(TargetGtids::Source),
        (Gtids::Source, Commit::Grouped) => refuse(
            "applier.target_gtids: \"source\" needs commit = \"one-to-one\": a group has no GTID on \
             the source; for groups and the source's GTID set take \"mirror\"",
        ),
    }
}

/// The start of a channel that makes its own copy.
const COPY: &str = "copy";

/// Returns the start of a channel without a checkpoint.
fn start_from(text: Option<&str>) -> Result<StartFrom> {
    match text {
        None | Some("target") => Ok(StartFrom::Target),
        // The copy decides; until it is made nothing of the source is on the target.
        Some("source" | COPY) => Ok(StartFrom::Source),
        Some(set) => set.parse().map(StartFrom::Executed).map_err(|error| {
            ConfigError(format!(
                "applier.start_from: \"copy\", \"target\", \"source\" or a GTID set: {error}"
            ))
        }),
    }
}

/// One-to-one means groups of one.
fn limits(commit: Commit) -> GroupLimits {
    let limits = GroupLimits::default();
    match commit {
        Commit::Grouped => limits,
        Commit::OneToOne => GroupLimits { transactions: 1, ..limits },
    }
}

/// Returns a channel's secret files that everyone can read.
fn readable_secrets(channel: &ChannelConfig) -> impl Iterator<Item = String> + use<> {
    let target = channel.target.as_ref();
    let files = [
        ("source.password_file", channel.source.password_file.clone()),
        ("source.tls_key", channel.source.tls_key.clone()),
        ("target.password_file", target.and_then(|target| target.password_file.clone())),
        ("target.tls_key", target.and_then(|target| target.tls_key.clone())),
    ];
    let files = files.into_iter().filter_map(|(key, path)| Some((key, path?)));
    files
        .filter(|(_, path)| is_world_readable(path))
        .map(|(key, path)| format!("{key}: everyone can read {}; chmod 600", path.display()))
}
