//! Every key with its description: its values, its default, and when a change takes effect. The
//! parser, the reload and `docs/configuration.md` use this list.

use super::Applies::{AtOnce, Channel, Daemon};
use super::{Applies, Key, Section};

const MUST: Option<&str> = None;
const UNSET: Option<&str> = Some("");

const fn key(
    name: &'static str,
    takes: &'static str,
    default: Option<&'static str>,
    applies: Applies,
    meaning: &'static str,
) -> Key {
    Key { name, takes, default, applies, meaning }
}

const DURATION: &str = "duration";
const SIZE: &str = "size";
const FILE: &str = "path";
const TEXT: &str = "text";
const NAMES: &str = "list of schemas";
const TABLES: &str = "list of schema.table";
const PATTERNS: &str = "list of patterns";
const TLS: &str = "`disabled` `preferred` `required` `verify-ca` `verify-identity`";

// Keys that sources and targets share.
const PASSWORD: Key = key(
    "password",
    TEXT,
    UNSET,
    Channel,
    "in the file itself, which nobody else should be able to read then",
);
const PORT: Key = key("port", "1 to 65535", Some("3306"), Channel, "TCP port");
const PASSWORD_FILE: Key = key("password_file", FILE, UNSET, Channel, "file with the password");
const PASSWORD_ENV: Key =
    key("password_env", TEXT, UNSET, Channel, "environment variable with the password");
const TLS_MODE: Key = key(
    "tls",
    TLS,
    Some("\"preferred\""),
    Channel,
    "as the server's `--ssl-mode`; only the two that verify keep the password from who sits in between",
);
const TLS_CA: Key =
    key("tls_ca", FILE, UNSET, Channel, "certificates of the authorities to believe");
const TLS_KEY: Key = key("tls_key", FILE, UNSET, Channel, "its key");
const PUBLIC_KEY_FILE: Key = key(
    "public_key_file",
    FILE,
    UNSET,
    Channel,
    "copy of the server's `public_key.pem`: without TLS the password goes under this key and no other",
);
const GET_PUBLIC_KEY: Key = key(
    "get_public_key",
    "boolean",
    Some("false"),
    Channel,
    "true: without TLS the password goes under whatever key the server sends, which may be another's",
);
const CONNECT_TIMEOUT: Key =
    key("connect_timeout", DURATION, Some("\"10s\""), Channel, "for one attempt to connect");
const CONNECT_RETRY_MAX: Key =
    key("connect_retry_max", DURATION, Some("\"30s\""), Channel, "up to this");

pub(super) const DAEMON: Section = Section {
    path: "daemon",
    keys: &[
        key(
            "state_dir",
            FILE,
            Some("\"/var/lib/csa-daemon\""),
            Daemon,
            "relay stores and locks, one folder for each channel",
        ),
        key(
            "admin_listen",
            "address:port",
            Some("\"127.0.0.1:9104\""),
            Daemon,
            "status page, API and metrics; other than loopback needs `admin_token_file`",
        ),
        key(
            "admin_hosts",
            "list of names",
            Some("[]"),
            AtOnce,
            "names under which the port is asked, beside `localhost`, addresses and the name in `admin_listen`",
        ),
        key(
            "admin_socket_group",
            "group",
            UNSET,
            Daemon,
            "may use `admin-PORT.sock` in `state_dir`, which permits everything; without it the daemon's own group",
        ),
        key(
            "admin_tls_cert",
            FILE,
            UNSET,
            AtOnce,
            "certificate of the admin port, which then takes HTTPS only",
        ),
        key("admin_tls_key", FILE, UNSET, AtOnce, "its key"),
        key("admin_control", "boolean", Some("true"), AtOnce, "false: no commands are taken"),
        key(
            "admin_token_file",
            FILE,
            UNSET,
            AtOnce,
            "holds a bearer token that permits everything, 16 characters or more; without it everybody on this host may look, and `admin-PORT.token` in `state_dir` permits the rest",
        ),
        key("admin_read_token_file", FILE, UNSET, AtOnce, "holds one that permits to look"),
        key(
            "log_format",
            "`text` `json`",
            Some("\"text\""),
            Daemon,
            "lines for people or for a log collector",
        ),
        key("log_filter", "level, or target=level,…", Some("\"info\""), AtOnce, "what is logged"),
        key(
            "stop_timeout",
            DURATION,
            Some("\"10s\""),
            AtOnce,
            "what a stop may take to finish what is running",
        ),
    ],
};

pub(super) const CHANNEL: Section = Section {
    path: "channel",
    keys: &[key(
        "name",
        "1 to 64 of a-z 0-9 _ -",
        MUST,
        Daemon,
        "names the checkpoint, the relay store and the metrics",
    )],
};

pub(super) const SOURCE: Section = Section {
    path: "channel.source",
    keys: &[
        key("host", TEXT, MUST, Channel, "name or address"),
        PORT,
        key("user", TEXT, MUST, Channel, "account with REPLICATION SLAVE"),
        PASSWORD,
        PASSWORD_FILE,
        PASSWORD_ENV,
        key(
            "server_id",
            "1 to 4294967295",
            MUST,
            Channel,
            "of this replica; unique in the topology",
        ),
        TLS_MODE,
        TLS_CA,
        key("tls_cert", FILE, UNSET, Channel, "certificate of this replica"),
        TLS_KEY,
        PUBLIC_KEY_FILE,
        GET_PUBLIC_KEY,
        key(
            "heartbeat_interval",
            DURATION,
            Some("\"5s\""),
            Channel,
            "between two signs of life of an idle source; the link is dead after 3 of them",
        ),
        CONNECT_TIMEOUT,
        key(
            "connect_retry",
            DURATION,
            Some("\"1s\""),
            Channel,
            "before the next attempt; grows with jitter",
        ),
        CONNECT_RETRY_MAX,
        key(
            "failover",
            "list of `{ host, port }`",
            Some("[]"),
            Channel,
            "other sources, tried in order; only one whose GTIDs cover what was received is taken",
        ),
    ],
};

