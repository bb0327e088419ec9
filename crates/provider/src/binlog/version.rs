//! Versions of servers.

/// The first three numbers of `@@version`; 0 for what is none.
#[must_use]
pub fn version_numbers(version: &str) -> [u32; 3] {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}
