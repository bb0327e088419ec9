//! Names of the locks that sessions of ours hold on the target.

/// The longest lock name (<https://dev.mysql.com/doc/refman/en/locking-functions.html>).
const NAME_MAX: usize = 64;

/// Returns the lock of a channel.
#[must_use]
pub fn lock_name(channel: &str) -> String {
    bounded("csa:", channel)
}

/// Returns the lock of a worker's session. Two workers of a channel never have the same number at the same
/// time.
pub(crate) fn worker_lock(channel: &str, worker: u16) -> String {
    bounded(&format!("csa-worker:{worker}:"), channel)
}

/// Returns the lock that marks a control session as this daemon's.
pub(crate) fn daemon_lock(identity: &str) -> String {
    bounded("csa-daemon:", identity)
}

/// Shortens a long name to its start and a digest of the whole.
fn bounded(prefix: &str, name: &str) -> String {
    if prefix.len() + name.len() <= NAME_MAX {
        return format!("{prefix}{name}");
    }
    // 17 for the sign and the digest's hexadecimal digits.
    let kept = NAME_MAX.saturating_sub(prefix.len() + 17);
    let kept = name.get(..kept).unwrap_or_default();
    format!("{prefix}{kept}#{:016x}", digest(name))
}

/// Distinguishes names; the same in every version.
pub(crate) fn digest(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_names_fit_and_differ() {
        let long = "a".repeat(64);
        let other = format!("{}b", "a".repeat(63));
        assert_eq!(lock_name("orders"), "csa:orders");
        assert_eq!(worker_lock("orders", 3), "csa-worker:3:orders");
        for (one, two) in [
            (lock_name(&long), lock_name(&other)),
            (worker_lock(&long, u16::MAX), worker_lock(&other, u16::MAX)),
            (worker_lock(&long, 1), worker_lock(&long, 2)),
        ] {
            assert!(one.len() <= NAME_MAX && two.len() <= NAME_MAX, "{one} {two}");
            assert_ne!(one, two);
        }
    }
}
