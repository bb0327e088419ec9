//! Every key there is, so that a misspelt one is told with its path and the nearest known name.

use toml::{Table, Value};

use super::ConfigError;

const ROOT: &[&str] = &["daemon", "channel"];
const DAEMON: &[&str] = &[
    "state_dir",
    "admin_listen",
    "admin_control",
    "admin_token_file",
    "admin_read_token_file",
    "log_format",
    "log_filter",
    "stop_timeout",
];
const CHANNEL: &[&str] = &["name", "source", "relay", "target", "applier"];
const SOURCE: &[&str] = &[
    "host",
    "port",
    "user",
    "password",
    "password_file",
    "password_env",
    "server_id",
    "tls",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "heartbeat_interval",
    "connect_timeout",
    "connect_retry",
    "connect_retry_max",
    "failover",
];
const RELAY: &[&str] = &["segment_size", "space_limit", "min_free_disk", "sync"];
const TARGET: &[&str] = &[
    "host",
    "port",
    "socket",
    "user",
    "password",
    "password_file",
    "password_env",
    "tls",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "connect_timeout",
    "connect_retry",
    "connect_retry_max",
];
const APPLIER: &[&str] = &[
    "start_from",
    "worker_count",
    "event_memory_limit",
    "commit",
    "target_gtids",
    "preserve_commit_order",
    "executor",
    "exec_mode",
    "transaction_retries",
    "throttle",
    "source_delay",
    "until",
    "replicate_do_db",
    "replicate_ignore_db",
    "replicate_do_table",
    "replicate_ignore_table",
    "replicate_wild_do_table",
    "replicate_wild_ignore_table",
    "replicate_rewrite_db",
];

/// Refuses keys that do not exist.
pub(super) fn check(file: &Table) -> Result<(), ConfigError> {
    section(file, ROOT, "")?;
    if let Some(Value::Table(daemon)) = file.get("daemon") {
        section(daemon, DAEMON, "daemon.")?;
    }
    let channels = file.get("channel").and_then(Value::as_array).into_iter().flatten();
    for (index, channel) in channels.enumerate() {
        let Value::Table(channel) = channel else { continue };
        let path = match channel.get("name").and_then(Value::as_str) {
            Some(name) => format!("channel {name:?}: "),
            None => format!("channel[{index}]: "),
        };
        section(channel, CHANNEL, &path)?;
        for (name, known) in
            [("source", SOURCE), ("relay", RELAY), ("target", TARGET), ("applier", APPLIER)]
        {
            if let Some(Value::Table(table)) = channel.get(name) {
                section(table, known, &format!("{path}{name}."))?;
            }
        }
    }
    Ok(())
}

fn section(table: &Table, known: &[&str], path: &str) -> Result<(), ConfigError> {
    for key in table.keys() {
        if known.contains(&key.as_str()) {
            continue;
        }
        // A key cut short ("heartbeat") is nearer than its edit distance says.
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
