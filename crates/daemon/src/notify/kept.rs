//! The state that a receiver knows, on disk: so that a restart of the daemon repeats no event and misses no end of a
//! failure.

use std::fs;
use std::io;
use std::path::Path;

use tracing::{debug, warn};

use super::state::SentState;
use crate::host::replaced_file::replace;

/// A longer file is not ours.
const BYTES_MAX: usize = 64 << 10;

/// Returns `None` where there is no file; a damaged one costs a repeated event at most.
pub(super) fn read(path: &Path) -> Option<SentState> {
    let text = match fs::read(path) {
        Ok(text) if text.len() <= BYTES_MAX => text,
        Ok(_) => return None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            let path = path.display();
            warn!(%path, %error, "the last event is not known: its file can't be read");
            return None;
        }
    };
    serde_json::from_slice(&text).ok()
}

/// Replaces the file as a whole. It is not synced: a power loss may repeat an event.
pub(super) fn write(path: &Path, standing: &SentState) {
    let written = serde_json::to_vec(standing).map_err(io::Error::from);
    let written = written.and_then(|text| replace(path, &text));
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
    fn what_is_written_is_read_and_damage_is_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify.json");
        assert_eq!(read(&path), None);
        for standing in [
            SentState::Well,
            SentState::Failed("1062 u:5".to_owned()),
            SentState::Waiting(ChannelState::WaitingForLock),
        ] {
            write(&path, &standing);
            assert_eq!(read(&path), Some(standing));
        }
        fs::write(&path, "{").expect("written");
        assert_eq!(read(&path), None);
        write(&folder.path().join("not/there.json"), &SentState::Well);
    }
}
