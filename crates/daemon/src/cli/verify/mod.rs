//! `verify`: compares the servers of the configured channels and prints what differs.

mod files;
mod screen;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::verify::{
    ChannelStanding, Outcome, Replicated, Scope, VerifyError, VerifyEvent, VerifyOptions,
    VerifyReport, abandoned_ended, source_servers,
};
use csa_provider::server::link::Password;
use csa_provider::source::SourceOptions;
use serde::Serialize;

use crate::cli::arguments::{Admin, VerifyArguments};
use crate::cli::output::say;
use crate::cli::standing::why_nothing_is_applied;
use crate::config::{ChannelSettings, Config};
use crate::host::{Failure, StopSignal, StopSignals, counted};
use files::{RepairFile, ResumeFile};
use screen::VerifyScreen;

/// One channel's result as JSON.
#[derive(Debug, Serialize)]
struct VerifyOutput {
    outcome: Option<Outcome>,
    #[serde(flatten)]
    report: VerifyReport,
    /// The reason why it was not finished.
    error: Option<String>,
}

/// The daemon of this configuration, if it runs, knows why a channel applies nothing.
#[derive(Debug)]
struct AskedDaemon {
    config: PathBuf,
    admin: Admin,
    channel: String,
    patience: Duration,
}

impl ChannelStanding for AskedDaemon {
    fn reason(&self) -> Option<String> {
        why_nothing_is_applied(&self.config, &self.admin, &self.channel, self.patience)
    }
}

/// Compares one or all channels of the configuration.
pub(crate) fn verify(
    path: &Path,
    admin: &Admin,
    arguments: &VerifyArguments,
) -> Result<(), Failure> {
    let config = Config::load(path)?;
    let channels = chosen_with_target(&config, admin.channel.as_deref(), "verify")?;
    let repairs = arguments.repair.as_deref().map(RepairFile::create).transpose()?;
    let is_taken = arguments.json || repairs.as_ref().is_some_and(RepairFile::is_standard_output);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::NotCompared(format!("starting the runtime: {error}")))?;
    let run = VerifyRun { path, admin, arguments, repairs: repairs.as_ref(), is_taken };
    let mut outputs = Vec::new();
    let mut signal = None;
    for channel in channels {
        let (output, interrupted) = runtime.block_on(run.channel(channel))?;
        outputs.push(output);
        signal = interrupted;
        if signal.is_some() {
            break;
        }
    }
    // A daemon that does not answer must not hold up the end.
    runtime.shutdown_background();
    if arguments.json {
        let text = serde_json::to_string_pretty(&outputs)
            .map_err(|error| Failure::NotCompared(format!("writing JSON: {error}")))?;
        say!("{text}");
    }
    outputs.iter().for_each(|output| summary(output, is_taken));
    if let Some(repairs) = repairs {
        repairs.finish()?;
    }
    verdict(&outputs, signal)
}

/// The command line, and where its results go.
struct VerifyRun<'a> {
    path: &'a Path,
    admin: &'a Admin,
    arguments: &'a VerifyArguments,
    repairs: Option<&'a RepairFile>,
    /// Standard output is for something else.
    is_taken: bool,
}

impl VerifyRun<'_> {
    /// Compares a channel; also returns the signal that has interrupted it.
    async fn channel(
        &self,
        channel: &ChannelSettings,
    ) -> Result<(VerifyOutput, Option<StopSignal>), Failure> {
        let mut options = options(channel, self.arguments)?;
        options.standing = Some(Arc::new(AskedDaemon {
            config: self.path.to_owned(),
            admin: self.admin.clone(),
            channel: channel.name.clone(),
            patience: options.catch_up_timeout,
        }));
        let kept = ResumeFile::of(channel);
        if self.arguments.from_start {
            kept.remove();
        }
        options.resume = kept.read();
        let selection = Replicated::new(&channel.filters);
        let screen = VerifyScreen::new(self.is_taken);
        let observe = |event: VerifyEvent<'_>| {
            match &event {
                VerifyEvent::Saved(saved) => kept.write(saved),
                VerifyEvent::Table(table) => {
                    if let Some(repairs) = self.repairs {
                        repairs.write(&options, table);
                    }
                }
                VerifyEvent::Progress(_) | VerifyEvent::Resumed(_) => {}
            }
            screen.show(&event);
        };
        let ended = compare(&options, &selection, &observe).await?;
        let finished = screen.finish(&channel.name);
        let unfinished =
            |error| VerifyOutput { outcome: None, report: finished, error: Some(error) };
        Ok(match ended {
            ComparisonEnd::Compared(Ok(report)) => {
                kept.remove();
                (VerifyOutput { outcome: Some(report.outcome()), report, error: None }, None)
            }
            ComparisonEnd::Compared(Err(error)) => (unfinished(error.to_string()), None),
            ComparisonEnd::Interrupted(signal) => {
                (unfinished(kept.interrupted(self.arguments.from_start)), Some(signal))
            }
        })
    }
}

/// The end of a channel's comparison.
enum ComparisonEnd {
    Compared(Result<VerifyReport, VerifyError>),
    Interrupted(StopSignal),
}

