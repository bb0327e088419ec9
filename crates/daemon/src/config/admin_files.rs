//! Files through which those who may read `state_dir` find the running daemon.

use std::path::PathBuf;

use super::declared_keys::DaemonConfig;

/// Named after the port: several daemons may share a `state_dir`, but no two of them a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AdminFiles {
    pub(crate) socket: PathBuf,
    /// Has the token made at the start.
    pub(crate) token: PathBuf,
}

impl AdminFiles {
    pub(crate) fn of(daemon: &DaemonConfig) -> Self {
        let port = daemon.admin_listen.rsplit(':').next().unwrap_or_default();
        let file = |kind: &str| daemon.state_dir.join(format!("admin-{port}.{kind}"));
        Self { socket: file("sock"), token: file("token") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_of_one_state_dir_have_files_of_their_own() {
        let of = |listen: &str| {
            let state_dir = "/s".into();
            let daemon =
                DaemonConfig { state_dir, admin_listen: listen.into(), ..DaemonConfig::default() };
            AdminFiles::of(&daemon)
        };
        let first = of("127.0.0.1:9104");
        assert_eq!(first.socket, PathBuf::from("/s/admin-9104.sock"));
        assert_eq!(first.token, PathBuf::from("/s/admin-9104.token"));
        assert_eq!(of("[::1]:9104"), first);
        assert_ne!(of("127.0.0.1:9105"), first);
    }
}
