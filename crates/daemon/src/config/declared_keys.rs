//! The configuration file. A field declares its key once: text (the comment), default, range, words
//! and, with `x-applies`, when `reload` can change it. [`keys`](super::keys) derives the rest from it:
//! the parser's checks, the rules of `reload`, the JSON schema, the reference and the example
//! (`csa-daemon generate`; its output is copied to docs/ and config/). `settings.rs` converts the values to
//! the options of the components, `replication.rs` those of filters, `until` and `collation_map`, `admin.rs`
//! those of access, `claims.rs` those of claims.
//!
//! Some lists are kept by hand. Keys that apply at once are in `CHANNEL_SETTINGS` (channel/live_settings/mod.rs)
//! and `DAEMON_SETTINGS` (daemon/live_settings.rs). New sections are in `SECTIONS` (keys/mod.rs), keys that
//! exclude each other in `EITHER` (files.rs), files with secrets in `readable_secrets` (settings.rs), and
//! `replicate_*` in channel/overlap.rs.

mod applier;
mod archive;
mod claims;
mod copy;
mod defaults;
mod discover;
mod moving;
mod notify;
mod verify;

use std::path::PathBuf;

use csa_applier::TlsOptions;
use csa_provider::server::link::Password;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::error::ConfigError;
use super::login::{self, Tls};
use super::units::{Duration, Size};
use crate::host::logging::LogFormat;

pub(crate) use applier::ApplierConfig;
pub(super) use applier::{Commit, Gtids, Mode, RowImage, Rows};
pub(super) use archive::ArchiveConfig;
pub(super) use claims::{ClaimsConfig, ClaimsEngine};
pub(crate) use copy::CopyConfig;
use defaults::{mebibytes, number, seconds, yes};
pub(super) use discover::{Discover, Prefer};
pub(super) use moving::{FenceBy, MoveConfig};
pub(crate) use notify::EventKind;
pub(super) use notify::NotifyConfig;
pub(super) use verify::VerifyConfig;

