//! `copy --clone`: the server's clone plugin copies the source's files over the target's. Everything around it is
//! checked and done here (<https://dev.mysql.com/doc/refman/en/clone-plugin-remote.html>).

use std::convert::Infallible;
use std::time::Duration;

use csa_applier::{TargetOptions, TlsMode, connect};
use csa_provider::binlog::GtidSet;
use csa_provider::server::link::{FromRow, Limits, Link, LinkError, Row, Side};
use csa_provider::sql_text::quote;
use csa_relaystore::disk::RelayStoreOptions;
use csa_scheduler::until::Until;
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

use super::error::{CopyError, Result};
use super::options::check_end;
use super::relay::empty_relay_store;
use crate::verify::{LEFT_OUT, connect_error};

/// The account of a channel, as the documents make it.
const GRANTS: &str = include_str!("../../../../config/grants-target.sql");
/// ER_RESTART_SERVER_FAILED: it is a clone, and has ended.
const NOT_RESTARTED: u16 = 3707;
/// The time within which a server has to come back.
const RESTART: Duration = Duration::from_secs(1800);
const LOOK: Duration = Duration::from_secs(1);
/// Names that an error shows.
const SHOWN: u32 = 5;

/// Both servers, with administrators of them.
#[derive(Debug, Clone)]
pub(crate) struct CloneOptions {
    /// An administrator of the source, which the clone then has, too.
    pub(crate) source: TargetOptions,
    /// An administrator of the target, before it is a clone.
    pub(crate) target: TargetOptions,
    /// The account of the channel on the target, which is made if the clone lacks it.
    pub(crate) account: TargetOptions,
    /// The relay store of the channel, which the clone begins empty.
    pub(crate) relay: RelayStoreOptions,
    /// The channel's end.
    pub(crate) until: Option<Until>,
}

/// The result of a clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CloneSummary {
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
    /// The transactions that the clone holds.
    pub(crate) executed: GtidSet,
    /// Grants that the server refused.
    pub(crate) not_granted: Vec<String>,
}

/// A session of an administrator.
struct Session {
    link: Link,
    side: Side,
    address: String,
}

impl Session {
    async fn connect(side: Side, server: &TargetOptions) -> Result<Self> {
        let link = connect(server, side).await;
        let link = link.map_err(|error| connect_error(side, server, error))?;
        Ok(Self { link, side, address: server.address() })
    }

    async fn rows<R: FromRow>(&mut self, query: &str) -> Result<Vec<R>> {
        let rows = self.link.query(query, Limits::LIST).await;
        rows.map_err(|source| self.error(query, source))
    }

    async fn executed(&mut self) -> Result<GtidSet> {
        let executed: Vec<String> = self.rows("SELECT @@GLOBAL.gtid_executed").await?;
        let executed = executed.first().map(|set| set.replace('\n', "")).unwrap_or_default();
        executed.parse().map_err(|error| self.refused(&format!("{error}")))
    }

    async fn run(&mut self, what: &str, statement: &str) -> Result<()> {
        let ran = self.link.query::<Row>(statement, Limits::LIST).await;
        ran.map(drop).map_err(|source| self.error(what, source))
    }

    fn error(&self, what: &str, source: LinkError) -> CopyError {
        CopyError::Written { address: self.address.clone(), what: what.to_owned(), source }
    }

    fn refused(&self, why: &str) -> CopyError {
        CopyError::Refused(format!("{} {}: {why}", self.side, self.address))
    }
}

