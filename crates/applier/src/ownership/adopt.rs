//! Moves the checkpoint of one channel to the name of another, which takes its place.

use tracing::{info, warn};

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::ownership::audit::{self, AuditEntry};
use crate::ownership::bookkeeping::{connect_level, has_table};
use crate::ownership::checkpoint;
use crate::ownership::locks::{self, Claimant};
use crate::ownership::shown_state::is_logged;
use crate::server::session::Session;
use crate::server::target::Target;
use csa_provider::sql_text::quote;

/// An identity that no daemon has, so a session that holds a channel is never taken for our own and
/// ended.
const NOBODY: &str = "csa-daemon adopt";

/// Moves all rows of channel `from` to the entry's channel, in one transaction with the entry, and
/// with a new epoch. A daemon that still runs `from` finds no row to write, and one that starts it
/// later no checkpoint.
///
/// # Errors
/// A daemon holds one of the two, `from` has no checkpoint, the other has one, or the target refuses;
/// nothing is changed then.
pub async fn adopt(target: &Target, from: &str, entry: &AuditEntry) -> Result<Checkpoint> {
    let to = entry.channel.as_str();
    let mut session = connect_level(target).await?;
    // The server releases both locks when the session ends.
    for channel in [from, to] {
        locks::take(&mut session, channel, Claimant::new(NOBODY)).await?;
    }
    if !has_table(&mut session, "checkpoint").await? {
        return Err(none(from));
    }
    // Before BEGIN, because it may create the table, which commits.
    audit::ensure(&mut session).await?;
    session.run("BEGIN").await?;
    let moved = move_rows(&mut session, from, to).await;
    match moved {
        Ok(_) => {
            session.run(entry.insert()).await?;
            session.run("COMMIT").await.map(drop)?;
        }
        Err(_) => session.run("ROLLBACK").await.map(drop)?,
    }
    if moved.is_ok()
        && let Err(error) = move_unlogged(&mut session, from, to).await
    {
        warn!(%error, from, "csa.move and csa.status still have rows of the earlier name");
    }
    session.close().await;
    let checkpoint = moved?;
    info!(channel = to, from, executed = %checkpoint.executed.brief(), "checkpoint adopted");
    Ok(checkpoint)
}

async fn move_rows(session: &mut Session, from: &str, to: &str) -> Result<Checkpoint> {
    let mut checkpoint = checkpoint::read(session, from, true).await?.ok_or_else(|| none(from))?;
    if let Some(there) = checkpoint::read(session, to, true).await? {
        return Err(Error::Checkpoint {
            channel: to.to_owned(),
            what: format!(
                "there is one already, at {}; nothing was adopted from channel {from:?}",
                there.executed
            ),
        });
    }
    checkpoint.epoch = checkpoint::next_epoch(checkpoint.epoch, NOBODY);
    let (epoch, old, new) = (checkpoint.epoch, quote(from), quote(to));
    session
        .run(format!("UPDATE csa.checkpoint SET channel={new}, epoch={epoch} WHERE channel={old}"))
        .await?;
    // A statement in doubt stays in doubt, the records of sources and targets stay, and a copy is still to be ended.
    for table in ["statement", "channel", "target_server", "copy", "copy_state", "copy_range"] {
        // A row of the new name is a leftover: that channel has no checkpoint.
        if has_table(session, table).await? {
            session.run(format!("DELETE FROM csa.{table} WHERE channel={new}")).await?;
            session
                .run(format!("UPDATE csa.{table} SET channel={new} WHERE channel={old}"))
                .await?;
        }
    }
    Ok(checkpoint)
}

/// Gives the journal of a move the new name on the server of a pair that is not the channel's target: there the way back
/// is recorded.
///
/// # Errors
/// The server does not answer, or refuses.
pub async fn adopt_move(server: &Target, from: &str, to: &str) -> Result<()> {
    let mut session = connect_level(server).await?;
    let moved = move_journal(&mut session, from, to).await;
    session.close().await;
    moved
}

/// Gives the journal of a move the new name, and deletes the state that is shown under the old one.
async fn move_unlogged(session: &mut Session, from: &str, to: &str) -> Result<()> {
    move_journal(session, from, to).await?;
    let shown = format!("DELETE FROM csa.status WHERE channel={}", quote(from));
    change_unlogged(session, "status", [shown]).await
}

/// Replaces a journal of the new name only where there is one of the old name.
async fn move_journal(session: &mut Session, from: &str, to: &str) -> Result<()> {
    let (old, new) = (quote(from), quote(to));
    let renamed = format!(
        "REPLACE INTO csa.move (channel, number, at, journal) SELECT {new}, number, at, journal FROM csa.move WHERE \
         channel={old}"
    );
    let left = format!("DELETE FROM csa.move WHERE channel={old}");
    change_unlogged(session, "move", [renamed, left]).await
}

/// Changes a table, where it is there, whose rows no binary log has: replicas of the server don't have them.
async fn change_unlogged(
    session: &mut Session,
    table: &str,
    statements: impl IntoIterator<Item = String>,
) -> Result<()> {
    if !has_table(session, table).await? {
        return Ok(());
    }
    // Without a binary log the account may lack the privilege for it.
    if is_logged(session).await? {
        session.log(false).await?;
    }
    for statement in statements {
        session.run(statement).await?;
    }
    Ok(())
}

fn none(channel: &str) -> Error {
    Error::Checkpoint {
        channel: channel.to_owned(),
        what: "the target has none of it, so there is nothing to adopt".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::scripted::Scripted;

    const RENAMED: &str = "REPLACE INTO csa.move (channel, number, at, journal) SELECT 'shop', number, at, journal \
        FROM csa.move WHERE channel='orders'";

    /// The way back is recorded on the old server. A move of the new name is only replaced by one of the old name.
    #[tokio::test]
    async fn the_other_server_of_a_pair_gives_its_journal_the_new_name() {
        let scripted = Scripted::default();
        scripted.state().has_tables = true;
        adopt_move(&scripted.target(), "orders", "shop").await.expect("renamed");
        let sent = scripted.state().sent.join("\n");
        assert!(sent.contains(RENAMED), "{sent}");
        assert!(sent.contains("DELETE FROM csa.move WHERE channel='orders'"), "{sent}");
        assert!(!sent.contains("WHERE channel='shop'"), "{sent}");
    }

    #[tokio::test]
    async fn the_journal_of_a_move_and_the_shown_state_are_adopted_past_the_binary_log() {
        for (has_tables, has_log) in [(false, true), (true, true), (true, false)] {
            let scripted = Scripted::default();
            scripted.state().has_tables = has_tables;
            scripted.state().has_no_log = !has_log;
            let mut session = Session::connect(&scripted.target()).await.expect("connected");
            move_unlogged(&mut session, "orders", "shop").await.expect("moved");
            let sent = scripted.state().sent.join("\n");
            let at = |statement: &str| sent.find(statement);
            let unlogged = at("SET SESSION sql_log_bin=0");
            let moved = at(RENAMED);
            let deleted = at("DELETE FROM csa.status WHERE channel='orders'");
            assert_eq!(unlogged.is_some(), has_tables && has_log, "{sent}");
            assert_eq!(
                moved.is_some() && unlogged < moved && moved < deleted,
                has_tables,
                "{sent}"
            );
        }
    }
}
