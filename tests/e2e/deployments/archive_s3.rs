//! An archive in a real server with the protocol of S3: killed, slow, full, and with a wrong key.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use csa_tests::{
    Daemon, Load, LoadOptions, Mount, Proxy, Server, compare, eventually, free_port, prepare,
};

use crate::DRAIN;
use crate::archive::chaos::{self, Store};
use crate::archive::{archived, view};

pub(crate) const BUCKET: &str = "backups";

/// A gateway of the protocol over a directory; killed when it is dropped.
pub(crate) struct Gateway {
    process: Child,
    port: u16,
    directory: std::path::PathBuf,
}

impl Gateway {
    pub(crate) fn start(directory: &Path, port: u16) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("sandbox/go-tool");
        let found = Command::new(script).arg("versitygw").output().expect("running go-tool");
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
        std::fs::create_dir_all(directory.join(BUCKET)).expect("created");
        let process = Command::new(String::from_utf8_lossy(&found.stdout).trim())
            .args(["--access", "key", "--secret", "secret", "--port"])
            .arg(format!("127.0.0.1:{port}"))
            .arg("posix")
            .arg(directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("running versitygw");
        Self { process, port, directory: directory.to_owned() }
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    pub(crate) fn start_again(&mut self) {
        self.kill();
        let next = Self::start(&self.directory, self.port);
        *self = next;
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.kill();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_in_an_object_store_survives_what_happens_to_it() {
    let (source, target) = Server::pair(&[], &[]);
    let disk = Mount::memory("96M").expect("a file system");
    let port = free_port();
    let mut gateway = Gateway::start(disk.path(), port);
    let proxy = Proxy::to(port);
    let options = LoadOptions { rows: 200, rate: Some(200.0), ..LoadOptions::default() };
    prepare(&source, &options).await;
    let client: toml::Table = [
        ("aws_endpoint", format!("http://127.0.0.1:{}", proxy.port)),
        ("aws_region", "us-east-1".to_owned()),
        ("allow_http", "true".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value.into()))
    .into_iter()
    .collect();
    let daemon = Daemon::builder(&source, &target)
        .set("archive.url", format!("s3://{BUCKET}/mysql"))
        .set("archive.options", client)
        .set("archive.interval", "1s")
        .set("archive.required", true)
        .env("AWS_ACCESS_KEY_ID", "key")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .start();
    let load = Load::start(&source, &options);
    // Killed in the middle, several times.
    for millis in [1500, 700, 1900] {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        gateway.kill();
        tokio::time::sleep(Duration::from_millis(millis)).await;
        gateway.start_again();
    }
    // So slow that files take longer than their interval.
    proxy.set_rate(Some(100_000));
    tokio::time::sleep(Duration::from_secs(4)).await;
    proxy.set_rate(None);
    load.stop().await;
    archived(&daemon, &source).await;

    // Full, until there is room again.
    let ballast = disk.path().join("ballast");
    let filled = std::fs::write(&ballast, vec![1; 200 << 20]);
    assert!(filled.is_err(), "the file system is full");
    source
        .exec("CREATE TABLE sbtest.wide (id INT PRIMARY KEY, b LONGBLOB); INSERT INTO sbtest.wide VALUES (1, REPEAT('x', 3000000))")
        .await;
    eventually("the store says that it is full", DRAIN, async || {
        view(&daemon)["error"].is_string()
    })
    .await;
    std::fs::remove_file(&ballast).expect("removed");
    archived(&daemon, &source).await;
    assert_eq!(view(&daemon)["missing_transactions_total"], 0);
    compare(&source, &target).await;

    // The commands have the keys from their own environment.
    let command = |arguments: &[&str], secret: &str| {
        Command::new(Daemon::executable())
            .arg("--config")
            .arg(daemon.config_path())
            .args(arguments)
            .env("AWS_ACCESS_KEY_ID", "key")
            .env("AWS_SECRET_ACCESS_KEY", secret)
            .output()
            .expect("running csa-daemon")
    };
    let said = command(&["archive", "verify"], "secret");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
    let said = command(&["archive", "ls"], "wrong");
    let error = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!said.status.success() && error.contains("SignatureDoesNotMatch"), "{error}");
    let restored = Server::start("restored", &[]);
    let to = format!("127.0.0.1:{}", restored.port);
    let said = command(&["restore", "--to", &to], "secret");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    compare(&source, &restored).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_an_archive_in_an_object_store_has_everything_or_says_what_it_lacks() {
    chaos::run(Store::gateway().await).await;
}
