//! `adopt`: a channel takes the place of another on its target, while neither runs.

use std::path::Path;

use csa_applier::{AuditEntry, Target};
use csa_provider::server::by_hand::UNLOGGED;
use csa_provider::sql_text::quote;
use csa_relaystore::disk::RelayStoreOptions;
use csa_relaystore::read::RelayInspector;

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
    let runtime = runtime()?;
    let adopted = runtime.block_on(csa_applier::adopt(target, from, &entry));
    let checkpoint = adopted.map_err(|error| Failure::Runtime(error.to_string()))?;
    say!(
        "channel {name} has the checkpoint of channel {from}, on target {}: {}",
        target.address(),
        checkpoint.executed
    );
    let journal = match other_of_pair(&config, settings) {
        Some(other) => runtime
            .block_on(csa_applier::adopt_move(other, from, name))
            .map_err(|error| journal_by_hand(&other.address(), from, name, &error)),
        None => Ok(()),
    };
    match (move_state(&settings.relay, from), journal) {
        (Ok(said), journal) => {
            if let Some(said) = said {
                say!("{said}");
            }
            journal.map_err(Failure::Runtime)
        }
        (Err(why), Ok(())) => Err(Failure::Runtime(why)),
        (Err(why), Err(also)) => Err(Failure::Runtime(format!("{why}; also: {also}"))),
    }
}

/// Returns the server to which the applications of a pair go back. It has the journal of that.
fn other_of_pair<'a>(config: &'a Config, settings: &ChannelSettings) -> Option<&'a Target> {
    let back = &settings.moving.as_ref()?.back;
    let down = config.channels.iter().find(|channel| channel.name == *back)?;
    (!down.archives_only()).then_some(&down.target)
}

fn journal_by_hand(address: &str, from: &str, name: &str, error: &csa_applier::Error) -> String {
    let (old, new) = (quote(from), quote(name));
    format!(
        "{address} may have the journal of a move of channel {from} still: {error}; run there: {UNLOGGED}UPDATE csa.move SET \
         channel={new} WHERE channel={old}"
    )
}

/// The source may have purged what the other channel received and did not apply yet. A crash before
/// the rename leaves the store under its old name; the channel then fetches from the source again.
///
/// # Errors
/// The relay store, or the journal of a move, has to be moved by hand, as the text says.
fn move_state(relay: &RelayStoreOptions, from: &str) -> Result<Option<String>, String> {
    let Some(new) = relay.directory.parent() else { return Ok(None) };
    let old = new.with_file_name(from);
    if !old.is_dir() {
        return Ok(None);
    }
    if !new.exists() {
        return moved(&old, new, from);
    }
    // The daemon made the folder before it refused the start under the new name. Neither part may hide what is to be done
    // about the other one.
    let journal = move_journal(&old.join("move.json"), &new.join("move.json"), from);
    match (journal, move_relay(relay, &old, new, from)) {
        (Ok(()), moved) => moved,
        (Err(why), Ok(None)) => Err(why),
        (Err(why), Ok(Some(said)) | Err(said)) => Err(format!("{said}; also: {why}")),
    }
}

/// Moves the relay store from the folder `old` into the folder `new`, which is there.
///
/// # Errors
/// It has to be moved by hand, as the text says.
fn move_relay(
    relay: &RelayStoreOptions,
    old: &Path,
    new: &Path,
    from: &str,
) -> Result<Option<String>, String> {
    let received = RelayStoreOptions { directory: old.join("relay"), ..relay.clone() };
    if has_segments(&received) == Ok(false) {
        return Ok(None);
    }
    match has_segments(relay) {
        Ok(false) => {}
        Ok(true) => {
            let why = "that one has received something, too";
            return Err(by_hand(&received.directory, &relay.directory, from, why));
        }
        Err(why) => return Err(by_hand(&received.directory, &relay.directory, from, &why)),
    }
    // Only its lock may be in it. The rename says so where it is not empty then.
    drop(std::fs::remove_file(relay.directory.join("lock")));
    let said = moved(&received.directory, &relay.directory, from)?;
    // Without it, nothing is received until the target answers.
    drop(std::fs::rename(old.join("foreign.json"), new.join("foreign.json")));
    Ok(said)
}

