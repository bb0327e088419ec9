//! `csa.audit` on the target: a record of the commands to a channel, and of who gave them.

use tracing::warn;

use super::bookkeeping;
use crate::error::Result;
use crate::server::session::Session;
use crate::server::target::Target;
use csa_provider::sql_text::quote;

/// Rows are only added. `by` is the name that a client gave itself, `peer` its address or process as the
/// kernel knows it.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS csa.audit (\
     id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, \
     channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     at TIMESTAMP(6) NOT NULL, \
     action VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     gtid VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     `by` VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL, \
     peer VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL DEFAULT '', \
     detail VARCHAR(1024) CHARACTER SET utf8mb4 NOT NULL DEFAULT '') ENGINE=InnoDB";

/// One command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditEntry {
    pub channel: String,
    /// Microseconds since the epoch.
    pub at: u64,
    pub action: String,
    /// The transaction that the command concerns; empty for other commands.
    pub gtid: String,
    /// The name that the operator's client gave itself.
    pub by: String,
    /// The same client as the kernel knows it: an address, or a user and process of this host.
    pub peer: String,
    /// Further text, such as a setting and its values.
    pub detail: String,
}

impl AuditEntry {
    /// Returns the statement that writes it.
    #[must_use]
    pub fn insert(&self) -> String {
        // Independent of the session's time zone.
        let at = format!("FROM_UNIXTIME({}.{:06})", self.at / 1_000_000, self.at % 1_000_000);
        let text = |text: &str, max: usize| quote(&text.chars().take(max).collect::<String>());
        format!(
            "INSERT INTO csa.audit (channel, at, action, gtid, `by`, peer, detail) \
             VALUES ({}, {at}, {}, {}, {}, {}, {})",
            quote(&self.channel),
            text(&self.action, 32),
            text(&self.gtid, 128),
            text(&self.by, 255),
            text(&self.peer, 255),
            text(&self.detail, 1024),
        )
    }
}

/// Writes an entry on a session of its own.
///
/// # Errors
/// The target is away, or refuses.
pub async fn record(target: &Target, entry: &AuditEntry) -> Result<()> {
    let mut session = bookkeeping::connect(target).await?;
    ensure(&mut session).await?;
    session.run(entry.insert()).await?;
    session.close().await;
    Ok(())
}

/// Creates the table at the start of a channel. A channel whose account may not do so starts all
/// the same: its commands are in the log only.
///
/// # Errors
/// The target is away.
pub(crate) async fn create(session: &mut Session, channel: &str) -> Result<()> {
    match ensure(session).await {
        Err(error) if error.class().is_failure() => {
            warn!(
                channel,
                %error,
                "csa.audit can't be created: commands are in this log only, and skip and adopt are refused; \
                 if the account lacks CREATE on csa.*, grant it, and restart the channel"
            );
            Ok(())
        }
        other => other,
    }
}

/// Creates the table if it is missing.
pub(crate) async fn ensure(session: &mut Session) -> Result<()> {
    bookkeeping::create(session, "audit", &[CREATE]).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_row_whatever_is_in_it() {
        let entry = AuditEntry {
            channel: "c".to_owned(),
            at: 1_772_323_200_000_001,
            action: "set".to_owned(),
            by: "o'n\\e".to_owned(),
            peer: "127.0.0.1".to_owned(),
            detail: "x".repeat(2000),
            ..AuditEntry::default()
        };
        let text = entry.insert();
        assert!(
            text.contains("FROM_UNIXTIME(1772323200.000001), 'set', '', 'o''n\\\\e', '127.0"),
            "{text}"
        );
        assert!(text.ends_with(&format!("'{}')", "x".repeat(1024))), "{text}");
    }
}
