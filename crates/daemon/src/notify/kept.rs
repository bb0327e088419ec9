//! The state that a receiver knows, on disk: so that a restart of the daemon repeats no event and misses no end of a
//! failure.

use std::fs;
use std::io;
use std::path::Path;

use tracing::{debug, warn};

use super::state::SentState;
use crate::host::replaced_file::replace_synced;

/// A longer file is not ours.
const BYTES_MAX: usize = 64 << 10;

/// Returns `None` where there is no file: nothing was sent yet. A file that can't be read may have had a failure, whose
/// end must not be missed.
pub(super) fn read(path: &Path) -> Option<SentState> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        text => text,
    };
    let standing = text.and_then(|text| parse(&text)).unwrap_or_else(|error| {
        let path = path.display();
        warn!(%path, %error, "the state that was sent last can't be read: the next one is sent");
        SentState::Unreadable
    });
    Some(standing)
}

fn parse(text: &[u8]) -> io::Result<SentState> {
    if text.len() > BYTES_MAX {
        return Err(io::Error::other(format!("it is longer than {BYTES_MAX} bytes")));
    }
    Ok(serde_json::from_slice(text)?)
}

/// Replaces the file as a whole. It is on disk before this returns: a power loss that took a failure that was sent would
/// take its end, too. States are few, and no channel waits for them.
pub(super) fn write(path: &Path, standing: &SentState) {
    let written = serde_json::to_vec(standing).map_err(io::Error::from);
    let written = written.and_then(|text| replace_synced(path, &text));
    if let Err(error) = written {
        let path = path.display();
        debug!(%path, %error, "the last event is not kept");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::view::ChannelState;

    #[test]
    fn what_is_written_is_read_and_damage_is_a_state_that_nobody_knows() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify.json");
        assert_eq!(read(&path), None, "nothing was sent yet");
        for standing in [
            SentState::Well,
            SentState::Failed("1062 u:5".to_owned()),
            SentState::Waiting(ChannelState::WaitingForLock),
        ] {
            write(&path, &standing);
            assert_eq!(read(&path), Some(standing));
        }
        let long = format!("\"well\"{}", " ".repeat(BYTES_MAX));
        for damaged in ["", "{", "\"future\"", "\"unreadable\"", &long] {
            fs::write(&path, damaged).expect("written");
            assert_eq!(read(&path), Some(SentState::Unreadable), "{damaged:.20}");
        }
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("created");
        assert_eq!(read(&path), Some(SentState::Unreadable), "the file system's error");
        write(&folder.path().join("not/there.json"), &SentState::Well);
    }
}
