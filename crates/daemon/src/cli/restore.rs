//! `restore`: its command line.

use std::io::{Stdout, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use csa_applier::TargetOptions;
use csa_provider::binlog::GtidSet;
use csa_provider::server::link::Password;
use csa_scheduler::filter::{FilterRules, service_tables};
use tokio_util::sync::CancellationToken;

use super::archive::{location, only};
use super::output::say;
use super::screen::Screen;
use crate::archive::replay::RecordedPlace;
use crate::cli::arguments::{RestoreArguments, RestoreEnd};
use crate::config::{ChannelSettings, Config, written_rules};
use crate::host::{Failure, StopSignals, counted, logging, runtime};
use crate::observe::view::{ApplierView, ChannelState, ChannelView};
use crate::restore::{self, Planned, Restored, Wanted};

/// Restores into the target of one channel.
pub(crate) fn restore(
    path: &Path,
    channel: Option<&str>,
    arguments: &RestoreArguments,
) -> Result<(), Failure> {
    let config = Config::load(path)?;
    let chosen = only(&config, channel)?;
    let place = place(chosen, arguments)?;
    let settings = settings(&config, chosen, arguments)?;
    let wanted = match (&arguments.until, &arguments.before) {
        (Some(RestoreEnd::Time(time)), _) => Wanted::BeforeTime(*time),
        (Some(RestoreEnd::Gtids(set)), _) => Wanted::After(set.clone()),
        (None, Some(set)) => Wanted::Before(set.clone()),
        (None, None) => Wanted::Everything,
    };
    // Warnings and errors of the channel, and nothing that the lines below say.
    logging::init("warn", config.daemon.log_format)?;
    runtime()?.block_on(async {
        let planned = restore::plan(settings, place, wanted).await?;
        show_plan(&planned);
        if arguments.plan {
            say!("nothing was applied");
            return Ok(());
        }
        let target = planned.settings.target.address();
        let again = again(&planned);
        let (stop, kill) = ends(config.daemon.stop_timeout.0)?;
        let mut screen = Screen::new(stdout());
        let observe = |view: &ChannelView| {
            if !arguments.quiet {
                show(&mut screen, view);
            }
        };
        let restored = restore::restore(planned, stop, kill, observe).await;
        screen.clear();
        let restored = restored?;
        finished(&restored, &target);
        match restored.is_whole {
            true => Ok(()),
            false => Err(Failure::Runtime(format!("stopped; {again} continues"))),
        }
    })
}

/// Returns two ends: the first signal stops, and the second one, or the time that the daemon's channels have, gives up
/// what still runs.
fn ends(patience: Duration) -> Result<(CancellationToken, CancellationToken), Failure> {
    let mut signals = StopSignals::listen()?;
    let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
    let ends = (stop.clone(), kill.clone());
    tokio::spawn(async move {
        signals.next().await;
        stop.cancel();
        signals.then_kill(kill, patience);
        say!("stopping: finishing running groups; another signal gives them up");
    });
    Ok(ends)
}

fn place(
    channel: &ChannelSettings,
    arguments: &RestoreArguments,
) -> Result<RecordedPlace, Failure> {
    if let Some(directory) = &arguments.binlogs {
        return Ok(RecordedPlace::Binlogs(directory.clone()));
    }
    Ok(RecordedPlace::Archive {
        location: location(channel, &arguments.place)?,
        channel: channel.name.clone(),
        history: arguments.place.history.clone(),
    })
}

/// Returns the channel's settings with another target and a relay store of its own.
fn settings(
    config: &Config,
    channel: &ChannelSettings,
    arguments: &RestoreArguments,
) -> Result<ChannelSettings, Failure> {
    let mut settings = channel.clone();
    let named = arguments.to.is_some() && arguments.target_user.is_some();
    if channel.archives_only() && !named {
        return Err(Failure::Input(format!(
            "channel {} has no [channel.target]: name the server and the account to restore with --to, --target-user and \
             --target-password-file",
            channel.name
        )));
    }
    if let Some((host, port)) = &arguments.to {
        settings.target = settings.target.at(host, *port);
    }
    if let (Some(user), Some(file)) = (&arguments.target_user, &arguments.target_password_file) {
        let password = Password::in_file(file).map_err(|error| {
            Failure::Input(format!("--target-password-file: {}: {error}", file.display()))
        })?;
        let target = (*settings.target).clone();
        settings.target = TargetOptions { user: user.clone(), password, ..target }.into();
    }
    // Without a target the channel can't say it, and the restored server is to be as the source was.
    let configured = settings.filters.accounts || channel.archives_only();
    settings.filters.accounts = arguments.accounts.unwrap_or(configured);
    if channel.archives_only() {
        // Nobody else has these tables, nor can make them.
        settings.filters.wild_ignore_table.extend(service_tables());
    }
    let state = state_directory(&config.daemon.state_dir, arguments.state_dir.as_deref())?;
    settings.relay.directory = state.join(&settings.name).join("relay");
    Ok(settings)
}

/// Returns the directory for the folder of the restore.
fn state_directory(of_daemon: &Path, asked: Option<&Path>) -> Result<PathBuf, Failure> {
    let Some(asked) = asked else { return Ok(of_daemon.join("restore")) };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // An interrupted restore would leave its relay store where the daemon looks for that of the channel.
    if real(asked) == real(of_daemon) {
        return Err(Failure::Input(format!(
            "--state-dir {}: there the daemon keeps the state of its channels; give another --state-dir",
            asked.display()
        )));
    }
    Ok(asked.to_owned())
}

fn show_plan(planned: &Planned) {
    let Planned { settings, executed, extent, is_short, one_of_several, .. } = planned;
    say!("target {} has {}", settings.target.address(), brief(executed));
    if let Some(history) = one_of_several {
        say!("applying history {history}; if this is interrupted, {} continues", again(planned));
    }
    say!("{} ends with {}", settings.source.host, brief(&extent.end));
    if !extent.last_committed.is_empty() {
        say!("its last transaction was committed at {}", extent.last_committed);
    }
    if let Some(gap) = &extent.gap {
        say!(
            "after {} it lacks {}: nothing is applied from there on",
            brief(&gap.reached),
            gap.missing.brief()
        );
    }
    if *is_short {
        say!("that is before the time that was asked for: everything there is will be applied");
    }
    if let Some(until) = &settings.until {
        say!("applying until {until}");
    }
    for line in left_out_by(&settings.filters) {
        say!("{line}");
    }
}

/// Returns what the rules of a channel leave out or rename, in lines for people.
fn left_out_by(rules: &FilterRules) -> Vec<String> {
    let mut lines = Vec::new();
    if !rules.accounts {
        lines.push(
            "leaving out account management (CREATE USER, GRANT and the like); --accounts applies it".to_owned(),
        );
    }
    if !rules.is_empty() {
        let others = FilterRules { accounts: false, ..rules.clone() };
        lines.push(format!(
            "with the filters and renames of the channel: {}",
            written_rules(&others)
        ));
    }
    lines
}

/// Returns the command that continues when this one is interrupted.
fn again(planned: &Planned) -> String {
    match &planned.one_of_several {
        None => "the same command".to_owned(),
        Some(history) => format!("the same command with --history {history}"),
    }
}

fn brief(set: &GtidSet) -> String {
    if set.is_empty() { "no transaction".to_owned() } else { set.brief() }
}

fn finished(restored: &Restored, target: &str) {
    let Restored { view, elapsed, is_whole } = restored;
    let seconds = elapsed.as_secs_f64().max(1e-3);
    let applied = view.applied_transactions_total;
    say!(
        "{} applied in {seconds:.1} s ({:.0}/s); target {target} has {}",
        counted(applied, "transaction"),
        applied as f64 / seconds,
        view.applied_transaction_set
    );
    if let Some(left_out) = left_out(&view.applier) {
        say!("left out: {left_out}");
    }
    if *is_whole {
        say!("{}", view.state_detail);
    }
}

/// Counts the transactions that were left out, or a part of them, by kind; `None` if there are none.
fn left_out(applier: &ApplierView) -> Option<String> {
    let kinds = [
        (applier.accounts_left_out_total, "with account management, which --accounts applies"),
        (applier.own_left_out_total, "about schema csa"),
        (applier.returned_left_out_total, "that came back to the target"),
    ];
    let counts: Vec<_> = kinds
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| format!("{} {kind}", counted(count, "transaction")))
        .collect();
    (!counts.is_empty()).then(|| counts.join("; "))
}

