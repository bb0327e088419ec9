//! The other end of a connection: its identity as the kernel knows it, and the name it gives
//! itself.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::host::Sender;

/// The name that a client gives itself; nothing proves it.
const BY: &str = "csa-by";

/// Known from the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Peer {
    Network(IpAddr),
    /// A process of this host, on the socket whose permissions decide who may open it.
    Local {
        uid: u32,
        name: Option<String>,
        pid: Option<i32>,
    },
}

impl Peer {
    pub(super) fn local(uid: u32, pid: Option<i32>) -> Self {
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        Self::Local { uid, name: name_of(&users, uid), pid }
    }

    /// Returns the user's name, where the kernel knows it.
    fn name(&self) -> Option<String> {
        match self {
            Self::Local { name, .. } => name.clone(),
            Self::Network(_) => None,
        }
    }

    pub(super) fn is_local(&self) -> bool {
        matches!(self, Self::Local { .. })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(address) => write!(f, "{address}"),
            Self::Local { uid, name, pid } => {
                write!(f, "uid {uid}")?;
                if let Some(name) = name {
                    write!(f, " ({name})")?;
                }
                pid.map_or(Ok(()), |pid| write!(f, ", pid {pid}"))
            }
        }
    }
}

/// Returns `users` as in `/etc/passwd`.
fn name_of(users: &str, uid: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

impl<S: Sync> FromRequestParts<S> for Sender {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<Peer>();
        let claimed = parts.headers.get(BY).and_then(|by| by.to_str().ok()).map(str::to_owned);
        // A client without a name for itself, such as one that cron runs.
        let claimed = claimed.or_else(|| peer.and_then(Peer::name));
        Ok(Self { peer: peer.map(ToString::to_string).unwrap_or_default(), claimed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_name_of_its_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nops:x:100:100::/home/ops:/bin/sh\nbroken\n";
        assert_eq!(name_of(users, 100).as_deref(), Some("ops"));
        assert_eq!(name_of(users, 10), None);
        let peer = Peer::Local { uid: 100, name: name_of(users, 100), pid: Some(7) };
        assert_eq!(peer.to_string(), "uid 100 (ops), pid 7");
        assert_eq!(peer.name().as_deref(), Some("ops"));
    }
}