/// Makes the target a clone of the source, and tells `say` what happens.
///
/// # Errors
/// The servers are not fit for it, and nothing was changed; or a step failed.
pub(crate) async fn clone(
    options: &CloneOptions,
    say: &(dyn Fn(&str) + Sync),
) -> std::result::Result<CloneSummary, CopyError> {
    let begun = Instant::now();
    let mut source = Session::connect(Side::Source, &options.source).await?;
    let mut target = Session::connect(Side::Target, &options.target).await?;
    check_releases(&mut source, &mut target).await?;
    check_source(&mut source).await?;
    if let Some(until) = &options.until {
        check_end(until, &source.executed().await?)?;
    }
    check_target(&mut target).await?;
    check_authority(options.source.tls.mode, &mut target).await?;
    source.link.quit().await;
    // What it holds may be purged on the source, so that nothing may refuse the clone after this.
    empty_relay_store(&options.relay).await?;
    if !has_plugin(&mut target).await? {
        target.run("INSTALL PLUGIN clone", "INSTALL PLUGIN clone SONAME 'mysql_clone.so'").await?;
    }
    let donor = format!("{}:{}", options.source.host, options.source.port);
    let permitted = format!("SET GLOBAL clone_valid_donor_list={}", quote(&donor));
    target.run("clone_valid_donor_list", &permitted).await?;
    say(&format!("target {}: cloning {donor}", target.address));
    let restarts = run_clone(options, &mut target, say).await?;
    if !restarts {
        say(&format!(
            "target {} has ended, since nothing restarts it (error 3707): start it now",
            target.address
        ));
    }
    let as_source = TargetOptions {
        user: options.source.user.clone(),
        password: options.source.password.clone(),
        ..options.target.clone()
    };
    let mut cloned = comes_back(&as_source).await?;
    let bytes = check_result(&mut cloned).await?;
    say(&format!("target {}: it is a clone, and runs", cloned.address));
    // Before anything of ours is written there. The clone is of the moment at which it ended.
    if let Some(until) = &options.until
        && check_end(until, &cloned.executed().await?).is_err()
    {
        say(&format!(
            "the source reached {until} during the clone, which may have what comes after it: leave applier.until out, or \
             clone a source that does not reach it"
        ));
    }
    // The source has one where it is the target of other channels.
    cloned.run("DROP DATABASE csa", "DROP DATABASE IF EXISTS csa").await?;
    let not_granted = make_account(&mut cloned, &options.account, say).await?;
    let executed = cloned.executed().await?;
    cloned.link.quit().await;
    Ok(CloneSummary { bytes, elapsed: begun.elapsed(), executed, not_granted })
}

async fn has_plugin(session: &mut Session) -> Result<bool> {
    let query = "SELECT PLUGIN_STATUS FROM information_schema.PLUGINS WHERE PLUGIN_NAME='clone'";
    let status: Vec<String> = session.rows(query).await?;
    Ok(status.first().is_some_and(|status| status == "ACTIVE"))
}

async fn check_source(source: &mut Session) -> Result<()> {
    if !has_plugin(source).await? {
        let why = "it has no clone plugin; run there: INSTALL PLUGIN clone SONAME 'mysql_clone.so'";
        return Err(source.refused(why));
    }
    let others = tables(source, "AND ENGINE<>'InnoDB'").await?;
    if others.is_empty() {
        return Ok(());
    }
    let why = format!(
        "{others} are not InnoDB tables, which a clone has without their rows; run there: ALTER TABLE … \
         ENGINE=InnoDB"
    );
    Err(source.refused(&why))
}

/// Returns the first names of tables that are not the server's own, in words; empty if there are none.
async fn tables(session: &mut Session, condition: &str) -> Result<String> {
    let names: Vec<String> = session
        .rows(&format!(
            "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) FROM information_schema.TABLES WHERE \
             TABLE_TYPE='BASE TABLE' AND TABLE_SCHEMA NOT IN ({LEFT_OUT}) {condition} ORDER BY 1 LIMIT {SHOWN}"
        ))
        .await?;
    Ok(names.join(", "))
}

async fn check_releases(source: &mut Session, target: &mut Session) -> Result<()> {
    let query = "SELECT @@version, @@server_uuid";
    let of_source: Vec<(String, String)> = source.rows(query).await?;
    let of_target: Vec<(String, String)> = target.rows(query).await?;
    let (source_version, source_uuid) = of_source.into_iter().next().unwrap_or_default();
    let (target_version, target_uuid) = of_target.into_iter().next().unwrap_or_default();
    if source_uuid == target_uuid {
        return Err(target.refused("it is the source"));
    }
    if series(&source_version) != series(&target_version) {
        let why = format!(
            "it has release {target_version} and the source {source_version}, and the clone plugin wants the same \
             one; csa-daemon copy works between releases"
        );
        return Err(target.refused(&why));
    }
    Ok(())
}

