//! Checks of what a channel needs for its first start, on both servers and this host.
//!
//! Every check runs, whatever the others find, with a few queries whose cost grows with the number
//! of tables and not of rows. Sessions only read.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing))]

mod account_limits;
mod between;
mod catalogue;
mod channel_state;
mod check_session;
pub(crate) mod copy_privileges;
mod host;
mod limits;
mod managed;
mod missed_cascades;
mod options;
mod position;
mod privileges;
mod report;
mod server;
mod source_settings;
mod tables;
mod target_settings;
#[cfg(test)]
mod test_util;
mod versions;

use std::net::IpAddr;

use csa_applier::{
    Executor, OfSource, TargetGtids, TargetOptions, executor_for, logged_again, requirements,
};
use csa_provider::server::facts;
use csa_provider::server::group::Membership;
use csa_provider::server::{Finding, Level, Place, ServerFacts, Vendor};
use csa_provider::source;

use crate::verify::{ListedTables, Scope, Side, TableSelection, missing_select};

use catalogue::Catalogue;
use channel_state::{TargetKnowledge, channel_state, taken};
use check_session::{CheckSession, Unusable};
pub(crate) use managed::Profiles;
pub(crate) use options::CheckOptions;
use position::Position;
pub(crate) use report::CheckReport;
use server::CheckedServer;
use tables::Context;

/// A server that answered.
struct Answering {
    session: CheckSession,
    server: CheckedServer,
}

impl Answering {
    /// Logs in and asks; an error says why not.
    async fn open(side: Side, options: &TargetOptions) -> Result<Self, Unusable> {
        let mut session = CheckSession::connect(side, options).await?;
        match CheckedServer::read(&mut session).await {
            Ok(server) => Ok(Self { session, server }),
            Err(refusal) => Err(Unusable::Login(format!("{side} {}", refusal.text))),
        }
    }

    /// The first server that answers; an error says why the last one did not.
    async fn first(side: Side, servers: &[TargetOptions]) -> Result<Self, String> {
        let mut last = format!("no address of the {side} is known");
        for options in servers {
            match Self::open(side, options).await {
                Ok(answering) => return Ok(answering),
                Err(why) => last = why.text(),
            }
        }
        Err(last)
    }
}

/// Runs all checks; `selection` is the channel's `replicate_*`.
pub(crate) async fn check(
    options: &CheckOptions<'_>,
    selection: &dyn TableSelection,
) -> CheckReport {
    let mut found = Vec::new();
    let target = options.target().map(std::slice::from_ref).unwrap_or_default();
    let (mut source, mut target) = (
        connect(Side::Source, &options.source, &mut found).await,
        connect(Side::Target, target, &mut found).await,
    );
    if let Some(source) = &mut source {
        on_source(source, options, selection, &mut found).await;
    }
    if let Some(Answering { server, .. }) = &target {
        on_target(server, source.as_ref().map(|source| &source.server), options, &mut found);
    }
    let mut state = TargetKnowledge::default();
    if let Some(Answering { session, server }) = &mut target {
        found.extend(target_settings::named_locks(session).await);
        match channel_state(session, &options.channel.name).await {
            Ok(read) => {
                found.push(taken(&read, options));
                let chosen = options.target();
                found.extend(
                    chosen.and_then(|chosen| logged_again(&server.facts, chosen, read.was_source)),
                );
                state = read;
            }
            Err(refusal) => found.push(Finding::error("target.channel", refusal.text)),
        }
    }
    if let (Some(source), Some(target)) = (&mut source, &mut target) {
        on_both(source, target, &state, options, selection, &mut found).await;
    }
    let version = |answering: &Option<Answering>| {
        answering.as_ref().map(|answering| answering.server.facts.version.clone())
    };
    let (of_source, of_target) = (version(&source), version(&target));
    options.profiles.adapt(&mut found, of_source.as_ref(), of_target.as_ref());
    for (place, answering) in [(Place::Source, source), (Place::Target, target)] {
        let Some(Answering { session, server }) = answering else { continue };
        let vendor = server.facts.version.vendor();
        found.iter_mut().for_each(|finding| finding.adapt(place, vendor));
        session.close().await;
    }
    found.push(host::disk(options));
    CheckReport { channel: options.channel.name.clone(), findings: found }
}

