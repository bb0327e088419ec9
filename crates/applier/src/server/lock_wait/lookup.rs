//! Finds out which lock a session of ours waits for, and who has it, by what a vendor and version show.

use std::convert::Infallible;
use std::time::Duration;

use csa_provider::server::Vendor;
use csa_provider::server::by_hand::of_account;
use tracing::debug;

use super::found_lock::{FoundLock, LockHolder};
use crate::error::{Error, Result};
use crate::server::session::Session;
use crate::server::target::Target;

/// Shorter waits are over before anybody looks.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How often a known wait is looked at.
pub(crate) const KNOWN_INTERVAL: Duration = Duration::from_secs(3);

/// SELECT is denied on a table, or on a schema; a privilege is missing.
const DENIED: [u16; 3] = [1142, 1044, 1227];
/// MariaDB without the plugin: no such table in information_schema.
const UNKNOWN_TABLE: u16 = 1109;

/// Characters of a statement that are shown.
const STATEMENT_MAX: usize = 120;

/// The result of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It waits for no lock.
    Nothing,
    Lock(FoundLock),
    /// The account may not see row locks; the text is the GRANT that shows them.
    Hidden(String),
}

/// Returns true for a stage of the process list in which a session waits for a lock, as
/// `Waiting for backup lock`.
fn is_lock_stage(stage: &str) -> bool {
    stage.starts_with("Waiting for ")
        && (stage.ends_with(" lock") || stage.ends_with("table flush"))
}

/// Looks for the lock that `connection` waits for.
pub(crate) async fn look(session: &mut Session, connection: u32) -> Result<Seen> {
    let process = session.process(u64::from(connection)).await?;
    let Some(stage) = process.map(|process| process.stage) else { return Ok(Seen::Nothing) };
    let vendor = session.vendor();
    if is_lock_stage(&stage) {
        return metadata(session, vendor, connection, &stage).await.map(Seen::Lock);
    }
    let rows = rows(session, vendor, connection).await;
    let (lock, holders) = match rows {
        Ok(rows) if rows.is_empty() => return Ok(Seen::Nothing),
        Ok(rows) => rows_found(rows),
        Err(error) if is_denied(&error) => {
            return Ok(Seen::Hidden(grant(session, vendor).await?));
        }
        Err(error) => return Err(error),
    };
    described(session, vendor, lock, holders, None).await.map(Seen::Lock)
}

/// Notes the lock that `connection` waits for, over a session of its own, until dropped.
pub(crate) async fn follow(
    target: &Target,
    connection: u32,
    seen: &mut Option<FoundLock>,
) -> Infallible {
    tokio::time::sleep(PATIENCE).await;
    let looks = async {
        let mut session = Session::connect(target).await?;
        loop {
            if let Seen::Lock(found) = look(&mut session, connection).await? {
                *seen = Some(found);
            }
            tokio::time::sleep(KNOWN_INTERVAL).await;
        }
    };
    let Err::<Infallible, Error>(error) = looks.await;
    debug!(%error, "locks that others hold can't be looked up");
    std::future::pending().await
}

/// A lock and the connections that have it.
type Held = (String, Vec<Option<u64>>);

/// Row locks in the way: table and connection. An implicit lock, as of a row just inserted, is shown under
/// the thread that waits for it, so the owner is found by the table lock of its transaction.
async fn rows(
    session: &mut Session,
    vendor: Vendor,
    connection: u32,
) -> Result<Vec<(String, Option<u64>)>> {
    let query = match vendor {
        Vendor::MySql => format!(
            "SELECT DISTINCT CONCAT(l.OBJECT_SCHEMA, '.', l.OBJECT_NAME), b.PROCESSLIST_ID \
             FROM performance_schema.threads r \
             STRAIGHT_JOIN performance_schema.data_lock_waits w ON w.REQUESTING_THREAD_ID=r.THREAD_ID \
             STRAIGHT_JOIN performance_schema.data_locks l \
             ON l.ENGINE_LOCK_ID=w.REQUESTING_ENGINE_LOCK_ID AND l.ENGINE=w.ENGINE \
             STRAIGHT_JOIN performance_schema.data_locks h ON h.ENGINE=w.ENGINE \
             AND h.ENGINE_TRANSACTION_ID=w.BLOCKING_ENGINE_TRANSACTION_ID AND h.LOCK_TYPE='TABLE' \
             LEFT JOIN performance_schema.threads b ON b.THREAD_ID=h.THREAD_ID \
             WHERE r.PROCESSLIST_ID={connection}"
        ),
        Vendor::MySql57 | Vendor::MariaDb => format!(
            "SELECT DISTINCT REPLACE(l.lock_table, '`', ''), NULLIF(b.trx_mysql_thread_id, 0) \
             FROM information_schema.INNODB_LOCK_WAITS w \
             JOIN information_schema.INNODB_TRX r ON r.trx_id=w.requesting_trx_id \
             JOIN information_schema.INNODB_LOCKS l ON l.lock_id=w.requested_lock_id \
             JOIN information_schema.INNODB_TRX b ON b.trx_id=w.blocking_trx_id \
             WHERE r.trx_mysql_thread_id={connection}"
        ),
    };
    session.rows(&query).await
}