async fn check_target(target: &mut Session) -> Result<()> {
    let there = tables(target, "").await?;
    if !there.is_empty() {
        let why = format!(
            "it has tables such as {there}, and a clone replaces everything there; move them away or drop them first"
        );
        return Err(target.refused(&why));
    }
    let query = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA='csa' AND TABLE_NAME='checkpoint'";
    if target.rows::<u8>(query).await?.is_empty() {
        return Ok(());
    }
    let channels: Vec<String> =
        target.rows("SELECT DISTINCT channel FROM csa.checkpoint ORDER BY 1").await?;
    match channels.is_empty() {
        true => Ok(()),
        false => Err(target.refused(&format!(
            "it is the target of {}, whose checkpoints a clone replaces",
            channels.join(", ")
        ))),
    }
}

/// Refuses a target that would take anyone for the source, although our own sessions do not.
async fn check_authority(mode: TlsMode, target: &mut Session) -> Result<()> {
    if !mode.verifies() {
        return Ok(());
    }
    // No row without the plugin.
    let query = "SHOW GLOBAL VARIABLES LIKE 'clone_ssl_ca'";
    let found: Vec<(String, Option<String>)> = target.rows(query).await?;
    if found.iter().any(|(_, file)| file.as_ref().is_some_and(|file| !file.is_empty())) {
        return Ok(());
    }
    let why = "it connects to the source on its own, and would not verify the source as [channel.source] tls says; run \
               there: INSTALL PLUGIN clone SONAME 'mysql_clone.so', and SET GLOBAL clone_ssl_ca='…' with the file of \
               tls_ca";
    Err(target.refused(why))
}

/// Returns the end of the statement. Without it the target accepts an unencrypted connection to the source.
fn encryption(mode: TlsMode) -> &'static str {
    match mode {
        TlsMode::Disabled | TlsMode::Preferred => "",
        TlsMode::Required | TlsMode::VerifyCa | TlsMode::VerifyIdentity => " REQUIRE SSL",
    }
}

/// Returns the part of a version that both servers must have in common.
fn series(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Returns false if the server will not come back on its own.
async fn run_clone(
    options: &CloneOptions,
    target: &mut Session,
    say: &(dyn Fn(&str) + Sync),
) -> Result<bool> {
    let TargetOptions { user, host, port, password, tls, .. } = &options.source;
    let statement = format!(
        "CLONE INSTANCE FROM {}@{}:{port} IDENTIFIED BY {}{}",
        quote(user),
        quote(host),
        quote(password.current().expose_secret()),
        encryption(tls.mode)
    );
    let mut watcher = Session::connect(Side::Target, &options.target).await?;
    let watch = async {
        loop {
            tokio::time::sleep(10 * LOOK).await;
            let query = "SELECT CAST(SUM(DATA) AS UNSIGNED), CAST(SUM(ESTIMATE) AS UNSIGNED) FROM \
                         performance_schema.clone_progress";
            let found = watcher.rows::<(Option<u64>, Option<u64>)>(query).await;
            match found.as_deref() {
                Ok([(Some(done), Some(all)), ..]) => {
                    say(&format!("{} of about {} MiB are cloned", done >> 20, all >> 20));
                }
                Ok(_) => {}
                // How the clone ends shows in its own session only: in its answer, or once the server is gone.
                Err(error) => {
                    say(&format!("the progress of the clone is not known any more: {error}"));
                    return std::future::pending::<Infallible>().await;
                }
            }
        }
    };
    let cloned = tokio::select! {
        biased;
        cloned = target.link.query::<Row>(&statement, Limits::LIST) => cloned.map(drop),
        never = watch => match never {},
    };
    match cloned {
        Ok(()) => Ok(true),
        Err(LinkError::Server { code: NOT_RESTARTED, .. }) => Ok(false),
        Err(error @ LinkError::Server { .. }) => Err(target.error("CLONE INSTANCE", error)),
        // It restarts.
        Err(_) => Ok(true),
    }
}

async fn comes_back(server: &TargetOptions) -> Result<Session> {
    let begun = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        match Session::connect(Side::Target, server).await {
            Ok(session) => return Ok(session),
            Err(error) if begun.elapsed() > RESTART => return Err(error),
            Err(_) => {}
        }
    }
}

