//! `check`: checks the file, and on request what a first start needs on both servers and this host.

use std::path::Path;

use csa_applier::{ChannelRecord, TargetChannels, TargetGtids};
use csa_provider::server::{Finding, Level, Place};

use crate::servers::{CheckOptions, CheckReport, Profiles};
use crate::verify::{Replicated, source_servers};
use csa_scheduler::filter::FilterRules;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::arguments::CheckArguments;
use super::check_notify::{self, TestedReceiver};
use super::output::say;
use super::verify::{chosen, other_reader};
use crate::archive::store::Archive;
use crate::channel::{Supervisor, overlap};
use crate::config::{ChannelSettings, Config, read_rules};
use crate::host::{Failure, runtime};

/// A whole run, as JSON.
#[derive(Debug, Serialize)]
struct CheckOutput {
    /// The warnings about the configuration file, and about the user that sends test events.
    warnings: Vec<String>,
    /// Empty unless servers were checked.
    channels: Vec<CheckReport>,
    /// Empty unless test events were sent.
    notifications: Vec<TestedReceiver>,
}

/// Checks the file and, with `connect`, both servers of one or all channels.
pub(crate) fn check(
    path: &Path,
    channel: Option<&str>,
    arguments: &CheckArguments,
) -> Result<(), Failure> {
    let mut config = Config::load(path)?;
    if arguments.notify {
        config.warnings.extend(check_notify::another_user(&config.daemon));
    }
    let channels = chosen(&config, channel)?;
    let profiles = Profiles::parse(&arguments.profile)
        .map_err(|why| Failure::Input(format!("--profile: {why}")))?;
    if !arguments.json {
        for warning in &config.warnings {
            say!("warning: {warning}");
        }
        say!("{}: {} channel(s), no errors", path.display(), config.channels.len());
    }
    let mut notifications = Vec::new();
    if arguments.notify {
        notifications = check_notify::send_tests(&channels)?;
        if !arguments.json {
            notifications.iter().for_each(|tested| say!("{tested}"));
        }
    }
    let mut reports = Vec::new();
    if arguments.connect {
        let runtime = runtime()?;
        for settings in channels {
            let report = runtime.block_on(look(settings, arguments, profiles, &config.channels))?;
            if !arguments.json {
                say!("{report}");
            }
            reports.push(report);
        }
    }
    let verdict = verdict(&reports).and_then(|()| check_notify::verdict(&notifications));
    if arguments.json {
        let output = CheckOutput { warnings: config.warnings, channels: reports, notifications };
        let text = serde_json::to_string_pretty(&output)
            .map_err(|error| Failure::Runtime(format!("writing JSON: {error}")))?;
        say!("{text}");
    }
    verdict
}

async fn look(
    settings: &ChannelSettings,
    arguments: &CheckArguments,
    profiles: Profiles,
    all: &[ChannelSettings],
) -> Result<CheckReport, Failure> {
    let reader = other_reader(
        settings,
        arguments.source_user.as_deref(),
        arguments.source_password_file.as_deref(),
    )?;
    let options = CheckOptions {
        channel: settings,
        source: source_servers(&settings.source),
        source_reader: reader.map(|source| source_servers(&source)),
        profiles,
    };
    let selection = Replicated::new(&settings.filters);
    let mut report = crate::servers::check(&options, &selection).await;
    if !settings.archives_only() {
        // A target that does not answer has been reported already.
        let known = csa_applier::target_channels(&settings.target).await.ok();
        if let Some(known) = &known {
            report.findings.extend(same_tables(settings, all, known));
        }
        report.findings.extend(shared_gtids(settings, all, &known.unwrap_or_default().channels));
    }
    report.findings.extend(archive(settings).await);
    report.findings.extend(refusal(settings, &report).await);
    Ok(report)
}

