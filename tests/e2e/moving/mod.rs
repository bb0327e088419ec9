//! Applications move between the servers of a pair of channels, whatever dies in between.

mod clients;
mod interrupted;
mod refused;
mod there_and_back;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use csa_tests::{Compare, Daemon, DaemonBuilder, Said, Server};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use tempfile::TempDir;

use crate::DRAIN;
use clients::{Applications, Written};

/// The longest time without a server that takes writes.
const GAP: Duration = Duration::from_secs(5);
/// A server that reads what SET PERSIST has kept, as those of operators do.
const PERSISTS: &str = "--loose-persisted-globals-load=ON";

/// Two servers, a daemon with a channel each way, and the program of the hand-over.
struct World {
    a: Server,
    b: Server,
    daemon: Daemon,
    folder: TempDir,
}

impl World {
    /// `version`: that of the old server.
    async fn start(version: Option<&str>, set: impl Fn(DaemonBuilder) -> DaemonBuilder) -> Self {
        let old = || match version {
            Some(version) => Server::start_version("old", version, &[PERSISTS]),
            None => Server::start("old", &[PERSISTS]),
        };
        // The events of the old server move, too.
        let new = || Server::start("new", &[PERSISTS, "--event-scheduler=OFF"]);
        let (a, b) = Server::both(old, new);
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("hand-over");
        let place = folder.path().join("place");
        let text = format!(
            "#!/bin/sh\nset -e\n[ ! -e {broken} ]\necho \"$CSA_MOVE_DIRECTION $CSA_MOVE_PORT\" >> {calls}\n\
             echo $CSA_MOVE_PORT > {place}.new\nmv {place}.new {place}\n",
            broken = folder.path().join("broken").display(),
            calls = folder.path().join("calls").display(),
            place = place.display()
        );
        std::fs::write(&script, text).expect("a script");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))
            .expect("a script");
        std::fs::write(&place, a.port.to_string()).expect("a place");
        clients::prepare(&a, &b).await;
        let has_no_tls = matches!(version, Some("5.7" | "8.0.15"));
        let tls = |builder: DaemonBuilder, side| match has_no_tls {
            true => builder.set(&format!("{side}.tls"), "disabled"),
            false => builder,
        };
        let soon = |builder: DaemonBuilder| {
            builder.set("target.connect_retry", "100ms").set("target.connect_retry_max", "1s")
        };
        let up = soon(tls(Daemon::builder(&a, &b), "source"))
            .set("name", "up")
            .set("move.back", "down")
            .set("move.time_limit", "20s")
            .set("move.hand_over", vec![script.display().to_string()]);
        let up = set(up);
        let down =
            soon(tls(up.channel("down", &b, &a), "target")).set("applier.start_from", "source");
        let daemon = down.start();
        let world = Self { a, b, daemon, folder };
        world.moved(&["--prepare", "--no-verify"]);
        world
    }

    /// Writes a row that the new server gets no sooner than the session that is returned unlocks its table.
    async fn held_back(&self) -> Conn {
        let write = "INSERT INTO app.w (id, client) VALUES (1, 1)";
        self.a.exec(write).await;
        self.drained().await;
        let mut lock = self.b.conn().await;
        lock.query_drop("LOCK TABLES app.w READ").await.expect("locked");
        self.a.exec(write).await;
        lock
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("place")
    }

    fn command(&self, arguments: &[&str]) -> Said {
        self.daemon.command(&[&["--channel", "up", "move"], arguments].concat())
    }

    /// Runs the command, which has to succeed.
    #[track_caller]
    fn moved(&self, arguments: &[&str]) -> String {
        let said = self.command(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}\n{}", self.daemon.log_tail());
        said.out
    }

    /// Starts the command with a variable, and does not wait for its end.
    fn begin(&self, arguments: &[&str], kill: &str) -> Child {
        Command::new(Daemon::executable())
            .arg("--config")
            .arg(self.daemon.config_path())
            .args(["--channel", "up", "move"])
            .args(arguments)
            .env("CSA_MOVE_KILL", kill)
            .stdin(Stdio::null())
            .stdout(self.said())
            .stderr(self.said())
            .spawn()
            .expect("running csa-daemon")
    }

    /// The output of commands that are not waited for.
    fn said(&self) -> File {
        let path = self.folder.path().join("said");
        OpenOptions::new().create(true).append(true).open(path).expect("a file")
    }

    fn applications(&self, clients: u64) -> Applications {
        Applications::start([self.a.port, self.b.port], &self.place(), clients)
    }

    async fn drained(&self) {
        self.daemon.wait_channel_drained("up", &self.a, &self.b, DRAIN).await;
        self.daemon.wait_channel_drained("down", &self.b, &self.a, DRAIN).await;
    }

    /// Both servers have every acknowledged write once, and the same contents.
    async fn end(&self, written: &Written) {
        self.drained().await;
        written.are_on(&self.a).await;
        written.are_on(&self.b).await;
        let compared = Compare::contents().run(&self.a, &self.b).await;
        compared.unwrap_or_else(|difference| panic!("{difference}"));
    }

    async fn access(&self, server: &Server) -> String {
        server.value("SELECT CONCAT(@@GLOBAL.read_only, @@GLOBAL.super_read_only)").await
    }
}

/// A move between two servers, and when it was.
#[derive(Debug, Clone, Copy)]
struct Moved {
    from: u16,
    to: u16,
    between: [Instant; 2],
}

impl Moved {
    /// Judges the clients' records of the time around a move.
    fn judge(&self, written: &Written, most: Duration) -> Duration {
        written.never_two(self.from, self.to, self.between);
        let gap = written.longest_gap(self.between);
        assert!(gap <= most, "no server took a write for {gap:?}");
        gap
    }
}

async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