/// Returns the bytes that were cloned.
async fn check_result(cloned: &mut Session) -> Result<u64> {
    let query = "SELECT STATE, ERROR_NO, ERROR_MESSAGE FROM performance_schema.clone_status";
    let found: Vec<(String, u64, String)> = cloned.rows(query).await?;
    match found.into_iter().next() {
        Some((state, ..)) if state == "Completed" => {}
        Some((state, number, message)) => {
            let why = format!("the clone is {state}: error {number}: {message}");
            return Err(cloned.refused(&why));
        }
        None => return Err(cloned.refused("it knows of no clone; look into its error log")),
    }
    let query =
        "SELECT CAST(COALESCE(SUM(DATA), 0) AS UNSIGNED) FROM performance_schema.clone_progress";
    Ok(cloned.rows(query).await?.first().copied().unwrap_or_default())
}

/// Makes the account of the channel, unless it may log in. Returns what could not be granted.
async fn make_account(
    cloned: &mut Session,
    account: &TargetOptions,
    say: &(dyn Fn(&str) + Sync),
) -> Result<Vec<String>> {
    if let Ok(session) = Session::connect(Side::Target, account).await {
        session.link.quit().await;
        return Ok(Vec::new());
    }
    say(&format!("target {}: making the account {}", cloned.address, account.user));
    let mut not_granted = Vec::new();
    let password = account.password.current();
    let statements = account_statements(&account.user, password.expose_secret());
    for (number, statement) in statements.iter().enumerate() {
        match cloned.run("the account of the channel", statement).await {
            Ok(()) => {}
            // Some privileges are unknown to some releases.
            Err(error) if number > 0 && error.is_answer() => not_granted.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    Ok(not_granted)
}

/// Returns the statements of the documents, for this account.
fn account_statements(user: &str, password: &str) -> Vec<String> {
    let lines = GRANTS.lines().filter(|line| !line.trim_start().starts_with("--"));
    let text = lines.collect::<Vec<_>>().join(" ");
    let (name, password) = (format!("{}@'%'", quote(user)), quote(password));
    let statements = text.split(';').map(str::trim).filter(|statement| !statement.is_empty());
    statements
        .map(|statement| statement.replace("'csa'@'%'", &name).replace("'change me'", &password))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_series() {
        assert_eq!(series("8.4.3"), series("8.4.6-debug"));
        assert_ne!(series("8.0.31"), series("8.4.0"));
    }

    #[test]
    fn the_target_reads_from_the_source_as_the_channel_does() {
        for (mode, end) in [
            (TlsMode::Disabled, ""),
            (TlsMode::Preferred, ""),
            (TlsMode::Required, " REQUIRE SSL"),
            (TlsMode::VerifyCa, " REQUIRE SSL"),
            (TlsMode::VerifyIdentity, " REQUIRE SSL"),
        ] {
            assert_eq!(encryption(mode), end, "{mode:?}");
        }
    }

    #[test]
    fn the_account_is_that_of_the_documents() {
        let statements = account_statements("other", "it's");
        assert_eq!(
            statements[0],
            format!("CREATE USER 'other'@'%' IDENTIFIED BY {}", quote("it's"))
        );
        assert!(statements.len() > 5);
        for statement in &statements {
            assert!(
                !statement.contains("'csa'") && !statement.contains("change me"),
                "{statement}"
            );
        }
    }
}
