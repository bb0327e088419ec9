//! The source's side of the protocol, scripted by a test. Packets are framed here by hand, so that
//! an error in the codec is not on both sides.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::binlog::gtid::Uuid;
use crate::seams::clock::{Clock as _, SystemClock};
use crate::server::environment::Environment;
use crate::server::link::{Connecting, Endpoint, Network, TlsMode, TlsOptions, Transport};
use crate::source::options::SourceOptions;
use crate::source::reception::fitness::{LOGS_APPLIED, SETTINGS};
use crate::test_util::packets;

/// The longest a packet can be before it is continued in another.
pub(crate) const PACKET_BYTES_FULL: usize = 0xff_ffff;
pub(crate) const SERVER_UUID: &str = "05050505-0505-0505-0505-050505050505";
pub(crate) const CONNECTION_ID: u32 = 77;
pub(crate) const VERSION: &str = "9.7.4-fake";
/// Bytes 1 to 20.
pub(crate) const NONCE: [u8; 20] =
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];

pub(crate) const COM_QUIT: u8 = 0x01;
pub(crate) const COM_QUERY: u8 = 0x03;
pub(crate) const COM_REGISTER_REPLICA: u8 = 0x15;
pub(crate) const COM_BINLOG_DUMP_GTID: u8 = 0x1e;

pub(crate) const CAPABILITY_TLS: u32 = 1 << 11;

/// Returns the options with which tests connect.
pub(crate) fn options() -> SourceOptions {
    SourceOptions {
        host: "127.0.0.1".to_owned(),
        port: 0,
        user: "repl".to_owned(),
        password: "repl_pw".into(),
        server_id: 0x0102_0304,
        replica_uuid: Uuid::from_bytes([3; 16]),
        tls: tls(TlsMode::Disabled),
        heartbeat_interval: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(30),
        connect_retry: Duration::from_millis(10),
        connect_retry_max: Duration::from_millis(40),
        environment: Environment::default(),
        semi_sync: false,
        failover: Vec::new(),
        group: None,
    }
}

fn now() -> i64 {
    i64::try_from(SystemClock.now_micros()).unwrap()
}

pub(crate) fn tls(mode: TlsMode) -> TlsOptions {
    TlsOptions { mode, ..TlsOptions::default() }
}

/// A client's answer to the greeting.
#[derive(Debug)]
pub(crate) struct LoginPacket {
    pub(crate) user: String,
    pub(crate) proof: Vec<u8>,
    pub(crate) plugin: String,
}

/// A network whose connections a test answers, and not the system's: its clock can be stopped.
#[derive(Debug)]
pub(crate) struct Wires(mpsc::UnboundedSender<DuplexStream>);

impl Wires {
    /// Returns options that connect over wires, and their other ends.
    pub(crate) fn options() -> (SourceOptions, mpsc::UnboundedReceiver<DuplexStream>) {
        let (sender, ends) = mpsc::unbounded_channel();
        let environment = Environment { network: Arc::new(Self(sender)), ..Environment::default() };
        (SourceOptions { environment, ..options() }, ends)
    }
}

impl Network for Wires {
    fn connect<'a>(&'a self, _: &'a Endpoint, _: Option<Duration>) -> Connecting<'a> {
        let (client, source) = tokio::io::duplex(64 << 10);
        let sent = self.0.send(source);
        Box::pin(async move {
            sent.map_err(|_| std::io::Error::from(std::io::ErrorKind::ConnectionRefused))?;
            Ok(Box::new(client) as Box<dyn Transport>)
        })
    }
}