/// Configuration of csa-daemon.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "csa-daemon.toml")]
pub(super) struct File {
    /// The daemon and its admin port.
    #[serde(default)]
    pub(super) daemon: DaemonConfig,
    /// Channels that several daemons share: each runs those that it has claimed.
    #[serde(default)]
    pub(super) claims: ClaimsConfig,
    /// Keys of channels, for all channels of all files that do not set them.
    #[serde(default)]
    #[schemars(schema_with = "defaults")]
    #[expect(dead_code, reason = "they are put into the channels before this is read")]
    pub(super) defaults: Table,
    /// A link from one source to one target; there can be several.
    #[serde(default)]
    pub(super) channel: Vec<ChannelConfig>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DaemonConfig {
    /// Directory for relay stores and locks, with one folder for each channel.
    #[serde(default = "state_dir")]
    pub(crate) state_dir: PathBuf,
    /// Address of the status page, the API and the metrics. An address other than loopback needs
    /// `admin_token_file`.
    #[serde(default = "admin_listen")]
    #[schemars(extend("x-takes" = "address:port"))]
    pub(crate) admin_listen: String,
    /// Host names that requests to the admin port may carry, in addition to `localhost`, addresses and
    /// the name in `admin_listen`.
    #[serde(default)]
    #[schemars(example = ["db7.example.com"], extend("x-takes" = "list of names", "x-applies" = "access"))]
    pub(crate) admin_hosts: Vec<String>,
    /// Group that may use `admin-PORT.sock` in `state_dir`, which permits everything. Without it, the
    /// socket belongs to the daemon's own group.
    #[schemars(example = &"dba", extend("x-takes" = "group"))]
    pub(crate) admin_socket_group: Option<String>,
    /// Certificate of the admin port, which then accepts HTTPS only.
    #[schemars(example = "/etc/csa-daemon/admin.pem", extend("x-applies" = "access"))]
    pub(crate) admin_tls_cert: Option<PathBuf>,
    /// Private key of `admin_tls_cert`.
    #[schemars(example = "/etc/csa-daemon/admin-key.pem", extend("x-applies" = "access"))]
    pub(crate) admin_tls_key: Option<PathBuf>,
    /// Accept commands on the admin port.
    #[serde(default = "yes")]
    #[schemars(extend("x-applies" = "access"))]
    pub(crate) admin_control: bool,
    /// File with a bearer token of 16 characters or more that permits everything. Without it, everyone
    /// on this host may read, and `admin-PORT.token` in `state_dir` permits the rest.
    #[schemars(example = "/etc/csa-daemon/admin.token", extend("x-applies" = "access"))]
    pub(crate) admin_token_file: Option<PathBuf>,
    /// File with a bearer token that permits reading. It requires `admin_token_file`.
    #[schemars(example = "/etc/csa-daemon/read.token", extend("x-applies" = "access"))]
    pub(crate) admin_read_token_file: Option<PathBuf>,
    /// Run without a channel until a file brings one, as `csa-daemon controller` needs it.
    #[serde(default)]
    pub(crate) allow_no_channels: bool,
    /// Admin ports of other daemons, whose channels the status page and `csa-daemon status --peers` show too:
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    #[serde(default)]
    #[schemars(example = ["https://db8.example.com:9104"], extend("x-takes" = "list of addresses", "x-applies" = "access"))]
    pub(crate) admin_peers: Vec<String>,
    /// File with a bearer token that permits reading there.
    #[schemars(example = "/etc/csa-daemon/read.token", extend("x-applies" = "access"))]
    pub(crate) admin_peers_token_file: Option<PathBuf>,
    /// Certificates of the authorities to trust for `https`.
    #[schemars(example = "/etc/csa-daemon/admin-ca.pem", extend("x-applies" = "access"))]
    pub(crate) admin_peers_ca: Option<PathBuf>,
    /// Form of the log.
    #[serde(default)]
    pub(crate) log_format: LogFormat,
    /// Events that are logged: `debug`, or `info,csa_applier=debug`.
    #[serde(default = "log_filter")]
    #[schemars(extend("x-takes" = "level, or target=level,…", "x-applies" = "at-once"))]
    pub(crate) log_filter: String,
    /// Time that a stop allows for running groups to finish.
    #[serde(default = "seconds::<10>")]
    #[schemars(extend("x-applies" = "at-once"))]
    pub(crate) stop_timeout: Duration,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChannelConfig {
    /// Name of the checkpoint, of the relay store, and of the channel in metrics.
    #[schemars(
        regex(pattern = "^[a-z0-9_-]{1,64}$"),
        example = &"orders",
        extend("x-takes" = "1 to 64 of a-z 0-9 _ -", "x-applies" = "daemon")
    )]
    pub(super) name: String,
    /// Wait while another daemon has the channel on the target, and take it over when that one stops, dies,
    /// hangs or loses the target. Set it in all daemons of the channel, each on its own host.
    #[serde(default)]
    pub(super) standby: bool,
    /// Server whose transactions are received.
    pub(super) source: SourceConfig,
    /// Received transactions on disk.
    #[serde(default)]
    pub(super) relay: RelayConfig,
    /// Server to which transactions are applied. A channel with `[channel.archive]` may have none: it archives, and
    /// applies nothing.
    pub(super) target: Option<TargetConfig>,
    /// Execution on the target.
    #[serde(default)]
    pub(super) applier: ApplierConfig,
    /// The copy of the source that `start_from = "copy"` and `csa-daemon copy` make.
    #[serde(default)]
    pub(super) copy: CopyConfig,
    /// The stream in an object store, as binary log files, for `csa-daemon restore`; docs/archive.md describes it.
    #[serde(default)]
    pub(super) archive: ArchiveConfig,
    /// Limits on the target's load and on the lag of its replicas. Above them the channel applies fewer
    /// transactions per second, down to `at_least`; docs/throttling.md describes how.
    #[serde(default)]
    pub(super) throttle_by: ThrottleByConfig,
    /// Receiver of events: changes of the channel's state that somebody should know.
    #[serde(default)]
    pub(super) notify: NotifyConfig,
    /// Comparisons of both servers that the daemon makes on its own.
    #[serde(default)]
    pub(super) verify: VerifyConfig,
    /// Moves of the applications from the source to the target and back, by `csa-daemon move`; docs/upgrade.md
    /// describes them.
    #[serde(default, rename = "move")]
    pub(super) moving: MoveConfig,
}

#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Address {
    /// Host name or address.
    pub(super) host: String,
    /// TCP port.
    #[serde(default = "number::<u16, 3306>")]
    #[schemars(range(min = 1, max = 65535))]
    pub(super) port: u16,
}