/// Returns whether the channel's archive answers. No start waits for it.
async fn archive(settings: &ChannelSettings) -> Option<Finding> {
    const CHECK: &str = "archive";
    let options = settings.archive.as_ref()?;
    let histories = match Archive::open(&options.location, &settings.name) {
        Ok(archive) => archive.histories().await,
        Err(error) => Err(error),
    };
    Some(match histories {
        Ok(histories) => match histories.last() {
            Some(last) => Finding::ok(CHECK, format!("it answers, and its last history is {last}")),
            None => Finding::ok(CHECK, "it answers, and has nothing of this channel yet"),
        },
        Err(error) => Finding::warning(CHECK, error.to_string()).fix(
            Place::Configuration,
            "[channel.archive] url and options, or the keys in the environment of this command and of the daemon",
        ),
    })
}

/// Returns the channels of the file, and others known to the target, that write the same tables
/// there.
fn same_tables(
    settings: &ChannelSettings,
    all: &[ChannelSettings],
    known: &TargetChannels,
) -> Vec<Finding> {
    const CHECK: &str = "target.same_tables";
    let identity = |name: &str| {
        let record = known.channels.iter().find(|record| record.channel == name);
        record.and_then(|record| record.identity.as_ref())
    };
    let own = identity(&settings.name);
    let address = settings.target.address();
    let mut found = Vec::new();
    let mut compare = |name: &str, rules: &FilterRules, is_same_source: bool| {
        let both = overlap(&settings.filters, rules, known.folds_case, &known.tables);
        let Some(both) = both else { return };
        let (level, source) = match is_same_source {
            true => (Level::Error, ", of the same source,"),
            // Each has its own rows there, or should have.
            false => (Level::Warning, ""),
        };
        let text = format!("channel {name:?}{source} writes {both} too");
        found.push(Finding::new(CHECK, level, text).fix(
            Place::Configuration,
            "[channel.applier] replicate_* so that each table of the target has one channel",
        ));
    };
    let others = all.iter().filter(|other| other.name != settings.name);
    for other in others.filter(|other| other.target.address() == address) {
        let shares = match (own, identity(&other.name)) {
            (Some(own), Some(other)) => !own.source_uuids.is_disjoint(&other.source_uuids),
            _ => false,
        };
        let source =
            |settings: &ChannelSettings| (settings.source.host.clone(), settings.source.port);
        compare(&other.name, &other.filters, shares || source(settings) == source(other));
    }
    let in_file = |name: &str| all.iter().any(|channel| channel.name == name);
    for record in known.channels.iter().filter(|record| !in_file(&record.channel)) {
        let rules = record.identity.as_ref().and_then(|identity| read_rules(&identity.filters));
        let (Some(rules), Some(theirs)) = (rules, record.identity.as_ref()) else { continue };
        // A channel that has never run here follows no source yet.
        let shares = own.is_some_and(|own| !own.source_uuids.is_disjoint(&theirs.source_uuids));
        compare(&record.channel, &rules, shares);
    }
    if found.is_empty() {
        found.push(Finding::new(CHECK, Level::Ok, "no other channel is known to write its tables"));
    }
    found
}

/// Returns whether another channel brings the same source's transactions to the same target, where what one of them leaves
/// out counts as executed for the other. Of a channel that the target records it may be so.
fn shared_gtids(
    settings: &ChannelSettings,
    all: &[ChannelSettings],
    known: &[ChannelRecord],
) -> Option<Finding> {
    const CHECK: &str = "target.shared_gtids";
    let servers = |channel: &ChannelSettings| {
        (channel.source.host.clone(), channel.source.port, channel.target.address())
    };
    let is_own = |channel: &ChannelSettings| channel.target.gtids == TargetGtids::Own;
    let same = all.iter().find(|other| {
        other.name != settings.name
            && !other.archives_only()
            && servers(other) == servers(settings)
            && !(is_own(other) && is_own(settings))
    });
    let own =
        "[channel.applier] target_gtids = \"own\" for both, or one channel for the tables of both";
    if let Some(other) = same {
        let text = format!(
            "channel {:?} shares source and target, and what one of the two leaves out counts as executed for the other",
            other.name
        );
        return Some(Finding::error(CHECK, text).fix(Place::Configuration, own));
    }
    let record = known.iter().find(|record| record.channel == settings.name)?;
    let followed = &record.identity.as_ref()?.source_uuids - &record.target_uuids;
    let hides = |other: &ChannelRecord| {
        let in_file = all.iter().find(|channel| channel.name == other.channel);
        other.follows_target || !is_own(settings) || in_file.is_some_and(|other| !is_own(other))
    };
    let other = known.iter().find(|other| {
        let identity = other.identity.as_ref().filter(|_| other.checkpoint.is_some());
        other.channel != settings.name
            && identity.is_some_and(|identity| !identity.source_uuids.is_disjoint(&followed))
            && hides(other)
    })?;
    let text = format!(
        "channel {:?} has transactions of the same servers: if the two share a source or its group, what one leaves out \
         counts as executed for the other",
        other.channel
    );
    Some(Finding::warning(CHECK, text).fix(Place::Configuration, own))
}

