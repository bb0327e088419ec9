//! A stand-in for a router or proxy: it forwards to a server, or refuses with an error of its own.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Protocol 4.1, secure connection, plugins, several statements, no EOF packets; no TLS.
const CAPABILITIES: u32 =
    1 | 2 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 16 | 1 << 17 | 1 << 19 | 1 << 24;

/// The place where an error is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Instead of the greeting, as MySQL Router does.
    Greeting,
    /// To the first statement of a session that it let in, as ProxySQL does.
    Statement,
}

/// Forwards connections to a server on 127.0.0.1 until it is dropped.
#[derive(Debug)]
pub struct Gate {
    /// The port on 127.0.0.1.
    pub port: u16,
    shared: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    refusal: Option<(At, u16, String)>,
    links: Vec<TcpStream>,
    ended: bool,
    /// Greetings get the connection number 0.
    hides_numbers: bool,
}

fn locked(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    /// Forwards to a port on 127.0.0.1.
    ///
    /// # Panics
    /// If it can't listen.
    #[must_use]
    pub fn to(server: u16) -> Self {
        Self::with(server, State::default())
    }

    /// Forwards to a port on 127.0.0.1 with greetings of its own, as MySQL Router does by default: the number of the
    /// connection in them is 0.
    ///
    /// # Panics
    /// If it can't listen.
    #[must_use]
    pub fn router(server: u16) -> Self {
        Self::with(server, State { hides_numbers: true, ..State::default() })
    }

    fn with(server: u16, state: State) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("the address bound").port();
        let shared = Arc::new(Mutex::new(state));
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (ended, refusal) = {
                    let state = locked(&serving);
                    (state.ended, state.refusal.clone())
                };
                if ended {
                    return;
                }
                match refusal {
                    // A client that leaves in the middle is no failure.
                    Some((at, code, text)) => {
                        std::thread::spawn(move || refuse(client, at, code, &text));
                    }
                    None => forward(client, server, &serving),
                }
            }
        });
        Self { port, shared }
    }

    /// Ends all links, and refuses new ones with this error.
    pub fn close(&self, at: At, code: u16, text: &str) {
        let mut state = locked(&self.shared);
        state.refusal = Some((at, code, text.to_owned()));
        for link in state.links.drain(..) {
            let _ = link.shutdown(Shutdown::Both);
        }
    }

    /// Forwards again.
    pub fn open(&self) {
        locked(&self.shared).refusal = None;
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let mut state = locked(&self.shared);
        state.ended = true;
        for link in state.links.drain(..) {
            let _ = link.shutdown(Shutdown::Both);
        }
        drop(state);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn forward(client: TcpStream, server: u16, shared: &Mutex<State>) {
    // A server that is down closes the connection, as it would without the gate.
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let mut state = locked(shared);
    for (from, to, greets) in [(&client, &server, false), (&server, &client, true)] {
        let (Ok(mut from), Ok(mut to), Ok(link)) =
            (from.try_clone(), to.try_clone(), from.try_clone())
        else {
            return;
        };
        state.links.push(link);
        let hides = greets && state.hides_numbers;
        std::thread::spawn(move || {
            let begun = if hides { hide_number(&mut from, &mut to) } else { Ok(()) };
            let _ = begun.and_then(|()| std::io::copy(&mut from, &mut to));
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}

/// Forwards the greeting without the number of the connection, which follows the server's version.
fn hide_number(server: &mut TcpStream, client: &mut TcpStream) -> std::io::Result<()> {
    let (sequence, mut greeting) = packet(server)?;
    // A server that is full sends an error in place of a greeting.
    let is_greeting = greeting.first() == Some(&10);
    let version = greeting.iter().position(|&byte| byte == 0).filter(|_| is_greeting);
    if let Some(number) = version.and_then(|end| greeting.get_mut(end + 1..end + 5)) {
        number.fill(0);
    }
    send(client, sequence, &greeting)
}

fn refuse(mut client: TcpStream, at: At, code: u16, text: &str) -> std::io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut error = vec![0xff];
    error.extend_from_slice(&code.to_le_bytes());
    error.extend_from_slice(b"#HY000");
    error.extend_from_slice(text.as_bytes());
    if at == At::Greeting {
        send(&mut client, 0, &error)?;
        // Read to the end, or the client could find the link reset before it has read the error.
        client.shutdown(Shutdown::Write)?;
        return std::io::copy(&mut client, &mut std::io::sink()).map(drop);
    }
    let capabilities = CAPABILITIES.to_le_bytes();
    let mut greeting = b"\x0a9.7.4\0\x07\0\0\0ABCDEFGH\0".to_vec();
    greeting.extend_from_slice(&capabilities[..2]);
    greeting.extend_from_slice(&[255, 2, 0]);
    greeting.extend_from_slice(&capabilities[2..]);
    greeting.push(21);
    greeting.extend_from_slice(&[0; 10]);
    greeting.extend_from_slice(b"IJKLMNOPQRST\0caching_sha2_password\0");
    send(&mut client, 0, &greeting)?;
    let sequence = receive(&mut client)?;
    send(&mut client, sequence + 1, &[0x01, 0x03])?;
    send(&mut client, sequence + 2, &[0, 0, 0, 2, 0, 0, 0])?;
    loop {
        let sequence = receive(&mut client)?;
        send(&mut client, sequence + 1, &error)?;
    }
}

fn send(client: &mut TcpStream, sequence: u8, payload: &[u8]) -> std::io::Result<()> {
    let mut frame = u32::try_from(payload.len()).expect("short").to_le_bytes().to_vec();
    frame[3] = sequence;
    frame.extend_from_slice(payload);
    client.write_all(&frame)
}

/// Reads one packet; returns its sequence number.
fn receive(client: &mut TcpStream) -> std::io::Result<u8> {
    packet(client).map(|(sequence, _)| sequence)
}

/// Reads one packet; returns its sequence number and what it holds.
fn packet(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    let mut payload = vec![0; u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize];
    stream.read_exact(&mut payload)?;
    Ok((header[3], payload))
}
