//! The place of the archive, and how it fails.

use std::path::{Path, PathBuf};
use std::time::Duration;

use csa_tests::{DaemonBuilder, FaultyProxy, Mount, eventually, free_port};
use parking_lot::Mutex;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::deployments::archive_s3::{BUCKET, Gateway};

const SIZE: &str = "6g";
/// The keys of the gateway.
pub(super) const KEYS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];

/// A file system of its own, and perhaps a gateway to it.
pub(crate) struct Store {
    disk: Mount,
    gateway: Option<(Mutex<Gateway>, FaultyProxy)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreFault {
    /// A file lies in the place of the channel's folder.
    Replaced,
    /// The directory is there and empty, as the place of a mount is without it.
    Unmounted,
    ReadOnly,
    Full,
    GatewayKilled,
    /// The gateway's link loses everything, and nobody learns of it.
    Silent,
    Reset,
    Slow,
}

impl Store {
    /// A directory.
    pub(crate) fn directory() -> Self {
        let store = Self { disk: Mount::memory(SIZE).expect("a file system"), gateway: None };
        std::fs::create_dir(store.root()).expect("created");
        store
    }

    /// A directory that a gateway with the protocol of S3 serves.
    pub(crate) async fn gateway() -> Self {
        let disk = Mount::memory(SIZE).expect("a file system");
        let port = free_port();
        let gateway = Gateway::start(disk.path(), port);
        Self { disk, gateway: Some((Mutex::new(gateway), FaultyProxy::to(port).await)) }
    }

    /// Returns the directory with the channel's folder.
    pub(super) fn root(&self) -> PathBuf {
        match self.gateway {
            None => self.disk.path().join("archive"),
            Some(_) => self.disk.path().join(BUCKET).join("mysql"),
        }
    }

    pub(super) fn configured(&self, builder: DaemonBuilder) -> DaemonBuilder {
        let Some((_, proxy)) = &self.gateway else {
            return builder.set("archive.url", format!("file://{}", self.root().display()));
        };
        let mut options = toml::Table::new();
        options.insert("aws_endpoint".into(), format!("http://127.0.0.1:{}", proxy.port).into());
        options.insert("aws_region".into(), "us-east-1".into());
        options.insert("allow_http".into(), "true".into());
        let builder = builder
            .set("archive.url", format!("s3://{BUCKET}/mysql"))
            .set("archive.options", options);
        KEYS.iter().fold(builder, |builder, (name, value)| builder.env(name, value))
    }

    pub(super) fn faults(&self) -> &'static [StoreFault] {
        use StoreFault::{Full, GatewayKilled, ReadOnly, Replaced, Reset, Silent, Slow, Unmounted};
        match self.gateway {
            None => &[Replaced, Unmounted, ReadOnly, Full],
            Some(_) => &[GatewayKilled, Silent, Reset, Slow, ReadOnly, Full],
        }
    }

    pub(super) async fn begin(&self, fault: StoreFault) {
        match (fault, &self.gateway) {
            (StoreFault::Replaced, _) => {
                let channel = self.root().join("test");
                std::fs::write(beside(&channel), "").expect("written");
                exchange(&channel);
            }
            (StoreFault::Unmounted, _) => {
                std::fs::create_dir(beside(&self.root())).expect("created");
                exchange(&self.root());
            }
            (StoreFault::ReadOnly, _) => self.remounted("ro").await,
            (StoreFault::Full, _) => {
                let used = self.used();
                // What is written before this takes hold may need more.
                eventually("the file system shrinks", Duration::from_secs(20), async || {
                    let size = self.used().max(used) + (100 << 10);
                    self.disk.remount(&format!("size={size}")).is_ok()
                })
                .await;
            }
            (StoreFault::GatewayKilled, Some((gateway, _))) => gateway.lock().kill(),
            (StoreFault::Silent, Some((_, proxy))) => proxy.black_hole(),
            (StoreFault::Reset, Some((_, proxy))) => proxy.reset(),
            (StoreFault::Slow, Some((_, proxy))) => proxy.delay(Duration::from_millis(150)),
            (fault, None) => unreachable!("{fault:?} of a directory"),
        }
    }

    pub(super) async fn end(&self, fault: StoreFault) {
        match (fault, &self.gateway) {
            (StoreFault::Replaced, _) => {
                let channel = self.root().join("test");
                exchange(&channel);
                std::fs::remove_file(beside(&channel)).expect("removed");
            }
            (StoreFault::Unmounted, _) => {
                exchange(&self.root());
                // A file that was on its way may be there; it counts for nothing.
                std::fs::remove_dir_all(beside(&self.root())).expect("removed");
            }
            (StoreFault::ReadOnly, _) => self.remounted("rw").await,
            (StoreFault::Full, _) => self.remounted(&format!("size={SIZE}")).await,
            (StoreFault::GatewayKilled, Some((gateway, _))) => gateway.lock().start_again(),
            (_, Some((_, proxy))) => proxy.heal(),
            (fault, None) => unreachable!("{fault:?} of a directory"),
        }
    }

    /// Remounts it; a file that is open for writing delays that.
    async fn remounted(&self, options: &str) {
        eventually("it is mounted otherwise", Duration::from_secs(20), async || {
            self.disk.remount(options).is_ok()
        })
        .await;
    }

    fn used(&self) -> u64 {
        let state = rustix::fs::statfs(self.disk.path()).expect("the state of a file system");
        let blocks = state.f_blocks.saturating_sub(state.f_bfree);
        blocks.saturating_mul(state.f_bsize.unsigned_abs())
    }
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("away")
}

/// Puts what lies beside a path in its place, in one step: a daemon finds no moment at which nothing is there.
fn exchange(path: &Path) {
    renameat_with(CWD, path, CWD, beside(path), RenameFlags::EXCHANGE).expect("exchanged");
}
