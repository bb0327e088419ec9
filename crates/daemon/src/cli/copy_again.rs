//! `copy --table`: copies tables of a channel again, while the channel follows its source between two rounds.

use std::path::Path;
use std::time::{Duration, Instant};

use csa_applier::{RELOAD_AND_RESTART, target_channels};
use csa_provider::server::visible::one_line;
use serde_json::json;
use tokio::runtime::Runtime;

use super::arguments::{Admin, CopyArguments};
use super::client::Client;
use super::control;
use super::copy::{CopyScreen, options};
use super::output::say;
use super::verify::chosen_with_target;
use crate::config::{ChannelSettings, Config};
use crate::copy::{AgainOptions, CopyOptions, CopyStep, Pace, RoundEnd, copy_again};
use crate::host::{Failure, counted, runtime};
use crate::observe::view::{ChannelState, ChannelView, CommandView};
use crate::verify::Replicated;

/// The time for which rows are copied in one round.
const ROUND: Duration = Duration::from_secs(2);
/// The time for which it runs before the next round, if it does not catch up earlier and the rate permits more rows.
const BETWEEN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(200);

/// Copies the tables of the arguments again.
pub(crate) fn copy_tables(
    path: &Path,
    admin: &Admin,
    arguments: &CopyArguments,
) -> Result<(), Failure> {
    let config = Config::load(path)?;
    let channels = chosen_with_target(&config, admin.channel.as_deref(), "copy")?;
    let [settings] = channels.as_slice() else {
        return Err(Failure::Input("--table: name the channel with --channel".to_owned()));
    };
    let options = again(settings, arguments)?;
    let running =
        RunningChannel { client: Client::new(path, admin)?, channel: settings.name.clone() };
    let screen = CopyScreen::new(arguments.quiet);
    let begun = Instant::now();
    let first = running.view();
    let is_running = first.is_ok();
    match first.map(|view| view.state) {
        Ok(ChannelState::Paused) => {
            let why = "is paused, and would not catch up between two rounds; resume it first";
            return Err(Failure::Runtime(format!("channel {} {why}", settings.name)));
        }
        Ok(_) => {}
        Err(_) => eprintln!("no daemon answers: the tables are copied in one round"),
    }
    let runtime = runtime()?;
    if is_running {
        runtime.block_on(check_rules(&options.copy))?;
    }
    let copied = || -> Result<u64, Failure> {
        loop {
            match round(&runtime, settings, &options, is_running.then_some(&running), &screen)? {
                RoundEnd::Unfinished => running.catches_up(&options.copy.pace)?,
                RoundEnd::Copied { rows } => return Ok(rows),
            }
        }
    };
    let rows = copied()?;
    screen.clear();
    let seconds = begun.elapsed().as_secs_f64().max(1e-3);
    say!(
        "channel {}: {}, {rows} rows copied in {seconds:.1} s ({:.0} rows/s)",
        settings.name,
        counted(options.tables.len() as u64, "table"),
        rows as f64 / seconds
    );
    if !is_running {
        say!(
            "start the daemon: it applies what changed meanwhile, and adds unique keys and foreign keys"
        );
        return Ok(());
    }
    converges(&running, copied)
}

fn again(settings: &ChannelSettings, arguments: &CopyArguments) -> Result<AgainOptions, Failure> {
    if arguments.range.is_some() && arguments.table.len() > 1 {
        return Err(Failure::Input("--range: it is a range of one table".to_owned()));
    }
    Ok(AgainOptions {
        integers: arguments.range,
        copy: CopyOptions { snapshot_bytes: 0, ..options(settings, arguments)? },
        tables: arguments.table.iter().cloned().collect(),
    })
}

/// Refuses rules other than those with which the channel started: it leaves out what they add.
async fn check_rules(options: &CopyOptions) -> Result<(), Failure> {
    let CopyOptions { channel, target, rules, .. } = options;
    let found = target_channels(target).await;
    let found = found.map_err(|error| Failure::Runtime(error.to_string()))?;
    let own = found.channels.iter().find(|record| record.channel == *channel);
    let noted = own.and_then(|record| record.identity.as_ref());
    if noted.is_none_or(|noted| noted.filters == *rules) {
        return Ok(());
    }
    Err(Failure::Runtime(format!(
        "channel {channel} runs with other replicate_* than the configuration file has, and may leave out what changes while \
         its tables are copied: {RELOAD_AND_RESTART} --channel {channel}; then run the same command again"
    )))
}

/// Waits until the tables are copies. Rows that the target has lost meanwhile are copied again.
fn converges(
    running: &RunningChannel,
    copied: impl Fn() -> Result<u64, Failure>,
) -> Result<(), Failure> {
    loop {
        match running.ends_copy()? {
            CopyEnd::Whole => say!(
                "the tables are copies of the source's; the daemon compares all of their rows now, unless copy.verify is false"
            ),
            CopyEnd::Elsewhere => say!(
                "another daemon has the channel now: it applies what changed meanwhile, and adds unique keys and foreign keys"
            ),
            CopyEnd::RowsLeft => {
                copied()?;
                continue;
            }
        }
        return Ok(());
    }
}

