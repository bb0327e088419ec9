//! A throw-away MySQL or MariaDB server, started by `tests/sandbox/mysql-sandbox`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use mysql_async::prelude::{FromValue, Queryable};
use mysql_async::{Conn, Opts, OptsBuilder};

use crate::reuse::{self, Lent};
use crate::scratch;

/// Options of a test's server: smaller than by default is whatever its start writes or clears, and no memory is
/// counted. The kernel's asynchronous I/O is off, because its requests are limited for the whole machine, and many
/// servers reach the limit.
pub(crate) const LEAN: [&str; 10] = [
    "--innodb-use-native-aio=OFF",
    "--innodb-log-buffer-size=16M",
    "--loose-innodb-redo-log-capacity=64M",
    "--loose-performance-schema-digests-size=200",
    "--loose-performance-schema-events-statements-history-long-size=100",
    "--loose-performance-schema-accounts-size=16",
    "--loose-performance-schema-hosts-size=16",
    "--loose-performance-schema-users-size=16",
    "--loose-innodb-doublewrite-pages=16",
    "--loose-performance-schema-instrument=memory/%=OFF",
];

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A running (or stopped) server with its own data directory; deleted when dropped.
#[derive(Debug)]
pub struct Server {
    /// Unique among all test processes of the machine.
    pub name: String,
    /// On 127.0.0.1; it is also the `server_id`.
    pub port: u16,
    pub socket: PathBuf,
    data_directory: PathBuf,
    /// The error log of mysqld.
    pub log: PathBuf,
    /// The script's folder, in which it and its data are.
    folder: PathBuf,
    /// Present while another test may use it again.
    pub(crate) lent: Option<Lent>,
}

impl Server {
    /// Starts a server with the options added to the sandbox's own.
    ///
    /// # Panics
    /// With the script's message when it does not start.
    #[track_caller]
    #[must_use]
    pub fn start(name: &str, options: &[&str]) -> Self {
        reuse::take_or(options, || Self::start_kind(name, &[], options))
    }

    /// Starts a server whose data is on a disk, for tests in which a commit has to take its time.
    ///
    /// # Panics
    /// Panics for the reasons of [`Server::start`].
    #[track_caller]
    #[must_use]
    pub fn start_on_disk(name: &str, options: &[&str]) -> Self {
        Self::start_in(&std::env::temp_dir(), name, &[], options)
    }

    /// Starts MariaDB, as this Debian release has it.
    ///
    /// # Panics
    /// Panics for the reasons of [`Server::start`].
    #[track_caller]
    #[must_use]
    pub fn start_mariadb(name: &str, options: &[&str]) -> Self {
        Self::start_kind(name, &["--mariadb"], options)
    }

    /// Starts a version that the sandbox pins, such as `8.0.31` or `mariadb-11.4`.
    ///
    /// # Panics
    /// Panics for the reasons of [`Server::start`].
    #[track_caller]
    #[must_use]
    pub fn start_version(name: &str, version: &str, options: &[&str]) -> Self {
        Self::start_kind(name, &["--version", version], options)
    }

