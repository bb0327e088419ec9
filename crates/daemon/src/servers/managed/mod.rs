//! Findings and fixes for managed services, where nobody may run the usual GRANT or SET PERSIST. Pure,
//! but for [`retention`].

mod service;

use csa_provider::server::{Finding, Fix, Level, Place, ServerFacts, Version};

use super::check_session::CheckSession;
use crate::verify::{Side, TableName, TableSelection};
pub(crate) use service::ManagedService;
use service::{Retention, ServiceSettings};

/// Privileges that tell a server of one's own: no service, or hardly any, lets an account have them.
const TELLING: [&str; 7] = [
    "SUPER",
    "SYSTEM_VARIABLES_ADMIN",
    "SYSTEM_USER",
    "BINLOG_ADMIN",
    "REPLICATION_APPLIER",
    "CONNECTION_ADMIN",
    "TRANSACTION_GTID_TAG",
];
/// Hours below which binary logs are kept too briefly.
const HOURS_MIN: u64 = 24;

/// The services of both servers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Profiles {
    pub(crate) source: Option<&'static ManagedService>,
    pub(crate) target: Option<&'static ManagedService>,
}

impl Profiles {
    /// Takes `SERVICE` for both servers, `source=SERVICE` or `target=SERVICE`.
    ///
    /// # Errors
    /// Names the known services.
    pub(crate) fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, String> {
        let mut found = Self::default();
        for text in texts {
            match text.as_ref().split_once('=') {
                None => {
                    let service = ManagedService::named(text.as_ref())?;
                    (found.source, found.target) = (Some(service), Some(service));
                }
                Some(("source", name)) => found.source = Some(ManagedService::named(name)?),
                Some(("target", name)) => found.target = Some(ManagedService::named(name)?),
                Some((side, _)) => {
                    return Err(format!(
                        "{side:?} is neither source nor target, as in --profile source=SERVICE"
                    ));
                }
            }
        }
        Ok(found)
    }

    /// Replaces fixes that the services would refuse. `None`: that server did not answer.
    pub(super) fn adapt(
        self,
        found: &mut [Finding],
        source: Option<&Version>,
        target: Option<&Version>,
    ) {
        for (place, service, version) in
            [(Place::Source, self.source, source), (Place::Target, self.target, target)]
        {
            let Some(service) = service else { continue };
            let version = version.map_or([u32::MAX; 3], Version::numbers);
            for finding in found.iter_mut().filter(|finding| finding.level != Level::Ok) {
                adapt(finding, place, service, version);
            }
        }
    }
}

/// Returns the service itself, and the account if it can't be one of the service.
pub(super) fn service(
    check: &'static str,
    service: &ManagedService,
    server: &ServerFacts,
) -> Finding {
    let ManagedService { title, name, .. } = service;
    let ServerFacts { grants, version, .. } = server;
    let foreign = |privilege: &&&str| {
        grants.has_any(&[**privilege]) && !service.can_grant(privilege, version.numbers())
    };
    let strange: Vec<&str> = TELLING.iter().filter(foreign).copied().collect();
    if strange.is_empty() {
        return Finding::ok(check, format!("{title}: docs/managed.md describes its limits"));
    }
    Finding::warning(
        check,
        format!(
            "{} has {}, which {title} grants to nobody: the server is another one, and the fixes below \
             may be wrong",
            grants.account(),
            strange.join(", ")
        ),
    )
    .fix(Place::Operator, format!("csa-daemon check --connect without --profile {name}"))
}

/// Returns the hint at a profile, if a server that is checked without one seems to be of a service.
pub(super) fn recognised(side: Side, server: &ServerFacts) -> Option<Finding> {
    let check = match side {
        Side::Source => "source.service",
        Side::Target => "target.service",
    };
    let (version, is_amazons) =
        (server.text("version"), server.text("basedir").starts_with("/rdsdbbin"));
    let name = match server.text("aurora_version") {
        _ if version.contains("-google") => "cloud-sql",
        _ if version.contains("-azure") => "azure-mysql",
        _ if !is_amazons => return None,
        "" => "rds-mysql",
        _ => "aurora-mysql",
    };
    let title = ManagedService::named(name).ok()?.title;
    let text = format!(
        "this seems to be {title}, whose own tables and limits are not checked without its profile"
    );
    let run = format!("csa-daemon check --connect --profile {side}={name}");
    Some(Finding::warning(check, text).fix(Place::Operator, run))
}