/// The section of a server: its own keys, then those that source and target share, and the login that they describe.
macro_rules! server {
    ($name:ident, $side:literal, { $($own:tt)* }) => {
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            $($own)*
            /// Password. Nobody else should be able to read a file with this key.
            #[schemars(with = "Option<String>", example = &"…")]
            pub(super) password: Option<SecretString>,
            /// File with the password. One of `password_file`, `password_env` and `password` must be set.
            #[schemars(example = concat!("/etc/csa-daemon/", $side, ".pw"), extend("x-in-example" = true))]
            pub(super) password_file: Option<PathBuf>,
            /// Environment variable with the password.
            #[schemars(example = $side.to_uppercase() + "_PASSWORD")]
            pub(super) password_env: Option<String>,
            /// Encryption, as the server's `--ssl-mode`. On a network set one of the two that verify: only they
            /// protect the password from an attacker who can intercept the connection.
            #[serde(default)]
            pub(super) tls: Tls,
            /// Certificates of the authorities to trust.
            #[schemars(example = concat!("/etc/csa-daemon/", $side, "-ca.pem"))]
            pub(super) tls_ca: Option<PathBuf>,
            /// Certificate of this daemon.
            #[schemars(example = concat!("/etc/csa-daemon/", $side, "-client.pem"))]
            pub(super) tls_cert: Option<PathBuf>,
            /// Private key of `tls_cert`.
            #[schemars(example = concat!("/etc/csa-daemon/", $side, "-client-key.pem"))]
            pub(super) tls_key: Option<PathBuf>,
            /// Copy of the server's `public_key.pem`. Without TLS, the password is encrypted with this key and
            /// no other.
            #[schemars(example = concat!("/etc/csa-daemon/", $side, "-public_key.pem"))]
            pub(super) public_key_file: Option<PathBuf>,
            /// Without TLS, encrypt the password with any key that the server sends, which may be an attacker's.
            #[serde(default)]
            pub(super) get_public_key: bool,
            /// Time limit of an attempt to connect.
            #[serde(default = "seconds::<10>")]
            #[schemars(extend("x-at-least" = "10ms"))]
            pub(super) connect_timeout: Duration,
            /// Pause before the next attempt. It grows up to `connect_retry_max`, for the source
            /// with jitter.
            #[serde(default = "seconds::<1>")]
            #[schemars(extend("x-at-least" = "10ms"))]
            pub(super) connect_retry: Duration,
            /// Longest pause between attempts. Where nothing listens, none is longer than 5 s; where the account is
            /// refused, each lasts half a minute, or until `password_file` has another password.
            #[serde(default = "seconds::<30>")]
            #[schemars(extend("x-at-least" = "10ms"))]
            pub(super) connect_retry_max: Duration,
        }

        impl $name {
            pub(super) fn login(&self) -> Result<(Password, TlsOptions), ConfigError> {
                let keys = self.clone();
                let tls = TlsOptions {
                    mode: keys.tls.into(),
                    ca: keys.tls_ca,
                    cert: keys.tls_cert,
                    key: keys.tls_key,
                    public_key: login::public_key($side, keys.public_key_file, keys.get_public_key)?,
                };
                login::check_tls($side, &tls)?;
                let (file, variable) = (keys.password_file, keys.password_env);
                Ok((login::password($side, keys.password, file, variable)?, tls))
            }
        }
    };
}

server!(SourceConfig, "source", {
    /// Host name or address.
    #[schemars(example = "127.0.0.1")]
    pub(super) host: String,
    /// TCP port.
    #[serde(default = "number::<u16, 3306>")]
    #[schemars(range(min = 1, max = 65535))]
    pub(super) port: u16,
    /// Account with the privileges of config/grants-source.sql.
    #[schemars(example = &"repl")]
    pub(super) user: String,
    /// Server ID of this replica; unique in the topology.
    #[schemars(range(min = 1, max = 4294967295_u32), example = 4201)]
    pub(super) server_id: u32,
    /// Interval of the heartbeats of an idle source. A stream is dead after 3 of them, and may take 60 s to
    /// begin. Before it, an answer may take `connect_timeout`.
    #[serde(default = "seconds::<5>")]
    #[schemars(extend("x-at-least" = "1ms"))]
    pub(super) heartbeat_interval: Duration,
    /// Other sources, tried in order. The daemon uses only one whose GTIDs cover those received.
    #[serde(default)]
    #[schemars(
        example = serde_json::json!([{ "host": "192.0.2.7", "port": 3306 }]),
        extend("x-takes" = "list of `{ host, port }`")
    )]
    pub(super) failover: Vec<Address>,
    /// Way in which other sources are found.
    #[serde(default)]
    pub(super) discover: Discover,
    /// Member of a group that is followed.
    #[serde(default)]
    pub(super) prefer: Prefer,
    /// Acknowledge transactions to a semi-synchronous source, once the relay store has them on disk. Needs
    /// `transaction` as `sync` of the relay store.
    #[serde(default)]
    pub(super) semi_sync: bool,
});

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RelayConfig {
    /// Size of a file of the relay store, which is also the unit of purging.
    #[serde(default = "mebibytes::<128>")]
    #[schemars(extend("x-at-least" = "1MiB"))]
    pub(super) segment_size: Size,
    /// Size of the relay store at which reception waits; 0 for no limit.
    #[serde(default = "mebibytes::<10240>")]
    pub(super) space_limit: Size,
    /// Free space on disk below which reception waits.
    #[serde(default = "mebibytes::<1024>")]
    pub(super) min_free_disk: Size,
    /// Time after which a received transaction is on disk or applied: what is applied earlier is never written. After a
    /// crash the source sends again what was lost.
    #[serde(default = "sync")]
    #[schemars(extend("x-takes" = "`transaction`, `os` or a duration"))]
    pub(super) sync: String,
}

