//! The dump: session set-up, registration, and the stream of events.

use std::time::Duration;

use bytes::{Buf as _, Bytes};

use super::{ConnectionError, SemiSync, SourceConnection};
use crate::binlog::event::{
    ChecksumAlgorithm, EventHeader, EventType, FormatDescription, RawEvent,
};
use crate::binlog::gtid::GtidSet;
use crate::server::Version;
use crate::server::by_hand::of_account;
use crate::server::link::{Limits, LinkError};
use crate::source::options::SourceOptions;
use crate::source::semi_sync::{self, BinlogPlace};

const COM_REGISTER_REPLICA: u8 = 0x15;
const COM_BINLOG_DUMP_GTID: u8 = 0x1e;
/// Position of the first event in a binary log file.
const FIRST_POSITION: u64 = 4;
/// The protocol's limit for an event (1 GiB), and the byte before it that marks the packet.
const PACKET_BYTES_MAX: usize = (1 << 30) + 1;
/// Bytes read ahead, so that many small events take one system call.
const READ_AHEAD: usize = 256 << 10;

/// The least patience with the first event of a dump. Before it the source reads the beginnings of its binary logs, the
/// newest first, until it finds where to start, and sends no heartbeats.
const FIRST_EVENT: Duration = Duration::from_secs(60);

/// ER_ACCESS_DENIED_ERROR: a refused login, and the answer to an account without REPLICATION SLAVE.
const ACCESS_DENIED: u16 = 1045;

/// Tells an account that may not replicate from a wrong password: servers use one number and text for both.
fn unprivileged(error: LinkError) -> LinkError {
    let LinkError::Server { code: ACCESS_DENIED, message } = error else { return error };
    let account = message.split_once("for user ").and_then(|(_, rest)| rest.split_once(" ("));
    let account = account.map_or("the account of [channel.source]", |(account, _)| account);
    LinkError::Server {
        code: ACCESS_DENIED,
        message: format!(
            "{account} has logged in and may not replicate. On the source: {}",
            of_account(&format!("GRANT REPLICATION SLAVE ON *.* TO {account}"))
        ),
    }
}

impl SourceConnection {
    /// Requests everything that the source has and `received` does not.
    pub(crate) async fn start_dump(
        &mut self,
        options: &SourceOptions,
        received: &GtidSet,
    ) -> Result<(), ConnectionError> {
        self.announce(options).await?;
        self.register(options).await?;
        let untagged = received.untagged();
        // An earlier source refuses a set with tags, and has no transaction with one. A proxy greets with a version of
        // its own.
        let takes_all = untagged == *received || {
            let version = self.setting("SELECT @@version").await?;
            Version::parse(&version).is_at_least(8, 3)
        };
        let set = if takes_all { received.encode() } else { untagged.encode() };
        // Flags, our server id, length of a file name (none: the set decides), position, set.
        let mut body = Vec::with_capacity(set.len() + 22);
        body.extend_from_slice(&0_u16.to_le_bytes());
        body.extend_from_slice(&options.server_id.to_le_bytes());
        body.extend_from_slice(&0_u32.to_le_bytes());
        body.extend_from_slice(&FIRST_POSITION.to_le_bytes());
        let len = u32::try_from(set.len())
            .map_err(|_| ConnectionError::Protocol("GTID set of over 4 GiB".to_owned()))?;
        body.extend_from_slice(&len.to_le_bytes());
        body.extend_from_slice(&set);
        self.link.command(COM_BINLOG_DUMP_GTID, &body).await?;
        self.link.packets().allow(PACKET_BYTES_MAX);
        self.link.packets().read_ahead(READ_AHEAD);
        self.semi_sync = if options.semi_sync { SemiSync::Asked } else { SemiSync::Off };
        self.has_begun = false;
        Ok(())
    }

    /// Sets the session variables that the source reads when a dump begins. Each has an old and a
    /// new name: sources since 8.0.26 look at the new one first.
    async fn announce(&mut self, options: &SourceOptions) -> Result<(), ConnectionError> {
        // `net_write_timeout`: the source must not give up while a full relay store stops our reading. The others
        // are limits that its operator may have set globally.
        let period = options.heartbeat_interval.as_nanos();
        let uuid = options.replica_uuid;
        let semi_sync = match options.semi_sync {
            true => "@rpl_semi_sync_slave=1, @rpl_semi_sync_replica=1, ",
            false => "",
        };
        let set = format!(
            "SET {semi_sync}@master_heartbeat_period={period}, @source_heartbeat_period={period}, \
             @slave_uuid='{uuid}', @replica_uuid='{uuid}', net_write_timeout=3600, \
             sql_select_limit=18446744073709551615, max_execution_time=0, \
             @master_binlog_checksum=@@GLOBAL.binlog_checksum, \
             @source_binlog_checksum=@@GLOBAL.binlog_checksum"
        );
        self.query(&set, Limits::SETTING).await?;
        // The artificial rotation, which comes before any format description, has the checksum that
        // this variable states (`Binlog_sender::init_checksum_alg`).
        let checksum = self.setting("SELECT @source_binlog_checksum").await?;
        self.checksum = match checksum.as_str() {
            "NONE" => ChecksumAlgorithm::Off,
            "CRC32" => ChecksumAlgorithm::Crc32,
            other => {
                return Err(ConnectionError::Protocol(format!(
                    "binlog_checksum={other} on the source is not known"
                )));
            }
        };
        Ok(())
    }

