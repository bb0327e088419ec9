//! The daemon's identity for a channel, and in a fleet: a UUID made once and kept in the state directory.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use csa_applier::StartFrom;
use csa_provider::binlog::Uuid;
use csa_relaystore::disk::{create_private_folder, in_place, make_private};

use super::error::ChannelError;
use crate::host::replaced_file::replace_synced;

/// The fix where the file of the UUID is of no use. A new UUID in its place would hide that, and the daemon's own
/// sessions would seem to be those of another one.
const FIX: &str =
    "give it back to the daemon's user, or delete it: the daemon then makes a new identity";

/// Names a channel's sessions on the target, over restarts. No other process of this host has it while
/// this value exists, so a session of this name from this host is one that was left behind.
#[derive(Debug)]
pub(crate) struct Identity {
    name: String,
    _lock: File,
}

impl Identity {
    /// Fails at once if the lock is taken: the state directory has one user.
    pub(crate) fn claim(directory: &Path) -> Result<Self, ChannelError> {
        let uuid = replica_uuid(directory)?;
        let path = directory.join("replica_uuid");
        let wrong = |error: &dyn std::fmt::Display| {
            ChannelError::State(format!("{}: {error}", path.display()))
        };
        // The kernel releases the lock with the process, however that ends.
        let lock = File::open(&path).map_err(|error| wrong(&error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { name: name(&uuid, &host(), &machine()), _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                Err(wrong(&"another process uses this state directory"))
            }
            Err(TryLockError::Error(error)) => Err(wrong(&error)),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Returns the name under which a channel writes to its archive. A daemon on another host has another one.
pub(super) fn writer(directory: &Path) -> Result<String, ChannelError> {
    Ok(name(&replica_uuid(directory)?, &host(), &machine()))
}

/// Includes the host and the machine: a copy of the state directory elsewhere must not pass for this daemon.
fn name(uuid: &Uuid, host: &str, machine: &str) -> String {
    let digest = host
        .bytes()
        .chain(machine.bytes())
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{uuid}@{digest:08x}")
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default()
}

/// Returns the machine's ID, which a host of the same name does not have; empty where there is none.
fn machine() -> String {
    let text = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    // Until systemd has chosen it, the file has this word.
    match text.trim() {
        "uninitialized" => String::new(),
        id => id.to_owned(),
    }
}

/// Reads the UUID, or makes a new one. File and folder are synced before it is used: a crash
/// leaves none or a whole one, and never loses one that a server has seen.
pub(super) fn replica_uuid(directory: &Path) -> Result<Uuid, ChannelError> {
    in_place(|| read_or_made(directory))
}

fn read_or_made(directory: &Path) -> Result<Uuid, ChannelError> {
    let path = directory.join("replica_uuid");
    let wrong =
        |error: &dyn std::fmt::Display| ChannelError::State(format!("{}: {error}", path.display()));
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            // This file proves that the folder is ours.
            make_private(directory);
            make_private(&path);
            return Uuid::parse_str(text.trim())
                .map_err(|error| wrong(&format!("it is not a UUID ({error}); {FIX}")));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(wrong(&format!("{error}; {FIX}"))),
    }
    let uuid = Uuid::new_v4();
    create_private_folder(directory)
        .and_then(|()| replace_synced(&path, format!("{uuid}\n").as_bytes()))
        .map_err(|error| wrong(&error))?;
    Ok(uuid)
}

/// The identity that takes the channel, and where it begins without a checkpoint.
#[derive(Debug)]
pub(super) struct Taking {
    pub(super) identity: Identity,
    pub(super) start: StartFrom,
    /// The channel had a checkpoint while this run lasted: it still has one, or something is wrong.
    pub(super) was_held: bool,
    /// The servers' warnings have been logged.
    pub(super) has_warned: bool,
    /// A whole copy was made that is not compared yet.
    pub(super) has_copied: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_stays_and_has_one_user_at_a_time() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let first = Identity::claim(directory.path()).expect("free");
        let said = Identity::claim(directory.path()).expect_err("in use").to_string();
        assert!(said.contains("another process uses"), "{said}");
        let name = first.name().to_owned();
        drop(first);
        assert_eq!(Identity::claim(directory.path()).expect("free again").name(), name);
    }

    #[test]
    fn a_copy_on_another_host_is_somebody_else() {
        let uuid = Uuid::new_v4();
        assert_ne!(name(&uuid, "db1", "m"), name(&uuid, "db2", "m"));
        assert_ne!(name(&uuid, "db1", "m"), name(&uuid, "db1", "n"));
        assert_eq!(name(&uuid, "db1", "").len(), 45);
    }

    #[test]
    fn a_uuid_that_cannot_be_read_is_never_replaced() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("replica_uuid");
        for contents in [&b""[..], b"x\n", b"\xff\xfe"] {
            std::fs::write(&path, contents).expect("written");
            let said = replica_uuid(directory.path()).expect_err("refused").to_string();
            assert!(said.contains("replica_uuid") && said.contains(FIX), "{said}");
            assert_eq!(std::fs::read(&path).expect("still there"), contents);
        }
        std::fs::remove_file(&path).expect("deleted");
        std::fs::create_dir(&path).expect("a folder in its place");
        let said = replica_uuid(directory.path()).expect_err("refused").to_string();
        assert!(said.contains(FIX), "{said}");
        std::fs::remove_dir(&path).expect("deleted");
        let made = replica_uuid(directory.path()).expect("a new one");
        assert_eq!(replica_uuid(directory.path()).expect("the same"), made);
    }
}