/// The start's own refusal, unless a finding above implies it: the checks must not promise what the
/// start refuses.
async fn refusal(settings: &ChannelSettings, report: &CheckReport) -> Option<Finding> {
    const CHECK: &str = "channel.start";
    let taken = |finding: &Finding| finding.check == "target.channel" && finding.level != Level::Ok;
    if report.count(Level::Error) > 0 || report.findings.iter().any(taken) {
        return None;
    }
    let token = CancellationToken::new;
    let channel = Supervisor::new(settings.clone(), token(), token());
    Some(match channel.preflight().await {
        Ok(None) => Finding::new(CHECK, Level::Ok, "the channel can start"),
        Ok(Some(why)) | Err(why) => Finding::new(CHECK, Level::Error, why),
    })
}

fn verdict(reports: &[CheckReport]) -> Result<(), Failure> {
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

#[cfg(test)]
mod tests {
    use csa_applier::{ChannelIdentity, Checkpoint};
    use csa_provider::binlog::Uuid;

    use super::*;
    use crate::config::tests::MINIMAL;

    #[test]
    fn channels_that_share_source_and_target_keep_their_own_gtids() {
        let second = MINIMAL.replace("orders", "items").replace("4201", "4202");
        let found = |settings: &str, second: &str| {
            let config = Config::parse(&format!("{MINIMAL}{settings}{second}")).expect("valid");
            let found = |place: usize| shared_gtids(&config.channels[place], &config.channels, &[]);
            (found(0).is_some(), found(1).is_some())
        };
        let mirror = "[channel.applier]\ntarget_gtids = \"mirror\"\n";
        assert_eq!(found("", &second), (false, false));
        assert_eq!(found(mirror, &second), (true, true));
        assert_eq!(found(mirror, &second.replace("127.0.0.1", "127.0.0.2")), (false, false));
    }
    #[test]
    fn recorded_channels_that_may_share_a_source_are_warned_of() {
        let other = MINIMAL.replace("orders", "items").replace("4201", "4202");
        // Another member of the group, or another source.
        let other = other.replace("127.0.0.1", "127.0.0.2");
        let uuid = |number: u8| Uuid::from_bytes([number; 16]);
        let record = |channel: &str, servers: [u8; 2]| ChannelRecord {
            channel: channel.to_owned(),
            checkpoint: Some(Checkpoint::default()),
            target_uuids: [uuid(9)].into(),
            identity: Some(ChannelIdentity {
                source_uuids: servers.map(uuid).into(),
                ..ChannelIdentity::default()
            }),
            ..ChannelRecord::default()
        };
        let mirror = "[channel.applier]\ntarget_gtids = \"mirror\"\n";
        for (settings, others, servers, is_warned) in [
            (mirror, "", [1, 3], true),
            ("", mirror, [1, 3], true),
            ("", "", [1, 3], false),
            // What the target made comes back to both.
            (mirror, "", [3, 9], false),
        ] {
            let text = format!("{MINIMAL}{settings}{other}{others}");
            let all = Config::parse(&text).expect("valid").channels;
            let known = [record(&all[0].name, [1, 2]), record(&all[1].name, servers)];
            let found = shared_gtids(&all[0], &all, &known);
            let levels = found.map(|finding| finding.level);
            assert_eq!(levels, is_warned.then_some(Level::Warning), "{servers:?}");
        }
    }
}
