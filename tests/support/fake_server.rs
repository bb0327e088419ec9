//! A server that claims to be another product and answers nothing but its variables.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Listens until the test process ends.
#[derive(Debug)]
pub struct FakeServer {
    /// The port on 127.0.0.1.
    pub port: u16,
}

/// All that matters here: protocol 4.1, secure connection, plugins, transactions, several statements,
/// no EOF packets.
const CAPABILITIES: u32 = 1 | 2 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 16 | 1 << 19 | 1 << 24;

impl FakeServer {
    /// Accepts every login.
    ///
    /// # Panics
    /// If it can't listen.
    #[must_use]
    pub fn start(version: &str, comment: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("binding a free port");
        let port = listener.local_addr().expect("an address").port();
        let said = (version.to_owned(), comment.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let said = said.clone();
                // A client that disconnects is no failure.
                std::thread::spawn(move || Session { stream, sequence: 0 }.run(&said.0, &said.1));
            }
        });
        Self { port }
    }
}

struct Session {
    stream: TcpStream,
    sequence: u8,
}

impl Session {
    fn run(mut self, version: &str, comment: &str) -> std::io::Result<()> {
        let capabilities = CAPABILITIES.to_le_bytes();
        let mut greeting = vec![10];
        greeting.extend_from_slice(version.as_bytes());
        greeting.extend_from_slice(&[0, 7, 0, 0, 0]);
        greeting.extend_from_slice(b"12345678\0");
        greeting.extend_from_slice(&capabilities[..2]);
        greeting.extend_from_slice(&[255, 2, 0]);
        greeting.extend_from_slice(&capabilities[2..]);
        greeting.push(21);
        greeting.extend_from_slice(&[0; 10]);
        greeting.extend_from_slice(b"901234567890\0caching_sha2_password\0");
        self.send(&greeting)?;
        self.receive()?;
        self.ok()?;
        loop {
            self.sequence = 0;
            let command = self.receive()?;
            match command.split_first() {
                Some((3, text)) => self.answer(&String::from_utf8_lossy(text), version, comment)?,
                Some((1, _)) | None => return Ok(()),
                Some(_) => self.ok()?,
            }
        }
    }

    fn answer(&mut self, query: &str, version: &str, comment: &str) -> std::io::Result<()> {
        let Some(names) = query.strip_prefix("SELECT @@") else {
            return self.error(1193, "Unknown system variable");
        };
        let mut values = Vec::new();
        let names = names.strip_suffix(" LIMIT 1").unwrap_or(names);
        for name in names.split(',') {
            values.push(match name.trim().trim_start_matches("@@") {
                "CONNECTION_ID()" => "7",
                "version" => version,
                "version_comment" => comment,
                "max_allowed_packet" => "67108864",
                "wait_timeout" => "28800",
                "socket" => "",
                _ => return self.error(1193, "Unknown system variable"),
            });
        }
        self.send(&[values.len() as u8])?;
        for _ in &values {
            self.send(b"\x03def\0\0\0\x01v\0\x0c\x2d\0\x10\0\0\0\xfd\0\0\0\0\0")?;
        }
        let mut row = Vec::new();
        for value in values {
            row.push(value.len() as u8);
            row.extend_from_slice(value.as_bytes());
        }
        self.send(&row)?;
        self.send(&[0xfe, 0, 0, 2, 0, 0, 0])
    }

    fn ok(&mut self) -> std::io::Result<()> {
        self.send(&[0, 0, 0, 2, 0, 0, 0])
    }

    fn error(&mut self, code: u16, text: &str) -> std::io::Result<()> {
        let mut packet = vec![0xff];
        packet.extend_from_slice(&code.to_le_bytes());
        packet.extend_from_slice(b"#HY000");
        packet.extend_from_slice(text.as_bytes());
        self.send(&packet)
    }

    fn send(&mut self, payload: &[u8]) -> std::io::Result<()> {
        let mut bytes = (payload.len() as u32).to_le_bytes().to_vec();
        bytes[3] = self.sequence;
        bytes.extend_from_slice(payload);
        self.sequence = self.sequence.wrapping_add(1);
        self.stream.write_all(&bytes)
    }

    fn receive(&mut self) -> std::io::Result<Vec<u8>> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header)?;
        self.sequence = header[3].wrapping_add(1);
        let len = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
        let mut payload = vec![0; len];
        self.stream.read_exact(&mut payload)?;
        Ok(payload)
    }
}