pub(super) const RELAY: Section = Section {
    path: "channel.relay",
    keys: &[
        key(
            "segment_size",
            SIZE,
            Some("\"128MiB\""),
            Channel,
            "of one file of the relay store; also what is purged at once",
        ),
        key(
            "space_limit",
            SIZE,
            Some("\"10GiB\""),
            Channel,
            "reception waits at this size; 0 for no limit",
        ),
        key(
            "min_free_disk",
            SIZE,
            Some("\"1GiB\""),
            Channel,
            "reception waits when the disk has less",
        ),
        key(
            "sync",
            "`transaction` `os` or a duration",
            Some("\"1s\""),
            Channel,
            "how often the relay store is synced to disk; what is lost in a crash is asked for again",
        ),
    ],
};

pub(super) const TARGET: Section = Section {
    path: "channel.target",
    keys: &[
        key("host", TEXT, Some("\"127.0.0.1\""), Channel, "name or address"),
        PORT,
        key("socket", FILE, UNSET, Channel, "instead of host and port"),
        key("user", TEXT, MUST, Channel, "account with the privileges of config/grants.sql"),
        PASSWORD,
        PASSWORD_FILE,
        PASSWORD_ENV,
        TLS_MODE,
        TLS_CA,
        key("tls_cert", FILE, UNSET, Channel, "certificate of this daemon"),
        TLS_KEY,
        PUBLIC_KEY_FILE,
        GET_PUBLIC_KEY,
        CONNECT_TIMEOUT,
        key("connect_retry", DURATION, Some("\"1s\""), Channel, "before the next attempt; grows"),
        CONNECT_RETRY_MAX,
        key(
            "net_timeout",
            DURATION,
            Some("\"30s\""),
            Channel,
            "after so long without an answer the target is asked whether it is still at it",
        ),
    ],
};

pub(super) const APPLIER: Section = Section {
    path: "channel.applier",
    keys: &[
        key(
            "start_from",
            "`target` `source` or a GTID set",
            Some("\"target\""),
            Channel,
            "where a channel without a checkpoint begins: after the target's `gtid_executed`, at what the source does next, or after a set",
        ),
        key(
            "worker_count",
            "1 to 1024",
            Some("8"),
            AtOnce,
            "sessions on the target, and groups at a time",
        ),
        key(
            "event_memory_limit",
            SIZE,
            Some("\"256MiB\""),
            AtOnce,
            "memory for events in flight, decompressed, and what is made of them; larger transactions are streamed from the relay store",
        ),
        key(
            "commit",
            "`grouped` `one-to-one`",
            Some("\"grouped\""),
            Channel,
            "source transactions that share a commit: many, or each its own",
        ),
        key(
            "target_gtids",
            "`own` `mirror` `source`",
            Some("\"own\""),
            Channel,
            "the target's GTIDs: its own; none in its binary log, with the source's in `gtid_executed`; the source's for each commit (needs `one-to-one`)",
        ),
        key(
            "preserve_commit_order",
            "boolean",
            Some("true"),
            Channel,
            "the target never shows a state that the source did not have",
        ),
        key(
            "executor",
            "`row-image` `sql` `auto`",
            Some("\"auto\""),
            Channel,
            "how rows are written: as they were logged, by INSERT, UPDATE and DELETE, or the first where the target permits it",
        ),
        key(
            "exec_mode",
            "`strict` `idempotent`",
            Some("\"strict\""),
            Channel,
            "a row that is missing or there already stops the channel, or is passed over, as the server's `replica_exec_mode`",
        ),
        key(
            "transaction_retries",
            "0 or more",
            Some("10"),
            Channel,
            "after deadlocks and lock wait timeouts",
        ),
        key("throttle", "transactions per second", Some("0"), AtOnce, "0 for no limit"),
        key(
            "source_delay",
            DURATION,
            Some("\"0s\""),
            AtOnce,
            "nothing is applied earlier than this after its commit on the source",
        ),
        key(
            "until",
            "table with a GTID set or a time",
            UNSET,
            Channel,
            "`sql_before_gtids`, `sql_after_gtids` or `sql_before_time`: the channel drains and stops there",
        ),
        key(
            "replicate_do_db",
            NAMES,
            Some("[]"),
            Channel,
            "only these; for all filters see filters.md",
        ),
        key("replicate_ignore_db", NAMES, Some("[]"), Channel, "not these"),
        key("replicate_do_table", TABLES, Some("[]"), Channel, "only these"),
        key("replicate_ignore_table", TABLES, Some("[]"), Channel, "not these"),
        key(
            "replicate_wild_do_table",
            PATTERNS,
            Some("[]"),
            Channel,
            "only what matches, with % and _",
        ),
        key("replicate_wild_ignore_table", PATTERNS, Some("[]"), Channel, "not what matches"),
        key(
            "replicate_rewrite_db",
            "table of source = target",
            Some("{}"),
            Channel,
            "schemas that have another name on the target; comes before the other rules",
        ),
        key(
            "replicate_accounts",
            "boolean",
            Some("false"),
            Channel,
            "apply account statements (CREATE USER, GRANT and the like) and changes of the grant tables; \
             left out and counted otherwise",
        ),
    ],
};
