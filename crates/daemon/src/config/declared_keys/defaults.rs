//! Defaults that several keys have, for serde.

use crate::config::units::{Duration, Size};

pub(super) fn number<T: From<u16>, const N: u16>() -> T {
    N.into()
}

pub(super) const fn seconds<const N: u64>() -> Duration {
    Duration(std::time::Duration::from_secs(N))
}

pub(super) const fn milliseconds<const N: u64>() -> Duration {
    Duration(std::time::Duration::from_millis(N))
}

pub(super) const fn yes() -> bool {
    true
}

pub(super) const fn mebibytes<const N: u64>() -> Size {
    Size(N << 20)
}

pub(super) const fn days<const N: u64>() -> Duration {
    Duration(std::time::Duration::from_secs(N * 86_400))
}
