//! The command line's definition: commands, options and their help.

mod archive;
mod check;
mod controller;
mod copy;
mod durations;
mod examples;
mod moving;
mod verify;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::channel::{CHANNEL_SETTINGS, LiveSetting};
use crate::daemon::DAEMON_SETTINGS;
pub(crate) use archive::{ArchiveCommand, ArchivePlace, RestoreArguments, RestoreEnd};
pub(crate) use check::CheckArguments;
pub(crate) use controller::ControllerArguments;
pub(crate) use copy::CopyArguments;
pub(crate) use durations::end_after;
use durations::{duration, seconds_or_duration};
pub(crate) use moving::{MoveAction, MoveArguments};
pub(crate) use verify::VerifyArguments;

/// Returns the names of settings that `set` changes, and what their values mean.
pub(super) fn set_commands<H, C>(
    settings: &'static [LiveSetting<H, C>],
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let commands = settings.iter().filter_map(|setting| setting.command.as_ref());
    commands.map(|command| (command.name, command.meaning))
}

fn set_help() -> String {
    let settings = set_commands(&CHANNEL_SETTINGS).chain(set_commands(&DAEMON_SETTINGS));
    let explained = settings.map(|(name, meaning)| match meaning {
        "" => name.to_owned(),
        meaning => format!("{name} ({meaning})"),
    });
    let list = listed(explained.collect(), "or");
    format!("Change a setting until the daemon exits or reads its files again: {list}")
}

/// Returns a list for a sentence.
pub(super) fn listed(mut words: Vec<impl AsRef<str> + ToString>, before_last: &str) -> String {
    let last = words.pop().map(|word| word.to_string()).unwrap_or_default();
    let others: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    format!("{} {before_last} {last}", others.join(", "))
}

/// An external replica of MySQL: receives a source's change stream and applies it to a target.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Configuration file.
    #[arg(
        long,
        short,
        global = true,
        env = "CSA_DAEMON_CONFIG",
        default_value = "/etc/csa-daemon/csa-daemon.toml"
    )]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) admin: Admin,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The way to the running daemon.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Running daemon")]
pub(crate) struct Admin {
    /// The running daemon: HOST:PORT, https://HOST:PORT, or the path of its socket. By default the
    /// socket and the port that the configuration names.
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    /// Certificates of the authorities to trust for https; `admin_tls_cert` by default.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) admin_ca: Option<PathBuf>,
    /// File with the token that the daemon requires; by default the configuration's
    /// `admin_token_file`, or the token that the daemon made in `state_dir`.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Channel to act on; may be omitted when there is only one. `status` and the commands with
    /// --all also take a pattern with `*` and `?`, like 'shard-*'.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) channel: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Replicate until stopped.
    #[command(after_help = examples::RUN)]
    Run,
    /// Check the configuration file, and on request both servers of one channel or of all: exit
    /// code 0 without errors, 2 with errors.
    #[command(after_help = examples::CHECK)]
    Check(CheckArguments),
    /// Make the empty target of a channel a copy of its source: definitions, rows, indexes, programs, and the
    /// checkpoint from which the daemon follows the source. The source is not locked.
    #[command(after_help = examples::COPY)]
    Copy(CopyArguments),
    /// Compare source and target of one channel or of all, while both are in use: exit code 0
    /// equal, 1 different, 2 not everything could be compared.
    #[command(after_help = examples::VERIFY)]
    Verify(VerifyArguments),
    /// Apply the archive of a channel, or a server's binary logs, to a target that a backup has made, up to a time or a
    /// GTID set. A restore that is interrupted continues with the same command.
    #[command(after_help = examples::RESTORE)]
    Restore(RestoreArguments),
    /// Look into the archive of a channel, and keep what backups need.
    #[command(after_help = examples::ARCHIVE)]
    Archive {
        #[command(subcommand)]
        command: ArchiveCommand,
    },
    /// Move the applications of a channel from its source to its target, and back, with a fence that never leaves two
    /// servers open. A move that is interrupted continues with the same command.
    #[command(after_help = examples::MOVE)]
    Move(MoveArguments),
    /// Move the checkpoint of another channel to this one, for example after a rename. Neither may
    /// be running.
    #[command(after_help = examples::ADOPT)]
    Adopt {
        /// Channel that has the checkpoint; it is no longer in the configuration.
        #[arg(long, value_name = "NAME")]
        from: String,
    },
    /// Make channels of the daemon in the same pod from the ReplicationChannel resources of a Kubernetes
    /// namespace, and report their status there.
    #[command(after_help = examples::CONTROLLER)]
    Controller(ControllerArguments),
    /// Print the address of the running daemon's status page, for a browser. It contains the token, which permits
    /// commands; with --channel it leads to that channel.
    #[command(after_help = examples::PAGE)]
    Page {
        /// Leave the token out, for an address that is passed on.
        #[arg(long)]
        without_token: bool,
    },
    #[command(flatten)]
    Control(Control),
    /// Write manual pages and shell completions to a folder, for packages.
    #[command(hide = true)]
    Generate { directory: PathBuf },
}