/// The end of a copy whose rows were all there.
enum CopyEnd {
    Whole,
    /// Another daemon has taken the channel over.
    Elsewhere,
    /// The target has lost the end of the copy in a crash.
    RowsLeft,
}

/// Copies for some time while the channel is stopped; without a daemon to the end.
fn round(
    runtime: &Runtime,
    settings: &ChannelSettings,
    options: &AgainOptions,
    running: Option<&RunningChannel>,
    screen: &CopyScreen,
) -> Result<RoundEnd, Failure> {
    let selection = Replicated::new(&settings.filters);
    let stopped = running.map(RunningChannel::stop).transpose()?;
    let time = running.map(|_| ROUND);
    let copied = runtime.block_on(copy_again(options, &selection, time, screen));
    // A channel that somebody stopped stays so if nothing was copied.
    if let Some((running, stopped)) = running.zip(stopped)
        && (copied.is_ok() || !stopped.was_before)
    {
        running.restart(&stopped)?;
    }
    copied.map_err(|error| {
        screen.clear();
        let how = match (running, error.is_held_by_another()) {
            (Some(_), true) => {
                "; run the same command on the daemon that has the channel, which continues"
            }
            _ => "",
        };
        Failure::Runtime(format!("channel {:?}: {error}{how}", settings.name))
    })
}

/// The channel in the running daemon.
struct RunningChannel {
    client: Client,
    channel: String,
}

/// The stop of a channel for a round.
struct StoppedForRound {
    /// It was stopped before.
    was_before: bool,
    /// The number of its last stop.
    number: Option<u64>,
}

impl RunningChannel {
    fn command(&self, command: &str, body: &serde_json::Value) -> Result<CommandView, Failure> {
        control::post(&self.client, &self.channel, command, body)
    }

    /// Stops the channel; one that has failed may still try to start.
    fn stop(&self) -> Result<StoppedForRound, Failure> {
        let state = self.view()?.state;
        let may_be_stopped = matches!(state, ChannelState::Stopped | ChannelState::Failed);
        let stopped = self.command("stop", &json!({ "may_be_stopped": may_be_stopped }))?;
        let was_before = state == ChannelState::Stopped;
        Ok(StoppedForRound { was_before, number: stopped.stop_number })
    }

    /// Starts the channel after a round, unless somebody has stopped it meanwhile.
    fn restart(&self, stopped: &StoppedForRound) -> Result<(), Failure> {
        let restarted = self.command("restart", &json!({ "if_stopped_by": stopped.number }));
        restarted.map(drop).map_err(|error| {
            Failure::Runtime(format!("{error}; run the same command again, which continues"))
        })
    }

    fn view(&self) -> Result<ChannelView, Failure> {
        self.client.view_of(&self.channel)
    }

    /// Waits until the channel has applied what it has received, or for a while, and until more rows may be read.
    fn catches_up(&self, pace: &Pace) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            std::thread::sleep(POLL);
            let view = self.view()?;
            self.check(&view)?;
            let has_all = view.copy.is_some() && view.backlog_transactions == Some(0);
            if pace.is_rested() && (has_all || begun.elapsed() >= BETWEEN) {
                return Ok(());
            }
        }
    }

    /// Waits until the tables have converged.
    fn ends_copy(&self) -> Result<CopyEnd, Failure> {
        let mut rows_left_since = None;
        loop {
            let view = self.view()?;
            self.check(&view)?;
            let has_rows_left =
                view.copy.as_ref().is_some_and(|copy| copy.step == CopyStep::RowsLeft.name());
            match view.state {
                // A channel whose tables still converge shows that it starts.
                ChannelState::Running
                | ChannelState::WaitingForDelay
                | ChannelState::WaitingForLock => return Ok(CopyEnd::Whole),
                ChannelState::Standby => return Ok(CopyEnd::Elsewhere),
                // Until the channel has started, it shows what was left before the last round.
                _ if !has_rows_left => rows_left_since = None,
                _ if rows_left_since.get_or_insert_with(Instant::now).elapsed() > BETWEEN => {
                    return Ok(CopyEnd::RowsLeft);
                }
                _ => {}
            }
            std::thread::sleep(POLL);
        }
    }

    fn check(&self, view: &ChannelView) -> Result<(), Failure> {
        match view.state {
            ChannelState::Failed => Err(Failure::Runtime(format!(
                "channel {} failed: {}; once it runs, run the same command again, which continues",
                self.channel,
                one_line(&view.state_detail)
            ))),
            ChannelState::Stopped => Err(Failure::Runtime(format!(
                "channel {} was stopped; run the same command again, which continues",
                self.channel
            ))),
            ChannelState::Paused => Err(Failure::Runtime(format!(
                "channel {} is paused; resume it, and run the same command again, which continues",
                self.channel
            ))),
            _ => Ok(()),
        }
    }
}
