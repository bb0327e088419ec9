//! CPU time, page faults and memory of a process, from the kernel.

use std::ops::Range;

use anyhow::{Context, Result};

/// `USER_HZ`, which Linux shows to programs as 100 whatever its own clock does.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the user and system time so far, of all threads.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    // utime and stime.
    let ticks = stat_fields(pid, 14..16)?;
    Ok(ticks.iter().sum::<f64>() / TICKS_PER_SECOND)
}

/// Returns the page faults so far that needed no disk, of all threads.
pub(crate) fn page_faults(pid: u32) -> Result<f64> {
    // minflt.
    Ok(stat_fields(pid, 10..11)?.iter().sum())
}

/// Returns fields of `/proc/PID/stat` by their numbers in proc_pid_stat(5), of which the fourth is the first number.
fn stat_fields(pid: u32, numbers: Range<usize>) -> Result<Vec<f64>> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    // The name in parentheses may hold spaces; field 3 comes after it.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let wanted = fields.skip(numbers.start - 3).take(numbers.len());
    let found: Vec<f64> = wanted.filter_map(|field| field.parse().ok()).collect();
    anyhow::ensure!(found.len() == numbers.len(), "{path} has no fields {numbers:?}");
    Ok(found)
}

/// Returns the most memory it ever held.
pub(crate) fn peak_rss_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kibibytes.with_context(|| format!("{path} has no VmHWM"))? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_takes_memory_has_page_faults() {
        let own = std::process::id();
        let before = page_faults(own).expect("its page faults");
        let taken = std::hint::black_box(vec![1_u8; 1 << 20]);
        let faults = page_faults(own).expect("its page faults") - before;
        assert!((1.0..100_000.0).contains(&faults), "{faults} for {} bytes", taken.len());
        assert!(stat_fields(own, 500..501).is_err());
        assert!(cpu_seconds(own).expect("its time") < 3_600.0);
    }
}