    /// Returns the variables that let scripts of `tests/provisioning` start servers as tests do: their folder, and the
    /// options that keep them small.
    #[must_use]
    pub fn environment() -> [(&'static str, OsString); 2] {
        [
            ("CSA_SANDBOX_DIR", folder(&scratch::folder()).into()),
            ("CSA_SERVER_OPTIONS", LEAN.join(" ").into()),
        ]
    }

    #[track_caller]
    fn start_kind(name: &str, kind: &[&str], options: &[&str]) -> Self {
        Self::start_in(&scratch::folder(), name, kind, options)
    }

    #[track_caller]
    fn start_in(scratch: &Path, name: &str, kind: &[&str], options: &[&str]) -> Self {
        let name = unique(name);
        let mut arguments = vec!["start", &name];
        arguments.extend(kind);
        arguments.push("--");
        if !scratch::is_measured() {
            arguments.extend(LEAN);
            if kind.iter().any(|word| word.contains("mariadb")) {
                arguments.push("--innodb-log-file-size=64M");
            }
        }
        // The last of two that set the same counts.
        arguments.extend(options);
        let folder = folder(scratch);
        let output =
            run_script(&Self::script_path(), &folder, &arguments).unwrap_or_else(|message| {
                // Remove the remains; there may be none.
                let _ = run_script(&Self::script_path(), &folder, &["destroy", &name]);
                panic!("{message}")
            });
        Self::of_output(&output, folder)
    }

    /// Returns the server that the script's `start` has described.
    #[track_caller]
    pub(crate) fn of_output(output: &str, folder: PathBuf) -> Self {
        let field = |key: &str| {
            output
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
                .unwrap_or_else(|| panic!("mysql-sandbox start printed no {key}:\n{output}"))
        };
        Self {
            port: field("PORT").parse().expect("a port number"),
            socket: field("SOCKET").into(),
            data_directory: field("DATADIR").into(),
            log: field("LOG").into(),
            name: field("NAME").to_owned(),
            folder,
            lent: None,
        }
    }

    /// Returns the folder of the server's data, which it may have to itself from now on.
    #[must_use]
    pub fn data_directory(&self) -> &Path {
        self.touch();
        &self.data_directory
    }

    /// Returns the folder of the server's data, for files that the test only reads.
    #[must_use]
    pub fn data_to_read(&self) -> &Path {
        &self.data_directory
    }

    /// Keeps other tests from using this server. One that ended and was started again is compared like any other.
    fn touch(&self) {
        if let Some(lent) = &self.lent {
            lent.touch();
        }
    }

    /// Starts a source and a target at the same time.
    ///
    /// # Panics
    /// Panics for the reasons of [`Server::start`].
    #[must_use]
    pub fn pair(source_options: &[&str], target_options: &[&str]) -> (Self, Self) {
        let source = || Self::start("source", source_options);
        Self::both(source, || Self::start("target", target_options))
    }

    /// Starts two servers of any kind at the same time.
    ///
    /// # Panics
    /// As the starts.
    #[must_use]
    pub fn both(
        source: impl FnOnce() -> Self + Send,
        target: impl FnOnce() -> Self + Send,
    ) -> (Self, Self) {
        std::thread::scope(|scope| {
            let (source, target) = (scope.spawn(source), scope.spawn(target));
            // Both are joined before either's panic continues, so that neither server is left behind.
            let (source, target) = (source.join(), target.join());
            let rethrow = |panic| std::panic::resume_unwind(panic);
            let both = (source.unwrap_or_else(rethrow), target.unwrap_or_else(rethrow));
            (both.0.borrowed(), both.1.borrowed())
        })
    }

    /// Makes the calling thread the one at whose end nothing uses the server any more. It is the test's own, and
    /// another one has started the server.
    #[must_use]
    pub fn borrowed(mut self) -> Self {
        if let Some(lent) = &mut self.lent {
            lent.borrow();
        }
        self
    }

    /// Shuts it down cleanly.
    ///
    /// # Panics
    /// If it does not end.
    #[track_caller]
    pub fn stop(&self) {
        self.script("stop");
    }

    /// `kill -9`.
    ///
    /// # Panics
    /// If it does not end.
    #[track_caller]
    pub fn kill9(&self) {
        self.script("kill");
    }

    /// Restarts it with the same port, data and options, after a shutdown if it runs.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn restart(&self) {
        self.script("restart");
    }

    /// Restarts it with the `server_uuid` of another server, as a copy of that one's disk has it.
    ///
    /// # Panics
    /// If it does not restart.
    #[track_caller]
    pub fn take_uuid_of(&self, other: &Self) {
        self.touch();
        self.stop();
        let file = |server: &Self| server.data_directory.join("auto.cnf");
        std::fs::copy(file(other), file(self)).expect("copying auto.cnf");
        self.restart();
    }

    /// Restarts it with a `server_uuid` of its own.
    ///
    /// # Panics
    /// If it does not restart.
    #[track_caller]
    pub fn take_new_uuid(&self) {
        self.touch();
        self.stop();
        std::fs::remove_file(self.data_directory.join("auto.cnf")).expect("removing auto.cnf");
        self.restart();
    }

    /// A copy of the data directory as it is; the server must be stopped.
    ///
    /// # Panics
    /// If it can't be copied.
    #[track_caller]
    pub fn save_data(&self) {
        self.touch();
        let kept = self.kept();
        let _ = std::fs::remove_dir_all(&kept);
        copy(&self.data_directory, &kept);
    }

    /// Restores the copy of [`Server::save_data`]; the server must be stopped.
    ///
    /// # Panics
    /// If there is no copy.
    #[track_caller]
    pub fn put_back_data(&self) {
        self.touch();
        std::fs::remove_dir_all(&self.data_directory).expect("removing the data directory");
        std::fs::rename(self.kept(), &self.data_directory).expect("the copy that was kept");
    }

    /// Moves the data directory into another folder, and leaves a link; the server must be stopped.
    ///
    /// # Panics
    /// If it can't be moved.
    #[track_caller]
    pub fn move_data(&self, folder: &Path) {
        self.touch();
        let moved = folder.join(&self.name);
        copy(&self.data_directory, &moved);
        std::fs::remove_dir_all(&self.data_directory).expect("removing the data directory");
        std::os::unix::fs::symlink(&moved, &self.data_directory).expect("a link");
    }

    fn kept(&self) -> PathBuf {
        self.data_directory.with_file_name("data.kept")
    }