/// Logs in to all of them, and keeps the first that answers.
async fn connect(
    side: Side,
    servers: &[TargetOptions],
    found: &mut Vec<Finding>,
) -> Option<Answering> {
    let (check, version) = match side {
        Side::Source => ("source.login", "source.version"),
        Side::Target => ("target.login", "target.version"),
    };
    let mut first = None;
    let mut refused = Vec::new();
    for options in servers {
        match Answering::open(side, options).await {
            Ok(mut answering) => {
                let CheckedServer { address, facts, cipher, .. } = &answering.server;
                let link = match cipher.as_str() {
                    "" => "not encrypted".to_owned(),
                    cipher => format!("encrypted by {cipher}"),
                };
                let text = format!("{address} takes {}, {link}", facts.grants.account());
                found.push(match options.tls.mode.verifies() || is_near(options) {
                    true => Finding::ok(check, text),
                    false => unverified(side, check, &text),
                });
                match first {
                    None => {
                        found.push(between::between(side, options, &mut answering.session).await);
                        first = Some(answering);
                    }
                    Some(_) => answering.session.close().await,
                }
            }
            Err(why) => refused.push(why),
        }
    }
    // One that answers is enough; the others may be down.
    let level = if first.is_some() { Level::Warning } else { Level::Error };
    for why in refused {
        found.push(match why {
            Unusable::Product(why) => Finding::new(version, level, why).fix(
                Place::Configuration,
                format!("[channel.{side}] host and port of a server of MySQL 5.7 or newer"),
            ),
            Unusable::Login(why) => Finding::new(check, level, why).fix(
                Place::Configuration,
                format!("[channel.{side}] host, port, user, password and tls, if the server is up"),
            ),
        });
    }
    first
}

/// Nobody can sit between this host and itself.
fn is_near(server: &TargetOptions) -> bool {
    let is_loopback = server.host.parse::<IpAddr>().map(|address| address.is_loopback());
    server.socket.is_some() || is_loopback.unwrap_or(server.host == "localhost")
}

fn unverified(side: Side, check: &'static str, text: &str) -> Finding {
    let text = format!(
        "{text}; the certificate is not verified, so whoever sits in between can get the password"
    );
    Finding::new(check, Level::Warning, text).fix(
        Place::Configuration,
        format!("[channel.{side}] tls = \"verify-ca\" and tls_ca, a copy of the server's ca.pem"),
    )
}

async fn on_source(
    source: &mut Answering,
    options: &CheckOptions<'_>,
    selection: &dyn TableSelection,
    found: &mut Vec<Finding>,
) {
    let Answering { session, server } = source;
    let facts = &server.facts;
    found.push(versions::source(&facts.version));
    let service = options.profiles.source;
    if let Some(service) = service {
        found.push(managed::service("source.service", service, facts));
        found.push(managed::own_tables(service, selection));
    } else {
        found.extend(managed::recognised(Side::Source, facts));
    }
    let declared = &options.channel.source;
    found.extend(source::requirements(facts, declared.server_id, declared.group.is_some()));
    let mut settings = source_settings::settings(server);
    found.extend(declared.semi_sync.then(|| source_settings::semi_sync(facts)));
    if let Some(service) = service
        && let Some(kept) = managed::retention(service, session, facts).await
    {
        settings.retain(|finding| finding.check != kept.check);
        settings.push(kept);
    }
    found.extend(settings);
    found.push(host::clock(Side::Source, server.clock));
}

