//! A server that is not what it claims to be: it accepts every login, or asks for the password, and
//! sends more than any client can hold. It keeps the bytes that it receives.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Protocol 4.1, secure connection, plugins and their data, several statements, no EOF packets; no TLS.
const CAPABILITIES: u32 = 1
    | 1 << 1
    | 1 << 2
    | 1 << 9
    | 1 << 13
    | 1 << 15
    | 1 << 16
    | 1 << 17
    | 1 << 19
    | 1 << 21
    | 1 << 24;
/// Bytes sent where there is no end: more than a client could hold unnoticed.
const FLOOD_BYTES: usize = 2 << 30;
const CHUNK_BYTES: usize = 1 << 16;

/// Its behaviour towards clients.
#[derive(Debug, Clone)]
pub enum Hostility {
    /// A packet without end instead of a greeting.
    EndlessGreeting,
    /// Does not remember the account, and asks for the password itself.
    AsksForPassword,
    /// Switches to this plugin.
    Switches(&'static str),
    /// Accepts every login and answers as written, `|` between values, each SET with OK, and anything
    /// else with rows without end.
    EndlessRows(Vec<(&'static str, &'static str)>),
    /// A result with one value without end.
    EndlessValue(Vec<(&'static str, &'static str)>),
}

/// Listens on 127.0.0.1 until it is dropped.
#[derive(Debug)]
pub struct HostileServer {
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    hostility: Hostility,
    /// The bytes that each connection sent after its login packet.
    received: Mutex<Vec<Vec<u8>>>,
    /// Connections that are over.
    ended: AtomicUsize,
    stop: AtomicBool,
}

impl Shared {
    fn received(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostileServer {
    /// Starts one.
    ///
    /// # Panics
    /// Without a port to listen on.
    #[must_use]
    pub fn start(hostility: Hostility) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("binding a port");
        let port = listener.local_addr().expect("the address bound").port();
        let shared = Arc::new(Shared {
            hostility,
            received: Mutex::default(),
            ended: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.stop.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || {
                    // A client that refuses the answer disconnects in the middle.
                    let _ = serve(stream, &shared);
                    shared.ended.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        Self { port, shared }
    }

    /// Returns the connections that have ended.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.shared.ended.load(Ordering::Relaxed)
    }

    /// Returns the bytes that each client sent after its login packet.
    #[must_use]
    pub fn received(&self) -> Vec<Vec<u8>> {
        self.shared.received().clone()
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

struct Connection {
    stream: TcpStream,
    sequence: u8,
}

type Result<T> = std::io::Result<T>;

fn serve(stream: TcpStream, shared: &Shared) -> Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut connection = Connection { stream, sequence: 0 };
    if matches!(shared.hostility, Hostility::EndlessGreeting) {
        return connection.endless_packet();
    }
    connection.greet()?;
    connection.receive()?;
    let index = {
        let mut received = shared.received();
        received.push(Vec::new());
        received.len() - 1
    };
    match &shared.hostility {
        Hostility::EndlessGreeting => Ok(()),
        Hostility::AsksForPassword => {
            connection.send(&[0x01, 0x04])?;
            connection.keep_all(shared, index)
        }
        Hostility::Switches(plugin) => {
            connection.send(&[b"\xfe", plugin.as_bytes(), b"\0", &[7; 20], b"\0"].concat())?;
            connection.keep_all(shared, index)
        }
        Hostility::EndlessRows(answers) => {
            connection.answer(answers)?;
            connection.columns(1)?;
            connection.endless_rows()
        }
        Hostility::EndlessValue(answers) => {
            connection.answer(answers)?;
            connection.columns(1)?;
            connection.endless_packet()
        }
    }
}

impl Connection {
    fn send(&mut self, payload: &[u8]) -> Result<()> {
        let frame = self.frame(payload);
        self.stream.write_all(&frame)
    }

    fn frame(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_le_bytes().to_vec();
        frame[3] = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        frame.extend_from_slice(payload);
        frame
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header)?;
        self.sequence = header[3].wrapping_add(1);
        let mut payload =
            vec![0; u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok(payload)
    }

    fn greet(&mut self) -> Result<()> {
        let capabilities = CAPABILITIES.to_le_bytes();
        let mut packet = b"\x0a9.7.4\0\x07\0\0\0ABCDEFGH\0".to_vec();
        packet.extend_from_slice(&capabilities[..2]);
        packet.extend_from_slice(&[255, 2, 0]);
        packet.extend_from_slice(&capabilities[2..]);
        packet.push(21);
        packet.extend_from_slice(&[0; 10]);
        packet.extend_from_slice(b"IJKLMNOPQRST\0caching_sha2_password\0");
        self.send(&packet)
    }

    fn keep_all(&mut self, shared: &Shared, index: usize) -> Result<()> {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes)? {
                0 => return Ok(()),
                count => shared.received()[index].extend_from_slice(&bytes[..count]),
            }
        }
    }

    fn ok(&mut self) -> Result<()> {
        self.send(&[0, 0, 0, 2, 0, 0, 0])
    }

    /// Returns at the first query that has no answer.
    fn answer(&mut self, answers: &[(&str, &str)]) -> Result<()> {
        self.send(&[0x01, 0x03])?;
        self.ok()?;
        loop {
            let command = self.receive()?;
            let text = String::from_utf8_lossy(command.get(1..).unwrap_or_default()).into_owned();
            match answers.iter().find(|(query, _)| text.starts_with(query)) {
                Some((_, row)) => {
                    let values: Vec<&str> = row.split('|').collect();
                    self.columns(values.len())?;
                    let row = values
                        .iter()
                        .flat_map(|value| [&[value.len() as u8][..], value.as_bytes()].concat());
                    self.send(&row.collect::<Vec<u8>>())?;
                    self.send(&[0xfe, 0, 0, 2, 0, 0, 0])?;
                }
                None if text.starts_with("SET ") => self.ok()?,
                None if command.first() == Some(&1) => return Err(std::io::ErrorKind::Other.into()),
                None => return Ok(()),
            }
        }
    }

    fn columns(&mut self, count: usize) -> Result<()> {
        self.send(&[count as u8])?;
        for _ in 0..count {
            self.send(b"\x03def\0\0\0\x01v\0\x0c\x2d\0\x10\0\0\0\xfd\0\0\0\0\0")?;
        }
        Ok(())
    }

    fn endless_rows(&mut self) -> Result<()> {
        for _ in 0..FLOOD_BYTES / CHUNK_BYTES {
            let mut rows = Vec::with_capacity(CHUNK_BYTES);
            while rows.len() < CHUNK_BYTES {
                rows.extend_from_slice(&self.frame(b"\x0agrant what"));
            }
            self.stream.write_all(&rows)?;
        }
        Ok(())
    }

    /// Packets of the maximum length, which mean that more follow.
    fn endless_packet(&mut self) -> Result<()> {
        const PART_BYTES: usize = 0xff_ffff;
        let part = vec![b'x'; PART_BYTES];
        for _ in 0..FLOOD_BYTES / PART_BYTES {
            let header = [0xff, 0xff, 0xff, self.sequence];
            self.sequence = self.sequence.wrapping_add(1);
            self.stream.write_all(&header)?;
            self.stream.write_all(&part)?;
        }
        Ok(())
    }
}
