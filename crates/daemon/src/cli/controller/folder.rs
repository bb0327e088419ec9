//! The files that the daemon reads: `csa-daemon.toml`, `conf.d/NAME.toml`, and `secrets`. Each is replaced whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use csa_relaystore::disk::create_private_file;

use super::resource_status::Problem;
use crate::config::Config;

const MAIN: &str = "csa-daemon.toml";
/// Files are tried here before the daemon sees them.
const TRIAL: &str = ".trial";

/// The text of each channel's file.
pub(super) type ChannelFiles = BTreeMap<String, String>;
/// The text that each resource asks for, or the reason why its file stays as it is.
pub(super) type Wanted = BTreeMap<String, Result<String, Problem>>;

#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
}

impl Folder {
    /// # Errors
    /// A folder can't be made.
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        for folder in ["conf.d", "secrets"] {
            make(&root.join(folder))?;
        }
        // The files name each other, for a daemon that may run elsewhere.
        Ok(Self { root: root.canonicalize()? })
    }

    pub(super) fn main(&self) -> PathBuf {
        self.root.join(MAIN)
    }

    pub(super) fn secrets(&self) -> PathBuf {
        self.root.join("secrets")
    }

    pub(super) fn channel(&self, name: &str) -> PathBuf {
        self.root.join("conf.d").join(format!("{name}.toml"))
    }

    /// Names of the channels that have files.
    pub(super) fn channels(&self) -> io::Result<BTreeSet<String>> {
        let names = names(&self.root.join("conf.d"))?.into_iter();
        Ok(names.filter_map(|name| name.strip_suffix(".toml").map(str::to_owned)).collect())
    }

    /// The daemon would accept these files, with no others.
    ///
    /// # Errors
    /// The daemon's own message, or that of the disk.
    fn accepts(&self, main: &str, channels: &ChannelFiles) -> Result<(), String> {
        let trial = self.root.join(TRIAL);
        let conf = trial.join("conf.d");
        let mut channels = channels.iter();
        let outcome = make(&conf)
            .and_then(|()| write(&trial.join(MAIN), main.as_bytes()))
            .and_then(|()| {
                channels.try_for_each(|(name, text)| {
                    write(&conf.join(format!("{name}.toml")), text.as_bytes())
                })
            })
            .map_err(|error| format!("{}: {error}", trial.display()))
            .and_then(|()| Config::load(&trial.join(MAIN)).map_err(|error| error.0));
        let removed = fs::remove_dir_all(&trial).map_err(|error| error.to_string());
        // A place in a file that no user has ever seen says nothing to him.
        let place = format!("{}/", trial.display());
        outcome.map_err(|why| why.replace(&place, "")).and(removed)
    }

    /// Returns the files that the daemon would accept beside this main file. A channel whose new file it would not accept
    /// keeps the one before, and `wanted` gets the reason.
    ///
    /// # Errors
    /// The main file is wrong, or a file that stays does not fit it.
    pub(super) fn fitting(&self, main: &str, wanted: &mut Wanted) -> Result<ChannelFiles, String> {
        self.accepts(main, &ChannelFiles::new())?;
        let mut files = ChannelFiles::new();
        for (name, text) in wanted {
            let alone = text.clone().map(|text| ChannelFiles::from([(name.clone(), text)]));
            if let Ok(Err(why)) = alone.map(|alone| self.accepts(main, &alone)) {
                *text = Err(Problem::mistake(why));
            }
            let stays = || fs::read_to_string(self.channel(name)).ok();
            files.extend(text.clone().ok().or_else(stays).map(|text| (name.clone(), text)));
        }
        self.accepts(main, &files)?;
        Ok(files)
    }

    /// Leaves the file with this content; says whether that is a change.
    pub(super) fn put(&self, path: &Path, content: &[u8]) -> io::Result<bool> {
        match fs::read(path) {
            Ok(there) if there == content => return Ok(false),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Hidden, and not named like a file of a channel.
        let new = path.with_file_name(format!(".{name}.new"));
        write(&new, content)?;
        fs::rename(&new, path)?;
        Ok(true)
    }

    /// Leaves a file with this value; returns its name. That is another one after each change of the value, so that a
    /// reload notices it, and the same one after a change of anything else in the secret.
    pub(super) fn put_secret(&self, key: &str, version: &str, value: &[u8]) -> io::Result<String> {
        let secrets = self.secrets();
        let prefix = format!("{key}.");
        for name in names(&secrets)? {
            if name.starts_with(&prefix) && fs::read(secrets.join(&name))? == value {
                return Ok(name);
            }
        }
        let name = format!("{key}.{version}");
        self.put(&secrets.join(&name), value)?;
        Ok(name)
    }

    /// Removes the file of a channel.
    pub(super) fn remove_channel(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.channel(name))
    }

    /// Removes secrets that no channel uses.
    pub(super) fn keep_secrets(&self, used: &BTreeSet<String>) -> io::Result<()> {
        for name in names(&self.secrets())? {
            if !used.contains(&name) {
                fs::remove_file(self.secrets().join(name))?;
            }
        }
        Ok(())
    }
}

fn make(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Only its owner reads it: it may hold a secret.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    create_private_file(path)?.write_all(content)
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let name =
        |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    fs::read_dir(folder)?.map(name).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_written_when_it_changes_and_only_its_owner_reads_it() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let folder = Folder::new(directory.path()).expect("made");
        let path = folder.channel("shop");
        assert!(folder.put(&path, b"one").expect("written"));
        assert!(!folder.put(&path, b"one").expect("read"));
        assert!(folder.put(&path, b"two").expect("written"));
        assert_eq!(fs::read(&path).expect("read"), b"two");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(folder.channels().expect("read"), BTreeSet::from(["shop".to_owned()]));
        folder.remove_channel("shop").expect("removed");
        assert!(folder.channels().expect("read").is_empty());
        for name in ["a", "b"] {
            folder.put(&folder.secrets().join(name), b"secret").expect("written");
        }
        folder.keep_secrets(&BTreeSet::from(["b".to_owned()])).expect("removed");
        assert_eq!(names(&folder.secrets()).expect("read"), ["b"]);
    }

    #[test]
    fn a_secret_has_another_file_only_after_a_change_of_its_value() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let folder = Folder::new(directory.path()).expect("made");
        let put =
            |key, version, value: &[u8]| folder.put_secret(key, version, value).expect("written");
        assert_eq!(put("mysql.csa", "7", b"one"), "mysql.csa.7");
        assert_eq!(put("mysql.csa", "8", b"one"), "mysql.csa.7");
        assert_eq!(put("mysql.csa", "9", b"two"), "mysql.csa.9");
        assert_eq!(fs::read(folder.secrets().join("mysql.csa.9")).expect("read"), b"two");
    }
}
