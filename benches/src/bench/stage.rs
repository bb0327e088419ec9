//! The topology of a profile: a source, and one target for each applier.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use csa_tests::{Compare, Compared, Daemon, Server};
use mysql_async::prelude::Queryable;
use serde::Serialize;
use tokio::task::block_in_place;

use super::options::Options;
use super::profile::{Durability, Profile};
use super::shape::Shape;
use super::{csa, mta, tables};

/// No filling, drain or catching up takes longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(1800);

/// For all three servers: the default tables fit, and no checkpoint of the redo log interferes.
const SERVER_OPTIONS: [&str; 3] =
    ["--innodb-buffer-pool-size=512M", "--innodb-redo-log-capacity=1G", "--max-connections=400"];

/// All schemas that are filled or written.
const SCHEMAS: [&str; 4] = ["sbtest", "wide", "families", "pulse"];

/// Both appliers are stopped unless a measurement runs one.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) profile: Profile,
    pub(super) source: Server,
    /// Followed by the server's own multi-threaded applier.
    pub(super) mta: Server,
    /// Followed by csa-daemon.
    pub(super) csa: Server,
    pub(super) daemon: Daemon,
    pub(super) versions: Versions,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Versions {
    pub(super) mysqld: String,
    pub(super) csa_daemon: String,
}

/// The outcome of setting up a profile.
#[derive(Debug)]
pub(super) enum Setup {
    Ready(Box<Stage>),
    /// The daemon's error.
    Refused(String),
}

/// One of the two appliers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Applier {
    Mta,
    Csa,
}

impl Applier {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Mta => "server's own applier",
            Self::Csa => "csa-daemon",
        }
    }
}

impl Stage {
    /// Starts the servers, fills the tables, lets both targets follow, and stops both appliers.
    pub(super) async fn set_up(
        profile: Profile,
        options: &Options,
        loads: &[Shape],
    ) -> Result<Setup> {
        let (source, mta, csa) = servers(profile).await?;
        for server in [&source, &mta, &csa] {
            server.exec(&Durability::NONE.statement()).await;
        }
        let daemon = match start_daemon(&source, &csa, profile, options) {
            Ok(daemon) => daemon,
            Err(refusal) => return Ok(Setup::Refused(refusal)),
        };
        let versions = Versions {
            mysqld: source.value("SELECT @@version").await,
            csa_daemon: daemon.status()["daemon"]["version"].as_str().unwrap_or("?").into(),
        };
        let stage = Self { profile, source, mta, csa, daemon, versions };
        stage.fill(options, loads).await?;
        Ok(Setup::Ready(Box::new(stage)))
    }

    async fn fill(&self, options: &Options, loads: &[Shape]) -> Result<()> {
        if !self.profile.target_redo_log() {
            for target in self.targets() {
                target.exec("ALTER INSTANCE DISABLE INNODB REDO_LOG").await;
            }
        }
        mta::attach(self).await;
        mta::start(self, options.middle_mta_workers()).await;
        tables::fill(&self.source, &options.sizes, loads).await?;
        mta::wait_applied(self).await?;
        csa::wait_applied(self).await?;
        mta::stop(self).await;
        csa::stop(self)?;
        for target in self.targets() {
            target.exec(&self.profile.durability().statement()).await;
        }
        Ok(())
    }

    pub(super) fn targets(&self) -> [&Server; 2] {
        [&self.mta, &self.csa]
    }

    pub(super) fn target(&self, applier: Applier) -> &Server {
        match applier {
            Applier::Mta => &self.mta,
            Applier::Csa => &self.csa,
        }
    }

    /// Starts one applier and waits until it has applied everything.
    pub(super) async fn catch_up(&self, applier: Applier, mta_workers: u32) -> Result<()> {
        match applier {
            Applier::Mta => mta::start(self, mta_workers).await,
            Applier::Csa => csa::start(self),
        }
        self.wait_applied(applier).await
    }

    /// Waits until everything that the source has executed at the call is executed on the target.
    pub(super) async fn wait_applied(&self, applier: Applier) -> Result<()> {
        match applier {
            Applier::Mta => mta::wait_applied(self).await,
            Applier::Csa => csa::wait_applied(self).await,
        }
    }

    pub(super) async fn stop(&self, applier: Applier) -> Result<()> {
        match applier {
            Applier::Mta => mta::stop(self).await,
            Applier::Csa => csa::stop(self)?,
        }
        Ok(())
    }

    /// Rows of every table on the source.
    pub(super) async fn source_rows(&self) -> Result<BTreeMap<String, u64>> {
        let mut conn = self.source.conn().await;
        let names: Vec<String> = conn
            .query(format!(
                "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables \
                 WHERE table_schema IN ('{}') ORDER BY 1",
                SCHEMAS.join("','")
            ))
            .await?;
        let mut rows = BTreeMap::new();
        for name in names {
            let count: Option<u64> =
                conn.query_first(format!("SELECT COUNT(*) FROM {name}")).await?;
            rows.insert(name, count.unwrap_or_default());
        }
        conn.disconnect().await?;
        Ok(rows)
    }

    /// Compares the schemas named on both targets with the source, by content.
    pub(super) async fn compare(&self, schemas: &[&str]) -> Result<Compared> {
        let mut compare = Compare::new();
        for schema in SCHEMAS {
            if !schemas.contains(&schema) {
                compare = compare.ignore_schema(schema);
            }
        }
        let (mta, csa) = tokio::join!(
            compare.run(&self.source, &self.mta),
            compare.run(&self.source, &self.csa)
        );
        let different = |applier: Applier, difference| {
            anyhow!("DIFFERENT: target of {}: {difference}", applier.title())
        };
        mta.map_err(|difference| different(Applier::Mta, difference))?;
        csa.map_err(|difference| different(Applier::Csa, difference))
    }
}

async fn servers(profile: Profile) -> Result<(Server, Server, Server)> {
    let start = |name: &'static str, more: &'static [&'static str]| {
        tokio::task::spawn_blocking(move || Server::start(name, &[&SERVER_OPTIONS, more].concat()))
    };
    let source = start("source", profile.source_options());
    let mta = start("mta-target", profile.target_options());
    let csa = start("csa-target", profile.target_options());
    let (source, mta, csa) = tokio::join!(source, mta, csa);
    let why = "starting the servers";
    Ok((source.context(why)?, mta.context(why)?, csa.context(why)?))
}

fn start_daemon(
    source: &Server,
    target: &Server,
    profile: Profile,
    options: &Options,
) -> Result<Daemon, String> {
    let mut builder = Daemon::builder(source, target);
    for (key, value) in profile.daemon_keys() {
        builder = builder.set(key, *value);
    }
    for (key, value) in &options.daemon_keys {
        builder = match (value.parse::<i64>(), value.parse::<bool>()) {
            (Ok(number), _) => builder.set(key, number),
            (_, Ok(switch)) => builder.set(key, switch),
            _ => builder.set(key, value.as_str()),
        };
    }
    block_in_place(|| builder.start_unless_refused())
}