/// Compares a channel until a signal interrupts it. The query that runs then is ended on both servers; the next signal
/// ends the wait for that.
async fn compare(
    options: &VerifyOptions,
    selection: &Replicated,
    observe: &(dyn Fn(VerifyEvent<'_>) + Sync),
) -> Result<ComparisonEnd, Failure> {
    let mut signals = StopSignals::listen()?;
    let ended = tokio::select! {
        compared = crate::verify::verify(options, selection, observe) => ComparisonEnd::Compared(compared),
        signal = signals.which() => ComparisonEnd::Interrupted(signal),
    };
    tokio::select! {
        () = abandoned_ended() => {}
        () = signals.next() => {}
    }
    Ok(ended)
}

/// Returns the named channel, or all.
pub(crate) fn chosen<'a>(
    config: &'a Config,
    channel: Option<&str>,
) -> Result<Vec<&'a ChannelSettings>, Failure> {
    let Some(name) = channel else { return Ok(config.channels.iter().collect()) };
    let found = config.channels.iter().find(|channel| channel.name == name);
    let known: Vec<&str> = config.channels.iter().map(|channel| channel.name.as_str()).collect();
    let unknown = || {
        Failure::Input(format!(
            "--channel {name}: no such channel in the configuration; it has {}",
            known.join(", ")
        ))
    };
    Ok(vec![found.ok_or_else(unknown)?])
}

/// Returns the named channel, or all that have a target, for a command that needs one.
pub(crate) fn chosen_with_target<'a>(
    config: &'a Config,
    channel: Option<&str>,
    command: &str,
) -> Result<Vec<&'a ChannelSettings>, Failure> {
    let mut all = chosen(config, channel)?;
    let refused = all.iter().find_map(|channel| channel.check_target(command).err());
    if channel.is_none() {
        all.retain(|channel| !channel.archives_only());
    }
    match refused.filter(|_| channel.is_some() || all.is_empty()) {
        Some(why) => Err(Failure::Input(why)),
        None => Ok(all),
    }
}

fn options(
    channel: &ChannelSettings,
    arguments: &VerifyArguments,
) -> Result<VerifyOptions, Failure> {
    let source = reader(
        channel,
        arguments.source_user.as_deref(),
        arguments.source_password_file.as_deref(),
    )?;
    Ok(VerifyOptions {
        scope: Scope {
            schemas: arguments.schema.clone(),
            tables: arguments.table.clone(),
            ..Scope::default()
        },
        chunk_rows: arguments.chunk_rows,
        max_rate: arguments.max_rate,
        max_lag: arguments.max_lag,
        common_columns: arguments.common_columns,
        max_differences: arguments.max_differences,
        catch_up_timeout: arguments.catch_up_timeout,
        repair: arguments.repair.is_some(),
        ..VerifyOptions::new(&channel.name, source_servers(&source), (*channel.target).clone())
    })
}

/// Returns the source with the account that reads it.
pub(crate) fn reader(
    channel: &ChannelSettings,
    user: Option<&str>,
    password_file: Option<&Path>,
) -> Result<SourceOptions, Failure> {
    let other = other_reader(channel, user, password_file)?;
    Ok(other.unwrap_or_else(|| channel.source.clone()))
}

/// Returns the source with the command line's user, if it names one.
pub(crate) fn other_reader(
    channel: &ChannelSettings,
    user: Option<&str>,
    password_file: Option<&Path>,
) -> Result<Option<SourceOptions>, Failure> {
    let (Some(user), Some(file)) = (user, password_file) else { return Ok(None) };
    let password = Password::in_file(file).map_err(|error| {
        Failure::Input(format!("--source-password-file: {}: {error}", file.display()))
    })?;
    Ok(Some(SourceOptions { user: user.to_owned(), password, ..channel.source.clone() }))
}

/// Prints the last line for a channel.
fn summary(output: &VerifyOutput, is_taken: bool) {
    let tables = &output.report.tables;
    let rows: u64 = tables.iter().map(|table| table.rows).sum();
    let text = format!(
        "channel {}: {}, {rows} rows compared: {}",
        output.report.channel,
        counted(tables.len() as u64, "table"),
        match output.outcome {
            Some(Outcome::Equal) => "equal",
            Some(Outcome::Unstable) => "equal as far as it was compared",
            Some(Outcome::Different) => "DIFFERENT",
            None => "not finished",
        }
    );
    let VerifyReport { channel, refuses_copies, .. } = &output.report;
    let purpose = match refuses_copies {
        true => "to have statements that repair what differs",
        false => "to copy what differs again",
    };
    let commands = tables.iter().filter_map(|table| table.copy_command(channel, *refuses_copies));
    let commands = commands.map(|command| format!("{purpose}: {command}"));
    for line in std::iter::once(text).chain(commands) {
        if is_taken { eprintln!("{line}") } else { say!("{line}") }
    }
}

fn verdict(outputs: &[VerifyOutput], interrupted: Option<StopSignal>) -> Result<(), Failure> {
    let named = |outcome: Option<Outcome>| -> Vec<String> {
        let found = outputs.iter().filter(|output| output.outcome == outcome);
        found
            .map(|VerifyOutput { report, error, .. }| match error {
                Some(error) => format!("channel {:?}: {error}", report.channel),
                None => format!("channel {:?}", report.channel),
            })
            .collect()
    };
    let failed = named(None);
    let different = named(Some(Outcome::Different));
    let unstable = named(Some(Outcome::Unstable));
    if let Some(signal) = interrupted {
        return Err(Failure::Interrupted { text: failed.join("; "), signal });
    }
    if !failed.is_empty() {
        return Err(Failure::NotCompared(failed.join("; ")));
    }
    if !different.is_empty() {
        return Err(Failure::Different(format!(
            "{}: target differs from source",
            different.join(", ")
        )));
    }
    if !unstable.is_empty() {
        return Err(Failure::NotCompared(format!(
            "{}: not everything could be compared, see above; rows that kept changing may be stable \
             when there is less load",
            unstable.join(", ")
        )));
    }
    Ok(())
}