/// Returns the tables that the service itself changes, which are in the binary log.
pub(super) fn own_tables(service: &ManagedService, selection: &dyn TableSelection) -> Finding {
    const CHECK: &str = "source.service_tables";
    // Any table of the schema that holds no accounts.
    let own = TableName { schema: "mysql".to_owned(), table: "heartbeat".to_owned() };
    if selection.target_of(&own, false).is_none() {
        return Finding::ok(CHECK, "the service's own tables in schema mysql are left out");
    }
    let text = format!(
        "{} may log changes of its own tables in schema mysql, which the target lacks: the first one \
         would stop the channel (1146)",
        service.title
    );
    Finding::warning(CHECK, text)
        .fix(Place::Configuration, "[channel.applier] replicate_wild_ignore_table = [\"mysql.%\"]")
}

/// Returns the time for which the service keeps binary logs, where it has another rule than
/// MySQL's.
pub(super) async fn retention(
    service: &ManagedService,
    session: &mut CheckSession,
    server: &ServerFacts,
) -> Option<Finding> {
    const CHECK: &str = "source.binlog_retention";
    match service.retention {
        Retention::Usual => None,
        Retention::ZeroIsAtOnce => {
            let is_zero = server.number("binlog_expire_logs_seconds") == Some(0);
            is_zero.then(|| {
                let text = "binlog_expire_logs_seconds is 0, by which the service deletes a binary log \
                     as soon as it has no use for it itself";
                let fix = "SET PERSIST binlog_expire_logs_seconds=604800;";
                Finding::warning(CHECK, text).fix(Place::Source, fix)
            })
        }
        Retention::Configuration => {
            let query =
                "SELECT value FROM mysql.rds_configuration WHERE name='binlog retention hours'";
            Some(match session.value(query).await {
                Ok(hours) => kept_for(CHECK, hours.as_deref()),
                Err(refusal) => {
                    let text = format!(
                        "the account can't read for how long binary logs are kept ({})",
                        refusal.text
                    );
                    Finding::warning(CHECK, text)
                }
            })
        }
    }
}

fn kept_for(check: &'static str, hours: Option<&str>) -> Finding {
    match hours.and_then(|hours| hours.parse::<u64>().ok()) {
        Some(hours) if hours >= HOURS_MIN => {
            Finding::ok(check, format!("binary logs are kept for {hours} hours"))
        }
        Some(hours) => Finding::warning(
            check,
            format!(
                "binary logs are kept for {hours} hours: once reception has paused for longer, the \
                 target has to be copied again"
            ),
        ),
        None => Finding::warning(
            check,
            "binlog retention hours is NULL: the service deletes binary logs as soon as it can, and \
             whatever the target lacks of them has to be copied again",
        ),
    }
}

