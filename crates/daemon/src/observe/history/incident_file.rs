//! The incidents of a channel on disk, so that a restart of the daemon does not hide them: a file of JSON
//! lines in the channel's part of `state_dir`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use csa_relaystore::disk::make_private;
use tracing::warn;

use super::incidents::Incident;
use crate::host::replaced_file::replace;

/// Far more than the incidents that are kept: a longer file is not ours.
const BYTES_MAX: u64 = 4 << 20;
/// Seconds between two attempts to write, where the disk refuses.
const PAUSE: u64 = 60;

#[derive(Debug, Default)]
pub(super) struct IncidentFile {
    /// `None` keeps nothing.
    path: Option<PathBuf>,
    /// Something is not on disk, and when to try again.
    pub(super) is_due: bool,
    next: u64,
}

impl IncidentFile {
    /// Returns the file in `folder`, the channel's part of `state_dir`.
    pub(super) fn of(folder: Option<PathBuf>) -> Self {
        let path = folder.map(|folder| folder.join("incidents.jsonl"));
        Self { path, ..Self::default() }
    }

    /// Returns what is there. The file only informs, so damage stops nothing: the next incident replaces it.
    pub(super) fn read(&self) -> Vec<Incident> {
        let Some(path) = &self.path else { return Vec::new() };
        read(path).unwrap_or_else(|error| {
            let path = path.display();
            warn!(%path, %error, "earlier incidents are not shown: their file can't be read");
            Vec::new()
        })
    }

    /// Returns where to write, if that is due.
    pub(super) fn due(&mut self, second: u64) -> Option<PathBuf> {
        // The clock may have been set back since the disk refused.
        let pauses = self.next.checked_sub(second).is_some_and(|left| (1..=PAUSE).contains(&left));
        if !self.is_due || pauses {
            return None;
        }
        self.is_due = false;
        self.path.clone()
    }

    /// Notes that the disk has refused.
    pub(super) fn refused(&mut self, second: u64) {
        self.is_due = true;
        self.next = second + PAUSE;
    }
}

/// Returns nothing where there is no file. A line that was cut off, or that another version wrote, costs no other.
fn read(path: &Path) -> io::Result<Vec<Incident>> {
    let text = text(path)?;
    let (mut incidents, mut errors) = (Vec::new(), Vec::new());
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(incident) => incidents.push(incident),
            Err(error) => errors.push(error),
        }
    }
    if let Some(error) = errors.first() {
        let (path, lines) = (path.display(), errors.len());
        warn!(%path, lines, %error, "some earlier incidents are not shown: their lines can't be read");
    }
    Ok(incidents)
}

fn text(path: &Path) -> io::Result<Vec<u8>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    make_private(path);
    let mut text = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// Replaces the file as a whole, so that a crash leaves the old one or the new one. It is not synced: a power
/// loss may cost what it says, and no channel waits for a disk because of it. Lines that this version can't read are gone.
pub(super) fn write<'a>(
    path: &Path,
    incidents: impl Iterator<Item = &'a Incident>,
) -> io::Result<()> {
    let mut text = Vec::new();
    for incident in incidents {
        serde_json::to_writer(&mut text, incident)?;
        text.push(b'\n');
    }
    replace(path, &text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::observe::view::ChannelState;

    fn incident(began: u64) -> Incident {
        let detail = "line\nbreak".to_owned();
        Incident { state: ChannelState::Failed, detail, began, times: 1, ..Incident::default() }
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = IncidentFile::of(Some(folder.path().to_owned()));
        assert!(file.read().is_empty());
        let path = folder.path().join("incidents.jsonl");
        for count in [3, 1] {
            let all: Vec<_> = (0..count).map(incident).collect();
            write(&path, all.iter()).expect("written");
            assert_eq!(file.read(), all);
        }
        let lines = fs::read_to_string(&path).expect("text");
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
    }

    #[test]
    fn a_damaged_line_is_passed_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("incidents.jsonl");
        let file = IncidentFile::of(Some(folder.path().to_owned()));
        let all = [incident(1), incident(2), incident(3)];
        write(&path, all.iter()).expect("written");
        let whole = fs::read(&path).expect("bytes");
        fs::write(&path, &whole[..whole.len() - 9]).expect("written");
        assert_eq!(file.read(), all[..2], "a crash has cut the last one off");
        let lines: Vec<&[u8]> = whole.split(|byte| *byte == b'\n').collect();
        let damages: [&[u8]; 5] = [b"\xff\xfe", b"[]", b"{\"state\":\"future\"}", b"7", b""];
        for damage in damages {
            fs::write(&path, [lines[0], damage, lines[2]].join(&b'\n')).expect("written");
            assert_eq!(file.read(), [incident(1), incident(3)], "{damage:?}");
            fs::write(&path, damage).expect("written");
            assert_eq!(file.read(), [], "{damage:?}");
        }
    }

    #[test]
    fn a_disk_that_refuses_is_asked_again_later() {
        let mut file = IncidentFile::of(Some(PathBuf::from("/proc/none")));
        assert_eq!(file.due(1), None, "nothing is new");
        file.is_due = true;
        let path = file.due(1).expect("a path");
        assert!(write(&path, std::iter::empty()).is_err());
        file.refused(1);
        assert_eq!((file.due(2), file.due(61)), (None, Some(path)));
        assert_eq!(file.due(62), None, "it is written");
        file.refused(5000);
        assert_eq!(file.due(5001), None);
        assert!(file.due(100).is_some(), "the clock was set back");
    }
}