fn on_target(
    target: &CheckedServer,
    source: Option<&CheckedServer>,
    options: &CheckOptions<'_>,
    found: &mut Vec<Finding>,
) {
    let (facts, Some(chosen)) = (&target.facts, options.target()) else { return };
    let of_source = source.map(|source| &source.facts);
    let is_mariadb = facts.version.is_mariadb();
    let tagged =
        |source: &ServerFacts| source.gtid_executed.intervals().any(|(_, tag, _)| !tag.is_empty());
    if !is_mariadb {
        found.push(versions::target(&facts.version, of_source.map(|source| &source.version)));
        if let Some(service) = options.profiles.target {
            found.push(managed::service("target.service", service, facts));
        } else {
            found.extend(managed::recognised(Side::Target, facts));
        }
    }
    let source_has = OfSource {
        packet: of_source.and_then(|source| source.number("max_allowed_packet")),
        has_tags: of_source.is_some_and(tagged),
    };
    found.extend(requirements(facts, chosen, source_has));
    // Another product names these privileges otherwise.
    if !is_mariadb {
        let is_managed = options.profiles.target.is_some();
        let accounts = options.channel.filters.accounts;
        found.push(privileges::target(facts, accounts, is_managed));
    }
    let workers = options.channel.declared.worker_count;
    found.extend(target_settings::settings(target, source, chosen, workers));
    found.push(host::clock(Side::Target, target.clock));
}

/// The tables of both servers.
struct BothCatalogues {
    of_source: Catalogue,
    of_target: Catalogue,
    /// The account that read the source sees every table there.
    sees_source: bool,
    /// The reason why something was not read.
    unread: Option<String>,
}

/// Reads the tables of both servers, and once more what the source has executed.
async fn catalogues(
    source: &mut Answering,
    target: &mut Answering,
    options: &CheckOptions<'_>,
    found: &mut Vec<Finding>,
) -> BothCatalogues {
    let mut reader = None;
    if let Some(servers) = &options.source_reader {
        match Answering::first(Side::Source, servers).await {
            Ok(answering) => reader = Some(answering),
            Err(why) => found.push(
                Finding::error("tables.reader", why)
                    .fix(Place::Operator, "--source-user and --source-password-file"),
            ),
        }
    }
    let reading = reader.as_mut().unwrap_or(&mut *source);
    let visible = visible(&reading.server.facts);
    let sees_source = visible.level == Level::Ok;
    found.push(visible);
    let catalogues = match tokio::join!(
        Catalogue::read(&mut reading.session),
        Catalogue::read(&mut target.session)
    ) {
        (Ok(of_source), Ok(of_target)) => Ok((of_source, of_target)),
        (Err(refusal), _) | (_, Err(refusal)) => Err(refusal),
    };
    if let Some(reader) = reader {
        reader.session.close().await;
    }
    let mut unread = None;
    let (of_source, of_target) = catalogues.unwrap_or_else(|refusal| {
        unread = Some(refusal.text);
        Default::default()
    });
    // Read last, so that what the source has done meanwhile counts as pending, and not as missing
    // on the target or lost by the source.
    match facts::gtids(&mut source.session, "gtid_executed").await {
        Ok(executed) => source.server.facts.gtid_executed = executed,
        Err(refusal) => unread = Some(refusal.text),
    }
    BothCatalogues { of_source, of_target, sees_source, unread }
}

fn position<'a>(
    source: &'a ServerFacts,
    target: &'a ServerFacts,
    state: &TargetKnowledge,
    options: &CheckOptions<'_>,
    has_tables: bool,
) -> Position<'a> {
    // Tables of an unfinished copy are in nobody's way.
    let is_copied_again = options.channel.copies_first && state.copied_in_part > 0;
    let as_source = |chosen: &TargetOptions| chosen.gtids == TargetGtids::Source;
    Position {
        source_uuid: source.text("server_uuid"),
        target_uuids: ["server_uuid", "group_replication_group_name"]
            .map(|name| target.text(name))
            .to_vec(),
        executed: source.gtid_executed.clone(),
        purged: source.gtid_purged.clone(),
        target_executed: target.gtid_executed.clone(),
        checkpoint: state.checkpoint.clone(),
        target_has_tables: has_tables && !is_copied_again,
        target_adds_gtids: target.version.vendor() == Vendor::MySql,
        copies_first: options.channel.copies_first,
        as_source: options.target().is_some_and(as_source),
    }
}

