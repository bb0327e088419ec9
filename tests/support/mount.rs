//! File systems of a test's own, which can be small, or lose what no program had synced.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const PREFIX: &str = "csa-mount-";
const PATIENCE: Duration = Duration::from_secs(20);

/// A directory on a file system that is mounted for this process and unmounted when dropped.
#[derive(Debug)]
pub struct Mount {
    directory: TempDir,
    path: PathBuf,
}

impl Mount {
    /// Mounts a file system in memory.
    ///
    /// # Errors
    /// This machine permits no mounts, in the words of `mount`.
    pub fn memory(size: &str) -> Result<Self, String> {
        let mount = Self::empty();
        let options = format!("size={size},mode=700");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&mount.path))?;
        Ok(mount)
    }

    /// Mounts ext4 from a file of so many bytes, of which the disk has only those written.
    ///
    /// # Errors
    /// As [`Mount::memory`]; also where there are no loop devices.
    pub fn ext4(bytes: u64, options: &str) -> Result<Self, String> {
        let mount = Self::empty();
        let image = std::fs::File::create(mount.image()).and_then(|file| file.set_len(bytes));
        image.map_err(|error| format!("{}: {error}", mount.image().display()))?;
        let mkfs = ["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        run(Command::new("mkfs.ext4").args(mkfs).arg(mount.image()))?;
        mount.attach(options)?;
        Ok(mount)
    }

    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Mounts it with other options.
    ///
    /// # Errors
    /// The kernel refuses, for example while a file is open.
    pub fn remount(&self, options: &str) -> Result<(), String> {
        run(Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.path))
    }

    /// Cuts the power of the disk: from now on every access fails, and what the kernel has not written
    /// yet is lost, journal included.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[track_caller]
    pub fn lose_power(&self) {
        // FS_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH. Calling it from here needs unsafe code.
        let shutdown = "open(my $f, '<', $ARGV[0]) or die $!; my $how = pack('L', 2); \
                        ioctl($f, 0x8004587d, $how) or die $!";
        run(Command::new("perl").args(["-e", shutdown]).arg(&self.path)).expect("a shutdown");
    }

    /// Mounts the disk as a machine does after a power loss. No process may have files there.
    ///
    /// # Panics
    /// If the file system can't be mounted.
    #[track_caller]
    pub fn return_power(&self, options: &str) {
        // The kernel closes the files of a killed process a moment after its end.
        let begun = Instant::now();
        while let Err(why) = run(Command::new("umount").arg(&self.path)) {
            assert!(begun.elapsed() < PATIENCE, "unmounting: {why}");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.attach(options).expect("mounting");
    }

    fn empty() -> Self {
        unmount_left();
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let directory = TempDir::with_prefix(prefix).expect("a temporary directory");
        let path = directory.path().join("mounted");
        std::fs::create_dir(&path).expect("a directory");
        Self { directory, path }
    }

    fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    fn attach(&self, options: &str) -> Result<(), String> {
        let options = format!("loop,{options}");
        run(Command::new("mount").args(["-o", &options]).arg(self.image()).arg(&self.path))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        unmount(&self.path);
    }
}

fn unmount(path: &Path) {
    // Lazily, as a process may still have files there. It may not be mounted at all.
    let _ = Command::new("umount").arg("-l").arg(path).output();
}

/// Unmounts what tests have left that were killed.
fn unmount_left() {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for path in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
        let Some((above, rest)) = path.split_once(&format!("/{PREFIX}")) else { continue };
        let (name, _) = rest.split_once('/').unwrap_or((rest, ""));
        let owner = name.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(owner).exists() {
            unmount(Path::new(path));
            let _ = std::fs::remove_dir_all(format!("{above}/{PREFIX}{name}"));
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
