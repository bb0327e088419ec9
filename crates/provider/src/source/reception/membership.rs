//! The look at a member of a group before it is followed, and from time to time while it is.

use crate::binlog::gtid::GtidSet;
use crate::server::Version;
use crate::server::group::{Address, Candidates, GroupView, MEMBERS_PRIVILEGE, Standing};
use crate::source::connection::{ConnectionError, SourceConnection};
use crate::source::group::GroupDiscovery;

/// `ER_TABLEACCESS_DENIED_ERROR`.
const DENIED: u16 = 1142;

/// Finds out whether the member at `address` follows its group, and has what comes after `received`.
pub(super) async fn check(
    group: &GroupDiscovery,
    connection: &mut SourceConnection,
    address: &Address,
    candidates: &mut Candidates,
    received: &GtidSet,
) -> Result<(), ConnectionError> {
    let view = view(connection).await?;
    let (host, port) = address;
    group
        .admit(&view, address, candidates)
        .map_err(|why| ConnectionError::Protocol(format!("member {host}:{port}: {why}")))?;
    let purged = connection.gtids("SELECT @@GLOBAL.gtid_purged").await?;
    let purged: GtidSet = purged
        .parse()
        .map_err(|error| ConnectionError::Protocol(format!("gtid_purged: {error}")))?;
    let missing = purged.difference(received);
    // A member that joined by a copy has no binary logs from before. If none has them, the server itself says so.
    match !missing.is_empty() && candidates.set_aside(address) {
        true => Err(ConnectionError::Protocol(format!(
            "this member has purged transactions that were not received: {missing}"
        ))),
        false => Ok(()),
    }
}

/// Returns the reason why the member should not be followed any longer; `None` also where it does not answer, which
/// the link shows.
pub(super) async fn fault(connection: &mut SourceConnection) -> Option<String> {
    match view(connection).await.ok()?.standing() {
        Standing::Unfit(why) => Some(why),
        Standing::Healthy { .. } => None,
    }
}

async fn view(connection: &mut SourceConnection) -> Result<GroupView, ConnectionError> {
    // A proxy greets with a version of its own.
    let version = Version::parse(&connection.setting("SELECT @@version").await?);
    GroupView::read(connection, &version).await.map_err(|error| match error.code() {
        Some(DENIED) => ConnectionError::Protocol(format!(
            "source.discover needs GRANT {MEMBERS_PRIVILEGE} for the account on the source: {error}"
        )),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::connection::fake_source::{FakeSource, Wires};

    #[tokio::test]
    async fn a_member_behind_a_proxy_is_asked_in_the_words_of_its_own_version() {
        let (options, mut ends) = Wires::options();
        let script = async {
            let mut source = FakeSource::new(ends.recv().await.expect("a connection"));
            source.of_proxy = Some("8.4.0-router");
            source.accept_login().await;
            assert!(source.command().await.ends_with(b"SELECT @@version LIMIT 1"));
            source.value("5.7.44").await;
            let asked = source.command().await;
            source.rows(5, &[]).await;
            String::from_utf8(asked).expect("text")
        };
        let look = async {
            let mut connection =
                SourceConnection::connect(&options, "source", 3306).await.expect("logs in");
            view(&mut connection).await.expect("an answer").members.len()
        };
        let (asked, members) = tokio::join!(script, look);
        assert!(asked.contains("MEMBER_STATE, '' FROM"), "{asked}");
        assert_eq!(members, 0);
    }
}
