//! A receiver of events that behaves well or badly, as the test says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use csa_tests::eventually;
use serde_json::Value;

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Takes,
    Answers500,
    /// Takes the connection, and says nothing.
    Hangs,
    /// Answers 200, and sends a body without end.
    Floods,
    /// Sends headers without end.
    Headers,
}

#[derive(Debug)]
struct Seen {
    manner: Manner,
    /// Events that were answered with 2xx.
    taken: Vec<Value>,
    attempts: usize,
    authorization: Option<String>,
}

/// Listens on a port of its own, which stays the same while nobody listens there.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) port: u16,
    seen: Arc<Mutex<Seen>>,
}

impl Receiver {
    pub(crate) fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let port = listener.local_addr().expect("an address").port();
        let receiver = Self::of(port, manner);
        receiver.listen(listener);
        receiver
    }

    /// Nobody listens on this port before [`Self::appear`].
    pub(crate) fn away(port: u16) -> Self {
        Self::of(port, Manner::Takes)
    }

    pub(crate) fn appear(&self) {
        self.listen(TcpListener::bind(("127.0.0.1", self.port)).expect("binds"));
    }

    fn of(port: u16, manner: Manner) -> Self {
        let seen = Seen { manner, taken: Vec::new(), attempts: 0, authorization: None };
        Self { port, seen: Arc::new(Mutex::new(seen)) }
    }

    fn listen(&self, listener: TcpListener) {
        let seen = Arc::clone(&self.seen);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(connection) = connection else { return };
                let seen = Arc::clone(&seen);
                // A connection that ends early is an attempt, too.
                std::thread::spawn(move || drop(answer(connection, &seen)));
            }
        });
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook/secret-path?a=b", self.port)
    }

    pub(crate) fn behave(&self, manner: Manner) {
        self.seen.lock().expect("no panic").manner = manner;
    }

    pub(crate) fn taken(&self) -> Vec<Value> {
        self.seen.lock().expect("no panic").taken.clone()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.taken().iter().map(|event| text(event, "event")).collect()
    }

    pub(crate) fn attempts(&self) -> usize {
        self.seen.lock().expect("no panic").attempts
    }

    pub(crate) fn authorization(&self) -> Option<String> {
        self.seen.lock().expect("no panic").authorization.clone()
    }

    /// Waits for an event of this name, and returns the last one.
    pub(crate) async fn gets(&self, name: &str, within: Duration) -> Value {
        let last = || self.taken().into_iter().rev().find(|event| event["event"] == name);
        eventually(&format!("the event {name}, not only {:?}", self.names()), within, async || {
            last().is_some()
        })
        .await;
        last().expect("seen")
    }
}

pub(crate) fn text(event: &Value, key: &str) -> String {
    event[key].as_str().unwrap_or_else(|| panic!("{key} in {event:#}")).to_owned()
}

fn answer(mut connection: TcpStream, seen: &Mutex<Seen>) -> std::io::Result<()> {
    let mut lines = BufReader::new(connection.try_clone()?);
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut line = String::new();
        lines.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            match line.trim().is_empty() {
                true => break,
                false => continue,
            }
        };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap_or(0),
            "authorization" => authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body)?;
    let manner = {
        let mut seen = seen.lock().expect("no panic");
        seen.attempts += 1;
        seen.authorization = authorization;
        if matches!(seen.manner, Manner::Takes | Manner::Floods) {
            seen.taken.push(serde_json::from_slice(&body).expect("JSON"));
        }
        seen.manner
    };
    match manner {
        Manner::Takes => connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n"),
        Manner::Answers500 => {
            connection.write_all(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n")
        }
        Manner::Hangs => {
            std::thread::sleep(Duration::from_secs(600));
            Ok(())
        }
        Manner::Floods => {
            connection.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
            loop {
                connection.write_all(b"5\r\nnoise\r\n")?;
            }
        }
        Manner::Headers => {
            connection.write_all(b"HTTP/1.1 200 OK\r\n")?;
            loop {
                connection.write_all(b"x-noise: noise\r\n")?;
            }
        }
    }
}
