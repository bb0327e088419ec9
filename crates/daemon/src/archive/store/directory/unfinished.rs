//! Files that were not written to their end. The library gives them the name `NAME#NUMBER` until then, and hides them from
//! every list, so they are looked for here.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::archive::layout;
use crate::host::now_micros;

/// The age after which nobody is writing to a file any more, whatever its number.
const UNTOUCHED: Duration = Duration::from_secs(3600);

/// Deletes what a killed daemon has left of files in a folder: those below the number of the `next` file, and those that
/// nobody has written to for long. Returns the number of deleted ones. Blocks.
pub(super) fn remove_left(folder: &Path, next: u64) -> io::Result<usize> {
    remove(folder, |name, entry| {
        let number = layout::file_number(name).or_else(|| layout::index_number(name));
        let is_untouched = || {
            let changed = entry.metadata().and_then(|file| file.modified());
            changed.is_ok_and(|changed| changed + UNTOUCHED < now())
        };
        number.is_some_and(|number| number < next || is_untouched())
    })
}

/// Deletes what is left of one file. Blocks.
pub(super) fn remove_of(path: &Path) -> io::Result<usize> {
    let Some((folder, name)) = path.parent().zip(path.file_name()) else { return Ok(0) };
    remove(folder, |found, _| name == found)
}

/// `is_left` is asked with the name that the file would have got.
fn remove(folder: &Path, is_left: impl Fn(&str, &fs::DirEntry) -> bool) -> io::Result<usize> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut removed = 0;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().and_then(whole_name).is_some_and(|name| is_left(name, &entry)) {
            fs::remove_file(entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(now_micros())
}

/// Returns the name of the whole file; `None` if this one is whole.
fn whole_name(name: &str) -> Option<&str> {
    let (whole, number) = name.rsplit_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_writes_any_more_is_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path().join("history");
        assert_eq!(remove_left(&folder, 9).expect("nothing there"), 0);
        fs::create_dir(&folder).expect("created");
        let old = now() - 2 * UNTOUCHED;
        for (name, is_old) in [
            ("00000003-00000007.binlog", true),
            ("00000003-00000007.binlog#1", false),
            ("00000004-00000007.binlog.zst#12", false),
            ("00000004.json#1", false),
            ("00000005-00000007.binlog#1", false),
            ("00000005-00000008.binlog#1", true),
            ("of somebody else#1", true),
            ("00000001-00000007.binlog#", true),
        ] {
            let file = fs::File::create(folder.join(name)).expect("created");
            if is_old {
                file.set_modified(old).expect("a time");
            }
        }
        assert_eq!(remove_left(&folder, 5).expect("deleted"), 4);
        let names = || {
            let entries = fs::read_dir(&folder).expect("readable");
            let names = entries.map(|entry| entry.expect("an entry").file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().expect("UTF-8")).collect();
            names.sort();
            names
        };
        let kept = [
            "00000001-00000007.binlog#",
            "00000003-00000007.binlog",
            "00000005-00000007.binlog#1",
            "of somebody else#1",
        ];
        assert_eq!(names(), kept);
        assert_eq!(remove_of(&folder.join("00000005-00000007.binlog")).expect("deleted"), 1);
        assert!(!names().contains(&"00000005-00000007.binlog#1".to_owned()));
    }
}