fn rows_found(rows: Vec<(String, Option<u64>)>) -> Held {
    let table = rows.first().map(|(table, _)| table.clone()).unwrap_or_default();
    (format!("table {table}"), rows.into_iter().map(|(_, holder)| holder).collect())
}

/// The lock that is waited for in a stage, and its holders as far as they can be seen.
async fn metadata(
    session: &mut Session,
    vendor: Vendor,
    connection: u32,
    stage: &str,
) -> Result<FoundLock> {
    let held = match vendor {
        Vendor::MySql | Vendor::MySql57 => metadata_of_mysql(session, connection).await,
        Vendor::MariaDb => metadata_of_mariadb(session, connection, stage).await,
    };
    let held = match held {
        Err(error) if is_denied(&error) => None,
        held => held?,
    };
    let unseen = match (&held, vendor) {
        (Some(_), _) => None,
        (None, Vendor::MySql) => Some(grant(session, vendor).await?),
        (None, Vendor::MySql57) => Some(
            "UPDATE performance_schema.setup_instruments SET ENABLED='YES' WHERE \
             NAME='wait/lock/metadata/sql/mdl'"
                .to_owned(),
        ),
        (None, Vendor::MariaDb) => Some("INSTALL SONAME 'metadata_lock_info'".to_owned()),
    };
    let (lock, holders) = held.unwrap_or_else(|| (of_stage(stage), Vec::new()));
    described(session, vendor, lock, holders, unseen).await
}

async fn metadata_of_mysql(session: &mut Session, connection: u32) -> Result<Option<Held>> {
    let query = format!(
        "SELECT p.OBJECT_TYPE, CONCAT_WS('.', p.OBJECT_SCHEMA, p.OBJECT_NAME), p.LOCK_TYPE, g.LOCK_TYPE, \
         g.LOCK_STATUS='GRANTED', b.PROCESSLIST_ID \
         FROM performance_schema.threads r \
         JOIN performance_schema.metadata_locks p \
         ON p.OWNER_THREAD_ID=r.THREAD_ID AND p.LOCK_STATUS='PENDING' \
         JOIN performance_schema.metadata_locks g ON g.OBJECT_TYPE=p.OBJECT_TYPE \
         AND g.OBJECT_SCHEMA<=>p.OBJECT_SCHEMA AND g.OBJECT_NAME<=>p.OBJECT_NAME \
         AND g.OWNER_THREAD_ID<>p.OWNER_THREAD_ID \
         LEFT JOIN performance_schema.threads b ON b.THREAD_ID=g.OWNER_THREAD_ID \
         WHERE r.PROCESSLIST_ID={connection}"
    );
    let rows: Vec<(String, String, String, String, bool, Option<u64>)> =
        session.rows(&query).await?;
    let mut held: Option<Held> = None;
    for (kind, name, wanted, has, is_granted, holder) in rows {
        if blocks(&wanted, &has, is_granted) {
            let (_, holders) = held.get_or_insert_with(|| (named(&kind, &name), Vec::new()));
            if !holders.contains(&holder) {
                holders.push(holder);
            }
        }
    }
    Ok(held)
}

