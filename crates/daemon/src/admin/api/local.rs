//! The files in `state_dir` for the command line: made before the channels start, or later where the disk has no space
//! for them at first.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use axum::Router;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Shared, serve, socket};
use crate::daemon::Daemon;
use crate::host::{Failure, state_dir};

/// The pause before the next attempt to make what is lacking.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// The files that are lacking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lacking {
    socket: bool,
    token: bool,
}

/// Makes socket and token.
///
/// # Errors
/// Another daemon has the socket, or the folder can't be written for another reason than a lack of space.
pub(super) fn open(
    daemon: &Daemon,
    app: &Router,
    stop: &CancellationToken,
) -> Result<Lacking, Failure> {
    let files = daemon.access().files.clone();
    let unwritable = |error: io::Error| {
        Failure::Input(format!("daemon.state_dir: {}: {error}", files.token.display()))
    };
    socket::create_folder(&files.token).map_err(unwritable)?;
    // Before the token: the one there may be that of a daemon which has the socket.
    let socket = open_socket(daemon, app, stop)?;
    let token = socket::write_token(&files.token, &daemon.admin.own_token);
    let lacking = Lacking { socket, token: lacks_space(token).map_err(unwritable)? };
    if lacking.socket || lacking.token {
        let folder = daemon.at_start.state_dir.display();
        warn!(
            %folder,
            "no space for the admin socket and the token of this start; they are made once there is some"
        );
    }
    Ok(lacking)
}

impl Lacking {
    /// Makes what is lacking once there is space for it.
    pub(super) async fn complete(mut self, daemon: Shared, app: Router, stop: CancellationToken) {
        while self.socket || self.token {
            tokio::select! {
                () = tokio::time::sleep(TRY_AGAIN) => {}
                () = stop.cancelled() => return,
            }
            self.try_again(&daemon, &app, &stop);
        }
    }

    fn try_again(&mut self, daemon: &Daemon, app: &Router, stop: &CancellationToken) {
        let before = *self;
        let files = daemon.access().files.clone();
        if self.socket {
            self.socket = open_socket(daemon, app, stop).unwrap_or_else(|failure| {
                warn!(error = %failure, "no admin socket");
                false
            });
        }
        if self.token {
            let token = socket::write_token(&files.token, &daemon.admin.own_token);
            self.token = lacks_space(token).unwrap_or_else(|error| {
                warn!(path = %files.token.display(), %error, "no token for the admin port");
                false
            });
        }
        if *self != before && !self.socket && !self.token {
            info!(socket = %files.socket.display(), "admin socket and token made");
        }
    }
}

/// Serves on the socket; returns true where there is no space for it. No socket is opened where the folder can't hold one
/// at all: commands then need the port and a token.
fn open_socket(daemon: &Daemon, app: &Router, stop: &CancellationToken) -> Result<bool, Failure> {
    let path = daemon.access().files.socket.clone();
    match open_for(&path, daemon.admin.socket_group.as_deref()) {
        Ok(listener) => {
            tokio::spawn(serve::local(listener, app.clone(), stop.clone()));
            Ok(false)
        }
        Err(error) if state_dir::is_full(&error) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            Err(Failure::Input(format!("daemon.state_dir: {}: {error}", path.display())))
        }
        Err(error) => {
            let path = path.display();
            warn!(%path, %error, "no admin socket; the command line uses the port and its token");
            Ok(false)
        }
    }
}

/// Opens the socket for `group`, and for the daemon's own group where it can't be that one: fewer people may then give
/// commands, and the channels run.
fn open_for(path: &Path, group: Option<&str>) -> io::Result<UnixListener> {
    let Some(group) = group else { return socket::open(path, None) };
    match socket::open(path, Some(group)) {
        Err(error) if !state_dir::is_full(&error) && error.kind() != ErrorKind::AddrInUse => {
            let shown = path.display();
            warn!(path = %shown, group, %error, "the admin socket stays with the daemon's own group, not admin_socket_group");
            socket::open(path, None)
        }
        opened => opened,
    }
}

/// Returns true where there is no space.
fn lacks_space(made: io::Result<()>) -> io::Result<bool> {
    match made {
        Err(error) if state_dir::is_full(&error) => Ok(true),
        made => made.map(|()| false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_space_is_waited_for() {
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            assert!(lacks_space(Err(kind.into())).is_ok_and(|lacks| lacks), "{kind}");
        }
        assert!(lacks_space(Ok(())).is_ok_and(|lacks| !lacks));
        for kind in [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem] {
            assert_eq!(lacks_space(Err(kind.into())).expect_err("refused").kind(), kind);
        }
    }

    #[tokio::test]
    async fn a_group_that_cannot_have_the_socket_keeps_no_channel_from_running() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("admin-1.sock");
        let first = open_for(&path, Some("no-such-group")).expect("the daemon's own group has it");
        assert!(path.exists());
        let taken = open_for(&path, Some("no-such-group")).expect_err("another daemon has it");
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        drop(first);
    }
}
