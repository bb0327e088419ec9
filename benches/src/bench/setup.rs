//! Starts the servers of a profile and fills them.

use std::time::Duration;

use anyhow::{Context, Result};
use csa_tests::{Daemon, Proxy, Server};
use tokio::task::block_in_place;

use super::load::{Load, script_run};
use super::options::Options;
use super::profile::{Durability, Profile};
use super::stage::{Stage, Versions};
use super::{csa, mta, tables};

/// For all three servers: the default tables fit, and no checkpoint of the redo log interferes.
const SERVER_OPTIONS: [&str; 3] =
    ["--innodb-buffer-pool-size=512M", "--innodb-redo-log-capacity=1G", "--max-connections=400"];

/// The outcome of setting up a profile.
#[derive(Debug)]
pub(super) enum Setup {
    Ready(Box<Stage>),
    /// The daemon's error.
    Refused(String),
}

impl Stage {
    /// Starts the servers, fills the tables, lets both targets follow, and stops both appliers.
    pub(super) async fn set_up(
        profile: Profile,
        options: &Options,
        loads: &[Load],
    ) -> Result<Setup> {
        let (source, mta, csa) = servers(profile, options).await?;
        for server in [&source, &mta, &csa] {
            server.exec(&Durability::NONE.statement()).await;
        }
        let proxy = (options.round_trip > 0.0).then(|| {
            let proxy = Proxy::to(csa.port);
            proxy.set_latency(Duration::from_secs_f64(options.round_trip / 2e3));
            proxy
        });
        let port = proxy.as_ref().map(|proxy| proxy.port);
        let daemon = match start_daemon(&source, &csa, port, profile, options) {
            Ok(daemon) => daemon,
            Err(refusal) => return Ok(Setup::Refused(refusal)),
        };
        let versions = Versions {
            mysqld: source.value("SELECT @@version").await,
            csa_daemon: daemon.status()["daemon"]["version"].as_str().unwrap_or("?").into(),
        };
        let mut schemas: Vec<String> = loads.iter().map(|load| load.schema().to_owned()).collect();
        schemas.push("pulse".to_owned());
        let stage = Self { profile, schemas, source, mta, csa, daemon, _proxy: proxy, versions };
        stage.fill(options, loads).await?;
        Ok(Setup::Ready(Box::new(stage)))
    }

    async fn fill(&self, options: &Options, loads: &[Load]) -> Result<()> {
        if !self.profile.target_redo_log() {
            for target in self.targets() {
                target.exec("ALTER INSTANCE DISABLE INNODB REDO_LOG").await;
            }
        }
        mta::attach(self).await;
        mta::start(self, options.middle_mta_workers()).await;
        let mut shapes = Vec::new();
        for load in loads {
            match load {
                Load::Shape(shape) => shapes.push(*shape),
                Load::Script { sysbench } => {
                    script_run(sysbench, options).prepare(&self.source).await?;
                }
            }
        }
        tables::fill(&self.source, &options.sizes, &shapes).await?;
        mta::wait_applied(self).await?;
        csa::wait_applied(self).await?;
        mta::stop(self).await;
        csa::stop(self)?;
        for target in self.targets() {
            target.exec(&self.profile.durability().statement()).await;
        }
        Ok(())
    }
}

async fn servers(profile: Profile, options: &Options) -> Result<(Server, Server, Server)> {
    let start = |name: &'static str, more: &[&'static str], named: &[String]| {
        let (more, named) = (more.to_vec(), named.to_vec());
        tokio::task::spawn_blocking(move || {
            let named: Vec<&str> = named.iter().map(String::as_str).collect();
            Server::start(name, &[&SERVER_OPTIONS[..], &more, &named].concat())
        })
    };
    let (of_targets, named) = (profile.target_options(), &options.target_options);
    let source = start("source", profile.source_options(), &[]);
    let mta = start("mta-target", of_targets, named);
    let csa = start("csa-target", of_targets, named);
    let (source, mta, csa) = tokio::join!(source, mta, csa);
    let why = "starting the servers";
    Ok((source.context(why)?, mta.context(why)?, csa.context(why)?))
}

/// `port` is the target's, if it is not its own.
fn start_daemon(
    source: &Server,
    target: &Server,
    port: Option<u16>,
    profile: Profile,
    options: &Options,
) -> Result<Daemon, String> {
    let mut builder = Daemon::builder(source, target);
    if let Some(port) = port {
        builder = builder.set("target.port", i64::from(port));
    }
    if options.socket {
        builder = builder.set("target.socket", target.socket.display().to_string());
    }
    let of_profile = profile.daemon_keys().into_iter();
    let named = options.daemon_keys.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    for (key, value) in of_profile.chain(named) {
        builder = match (value.parse::<i64>(), value.parse::<bool>()) {
            (Ok(number), _) => builder.set(key, number),
            (_, Ok(switch)) => builder.set(key, switch),
            _ => builder.set(key, value),
        };
    }
    block_in_place(|| builder.start_unless_refused())
}
