//! `check`: the file, and on request what a first start needs on both servers and this host.

use std::path::Path;

use csa_daemon::check::{CheckOptions, Finding, Level, Report};
use csa_daemon::verify::source_servers;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::channel::{Findings, Supervisor};
use crate::cli::{CheckArguments, Failure};
use crate::config::{ChannelSettings, Config};
use crate::verify_command::{Replicated, chosen, other_reader};
use crate::{logging, run};

/// Of a whole run, as JSON.
#[derive(Debug, Serialize)]
struct Output {
    /// Of the configuration file.
    warnings: Vec<String>,
    /// Empty unless servers were looked at.
    channels: Vec<Report>,
}

/// Checks the file and, with `connect`, both servers of one or all channels.
pub(crate) fn check(
    path: &Path,
    channel: Option<&str>,
    arguments: &CheckArguments,
) -> Result<(), Failure> {
    let config = Config::load(path)?;
    logging::parse(&config.daemon.log_filter)
        .map_err(|why| Failure::Input(format!("{}: daemon.{why}", path.display())))?;
    let channels = chosen(&config, channel)?;
    if !arguments.json {
        for warning in &config.warnings {
            println!("warning: {warning}");
        }
        println!("{}: {} channel(s), no errors", path.display(), config.channels.len());
    }
    let mut reports = Vec::new();
    if arguments.connect {
        let runtime = run::runtime()?;
        for settings in channels {
            let report = runtime.block_on(look(settings, arguments))?;
            if !arguments.json {
                println!("{report}");
            }
            reports.push(report);
        }
    }
    let verdict = verdict(&reports);
    if arguments.json {
        let output = Output { warnings: config.warnings, channels: reports };
        let text = serde_json::to_string_pretty(&output)
            .map_err(|error| Failure::Runtime(format!("writing JSON: {error}")))?;
        println!("{text}");
    }
    verdict
}

async fn look(settings: &ChannelSettings, arguments: &CheckArguments) -> Result<Report, Failure> {
    let reader = other_reader(
        settings,
        arguments.source_user.as_deref(),
        arguments.source_password_file.as_deref(),
    )?;
    let options = CheckOptions {
        channel: settings.name.clone(),
        source: source_servers(&settings.source),
        source_reader: reader.map(|source| source_servers(&source)),
        server_id: settings.source.server_id,
        target: settings.target.clone(),
        start_from: settings.start_from.clone(),
        worker_count: settings.worker_count,
        relay_directory: settings.relay.directory.clone(),
        relay_space_limit: settings.relay.space_limit,
        relay_min_free_disk: settings.relay.min_free_disk,
    };
    let selection = Replicated::new(&settings.filters);
    let mut report = csa_daemon::check::check(&options, &selection).await;
    report.findings.extend(refusal(settings, &report).await);
    Ok(report)
}

/// What the start itself would say, where nothing above says so already: these checks must not
/// promise what the start refuses.
async fn refusal(settings: &ChannelSettings, report: &Report) -> Option<Finding> {
    const CHECK: &str = "channel.start";
    let taken = |finding: &Finding| finding.check == "target.channel" && finding.level != Level::Ok;
    if report.count(Level::Error) > 0 || report.findings.iter().any(taken) {
        return None;
    }
    let token = CancellationToken::new;
    let channel = Supervisor::new(settings.clone(), token(), token());
    Some(match channel.preflight().await {
        Ok(Findings { unreachable: None, .. }) => {
            Finding::new(CHECK, Level::Ok, "the channel can start")
        }
        Ok(Findings { unreachable: Some(why), .. }) | Err(why) => {
            Finding::new(CHECK, Level::Error, why)
        }
    })
}

fn verdict(reports: &[Report]) -> Result<(), Failure> {
    let failed: Vec<String> = reports
        .iter()
        .filter(|report| report.count(Level::Error) > 0)
        .map(|report| {
            let errors = report.findings.iter().filter(|finding| finding.level == Level::Error);
            let names: Vec<&str> = errors.map(|finding| finding.check).collect();
            format!("channel {:?}: {}", report.channel, names.join(", "))
        })
        .collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Input(format!("{}: see above for what to do", failed.join("; ")))),
    }
}
