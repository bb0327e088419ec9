//! Two files in `state_dir` for the command line: a socket that permits everything, and a token for
//! HTTP clients.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};
use tokio::net::{UnixListener, UnixSocket};

/// For the socket's owner and group.
const SOCKET_MODE: u32 = 0o660;
const TOKEN_MODE: u32 = 0o600;
/// Connections that wait to be accepted; the system may permit fewer.
const WAITING_MAX: u32 = 4096;

/// Creates the folder of a file, for this user only, unless it is there.
pub(super) fn create_folder(path: &Path) -> io::Result<()> {
    let Some(directory) = path.parent() else { return Ok(()) };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Writes the token to a file that nobody else can read, and that takes its name only when
/// complete, even if an earlier start was interrupted.
pub(super) fn write_token(path: &Path, token: &SecretString) -> io::Result<()> {
    let new = path.with_extension("token.new");
    remove(&new)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(TOKEN_MODE).open(&new)?;
    // Independent of the umask.
    file.set_permissions(fs::Permissions::from_mode(TOKEN_MODE))?;
    // Not synced: a start after a crash makes another one.
    writeln!(file, "{}", token.expose_secret())?;
    fs::rename(&new, path)
}

/// Opens the socket; `group` by name or number. It gets its mode and group before its name, and accepts nobody before
/// that: a connection that waits keeps its rights.
pub(super) fn open(path: &Path, group: Option<&str>) -> io::Result<UnixListener> {
    // A living daemon accepts; the socket of one that was killed refuses, and is replaced.
    if UnixStream::connect(path).is_ok() {
        let text = "another daemon uses it; give this one a state_dir of its own";
        return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
    }
    let new = path.with_extension("new");
    remove(&new)?;
    let listener = bind(&new, group)?.listen(WAITING_MAX)?;
    fs::rename(&new, path)?;
    Ok(listener)
}

/// Makes a socket that refuses every connection as long as it does not listen.
fn bind(path: &Path, group: Option<&str>) -> io::Result<UnixSocket> {
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    if let Some(group) = group {
        chown(path, None, Some(group_id(group)?))?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(socket)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn group_id(group: &str) -> io::Result<u32> {
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let named = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(group)).then(|| fields.nth(1)?.parse().ok())?
    });
    named.or_else(|| group.parse().ok()).ok_or_else(|| {
        let text = format!("/etc/group has no group {group:?}; use its number");
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("is there").permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn files_are_for_those_they_are_for() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let token = directory.path().join("state/admin-1.token");
        create_folder(&token).expect("created");
        write_token(&token, &"first".into()).expect("written");
        write_token(&token, &"second".into()).expect("written again");
        assert_eq!(
            (mode(&token), fs::read_to_string(&token).expect("read")),
            (0o600, "second\n".into())
        );
        assert_eq!(mode(token.parent().expect("a folder")), 0o700);

        let path = directory.path().join("bound");
        let _bound = bind(&path, None).expect("bound");
        let early = UnixStream::connect(&path).expect_err("it does not listen").kind();
        assert_eq!((mode(&path), early), (0o660, io::ErrorKind::ConnectionRefused));

        let path = directory.path().join("admin-1.sock");
        let first = open(&path, None).expect("opens");
        assert_eq!(mode(&path), 0o660);
        let taken = open(&path, None).expect_err("is taken").to_string();
        assert!(taken.contains("state_dir of its own"), "{taken}");
        drop(first);
        // A daemon that was killed leaves its socket.
        open(&path, Some("0")).map(drop).unwrap_or_else(|error| {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "unless we may not: {error}");
        });
        let unknown =
            open(&directory.path().join("b"), Some("no-such-group")).expect_err("unknown");
        assert!(unknown.to_string().contains("no-such-group"), "{unknown}");
    }
}