    /// Returns `CSA_SANDBOX` if set, otherwise the script of this source tree.
    #[must_use]
    pub fn script_path() -> PathBuf {
        std::env::var_os("CSA_SANDBOX").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("sandbox/mysql-sandbox"),
            PathBuf::from,
        )
    }

    #[track_caller]
    fn script(&self, command: &str) {
        if let Err(message) = run_script(&Self::script_path(), &self.folder, &[command, &self.name])
        {
            panic!("{message}");
        }
    }

    /// Returns the process id of mysqld.
    ///
    /// # Panics
    /// If it does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.touch();
        let file = self.data_directory.with_file_name("mysqld.pid");
        let text = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{} does not run: {error}", self.name));
        text.trim().parse().expect("a process id")
    }

    /// Returns the connection options: TCP, user admin.
    #[must_use]
    pub fn opts(&self) -> Opts {
        self.opts_as("admin", "admin_pw")
    }

    /// Returns the connection options: TCP, the user given.
    #[must_use]
    pub fn opts_as(&self, user: &str, password: &str) -> Opts {
        OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(self.port)
            .user(Some(user))
            .pass(Some(password))
            .prefer_socket(false)
            .into()
    }

    /// Returns a new session as admin.
    ///
    /// # Panics
    /// If the server refuses it.
    pub async fn conn(&self) -> Conn {
        match Conn::new(self.opts()).await {
            Ok(conn) => conn,
            Err(error) => {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let tail = lines[lines.len().saturating_sub(20)..].join("\n");
                panic!("connecting to {}: {error}\n--- end of its log ---\n{tail}", self.name)
            }
        }
    }

    /// Runs statements (also several, separated by semicolons) in a new session.
    ///
    /// # Panics
    /// If one fails.
    pub async fn exec(&self, sql: &str) {
        let mut conn = self.conn().await;
        if let Err(error) = conn.query_drop(sql).await {
            panic!("on {}: {error}\n{sql}", self.name);
        }
        let _ = conn.disconnect().await;
    }

    /// Returns the first column of the first row.
    ///
    /// # Panics
    /// If the query fails or returns no row.
    pub async fn value<T: FromValue + Send + 'static>(&self, sql: &str) -> T {
        let mut conn = self.conn().await;
        let value = match conn.query_first::<T, _>(sql).await {
            Ok(Some(value)) => value,
            Ok(None) => panic!("on {}: no row\n{sql}", self.name),
            Err(error) => panic!("on {}: {error}\n{sql}", self.name),
        };
        let _ = conn.disconnect().await;
        value
    }

    /// Returns `@@gtid_executed`, without newlines.
    ///
    /// # Panics
    /// If the query fails.
    pub async fn gtid_executed(&self) -> String {
        self.value::<String>("SELECT REPLACE(@@GLOBAL.gtid_executed, '\n', '')").await
    }

    /// Replicates from `source` with the server's own applier, from now on.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn follow(&self, source: &Self) {
        self.exec(&format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={}, \
             SOURCE_USER='repl', SOURCE_PASSWORD='repl_pw', GET_SOURCE_PUBLIC_KEY=1, \
             SOURCE_AUTO_POSITION=1, SOURCE_CONNECT_RETRY=1; START REPLICA",
            source.port
        ))
        .await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Once it is not lent any more, its next drop destroys it.
        if let Some(lent) = self.lent.take() {
            let server = Self {
                name: std::mem::take(&mut self.name),
                socket: std::mem::take(&mut self.socket),
                data_directory: std::mem::take(&mut self.data_directory),
                log: std::mem::take(&mut self.log),
                folder: std::mem::take(&mut self.folder),
                port: self.port,
                lent: None,
            };
            return reuse::give_back(server, lent);
        }
        if let Err(message) =
            run_script(&Self::script_path(), &self.folder, &["destroy", &self.name])
        {
            eprintln!("{message}");
        }
    }
}

#[track_caller]
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").args([from, to]).status().expect("running cp");
    assert!(status.success(), "cp -a {} {}: {status}", from.display(), to.display());
}

/// Returns the folder of servers that start now: the one in `CSA_SANDBOX_DIR`, or one with the script's name in `scratch`.
pub(crate) fn folder(scratch: &Path) -> PathBuf {
    std::env::var_os("CSA_SANDBOX_DIR").map_or_else(
        || scratch.join(format!("csa-sandbox-{}", rustix::process::getuid().as_raw())),
        PathBuf::from,
    )
}

/// Returns a name that no other test process of the machine gives a server.
pub(crate) fn unique(name: &str) -> String {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{}-{number}", std::process::id())
}

/// Runs a script of the sandbox for the servers in `folder`; the error holds its stderr.
pub(crate) fn run_script(
    script: &Path,
    folder: &Path,
    arguments: &[&str],
) -> Result<String, String> {
    let output = Command::new(script)
        .args(arguments)
        .env("CSA_SANDBOX_DIR", folder)
        .env("CSA_SANDBOX_OWNER", std::process::id().to_string())
        // Ctrl-C is for this process, which then destroys its servers in order.
        .process_group(0)
        .output()
        .map_err(|error| format!("running {}: {error}", script.display()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!(
        "{} {}: {}\n{}",
        script.display(),
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    ))
}