server!(TargetConfig, "target", {
    /// Host name or address.
    #[serde(default = "loopback")]
    pub(super) host: String,
    /// TCP port.
    #[serde(default = "number::<u16, 3306>")]
    #[schemars(range(min = 1, max = 65535), example = 3307)]
    pub(super) port: u16,
    /// Other servers that may be the target: members of its group, or replicas of it that were promoted. They are
    /// tried in order where the target does not answer or takes no writes.
    #[serde(default)]
    #[schemars(
        example = serde_json::json!([{ "host": "192.0.2.8", "port": 3306 }]),
        extend("x-takes" = "list of `{ host, port }`")
    )]
    pub(super) failover: Vec<Address>,
    /// Way in which other targets are found.
    #[serde(default)]
    pub(super) discover: Discover,
    /// Socket of a server on this host, instead of `host` and `port`.
    #[schemars(example = "/run/mysqld/mysqld.sock")]
    pub(super) socket: Option<PathBuf>,
    /// Account with the privileges of config/grants-target.sql.
    #[schemars(example = &"csa")]
    pub(super) user: String,
    /// Interval at which the daemon asks the target, over another connection, whether it still executes a statement
    /// that has no answer. It asks for the first time after 10 s, or earlier if the interval is shorter.
    #[serde(default = "seconds::<30>")]
    #[schemars(extend("x-at-least" = "1s"))]
    pub(super) net_timeout: Duration,
});

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ThrottleByConfig {
    /// Most sessions that execute something on the target at the same time. Those of the account in
    /// `[channel.target]` are not counted.
    #[schemars(range(min = 1), example = 50, extend("x-applies" = "at-once"))]
    pub(super) threads_running: Option<u32>,
    /// Longest time by which one of `replicas` may lag the target.
    #[schemars(
        example = &"5s",
        extend("x-takes" = "duration", "x-at-least" = "1s", "x-applies" = "at-once")
    )]
    pub(super) replica_lag: Option<Duration>,
    /// The target's own replicas, which the account of `[channel.target]` can log in to.
    #[serde(default)]
    #[schemars(
        example = serde_json::json!([{ "host": "192.0.2.8", "port": 3306 }]),
        extend("x-takes" = "list of `{ host, port }`", "x-applies" = "at-once")
    )]
    pub(super) replicas: Vec<Address>,
    /// Query that returns one number on the target, for `query_limit`. It runs every second.
    #[schemars(example = &"SELECT depth FROM shop.queue_depth", extend("x-applies" = "at-once"))]
    pub(super) query: Option<String>,
    /// Highest number that `query` may return.
    #[schemars(example = 1000.0, extend("x-takes" = "number", "x-applies" = "at-once"))]
    pub(super) query_limit: Option<f64>,
    /// Transactions per second that the limits leave to the channel, however far they are exceeded.
    #[serde(default = "number::<u32, 10>")]
    #[schemars(range(min = 1), extend("x-applies" = "at-once"))]
    pub(super) at_least: u32,
}

fn state_dir() -> PathBuf {
    "/var/lib/csa-daemon".into()
}

fn admin_listen() -> String {
    "127.0.0.1:9104".to_owned()
}

fn log_filter() -> String {
    "info".to_owned()
}

fn loopback() -> String {
    "127.0.0.1".to_owned()
}

fn sync() -> String {
    "1s".to_owned()
}

/// A section that the file leaves out. Tests make each of them.
macro_rules! without_keys {
    ($($section:ident)*) => {
        $(impl Default for $section {
            fn default() -> Self {
                Self::deserialize(Table::new()).expect("every key of the section has a default")
            }
        })*
    };
}

without_keys!(DaemonConfig ClaimsConfig RelayConfig ApplierConfig CopyConfig ThrottleByConfig NotifyConfig
    VerifyConfig MoveConfig);

/// The keys of a channel but for its name; none of them must be set.
fn defaults(generator: &mut SchemaGenerator) -> Schema {
    let mut channel = generator.subschema_for::<ChannelConfig>();
    channel.remove("required");
    if let Some(keys) = channel.get_mut("properties").and_then(|keys| keys.as_object_mut()) {
        keys.remove("name");
        keys.values_mut().filter_map(|section| section.as_object_mut()).for_each(|section| {
            section.remove("required");
        });
    }
    channel
}