/// Moves the journal of a move, without which that could be neither continued nor undone. The target keeps the one of
/// `from`, so another one must not stay in its place.
fn move_journal(old: &Path, new: &Path, from: &str) -> Result<(), String> {
    if !old.exists() {
        return Ok(());
    }
    let refused = match new.exists() {
        true => Err("that one is there, too, and is of another move".to_owned()),
        false => std::fs::rename(old, new).map_err(|error| error.to_string()),
    };
    refused.map_err(|why| {
        let aside = aside(new);
        let (old, new) = (old.display(), new.display());
        format!(
            "{old} is the journal of a move of channel {from}. It is not moved to {new}: {why}; run as the daemon's user: \
             {aside}mv {old} {new}"
        )
    })
}

/// Returns the command that keeps what a `mv` to this path would replace.
fn aside(new: &Path) -> String {
    let (is_there, new) = (new.exists(), new.display());
    if is_there { format!("mv {new} {new}.before && ") } else { String::new() }
}

fn has_segments(relay: &RelayStoreOptions) -> Result<bool, String> {
    let found = RelayInspector::open(relay).map_err(|error| error.to_string())?;
    Ok(!found.is_empty())
}

fn moved(old: &Path, new: &Path, from: &str) -> Result<Option<String>, String> {
    match std::fs::rename(old, new) {
        Ok(()) => Ok(Some(format!("{} is now {}", old.display(), new.display()))),
        Err(error) => Err(by_hand(old, new, from, &error.to_string())),
    }
}

/// Returns why a folder is not moved, and the commands that move it.
fn by_hand(old: &Path, new: &Path, from: &str, why: &str) -> String {
    let aside = aside(new);
    let (old, new) = (old.display(), new.display());
    format!(
        "{old} holds what channel {from} had received. It is not moved to {new}: {why}. The source may have purged \
         it, so stop the daemon and run as its user, before you start the channel: {aside}mv {old} {new}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::MINIMAL;

    #[test]
    fn a_relay_store_is_moved_into_a_folder_that_is_there_and_never_over_another() {
        let state = tempfile::tempdir().unwrap();
        let (old, new) = (state.path().join("orders"), state.path().join("shop"));
        let settings = Config::parse(MINIMAL).unwrap().channels.remove(0);
        let relay = RelayStoreOptions { directory: new.join("relay"), ..settings.relay };
        let segment = "relay/segment-0000000000000001.relay";
        let write = |path: &Path, text: &str| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(move_state(&relay, "orders"), Ok(None), "it is on another host");
        // The daemon has refused the start under the new name.
        for file in [segment, "foreign.json", "move.json", "replica_uuid"] {
            write(&old.join(file), "old");
        }
        for file in ["relay/lock", "replica_uuid"] {
            write(&new.join(file), "new");
        }
        let said = move_state(&relay, "orders").unwrap().unwrap();
        assert!(said.contains("orders/relay is now"), "{said}");
        let read = |file: &str| std::fs::read_to_string(new.join(file)).unwrap();
        assert_eq!([segment, "foreign.json", "replica_uuid"].map(read), ["old", "old", "new"]);
        assert_eq!(read("move.json"), "old");
        assert_eq!(move_state(&relay, "orders"), Ok(None), "nothing is left there");
        // The new name has received something.
        write(&old.join(segment), "older");
        let why = move_state(&relay, "orders").unwrap_err();
        let (one, other) = (old.join("relay"), new.join("relay"));
        let (one, other) = (one.display(), other.display());
        assert!(why.ends_with(&format!("mv {other} {other}.before && mv {one} {other}")), "{why}");
        assert_eq!(read(segment), "old");
        // Both names have had a move.
        write(&old.join("move.json"), "older");
        let both = move_state(&relay, "orders").unwrap_err();
        assert!(both.starts_with(&format!("{why}; also: ")), "{both}");
        let journal = |folder: &Path| folder.join("move.json").display().to_string();
        let (one, other) = (journal(&old), journal(&new));
        assert!(
            both.ends_with(&format!("mv {other} {other}.before && mv {one} {other}")),
            "{both}"
        );
        assert_eq!(read("move.json"), "old");
        std::fs::remove_dir_all(old.join("relay")).unwrap();
        let why = move_state(&relay, "orders").unwrap_err();
        assert!(why.starts_with(&format!("{one} is the journal")), "{why}");
    }
}
