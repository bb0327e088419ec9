use std::path::PathBuf;

use clap::{Args, Subcommand};
use csa_provider::binlog::GtidSet;

use crate::host::micros_of;

#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveCommand {
    /// List the files with their transactions, times and sizes, the oldest first.
    Ls(ArchivePlace),
    /// Read every file, and compare its bytes and GTIDs with its index: exit code 1 if one differs or is missing,
    /// including those that a pinned backup needs.
    Verify(ArchivePlace),
    /// Write the files to a directory as plain binary logs, for mysqlbinlog.
    Export {
        directory: PathBuf,
        #[command(flatten)]
        place: ArchivePlace,
    },
    /// Keep everything after the GTID set of a backup, however old it gets.
    Pin {
        /// Name of the backup, from a-z, 0-9, _, . and -.
        #[arg(value_parser = pin_name)]
        name: String,
        /// The transactions in the backup: its `gtid_executed`.
        #[arg(long, value_name = "SET")]
        gtid_set: GtidSet,
        #[command(flatten)]
        place: ArchivePlace,
    },
    /// List the pins.
    Pins(ArchivePlace),
    /// Remove a pin.
    Unpin {
        #[arg(value_parser = pin_name)]
        name: String,
        #[command(flatten)]
        place: ArchivePlace,
    },
}

/// The archive of a channel; by default that of the configuration.
#[derive(Debug, Clone, Args)]
pub(crate) struct ArchivePlace {
    /// Place of the archive instead of `archive.url`.
    #[arg(long, value_name = "URL")]
    pub(crate) archive: Option<String>,
    /// Option of its client, such as aws_endpoint=https://s3.example.com. Can be given several times; then those of
    /// `archive.options` do not count.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) archive_option: Vec<(String, String)>,
    /// History in the archive, as `archive ls` names it. By default a restore takes the newest one that follows the
    /// target's transactions, and refuses where that is in doubt.
    #[arg(long, value_name = "NAME")]
    pub(crate) history: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// Last moment to restore: a time like 2026-11-26T08:15:00Z, before which transactions were committed, or a GTID
    /// set, which is applied with everything before it. By default everything that is archived.
    #[arg(long, value_name = "TIME|SET", value_parser = end)]
    pub(crate) until: Option<RestoreEnd>,
    /// Stop right before the first of these transactions.
    #[arg(long, value_name = "SET", conflicts_with = "until")]
    pub(crate) before: Option<GtidSet>,
    /// Server to restore into, instead of the target of the channel. The account is that of the target, unless another
    /// one is named.
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub(crate) to: Option<(String, u16)>,
    /// Account there, with the privileges of config/grants-target.sql.
    #[arg(long, value_name = "USER", requires = "target_password_file")]
    pub(crate) target_user: Option<String>,
    /// File with its password.
    #[arg(long, value_name = "FILE", requires = "target_user")]
    pub(crate) target_password_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: ArchivePlace,
    /// Take a directory of a server's binary log files instead of an archive.
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["archive", "archive_option", "history"])]
    pub(crate) binlogs: Option<PathBuf>,
    /// Apply account management (CREATE USER, GRANT and the like), or leave it out. By default as `replicate_accounts` of
    /// the channel says; a channel without a target applies it. The account needs CREATE USER and ROLE_ADMIN, and the
    /// privileges that are granted, WITH GRANT OPTION.
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) accounts: Option<bool>,
    /// Directory for the relay store of the restore, other than the daemon's; by default `restore` in `state_dir`.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Say what would be applied, and apply nothing.
    #[arg(long)]
    pub(crate) plan: bool,
    /// Print nothing but the summary.
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// The end of a restore, as it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RestoreEnd {
    /// Microseconds since the epoch.
    Time(u64),
    Gtids(GtidSet),
}

fn end(text: &str) -> Result<RestoreEnd, String> {
    if let Some(time) = micros_of(text) {
        return Ok(RestoreEnd::Time(time));
    }
    match text.parse::<GtidSet>() {
        Ok(set) if !set.is_empty() => Ok(RestoreEnd::Gtids(set)),
        _ => {
            Err("neither a time with an offset, like 2026-11-26T08:15:00Z, nor a GTID set"
                .to_owned())
        }
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let pair = pair.ok_or_else(|| "KEY=VALUE is wanted".to_owned())?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

fn address(text: &str) -> Result<(String, u16), String> {
    let wrong = || "HOST:PORT is wanted".to_owned();
    // Resolves nothing: a name may exist only where the command runs later.
    if let Some(address) = text.parse::<std::net::SocketAddr>().ok().as_ref() {
        return Ok((address.ip().to_string(), address.port()));
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    if host.is_empty() {
        return Err(wrong());
    }
    Ok((host.to_owned(), port))
}

fn pin_name(text: &str) -> Result<String, String> {
    let is_fit =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(&byte);
    let fits = !text.is_empty() && text.len() <= 64 && text.bytes().all(is_fit);
    match fits && !text.starts_with('.') {
        true => Ok(text.to_owned()),
        false => Err("1 to 64 of a-z, 0-9, _, . and -, without a dot at the beginning".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_times_or_sets() {
        assert_eq!(end("1970-01-01T00:00:01Z"), Ok(RestoreEnd::Time(1_000_000)));
        let set = "07070707-0707-0707-0707-070707070707:1-5";
        assert!(matches!(end(set), Ok(RestoreEnd::Gtids(_))));
        for wrong in ["", "yesterday", "2026-11-26T08:15:00", "07070707:1"] {
            assert!(end(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_and_names_are_checked() {
        assert_eq!(address("db7:3307"), Ok(("db7".to_owned(), 3307)));
        assert_eq!(address("[::1]:3307"), Ok(("::1".to_owned(), 3307)));
        for wrong in ["db7", ":3306", "db7:port", ""] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
        assert!(pin_name("full-2026.11.26").is_ok());
        for wrong in ["", "../x", ".x", "a b", "A"] {
            assert!(pin_name(wrong).is_err(), "{wrong}");
        }
        assert!(pair("a=b=c").is_ok_and(|(key, value)| key == "a" && value == "b=c"));
        assert!(pair("=x").is_err() && pair("x").is_err());
    }
}
