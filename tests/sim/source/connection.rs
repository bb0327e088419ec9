//! One connection: the server's side of the protocol, as far as a replica uses it.

use std::io;

use csa_provider::binlog::{ChecksumAlgorithm, EventType, GtidSet};
use csa_provider::test_util::{event_bytes, format_description, packets};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::{Duration, Instant, timeout};

use super::{Departed, Source, Transit};
use crate::history::is_of_source;

const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const COM_REGISTER_REPLICA: u8 = 0x15;
const COM_BINLOG_DUMP_GTID: u8 = 0x1e;
const VERSION: &str = "9.7.4";
/// The command, flags, server id, name length, position and set length of a dump's request.
const BEFORE_SET: usize = 1 + 2 + 4 + 4 + 8 + 4;
const FATAL: u16 = 1236;
/// No other packet that begins like an event is as long.
const SHORT: usize = 19;

struct Connection<'a> {
    source: &'a Source,
    departed: &'a Departed,
    stream: DuplexStream,
    sequence: u8,
}

/// Serves a client until either side ends it.
///
/// # Errors
/// The link is cut.
pub(super) async fn serve(
    source: &Source,
    stream: DuplexStream,
    departed: &Departed,
) -> io::Result<()> {
    let mut connection = Connection { source, departed, stream, sequence: 0 };
    connection.log_in().await?;
    loop {
        connection.sequence = 0;
        let command = connection.receive().await?;
        match command.split_first() {
            Some((&COM_QUERY, text)) => connection.query(&String::from_utf8_lossy(text)).await?,
            Some((&COM_REGISTER_REPLICA, _)) => connection.ok().await?,
            Some((&COM_BINLOG_DUMP_GTID, _)) => {
                let known = GtidSet::decode(&command[BEFORE_SET..]).expect("a GTID set");
                return connection.dump(known).await;
            }
            Some((&COM_QUIT, _)) => return Ok(()),
            other => panic!("not modelled: {other:?}"),
        }
    }
}

impl Connection<'_> {
    async fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header).await?;
        self.sequence = header[3].wrapping_add(1);
        let len = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let mut payload = vec![0; len as usize];
        self.stream.read_exact(&mut payload).await?;
        Ok(payload)
    }

    async fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut packet = u32::try_from(payload.len()).expect("small").to_le_bytes().to_vec();
        packet[3] = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        packet.extend_from_slice(payload);
        let transit = self.source.core.faults.lock().packet();
        match transit {
            Transit::Arrive => {}
            Transit::Late(time) => tokio::time::sleep(time).await,
            Transit::Cut => return Err(io::ErrorKind::ConnectionReset.into()),
            Transit::Vanish => std::future::pending().await,
            // Only events have checksums of their own; what else arrives damaged is TCP's to notice.
            Transit::Damage if payload.first() == Some(&0) && payload.len() > SHORT => {
                *packet.last_mut().expect("a header") ^= 1;
            }
            Transit::Damage => {}
        }
        self.stream.write_all(&packet).await
    }

    async fn log_in(&mut self) -> io::Result<()> {
        let refusal = self.source.core.faults.lock().refuses();
        if let Some(code) = refusal {
            self.send(&packets::error(code, "refused")).await?;
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let greeting = packets::greeting(VERSION, 1, &[7; 20], "caching_sha2_password", 0);
        self.send(&greeting).await?;
        self.receive().await?;
        self.send(packets::CACHED).await?;
        self.ok().await
    }

    async fn query(&mut self, text: &str) -> io::Result<()> {
        match text.strip_suffix(" LIMIT 1").unwrap_or(text) {
            "SELECT @@server_uuid" => self.value(&self.source.core.uuid.to_string()).await,
            "SELECT @source_binlog_checksum" => self.value("CRC32").await,
            "SELECT @@GLOBAL.gtid_executed" => {
                let executed = self.source.executed().to_string();
                self.value(&executed).await
            }
            "SELECT @@GLOBAL.gtid_purged" => {
                let purged = self.source.core.log.lock().purged.to_string();
                self.value(&purged).await
            }
            "SELECT CONCAT(@@GLOBAL.binlog_format, ' ', @@GLOBAL.server_id)" => {
                self.value("ROW 1").await
            }
            "SELECT @@version" => self.value(VERSION).await,
            text if text.starts_with("SHOW GLOBAL VARIABLES WHERE Variable_name IN (") => {
                self.row(&["log_replica_updates", "ON"]).await
            }
            // Commits take no time.
            "SELECT @@GLOBAL.gtid_owned" => self.value("").await,
            text if text.starts_with("SELECT TIMESTAMPDIFF(MICROSECOND") => {
                let now = self.source.core.clock.now_micros().to_string();
                self.value(&now).await
            }
            text if text.starts_with("SET ") => self.ok().await,
            other => panic!("not modelled: {other}"),
        }
    }

    async fn ok(&mut self) -> io::Result<()> {
        self.send(packets::OK).await
    }

    /// A result of one row and column.
    async fn value(&mut self, text: &str) -> io::Result<()> {
        self.row(&[text]).await
    }

    /// A result of one row.
    async fn row(&mut self, texts: &[&str]) -> io::Result<()> {
        self.send(&[texts.len() as u8]).await?;
        for _ in texts {
            self.send(packets::COLUMN).await?;
        }
        let values: Vec<Vec<u8>> = texts.iter().map(|text| packets::row_of(text)).collect();
        self.send(&values.concat()).await?;
        self.send(packets::END_OF_ROWS).await
    }

    async fn event(&mut self, bytes: &[u8]) -> io::Result<()> {
        let now = Instant::now();
        self.send(&[&[0], bytes].concat()).await?;
        self.departed.note(now);
        Ok(())
    }

    /// Sends everything that is not in `known`, and heartbeats while there is nothing.
    async fn dump(&mut self, known: GtidSet) -> io::Result<()> {
        let (executed, purged) = {
            let log = self.source.core.log.lock();
            (log.executed.clone(), log.purged.clone())
        };
        let own = self.source.core.uuid.to_string();
        if !known.of_server(&own).is_subset_of(&executed) {
            let text =
                "Replica has more GTIDs than the source has, using the source's SERVER_UUID.";
            return self.send(&packets::error(FATAL, text)).await;
        }
        // A server does not compare those of others. Some are the target's own.
        let missing = known.of_servers(is_of_source).difference(&executed);
        assert!(missing.is_empty(), "asked for what comes after {missing}");
        if !purged.is_subset_of(&known) {
            let text = "Cannot replicate because the source purged required binary logs.";
            return self.send(&packets::error(FATAL, text)).await;
        }
        self.event(format_description().raw()).await?;
        let heartbeat =
            event_bytes(EventType::HEARTBEAT, b"binlog.000001", ChecksumAlgorithm::Crc32);
        let mut grown = self.source.core.grown.subscribe();
        let mut place = 0;
        loop {
            grown.mark_unchanged();
            while let Some((after, events)) = self.source.next(place, &known) {
                for event in events.iter() {
                    self.event(event).await?;
                }
                place = after;
            }
            // Told apart from a wait that is over: only an idle source sends heartbeats.
            if timeout(Duration::from_secs(1), grown.changed()).await.is_err() {
                self.event(&heartbeat).await?;
            }
        }
    }
}
