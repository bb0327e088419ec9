//! `adopt`: a channel takes the place of another on its target, while neither runs.

use std::path::Path;

use csa_applier::AuditEntry;

use super::output::say;
use super::verify::chosen_with_target;
use crate::config::{ChannelSettings, Config};
use crate::host::{Failure, now_micros, runtime};

/// Moves the checkpoint of channel `from`, and its relay store if it is on this host, to the named
/// channel or to the only one in the file.
pub(crate) fn adopt(path: &Path, channel: Option<&str>, from: &str) -> Result<(), Failure> {
    let config = Config::load(path)?;
    let channels = chosen_with_target(&config, channel, "adopt")?;
    let [settings] = channels.as_slice() else {
        let names: Vec<&str> = channels.iter().map(|channel| channel.name.as_str()).collect();
        let names = names.join(", ");
        return Err(Failure::Input(format!(
            "--channel NAME: name the adopting channel, one of {names}"
        )));
    };
    if config.channels.iter().any(|channel| channel.name == from) {
        return Err(Failure::Input(format!(
            "--from {from}: this channel is in {} too, and would start without its checkpoint; take it \
             out of there first",
            path.display()
        )));
    }
    let (target, name) = (&settings.target, settings.name.as_str());
    let entry = AuditEntry {
        channel: name.to_owned(),
        at: now_micros(),
        action: "adopt".to_owned(),
        by: std::env::var("USER").unwrap_or_else(|_| "unknown".to_owned()),
        peer: format!("process {} of this host", std::process::id()),
        detail: format!("from {from}"),
        ..AuditEntry::default()
    };
    let adopted = runtime()?.block_on(csa_applier::adopt(target, from, &entry));
    let checkpoint = adopted.map_err(|error| Failure::Runtime(error.to_string()))?;
    say!(
        "channel {name} has the checkpoint of channel {from}, on target {}: {}",
        target.address(),
        checkpoint.executed
    );
    if let Some(said) = move_state(settings, from) {
        say!("{said}");
    }
    Ok(())
}

/// The source may have purged what the other channel received and did not apply yet. A crash before
/// the rename leaves the store under its old name; the channel then fetches from the source again.
fn move_state(settings: &ChannelSettings, from: &str) -> Option<String> {
    let new = settings.relay.directory.parent()?;
    let old = new.with_file_name(from);
    if !old.is_dir() {
        return None;
    }
    let (old_shown, new_shown) = (old.display(), new.display());
    if new.exists() {
        return Some(format!(
            "{old_shown} holds what channel {from} had received; it is not moved, because {new_shown} \
             exists"
        ));
    }
    Some(match std::fs::rename(&old, new) {
        Ok(()) => format!("{old_shown} is now {new_shown}"),
        Err(error) => format!(
            "{old_shown} holds what channel {from} had received; moving it to {new_shown}: {error}"
        ),
    })
}