/// The plugin shows locks that are held, not those that a session wants. A statement holds a weaker lock on the
/// table whose stronger lock it waits for.
async fn metadata_of_mariadb(
    session: &mut Session,
    connection: u32,
    stage: &str,
) -> Result<Option<Held>> {
    let is_of_table = stage.contains("table metadata");
    let query = match is_of_table {
        true => format!(
            "SELECT DISTINCT CONCAT(g.TABLE_SCHEMA, '.', g.TABLE_NAME), g.THREAD_ID \
             FROM information_schema.METADATA_LOCK_INFO g JOIN information_schema.METADATA_LOCK_INFO p \
             ON p.TABLE_SCHEMA=g.TABLE_SCHEMA AND p.TABLE_NAME=g.TABLE_NAME AND p.LOCK_TYPE=g.LOCK_TYPE \
             WHERE g.LOCK_TYPE='Table metadata lock' AND p.THREAD_ID={connection} \
             AND g.THREAD_ID<>{connection}"
        ),
        false => format!(
            "SELECT DISTINCT '', THREAD_ID FROM information_schema.METADATA_LOCK_INFO \
             WHERE LOCK_TYPE IN ('Backup lock', 'Global read lock', 'Commit lock') AND \
             THREAD_ID<>{connection} AND LOCK_MODE NOT IN ('MDL_BACKUP_DML', 'MDL_BACKUP_TRANS_DML', \
             'MDL_BACKUP_SYS_DML', 'MDL_BACKUP_DDL', 'MDL_BACKUP_BLOCK_DDL', 'MDL_BACKUP_ALTER_COPY', \
             'MDL_BACKUP_COMMIT', 'MDL_INTENTION_EXCLUSIVE')"
        ),
    };
    let rows: Vec<(String, u64)> = match session.rows(&query).await {
        Err(error) if error.code() == Some(UNKNOWN_TABLE) => return Ok(None),
        rows => rows?,
    };
    let Some((table, _)) = rows.first() else { return Ok(None) };
    let lock = if is_of_table { named("TABLE", table) } else { of_stage(stage) };
    Ok(Some((lock, rows.into_iter().map(|(_, holder)| Some(holder)).collect())))
}

/// Returns true if one metadata lock is in the way of another. Those that are waited for count too where they
/// were asked for first and are strong: the server lets them pass first.
fn blocks(wanted: &str, has: &str, is_granted: bool) -> bool {
    const STRONG: [&str; 5] = [
        "EXCLUSIVE",
        "SHARED_NO_READ_WRITE",
        "SHARED_NO_WRITE",
        "SHARED_READ_ONLY",
        "SHARED_UPGRADABLE",
    ];
    let is_strong = |kind: &str| STRONG.contains(&kind);
    match wanted {
        // Of the whole server or of a schema: SHARED and EXCLUSIVE are in the way.
        "INTENTION_EXCLUSIVE" => has != "INTENTION_EXCLUSIVE",
        "EXCLUSIVE" | "SHARED_NO_READ_WRITE" => is_granted,
        "SHARED_UPGRADABLE" | "SHARED_NO_WRITE" => {
            is_granted && (is_strong(has) || has == "SHARED_WRITE")
        }
        _ => is_strong(has) && has != "SHARED_UPGRADABLE",
    }
}

fn named(kind: &str, name: &str) -> String {
    match kind {
        "GLOBAL" => "the global read lock".to_owned(),
        "COMMIT" => "the lock on commits".to_owned(),
        "BACKUP LOCK" => "the backup lock".to_owned(),
        kind => format!("{} {name}", kind.to_lowercase()),
    }
}

/// Returns a lock of which nothing but the stage is known.
fn of_stage(stage: &str) -> String {
    let lock = stage.strip_prefix("Waiting for ").unwrap_or(stage);
    match lock {
        "commit lock" => named("COMMIT", ""),
        "backup lock" | "global read lock" => format!("the {lock}"),
        lock => format!("a {lock}"),
    }
}

