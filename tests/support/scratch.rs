//! The folder for what tests throw away: in memory where there is enough of it, because half of what a test of
//! replication waits for is a disk that syncs.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The file system in memory that every Linux has.
const MEMORY: &str = "/dev/shm";
/// Left free on it after a server with its redo log, binary logs and relay store.
const ROOM: u64 = 2 << 30;
/// Left free for the programs themselves.
const AVAILABLE: u64 = 4 << 30;

static FOR_FIGURES: AtomicBool = AtomicBool::new(false);

/// Keeps everything that begins after this on the disk, and lets servers have what they have by default: programs call
/// it that compare figures.
pub fn measure() {
    FOR_FIGURES.store(true, Ordering::Relaxed);
}

/// Returns true after [`measure`].
pub(crate) fn is_measured() -> bool {
    FOR_FIGURES.load(Ordering::Relaxed)
}

/// Returns the folder for the data of a test that begins now. `CSA_SCRATCH` names another.
pub(crate) fn folder() -> PathBuf {
    match std::env::var_os("CSA_SCRATCH") {
        Some(folder) => folder.into(),
        None if !is_measured() && is_roomy() => MEMORY.into(),
        None => std::env::temp_dir(),
    }
}

/// Returns true if one more server has room in memory, for its data and for itself.
fn is_roomy() -> bool {
    has_room(1)
}

/// Returns true if servers that no test uses may stay: tests that start some have room without that of these.
pub(crate) fn is_plentiful() -> bool {
    has_room(2)
}

fn has_room(times: u64) -> bool {
    let Ok(file_system) = rustix::fs::statfs(MEMORY) else { return false };
    // TMPFS_MAGIC: elsewhere the folder may be one of a disk.
    let is_memory = file_system.f_type == 0x0102_1994;
    let free = file_system.f_bavail.saturating_mul(file_system.f_bsize.unsigned_abs());
    is_memory && free >= times * ROOM && available() >= times * AVAILABLE
}

/// Returns the bytes of memory that programs can still get, in this machine and in this container.
fn available() -> u64 {
    let machine = number("/proc/meminfo", "MemAvailable:").unwrap_or(0).saturating_mul(1024);
    // The second version of control groups, and the first.
    let groups = [
        ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
        (
            "/sys/fs/cgroup/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ];
    groups.into_iter().fold(machine, |least, (group, limit, used, unused)| {
        let of = |file: &str| read_to_string(Path::new(group).join(file)).ok()?.trim().parse().ok();
        let (limit, used): (Option<u64>, Option<u64>) = (of(limit), of(used));
        let (Some(limit), Some(used)) = (limit, used) else { return least };
        let unused = number(&format!("{group}/memory.stat"), unused).unwrap_or(0);
        least.min(limit.saturating_sub(used.saturating_sub(unused)))
    })
}

/// Returns the number after the word at the beginning of a line.
fn number(file: &str, word: &str) -> Option<u64> {
    let text = read_to_string(file).ok()?;
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next()? == word).then(|| words.next()?.parse().ok())?)
}
