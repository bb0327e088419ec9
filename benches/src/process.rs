//! CPU time and memory of a process, from the kernel.

use anyhow::{Context, Result};

/// `USER_HZ`, which Linux shows to programs as 100 whatever its own clock does.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the user and system time so far, of all threads.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    // The name in parentheses may hold spaces.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    // utime and stime are fields 14 and 15; the first one here is field 3.
    let ticks: Vec<f64> =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    anyhow::ensure!(ticks.len() == 2, "{path} has no CPU times");
    Ok(ticks.iter().sum::<f64>() / TICKS_PER_SECOND)
}

/// Returns the most memory it ever held.
pub(crate) fn peak_rss_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kibibytes.with_context(|| format!("{path} has no VmHWM"))? * 1024)
}