/// Commands to the running daemon.
#[derive(Debug, Subcommand)]
pub(crate) enum Control {
    /// Show the state of the running daemon.
    #[command(after_help = examples::STATUS)]
    Status {
        /// Channel to show, for people and in detail; or a pattern like 'shard-*'. The same as --channel.
        #[arg(value_name = "NAME", conflicts_with_all = ["channel", "all", "peers"])]
        name: Option<String>,
        /// Ignored; accepted for symmetry with other commands.
        #[arg(long, hide = true, conflicts_with = "channel")]
        all: bool,
        /// Print the JSON of /status.
        #[arg(long)]
        json: bool,
        /// Print one line for each value of /status, like SHOW REPLICA STATUS\G.
        #[arg(long, conflicts_with = "json")]
        vertical: bool,
        /// Also show the channels of the daemons in `admin_peers`.
        #[arg(long, conflicts_with_all = ["json", "vertical", "watch", "channel"])]
        peers: bool,
        /// Repeat every SECONDS seconds. On a terminal the worst channels come first, as many as fit.
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
        watch: Option<u64>,
        /// Print only a line for each channel that does not run or lags by more, like 30s: exit code 0 if
        /// there is none, otherwise 1.
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        #[arg(conflicts_with_all = ["json", "vertical", "watch", "peers"])]
        max_lag: Option<Duration>,
    },
    /// Finish running groups and begin no new ones; receiving continues. The pause ends with `resume`, or when the
    /// daemon restarts.
    #[command(after_help = examples::PAUSE)]
    Pause(All),
    /// Resume after a pause.
    #[command(after_help = examples::RESUME)]
    Resume(All),
    /// Stop applying, with an exact checkpoint. Receiving continues, like after STOP REPLICA
    /// SQL_THREAD, unless --receiving is given. The channel runs again after `restart`, or when the daemon restarts.
    #[command(after_help = examples::STOP)]
    Stop(Stop),
    /// Stop a channel if it runs, and start it.
    #[command(after_help = examples::RESTART)]
    Restart(Stop),
    #[command(about = set_help(), after_help = examples::SET)]
    Set {
        setting: String,
        value: String,
        #[command(flatten)]
        all: All,
    },
    /// Stop a channel at a GTID set or a time. A channel that has stopped there resumes when its end
    /// is moved or cleared. Lasts until the daemon exits, or until the channel restarts with another
    /// `until` in its file.
    #[command(after_help = examples::UNTIL)]
    Until(Until),
    /// Record the transaction that stopped a channel as executed without applying it, and resume.
    #[command(after_help = examples::SKIP)]
    Skip { gtid: String },
    /// Wait until transactions are applied; exit code 1 if time runs out.
    #[command(after_help = examples::WAIT)]
    Wait {
        gtid_set: String,
        /// The time that it may take, like 10s or 2m, or a number of seconds; no limit by default.
        #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
        timeout: Option<Duration>,
    },
    /// Record a timeline of groups and workers, in the format that https://ui.perfetto.dev opens.
    #[command(after_help = examples::TRACE)]
    Trace(Trace),
    /// Inspect the relay store of a channel.
    #[command(after_help = examples::RELAY)]
    Relay {
        #[command(subcommand)]
        command: Relay,
    },
    /// Make the daemon read its configuration again: new channels start, removed ones stop, and
    /// changes that need a restart are named.
    #[command(after_help = examples::RELOAD)]
    Reload(ReloadArguments),
    /// Show the daemons of the fleet, their shares, and the daemon that has each channel.
    #[command(after_help = examples::FLEET)]
    Fleet {
        /// Print the JSON of /fleet.
        #[arg(long)]
        json: bool,
    },
    /// Give all channels of this daemon to others of the fleet, before maintenance; wait until they
    /// are gone. Lasts until the daemon restarts.
    #[command(after_help = examples::DRAIN)]
    Drain(Drain),
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Drain {
    /// Undo a drain: claim this daemon's share again.
    #[arg(long, conflicts_with = "timeout")]
    pub(crate) undo: bool,
    /// Seconds to wait.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) timeout: u64,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ReloadArguments {
    /// Show what would be done, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Restart the channels with changes that need it, except those that were stopped. Without this option only
    /// those restart that wait for their next attempt.
    #[arg(long)]
    pub(crate) restart: bool,
}

/// The channels that a command acts on, where more than one makes sense.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct All {
    /// Act on all channels, and show the result for each.
    #[arg(long, conflicts_with = "channel")]
    pub(crate) all: bool,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Stop {
    #[command(flatten)]
    pub(crate) all: All,
    /// Stop receiving too: the connection to the source ends, like after STOP REPLICA.
    #[arg(long)]
    pub(crate) receiving: bool,
    /// Give up running groups; the target rolls them back.
    #[arg(long, conflicts_with = "timeout")]
    pub(crate) now: bool,
    /// Seconds that running groups have to finish; `stop_timeout` by default.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u32>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Until {
    #[command(flatten)]
    pub(crate) all: All,
    #[command(flatten)]
    pub(crate) end: End,
}

#[derive(Debug, Clone, Args)]
#[group(id = "end", required = true, multiple = false)]
pub(crate) struct End {
    /// Stop before the first transaction of the set.
    #[arg(long, value_name = "GTID_SET")]
    pub(crate) before_gtids: Option<String>,
    /// Stop after the last transaction of the set.
    #[arg(long, value_name = "GTID_SET")]
    pub(crate) after_gtids: Option<String>,
    /// Stop before the first transaction that the source committed at this time or later, like
    /// 2026-03-01T18:00:00Z.
    #[arg(long, value_name = "RFC3339")]
    pub(crate) before_time: Option<String>,
    /// Remove the end.
    #[arg(long)]
    pub(crate) clear: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Trace {
    /// Length of the timeline, up to 600.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) seconds: u64,
    /// File to write; standard output by default.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Relay {
    /// List the segments.
    #[command(after_help = examples::RELAY_LS)]
    Ls,
    /// Show transactions: tables, operations, key columns and sizes.
    #[command(after_help = examples::RELAY_DUMP)]
    Dump {
        /// Show only these transactions.
        #[arg(long, value_name = "GTID_SET")]
        gtid_set: Option<String>,
        #[arg(long, value_name = "TRANSACTIONS", default_value_t = 100)]
        limit: u64,
        /// Include row values and the text of statements.
        #[arg(long)]
        rows: bool,
    },
}