fn adapt(finding: &mut Finding, place: Place, service: &ManagedService, version: [u32; 3]) {
    if let Some((_, on, run)) = service.fixes.iter().find(|(check, ..)| *check == finding.check) {
        finding.fixes = vec![Fix { on: *on, run: (*run).to_owned() }];
        return;
    }
    if finding.check == login(place) {
        for fix in finding.fixes.iter_mut().filter(|fix| fix.run.contains("tls = \"verify-ca\"")) {
            let side = if place == Place::Source { "source" } else { "target" };
            fix.run = format!("[channel.{side}] {}", service.tls);
        }
        return;
    }
    let mut refused: Vec<String> = Vec::new();
    let mut fixes: Vec<Fix> = Vec::new();
    for fix in std::mem::take(&mut finding.fixes) {
        let adapted = match (fix.on == place, Grant::parse(&fix.run)) {
            (false, _) => vec![fix],
            (true, Some(grant)) => grant.adapted(place, service, version, &mut refused),
            (true, None) => match settings(&fix.run) {
                found if found.is_empty() => vec![fix],
                found => vec![Fix { on: Place::Operator, run: service.settings.text(&found) }],
            },
        };
        for fix in adapted {
            if !fixes.contains(&fix) {
                fixes.push(fix);
            }
        }
    }
    finding.fixes = fixes;
    if refused.is_empty() {
        return;
    }
    finding.text += &format!("; {} grants {} to nobody", service.title, refused.join(", "));
    // Nothing can be done about it, so it is no warning; an error remains one.
    let can_be_done = finding.fixes.iter().any(|fix| fix.on != Place::Configuration);
    if finding.level == Level::Warning && !can_be_done {
        finding.level = Level::Ok;
        finding.fixes.clear();
    }
}

fn login(place: Place) -> &'static str {
    if place == Place::Source { "source.login" } else { "target.login" }
}

/// A GRANT of global privileges.
struct Grant<'a> {
    names: Vec<&'a str>,
    /// The text from `ON` on.
    rest: &'a str,
}

impl<'a> Grant<'a> {
    fn parse(run: &'a str) -> Option<Self> {
        let list = run.strip_prefix("GRANT ")?;
        let at = list.find(" ON *.* TO ")?;
        let (names, rest) = list.split_at_checked(at)?;
        Some(Self { names: names.split(", ").collect(), rest })
    }

    /// The GRANT of those that the service permits, and the way to do without each of the others.
    fn adapted(
        self,
        place: Place,
        service: &ManagedService,
        version: [u32; 3],
        refused: &mut Vec<String>,
    ) -> Vec<Fix> {
        let (permitted, others): (Vec<&str>, Vec<&str>) =
            self.names.iter().partition(|name| service.can_grant(name, version));
        let mut fixes = Vec::new();
        if !permitted.is_empty() {
            let run = format!("GRANT {}{}", permitted.join(", "), self.rest);
            fixes.push(Fix { on: place, run });
        }
        for name in others {
            if let Some(key) = without(name) {
                fixes.push(Fix {
                    on: Place::Configuration,
                    run: format!("[channel.applier] {key}"),
                });
            }
            refused.push(name.to_owned());
        }
        fixes
    }
}

/// Returns the key with which a channel needs no such privilege.
fn without(privilege: &str) -> Option<&'static str> {
    match privilege {
        "REPLICATION_APPLIER" => Some("executor = \"sql\""),
        "SYSTEM_VARIABLES_ADMIN" => Some("target_gtids = \"own\""),
        _ => None,
    }
}

/// The variables that the statements set; empty if they do anything else.
fn settings(run: &str) -> Vec<(&str, &str)> {
    let statements = run.split(" -- ").next().unwrap_or_default();
    let statements = statements.split(';').map(str::trim).filter(|text| !text.is_empty());
    let pairs: Option<Vec<_>> = statements
        .map(|text| {
            let set = text.strip_prefix("SET PERSIST ").or(text.strip_prefix("SET GLOBAL "))?;
            set.split_once('=')
        })
        .collect();
    pairs.unwrap_or_default()
}

impl ServiceSettings {
    /// Returns the settings as text. A variable that is set several times keeps its first place and its last value.
    fn text(&self, pairs: &[(&str, &str)]) -> String {
        let mut last: Vec<(&str, &str)> = Vec::new();
        for &(name, value) in pairs {
            match last.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 = value,
                None => last.push((name, value)),
            }
        }
        let each: Vec<String> = last
            .iter()
            .map(|(name, value)| {
                let renamed = self.renamed.iter().find(|(usual, _)| usual == name);
                let name = renamed.map_or(*name, |(_, own)| *own);
                self.each.replace("{name}", name).replace("{value}", value)
            })
            .collect();
        format!("{}{}", self.introduction, each.join(self.between))
    }
}

#[cfg(test)]
mod tests;