async fn described(
    session: &mut Session,
    vendor: Vendor,
    lock: String,
    connections: Vec<Option<u64>>,
    unseen: Option<String>,
) -> Result<FoundLock> {
    let mut holders: Vec<LockHolder> = connections
        .iter()
        .map(|connection| LockHolder { connection: *connection, ..LockHolder::default() })
        .collect();
    let ids: Vec<String> = connections.iter().flatten().map(ToString::to_string).collect();
    let ids = ids.join(",");
    if !ids.is_empty() {
        match details(session, vendor, &ids).await {
            Ok(details) => {
                for holder in &mut holders {
                    let of = details.iter().find(|known| known.connection == holder.connection);
                    if let Some(known) = of {
                        holder.clone_from(known);
                    }
                }
            }
            Err(error) if is_denied(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let look = match (vendor, ids.is_empty()) {
        (Vendor::MariaDb, _) => "SHOW FULL PROCESSLIST".to_owned(),
        (_, true) => "SELECT * FROM sys.schema_table_lock_waits".to_owned(),
        (_, false) => {
            format!("SELECT * FROM performance_schema.threads WHERE PROCESSLIST_ID IN ({ids})")
        }
    };
    Ok(FoundLock { lock, holders, unseen, look })
}

/// Returns the clients of these connections. Statements are shown as their digests, which hold no values;
/// MariaDB has these only where its performance_schema is on, so there only the first word is shown.
async fn details(session: &mut Session, vendor: Vendor, ids: &str) -> Result<Vec<LockHolder>> {
    let query = match vendor {
        Vendor::MySql | Vendor::MySql57 => format!(
            "SELECT t.PROCESSLIST_ID, COALESCE(t.PROCESSLIST_USER, ''), COALESCE(t.PROCESSLIST_HOST, ''), \
             COALESCE(t.PROCESSLIST_COMMAND, ''), COALESCE(CAST(t.PROCESSLIST_TIME AS SIGNED), 0), \
             COALESCE((SELECT s.DIGEST_TEXT FROM performance_schema.events_statements_current s \
             WHERE s.THREAD_ID=t.THREAD_ID AND s.DIGEST_TEXT IS NOT NULL ORDER BY s.EVENT_ID LIMIT 1), '') \
             FROM performance_schema.threads t WHERE t.PROCESSLIST_ID IN ({ids})"
        ),
        Vendor::MariaDb => format!(
            "SELECT ID, USER, HOST, COMMAND, CAST(TIME AS SIGNED), \
             COALESCE(SUBSTRING_INDEX(LTRIM(INFO), ' ', 1), '') \
             FROM information_schema.PROCESSLIST WHERE ID IN ({ids})"
        ),
    };
    let rows: Vec<(u64, String, String, String, i64, String)> = session.rows(&query).await?;
    let holder =
        |(connection, user, host, command, seconds, statement): (u64, _, _, _, _, String)| {
            let statement = match statement.char_indices().nth(STATEMENT_MAX) {
                Some((end, _)) => format!("{}…", statement.get(..end).unwrap_or_default()),
                None => statement,
            };
            LockHolder { connection: Some(connection), user, host, command, seconds, statement }
        };
    Ok(rows.into_iter().map(holder).collect())
}

fn is_denied(error: &Error) -> bool {
    error.code().is_some_and(|code| DENIED.contains(&code))
}

/// Returns the statement that lets our account see locks.
async fn grant(session: &mut Session, vendor: Vendor) -> Result<String> {
    let account: Option<String> = session.setting("SELECT CURRENT_USER()").await?;
    let account = csa_provider::server::account_name(&account.unwrap_or_default());
    Ok(of_account(&match vendor {
        Vendor::MySql => format!("GRANT SELECT ON performance_schema.* TO {account}"),
        Vendor::MySql57 | Vendor::MariaDb => format!("GRANT PROCESS ON *.* TO {account}"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_of_locks_are_told_from_others() {
        for (stage, is_wait) in [
            ("Waiting for table metadata lock", true),
            ("Waiting for backup lock", true),
            ("Waiting for global read lock", true),
            ("Waiting for table flush", true),
            ("Waiting for table level lock", true),
            ("Waiting for handler commit", false),
            ("altering table", false),
            ("", false),
        ] {
            assert_eq!(is_lock_stage(stage), is_wait, "{stage}");
        }
    }

    #[test]
    fn only_locks_that_do_not_agree_are_in_the_way() {
        for (wanted, has, is_granted, expected) in [
            ("EXCLUSIVE", "SHARED_READ", true, true),
            ("EXCLUSIVE", "SHARED_READ", false, false),
            ("SHARED_WRITE", "SHARED_READ", true, false),
            ("SHARED_WRITE", "SHARED_READ_ONLY", true, true),
            ("SHARED_WRITE", "SHARED_UPGRADABLE", true, false),
            // A definition that waits for its table keeps others from it.
            ("SHARED_READ", "EXCLUSIVE", false, true),
            ("INTENTION_EXCLUSIVE", "INTENTION_EXCLUSIVE", true, false),
            ("INTENTION_EXCLUSIVE", "SHARED", true, true),
            ("SHARED_UPGRADABLE", "SHARED_UPGRADABLE", true, true),
            ("SHARED_UPGRADABLE", "SHARED_READ", true, false),
        ] {
            assert_eq!(blocks(wanted, has, is_granted), expected, "{wanted} {has} {is_granted}");
        }
    }

    #[test]
    fn locks_have_names() {
        assert_eq!(named("TABLE", "d.t"), "table d.t");
        assert_eq!(named("BACKUP LOCK", ""), "the backup lock");
        assert_eq!(of_stage("Waiting for backup lock"), named("BACKUP LOCK", ""));
        assert_eq!(of_stage("Waiting for global read lock"), named("GLOBAL", ""));
        assert_eq!(of_stage("Waiting for commit lock"), named("COMMIT", ""));
        assert_eq!(of_stage("Waiting for table metadata lock"), "a table metadata lock");
    }
}