fn show(screen: &mut Screen<Stdout>, view: &ChannelView) {
    if view.state == ChannelState::Stopped {
        return;
    }
    match screen.is_terminal {
        true => screen.draw(&[progress(view)]),
        false => screen.line(&progress(view), false),
    }
}

/// Returns how far a restore is. The position is the time at which the source committed what is applied next.
fn progress(view: &ChannelView) -> String {
    let applied = counted(view.applied_transactions_total, "transaction");
    let rate = view.applied_transactions_per_second.map(|rate| format!(", {rate:.0}/s"));
    let rate = rate.unwrap_or_default();
    match (view.state, view.lag_seconds) {
        (ChannelState::Running, Some(lag)) => {
            let now = crate::host::now_micros();
            let at = crate::host::rfc3339(now.saturating_sub((lag * 1e6) as u64));
            let at = at.split('.').next().unwrap_or_default();
            format!("{applied} applied{rate}, the source's time is {at}Z")
        }
        (ChannelState::Running, None) => format!("{applied} applied{rate}"),
        _ => view.state_detail.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_said() {
        let rules = FilterRules {
            ignore_db: vec!["scratch".to_owned()],
            rewrite_db: vec![("shop".to_owned(), "copy".to_owned())],
            ..FilterRules::default()
        };
        let said = left_out_by(&rules).join("\n");
        for word in ["--accounts", "scratch", "replicate_rewrite_db", "copy"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        let all = FilterRules { accounts: true, ..FilterRules::default() };
        assert_eq!(left_out_by(&all), Vec::<String>::new());
        assert_eq!(left_out(&ApplierView::default()), None);
        let applier = ApplierView {
            accounts_left_out_total: 2,
            returned_left_out_total: 1,
            ..ApplierView::default()
        };
        let said = left_out(&applier).expect("three");
        assert!(said.starts_with("2 transactions with account management"), "{said}");
        assert!(said.ends_with("; 1 transaction that came back to the target"), "{said}");
    }

    #[test]
    fn the_state_of_the_daemon_is_elsewhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let (state, link) = (folder.path().join("state"), folder.path().join("link"));
        std::fs::create_dir(&state).expect("created");
        std::os::unix::fs::symlink(&state, &link).expect("a link");
        let place = |asked: Option<&Path>| state_directory(&state, asked);
        assert_eq!(place(None).expect("the default"), state.join("restore"));
        let other = folder.path().join("other");
        assert_eq!(place(Some(&other)).expect("another one"), other);
        for same in [&state, &link] {
            let said = place(Some(same)).expect_err("the daemon's").to_string();
            assert!(said.contains("another --state-dir"), "{said}");
        }
    }
}