pub(crate) struct FakeSource {
    stream: Box<dyn Transport>,
    sequence: u8,
    pub(crate) version: &'static str,
    /// The version with which a proxy before it greets.
    pub(crate) of_proxy: Option<&'static str>,
    pub(crate) uuid: &'static str,
    /// Microseconds by which its clock is ahead.
    pub(crate) clock_ahead: i64,
    /// The time after which it says what its clock shows.
    pub(crate) clock_after: Duration,
    pub(crate) executed: String,
    pub(crate) purged: String,
    /// Its commits under way.
    pub(crate) owned: String,
    /// It is a replica, and its binary log lacks what it applies.
    pub(crate) leaves_out_applied: bool,
}

impl FakeSource {
    pub(crate) fn new(stream: impl Transport + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            sequence: 0,
            version: VERSION,
            of_proxy: None,
            uuid: SERVER_UUID,
            clock_ahead: 0,
            clock_after: Duration::ZERO,
            executed: String::new(),
            purged: String::new(),
            owned: String::new(),
            leaves_out_applied: false,
        }
    }

    /// Sends one packet, split if it is too long.
    pub(crate) async fn send(&mut self, payload: &[u8]) {
        let mut chunks: Vec<&[u8]> = payload.chunks(PACKET_BYTES_FULL).collect();
        if payload.len().is_multiple_of(PACKET_BYTES_FULL) {
            chunks.push(&[]);
        }
        for chunk in chunks {
            let frame = self.frame(chunk);
            self.send_bytes(&frame).await;
        }
    }

    /// Returns the bytes of one packet with the next packet number.
    pub(crate) fn frame(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
        bytes[3] = self.sequence;
        bytes.extend_from_slice(payload);
        self.sequence = self.sequence.wrapping_add(1);
        bytes
    }

    /// Bytes as they are.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the client listens");
        self.stream.flush().await.expect("the client listens");
    }

    /// Returns the client's next packet, whose number has to be the next one.
    pub(crate) async fn receive(&mut self) -> Vec<u8> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header).await.expect("a packet");
        assert_eq!(header[3], self.sequence, "packet number");
        self.sequence = self.sequence.wrapping_add(1);
        let len =
            usize::from(header[0]) | usize::from(header[1]) << 8 | usize::from(header[2]) << 16;
        let mut payload = vec![0; len];
        self.stream.read_exact(&mut payload).await.expect("a whole packet");
        payload
    }

    /// The client closes the link without another byte.
    pub(crate) async fn assert_nothing_more(&mut self) {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).await.expect("an orderly end");
        assert!(rest.is_empty(), "the client sent {rest:?}");
    }

    /// Returns the client's next command, which restarts packet numbering.
    pub(crate) async fn command(&mut self) -> Vec<u8> {
        self.sequence = 0;
        self.receive().await
    }

    pub(crate) async fn greet(&mut self, plugin: &str, more_capabilities: u32) {
        let version = self.of_proxy.unwrap_or(self.version);
        let packet = packets::greeting(version, CONNECTION_ID, &NONCE, plugin, more_capabilities);
        self.send(&packet).await;
    }

    /// Takes the request for TLS and shakes hands; `None` if the client refuses the certificate.
    pub(crate) async fn encrypt(mut self, settings: ServerConfig) -> Option<Self> {
        self.receive().await;
        let stream = TlsAcceptor::from(Arc::new(settings)).accept(self.stream).await.ok()?;
        Some(Self { stream: Box::new(stream), ..self })
    }

    /// Capabilities (4), packet limit (4), character set (1), 23 zeros, user, proof, plugin.
    pub(crate) async fn login_packet(&mut self) -> LoginPacket {
        let packet = self.receive().await;
        let until_zero = |from: usize| {
            let len = packet[from..].iter().position(|&byte| byte == 0).expect("a zero");
            String::from_utf8(packet[from..from + len].to_vec()).expect("text")
        };
        let user = until_zero(32);
        let at = 32 + user.len() + 1;
        let len = usize::from(packet[at]);
        let proof = packet[at + 1..at + 1 + len].to_vec();
        LoginPacket { user, proof, plugin: until_zero(at + 1 + len) }
    }

    /// Asks for another plugin's proof, for another nonce; returns the proof.
    pub(crate) async fn switch(&mut self, plugin: &str, nonce: &[u8]) -> Vec<u8> {
        let mut packet = vec![0xfe];
        packet.extend_from_slice(plugin.as_bytes());
        packet.push(0);
        packet.extend_from_slice(nonce);
        packet.push(0);
        self.send(&packet).await;
        self.receive().await
    }

    pub(crate) async fn ok(&mut self) {
        self.send(packets::OK).await;
    }

    pub(crate) async fn error(&mut self, code: u16, text: &str) {
        self.send(&packets::error(code, text)).await;
    }

    pub(crate) async fn eof(&mut self) {
        self.send(&[0xfe, 0, 0, 2, 0]).await;
    }

    /// A result of one row and column.
    pub(crate) async fn value(&mut self, text: &str) {
        self.columns(1).await;
        self.send(&packets::row_of(text)).await;
        self.send(packets::END_OF_ROWS).await;
    }

    /// A result of these rows, each of `count` columns.
    pub(crate) async fn rows(&mut self, count: u8, rows: &[Vec<String>]) {
        self.columns(count).await;
        for row in rows {
            let values: Vec<Vec<u8>> = row.iter().map(|text| packets::row_of(text)).collect();
            self.send(&values.concat()).await;
        }
        self.send(packets::END_OF_ROWS).await;
    }

    /// The head of a result.
    pub(crate) async fn columns(&mut self, count: u8) {
        self.send(&[count]).await;
        for _ in 0..count {
            self.send(packets::COLUMN).await;
        }
    }

    /// Sends the same row until the client is gone.
    pub(crate) async fn rows_without_end(&mut self, row: &[u8]) {
        loop {
            let frame = self.frame(row);
            if self.stream.write_all(&frame).await.is_err() {
                return;
            }
        }
    }

    /// Sends bytes until the client is gone.
    pub(crate) async fn flood(&mut self, mut bytes: usize) {
        let chunk = [b'x'; 4096];
        while bytes > 0 && self.stream.write_all(&chunk).await.is_ok() {
            bytes = bytes.saturating_sub(chunk.len());
        }
    }

    /// Refuses the login with this error.
    pub(crate) async fn refuse_login(mut self, code: u16) {
        self.greet("caching_sha2_password", 0).await;
        self.login_packet().await;
        self.error(code, "refused").await;
    }

    /// Accepts the login as if the account were in the server's cache.
    pub(crate) async fn accept_login(&mut self) {
        self.greet("caching_sha2_password", 0).await;
        self.login_packet().await;
        self.send(packets::CACHED).await;
        self.ok().await;
    }

    /// Answers the queries before a dump that is not requested, because the source lacks something. The last one is
    /// the second one for `gtid_executed`, after the one for commits under way.
    pub(crate) async fn accept_questions(&mut self) {
        let mut has_told_owned = false;
        loop {
            let command = self.command().await;
            let question = without_limit(command.get(1..).unwrap_or_default());
            assert!(self.answers(question).await, "{}", String::from_utf8_lossy(question));
            if has_told_owned && question == b"SELECT @@GLOBAL.gtid_executed" {
                return;
            }
            has_told_owned |= question == b"SELECT @@GLOBAL.gtid_owned";
        }
    }

    /// Answers a question about the source itself. Returns false if it is none.
    async fn answers(&mut self, question: &[u8]) -> bool {
        if question == LOGS_APPLIED.as_bytes() {
            let value = if self.leaves_out_applied { "OFF" } else { "ON" };
            let variables = [["version", self.version], ["log_replica_updates", value]];
            self.rows(2, &variables.map(|pair| pair.map(str::to_owned).to_vec())).await;
            return true;
        }
        let value = match question {
            b"SELECT @@version" => self.version.to_owned(),
            b"SELECT @@server_uuid" => self.uuid.to_owned(),
            b"SELECT @@GLOBAL.gtid_executed" => self.executed.clone(),
            b"SELECT @@GLOBAL.gtid_purged" => self.purged.clone(),
            b"SELECT @@GLOBAL.gtid_owned" => self.owned.clone(),
            text if text == SETTINGS.as_bytes() => "ROW 1".to_owned(),
            b"SHOW REPLICA STATUS" => "Waiting for source to send event".to_owned(),
            text if text.starts_with(b"SELECT TIMESTAMPDIFF") => {
                tokio::time::sleep(self.clock_after).await;
                (now() + self.clock_ahead).to_string()
            }
            _ => return false,
        };
        self.value(&value).await;
        true
    }

    /// Logs a client in and answers its questions until it says goodbye.
    pub(crate) async fn accept_look(&mut self) {
        self.accept_login().await;
        loop {
            let command = self.command().await;
            match (command[0], without_limit(&command[1..])) {
                (COM_QUIT, _) => return,
                (_, text) if self.answers(text).await => {}
                (_, other) => panic!("{}", String::from_utf8_lossy(other)),
            }
        }
    }

    /// Says which server it is, and answers so many questions about its clock.
    pub(crate) async fn accept_clock_questions(&mut self, count: usize) {
        let command = self.command().await;
        assert_eq!(without_limit(&command[1..]), b"SELECT @@server_uuid");
        self.value(self.uuid).await;
        for _ in 0..count {
            let command = self.command().await;
            assert!(command.get(1..).is_some_and(|text| text.starts_with(b"SELECT TIMESTAMPDIFF")));
            self.value(&(now() + self.clock_ahead).to_string()).await;
        }
    }

    /// Answers commands up to and including the request of the dump, and returns them all.
    pub(crate) async fn accept_dump(&mut self, checksum: &str) -> Vec<Vec<u8>> {
        let mut commands = Vec::new();
        loop {
            let command = self.command().await;
            match (command[0], without_limit(&command[1..])) {
                (COM_QUERY, b"SELECT @source_binlog_checksum") => self.value(checksum).await,
                (COM_QUERY, text) if text.starts_with(b"SET ") => self.ok().await,
                (COM_REGISTER_REPLICA, _) => self.ok().await,
                (COM_BINLOG_DUMP_GTID, _) => {}
                (COM_QUERY, text) if self.answers(text).await => {}
                (code, body) => panic!("command {code}: {}", String::from_utf8_lossy(body)),
            }
            commands.push(command);
            if commands.last().is_some_and(|command| command[0] == COM_BINLOG_DUMP_GTID) {
                return commands;
            }
        }
    }

    pub(crate) async fn event(&mut self, bytes: &[u8]) {
        let mut packet = vec![0];
        packet.extend_from_slice(bytes);
        self.send(&packet).await;
    }

    /// An event of a semi-synchronous source.
    pub(crate) async fn semi_sync_event(&mut self, bytes: &[u8], requested: bool) {
        let mut packet = vec![0, 0xef, u8::from(requested)];
        packet.extend_from_slice(bytes);
        self.send(&packet).await;
        if requested {
            self.sequence = 1;
        }
    }

    /// Returns the position and file of the client's next acknowledgement.
    pub(crate) async fn acknowledgement(&mut self) -> (u64, String) {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header).await.expect("a packet");
        // Apart from the numbers of the dump.
        assert_eq!(header[1..], [0, 0, 0]);
        let mut packet = vec![0; usize::from(header[0])];
        self.stream.read_exact(&mut packet).await.expect("a whole packet");
        assert_eq!(packet[0], 0xef);
        let position = u64::from_le_bytes(packet[1..9].try_into().expect("8 bytes"));
        (position, String::from_utf8(packet[9..].to_vec()).expect("text"))
    }
}

fn without_limit(query: &[u8]) -> &[u8] {
    query.strip_suffix(b" LIMIT 1".as_slice()).unwrap_or(query)
}
