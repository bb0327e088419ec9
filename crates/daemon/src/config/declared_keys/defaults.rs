//! Defaults that several keys have, for serde.

use crate::config::units::Duration;

pub(super) fn number<T: From<u16>, const N: u16>() -> T {
    N.into()
}

pub(super) const fn seconds<const N: u64>() -> Duration {
    Duration(std::time::Duration::from_secs(N))
}
