//! The memory that this process may take.

use std::fs;
use std::path::Path;

const CGROUPS: &str = "/sys/fs/cgroup";

/// Returns the bytes that this process may still take: what the host has available, and the lowest limit of its control
/// groups (version 2), if that is less. `None` if neither can be read.
pub(crate) fn available() -> Option<u64> {
    let host = fs::read_to_string("/proc/meminfo").ok().and_then(|text| of_host(&text));
    let group = fs::read_to_string("/proc/self/cgroup").ok();
    let limit = group.as_deref().and_then(own_group).and_then(lowest_limit);
    host.into_iter().chain(limit).min()
}

/// Returns `MemAvailable` of `/proc/meminfo`.
fn of_host(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// Returns the group in `/proc/self/cgroup`, as this process sees it.
fn own_group(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// A limit holds for all groups below it.
fn lowest_limit(group: &str) -> Option<u64> {
    let inside = Path::new(group.trim_start_matches('/'));
    let limit = |group: &Path| {
        let text = fs::read_to_string(Path::new(CGROUPS).join(group).join("memory.max")).ok()?;
        // Without a limit it is the word max.
        text.trim().parse().ok()
    };
    inside.ancestors().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_has_is_read() {
        let text = "MemTotal:       24684000 kB\nMemAvailable:   20792000 kB\nBuffers: 1 kB\n";
        assert_eq!(of_host(text), Some(20_792_000 << 10));
        assert_eq!(of_host("MemTotal: 1 kB\n"), None);
        assert_eq!(
            own_group("0::/system.slice/csa-daemon.service\n"),
            Some("/system.slice/csa-daemon.service")
        );
        assert_eq!(own_group("4:memory:/a\n0::/\n"), Some("/"));
        assert!(available().is_some_and(|bytes| bytes > 0));
    }
}
