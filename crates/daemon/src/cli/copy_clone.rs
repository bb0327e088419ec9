//! `copy --clone`: the clone plugin makes the target.

use std::path::Path;

use csa_applier::TargetOptions;
use csa_provider::server::link::Password;
use csa_provider::server::visible::one_line;

use super::arguments::CopyArguments;
use super::copy::options;
use super::output::say;
use super::verify::chosen_with_target;
use crate::channel::forget_comparisons;
use crate::config::Config;
use crate::copy::{CloneOptions, CloneSummary, clone};
use crate::host::{Failure, runtime};

/// Makes the target of one channel a clone of its source.
pub(crate) fn copy_clone(
    path: &Path,
    channel: Option<&str>,
    arguments: &CopyArguments,
) -> Result<(), Failure> {
    let config = Config::load(path)?;
    let channels = chosen_with_target(&config, channel, "copy")?;
    let [settings] = channels.as_slice() else {
        return Err(Failure::Input("--clone: name the channel with --channel".to_owned()));
    };
    let (Some(user), Some(file)) = (&arguments.target_user, &arguments.target_password_file) else {
        return Err(Failure::Input("--clone: --target-user and --target-password-file".to_owned()));
    };
    let password = Password::in_file(file).map_err(|error| {
        Failure::Input(format!("--target-password-file: {}: {error}", file.display()))
    })?;
    let sources = options(settings, arguments)?.sources;
    let Some(source) = sources.into_iter().next() else {
        return Err(Failure::Input(format!("channel {}: it names no source", settings.name)));
    };
    let account = TargetOptions::clone(&settings.target);
    let target = TargetOptions { user: user.clone(), password, ..account.clone() };
    let source = TargetOptions::clone(&source);
    let (relay, until) = (settings.relay.clone(), settings.until.clone());
    let options = CloneOptions { source, target, account, relay, until };
    let tell = |text: &str| eprintln!("{}", one_line(text));
    let cloned = runtime()?
        .block_on(clone(&options, &tell))
        .map_err(|error| Failure::Runtime(format!("channel {:?}: {error}", settings.name)))?;
    forget_comparisons(settings.directory());
    let CloneSummary { bytes, elapsed, executed, not_granted } = cloned;
    for refused in not_granted {
        eprintln!("not granted: {}", one_line(&refused));
    }
    let seconds = elapsed.as_secs_f64().max(1e-3);
    let size = bytes as f64 / f64::from(1 << 20);
    say!(
        "channel {}: {size:.1} MiB cloned in {seconds:.1} s ({:.1} MiB/s)",
        settings.name,
        size / seconds
    );
    say!("the target holds the source's transactions {executed}, after which the channel begins");
    say!("its accounts are the source's now; csa-daemon check --connect says what is left to do");
    Ok(())
}