    /// Makes us visible in `SHOW REPLICAS`.
    async fn register(&mut self, options: &SourceOptions) -> Result<(), ConnectionError> {
        let mut body = Vec::new();
        body.extend_from_slice(&options.server_id.to_le_bytes());
        // Host name, user and password (shown by the source only), port, rank, source id.
        let name = b"csa-daemon";
        body.push(name.len() as u8);
        body.extend_from_slice(name);
        body.extend_from_slice(&[0, 0]);
        body.extend_from_slice(&[0; 2 + 4 + 4]);
        self.link.command(COM_REGISTER_REPLICA, &body).await?;
        let answer = self.link.packets().receive_ok(Some(options.patience())).await;
        answer.map_err(unprivileged)?;
        self.link.answered();
        Ok(())
    }

    /// The source of this dump takes acknowledgements; known with the first event.
    pub(crate) fn is_semi_sync(&self) -> bool {
        self.semi_sync == SemiSync::On
    }

    /// Tells the source that everything up to this place is safe.
    pub(crate) async fn acknowledge(&mut self, place: &BinlogPlace) -> Result<(), ConnectionError> {
        // The source reads acknowledgements apart from the dump: each is number 0.
        Ok(self.link.packets().send_aside(&place.packet()).await?)
    }

    /// Takes the two bytes of a semi-synchronous source off an event; true if it requests an
    /// acknowledgement.
    fn unwrap_semi_sync(&mut self, bytes: &mut Bytes) -> Result<bool, ConnectionError> {
        let requested = match self.semi_sync {
            SemiSync::Off => return Ok(false),
            _ => semi_sync::requested(bytes),
        };
        match (self.semi_sync, requested) {
            // A dump begins with an event that the source makes for it, whose first byte is 0.
            (SemiSync::Asked, None) => {
                self.semi_sync = SemiSync::Off;
                return Ok(false);
            }
            (_, None) => {
                let text = "an event without the bytes of semi-synchronous replication";
                return Err(ConnectionError::Protocol(text.to_owned()));
            }
            _ => self.semi_sync = SemiSync::On,
        }
        bytes.advance(semi_sync::HEADER_BYTES);
        let requested = requested == Some(true);
        if requested {
            // The source continues as if it had read our answer at once, which would have number 0.
            self.link.packets().renumber(1);
        }
        Ok(requested)
    }

    /// Returns the next event, verified; and true if the source requests an acknowledgement of it.
    /// Nothing is lost when this future is dropped.
    ///
    /// # Errors
    /// A link that is silent, closed or in error; bytes that are not the event they claim to be.
    pub(crate) async fn next_event(&mut self) -> Result<(RawEvent, bool), ConnectionError> {
        let patience = match self.has_begun {
            true => self.dead_after,
            false => self.dead_after.max(FIRST_EVENT),
        };
        let packet = self.link.packets().receive_ok(Some(patience)).await?;
        self.has_begun = true;
        self.event_of(&packet)
    }

    /// Returns as [`Self::next_event`] does, if all bytes of the event were read with those of an earlier one.
    ///
    /// # Errors
    /// Those of [`Self::next_event`].
    pub(crate) fn arrived_event(&mut self) -> Result<Option<(RawEvent, bool)>, ConnectionError> {
        let packet = self.link.packets().arrived()?;
        packet.map(|packet| self.event_of(&packet)).transpose()
    }

    fn event_of(&mut self, packet: &Bytes) -> Result<(RawEvent, bool), ConnectionError> {
        match packet.first() {
            Some(0x00) => {}
            // The source has no more events and was asked not to wait, or it is shutting down.
            Some(0xfe) => return Err(LinkError::Closed.into()),
            _ => return Err(ConnectionError::Protocol("not an event packet".to_owned())),
        }
        let mut bytes = packet.slice(1..);
        let requested = self.unwrap_semi_sync(&mut bytes)?;
        if bytes.get(EventHeader::EVENT_TYPE_OFFSET) == Some(&EventType::FORMAT_DESCRIPTION.0) {
            let event = FormatDescription::parse(bytes.clone())?;
            // The description applies from here on, whatever was negotiated: a file written earlier
            // may have had another setting.
            self.checksum = event.checksum();
            // `parse` has verified it; it has room for a checksum whatever its algorithm.
            return Ok((RawEvent::trusted(bytes, ChecksumAlgorithm::Crc32)?, requested));
        }
        Ok((RawEvent::parse(bytes, self.checksum)?, requested))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_that_may_not_replicate_is_no_wrong_password() {
        let server = |code, message: &str| LinkError::Server { code, message: message.to_owned() };
        let denied = server(1045, "Access denied for user 'repl'@'%' (using password: YES)");
        let said = unprivileged(denied).to_string();
        assert!(said.ends_with("GRANT REPLICATION SLAVE ON *.* TO 'repl'@'%'"), "{said}");
        let other = "Access denied; you need the REPLICATION SLAVE privilege";
        assert_eq!(unprivileged(server(1227, other)).to_string(), server(1227, other).to_string());
        assert!(unprivileged(server(1045, "no")).to_string().contains("[channel.source]"));
    }
}
