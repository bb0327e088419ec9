//! How far a long statement is, as the target itself says.

use std::convert::Infallible;
use std::time::Duration;

use tracing::debug;

use crate::Result;
use crate::options::TargetOptions;
use crate::session::Session;
use crate::status::ApplierStatus;

/// Shorter statements are over before anybody looks.
const PATIENCE: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_secs(1);
const WORDS: usize = 2;

/// Looks at `connection` from another session until dropped
/// (<https://dev.mysql.com/doc/refman/en/monitor-alter-table-performance-schema.html>). What can't be
/// looked up is left out: it is for show only.
pub(crate) async fn follow(
    target: &TargetOptions,
    connection: u32,
    status: &ApplierStatus,
) -> Infallible {
    tokio::time::sleep(PATIENCE).await;
    if let Err(error) = look(target, connection, status).await {
        debug!(%error, "the progress of a statement can't be looked up");
    }
    std::future::pending().await
}

async fn look(target: &TargetOptions, connection: u32, status: &ApplierStatus) -> Result<()> {
    let mut session = Session::connect(target).await?;
    let query = format!(
        "SELECT s.WORK_COMPLETED, s.WORK_ESTIMATED FROM performance_schema.events_stages_current s \
         JOIN performance_schema.threads t ON t.THREAD_ID=s.THREAD_ID \
         WHERE t.PROCESSLIST_ID={connection}"
    );
    loop {
        let rows: Vec<(Option<u64>, Option<u64>)> = session.rows(&query).await?;
        let (completed, estimated) = rows.into_iter().next().unwrap_or_default();
        status.statement_progress(completed, estimated);
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The first words of a statement: what it does, without names and values.
pub(crate) fn first_words(statement: &[u8]) -> String {
    let text = String::from_utf8_lossy(statement.get(..200).unwrap_or(statement)).into_owned();
    let words = text
        .split(|c: char| !(c.is_ascii_alphabetic() || c == '_'))
        .filter(|word| !word.is_empty())
        .take(WORDS);
    words.collect::<Vec<_>>().join(" ").to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_first_words_is_shown() {
        assert_eq!(first_words(b"alter table d.t ADD COLUMN a INT DEFAULT 7"), "ALTER TABLE");
        assert_eq!(first_words(b"CREATE USER 'a'@'%' IDENTIFIED BY 'secret'"), "CREATE USER");
        assert_eq!(first_words(b""), "");
    }
}