/// Checks positions and tables.
async fn on_both(
    source: &mut Answering,
    target: &mut Answering,
    state: &TargetKnowledge,
    options: &CheckOptions<'_>,
    selection: &dyn TableSelection,
    found: &mut Vec<Finding>,
) {
    let Some(chosen) = options.target() else { return };
    let BothCatalogues { of_source, of_target, sees_source, unread } =
        catalogues(source, target, options, found).await;
    let (source, target) = (&source.server.facts, &target.server.facts);
    let listed = ListedTables {
        source: &of_source.listed(),
        target: &of_target.listed(),
        source_folds_case: source.folds_case(),
        target_folds_case: target.folds_case(),
    };
    // Without a scope, no name can be wrong.
    let pairs = listed.pairs(&Scope::default(), selection).unwrap_or_default();
    let has_tables = match of_source.tables.is_empty() {
        // It is not known which of them are replicated.
        true => !of_target.tables.is_empty(),
        false => pairs.iter().any(|pair| of_target.tables.contains_key(&pair.target)),
    };
    let position = position(source, target, state, options, has_tables);
    found.extend(position.findings(&options.channel.start_from));
    let begins_with_copy = options.channel.copies_first && state.checkpoint.is_none();
    if begins_with_copy {
        let schemas = pairs.iter().map(|pair| pair.source.schema.as_str()).collect();
        found.push(copy_privileges::judged(&source.grants, &schemas));
    }
    // Tables that were not read get no findings.
    if let Some(why) = unread {
        let text = format!("tables can't be compared: {why}");
        found.push(Finding::warning("tables.definitions", text));
        return;
    }
    if !sees_source && of_source.tables.is_empty() {
        return;
    }
    let executor = executor_for(chosen, target.version.vendor(), &target.grants);
    let context = Context {
        source: &of_source,
        target: &of_target,
        pairs: &pairs,
        executor,
        is_behind: !position.pending(&options.channel.start_from).is_empty() || begins_with_copy,
        target_is_mariadb: target.version.is_mariadb(),
        target_is_group: is_in_group(target),
        target_misses_cascades: missed_cascades::are_possible(source, target),
        sees_target: privileges::sees_everything(&target.grants),
        collation_map: &chosen.collation_map,
        begun: state.checkpoint.as_ref().map(|_| options.channel.name.as_str()),
        takes_copies: executor == Executor::RowImage && chosen.gtids != TargetGtids::Source,
    };
    found.extend(context.findings());
}

/// Returns true unless the server has left its group, or never was in one.
fn is_in_group(server: &ServerFacts) -> bool {
    match &server.group {
        Membership::None => false,
        Membership::Hidden => true,
        Membership::Known(view) => view.members.iter().any(|member| member.state != "OFFLINE"),
    }
}

/// Judges what the account sees: `information_schema` silently lacks tables on which it has no privilege.
fn visible(source: &ServerFacts) -> Finding {
    const CHECK: &str = "tables.visible";
    let grants = &source.grants;
    match missing_select(grants, &Scope::default()) {
        None => Finding::ok(CHECK, "the account sees every table of the source"),
        Some(what) => Finding::warning(
            CHECK,
            format!(
                "{} does not see every table of the source, so not all can be compared; replication \
                 itself needs no more privileges",
                grants.account()
            ),
        )
        .fix(Place::Source, format!("GRANT SELECT ON {what} TO {};", grants.account()))
        .fix(
            Place::Operator,
            "csa-daemon check --connect --source-user USER --source-password-file FILE",
        ),
    }
}
