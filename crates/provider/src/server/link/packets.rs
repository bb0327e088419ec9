//! Packets of the client protocol over any transport
//! (<https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_packets.html>).

use std::io::IoSlice;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use mysql_common::proto::MySerialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{LinkError, Transport};
use crate::binlog::bytes_reader::Reader;

/// The longest packet before the login is complete; a genuine server needs far less.
const LOGIN_BYTES_MAX: usize = 16 << 10;
/// Bytes read ahead from the socket, so that many small packets take one system call.
const READ_AHEAD: usize = 32 << 10;
/// A packet of this length or more continues in another one.
const PART_BYTES: usize = 0xff_ffff;
const HEADER_BYTES: usize = 4;

pub(crate) struct Packets {
    transport: Box<dyn Transport>,
    sequence: u8,
    incoming: BytesMut,
    packet: BytesMut,
    /// The packet is whole; the next replaces it.
    whole: bool,
    /// The missing rest of the current part.
    part: Option<Part>,
    /// The longest packet to accept.
    limit: usize,
    read_ahead: usize,
}

#[derive(Clone, Copy)]
struct Part {
    missing: usize,
    last: bool,
}

impl Packets {
    pub(super) fn new(transport: Box<dyn Transport>) -> Self {
        Self {
            transport,
            sequence: 0,
            incoming: BytesMut::new(),
            packet: BytesMut::new(),
            whole: false,
            part: None,
            limit: LOGIN_BYTES_MAX,
            read_ahead: READ_AHEAD,
        }
    }

    /// Takes the transport out to encrypt it. Nothing may have been read ahead: such bytes came in
    /// the clear and must not count as encrypted.
    pub(super) fn into_transport(self) -> Result<(Box<dyn Transport>, u8), LinkError> {
        if self.incoming.has_remaining() {
            return Err(LinkError::Protocol("bytes before the TLS handshake".to_owned()));
        }
        Ok((self.transport, self.sequence))
    }

    /// Continues over an encrypted transport, keeping the packet numbering.
    pub(super) fn resume(transport: Box<dyn Transport>, sequence: u8) -> Self {
        Self { sequence, ..Self::new(transport) }
    }

    /// Sets the longest packet from here on; longer ones are an error.
    pub(crate) fn allow(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    pub(crate) fn read_ahead(&mut self, bytes: usize) {
        self.read_ahead = bytes;
    }

    /// Restarts packet numbering, as every command does.
    pub(super) fn begin_command(&mut self) {
        self.sequence = 0;
    }

    /// Sends a packet that stands outside the order of all others, which it does not disturb.
    pub(crate) async fn send_aside(&mut self, body: &[u8]) -> Result<(), LinkError> {
        let sequence = std::mem::take(&mut self.sequence);
        let sent = self.send(&[], body).await;
        self.sequence = sequence;
        sent
    }

    /// The peer has begun to number again; its next packet has this number.
    pub(crate) fn renumber(&mut self, next: u8) {
        self.sequence = next;
    }

    /// Sends `head` and `body` as one packet, neither copied.
    pub(super) async fn send(&mut self, head: &[u8], body: &[u8]) -> Result<(), LinkError> {
        let mut head = head;
        let mut body = body;
        loop {
            let len = (head.len() + body.len()).min(PART_BYTES);
            let (now, later) = body.split_at_checked(len - head.len()).unwrap_or((body, &[]));
            let mut frame = Vec::with_capacity(HEADER_BYTES + head.len());
            frame.put_uint_le(len as u64, 3);
            frame.put_u8(self.sequence);
            frame.extend_from_slice(head);
            self.sequence = self.sequence.wrapping_add(1);
            self.write(&frame, now).await?;
            (head, body) = (&[], later);
            // A packet ends with a part that is not full, which may be empty.
            if len < PART_BYTES {
                break;
            }
        }
        self.transport.flush().await?;
        Ok(())
    }

    async fn write(&mut self, mut first: &[u8], mut second: &[u8]) -> Result<(), LinkError> {
        while !first.is_empty() || !second.is_empty() {
            let slices = [IoSlice::new(first), IoSlice::new(second)];
            let count = self.transport.write_vectored(&slices).await?;
            if count == 0 {
                return Err(LinkError::Closed);
            }
            let of_first = count.min(first.len());
            first = first.get(of_first..).unwrap_or_default();
            second = second.get(count - of_first..).unwrap_or_default();
        }
        Ok(())
    }

    pub(super) async fn send_struct(
        &mut self,
        message: &impl MySerialize,
    ) -> Result<(), LinkError> {
        let mut payload = Vec::new();
        message.serialize(&mut payload);
        self.send(&[], &payload).await
    }

    /// Sends a goodbye and closes our side.
    pub(super) async fn shutdown(&mut self, goodbye: u8) -> Result<(), LinkError> {
        self.begin_command();
        self.send(&[goodbye], &[]).await?;
        self.transport.shutdown().await?;
        Ok(())
    }

    /// Moves arrived bytes into the packet; true once it is whole.
    fn assemble(&mut self) -> Result<bool, LinkError> {
        loop {
            let part = match self.part {
                Some(part) => part,
                None => {
                    let Some(&[a, b, c, sequence]) = self.incoming.first_chunk() else {
                        return Ok(false);
                    };
                    if sequence != self.sequence {
                        return Err(self.out_of_order(sequence));
                    }
                    let len = u32::from_le_bytes([a, b, c, 0]) as usize;
                    // Before memory is reserved: a length is only a claim.
                    if self.packet.len() + len > self.limit {
                        return Err(LinkError::TooLong(format!(
                            "a packet of more than {} bytes",
                            self.limit
                        )));
                    }
                    self.sequence = sequence.wrapping_add(1);
                    self.incoming.advance(HEADER_BYTES);
                    let last = len < PART_BYTES;
                    if last && self.packet.is_empty() && len <= self.incoming.len() {
                        // The packet shares what was read, and is not copied.
                        self.packet = self.incoming.split_to(len);
                        return Ok(true);
                    }
                    self.packet.reserve(len);
                    Part { missing: len, last }
                }
            };
            let count = part.missing.min(self.incoming.len());
            self.packet.put((&mut self.incoming).take(count));
            let missing = part.missing - count;
            if missing > 0 {
                self.part = Some(Part { missing, ..part });
                return Ok(false);
            }
            self.part = None;
            if part.last {
                return Ok(true);
            }
        }
    }

    /// Returns the error for a packet with another number. A server that ends a session says why in a packet of its own,
    /// which may cross the next command.
    fn out_of_order(&self, sequence: u8) -> LinkError {
        let farewell = self.incoming.get(HEADER_BYTES..).unwrap_or_default();
        if sequence == 0 && farewell.first() == Some(&0xff) {
            let text = format!("the server has ended the session: {}", server_error(farewell));
            return std::io::Error::new(std::io::ErrorKind::ConnectionAborted, text).into();
        }
        LinkError::Protocol(format!("packet {sequence} instead of {}", self.sequence))
    }

    /// Forgets a packet that was whole, and its share of the bytes read ahead: their buffer is used again once
    /// nothing shares it.
    fn begin_packet(&mut self) {
        if self.whole {
            self.packet = BytesMut::new();
            self.whole = false;
        }
    }

    /// `silence` limits the time without a single byte: a large
    /// packet that arrives slowly is no silence.
    async fn fill(&mut self, silence: Option<Duration>) -> Result<(), LinkError> {
        self.begin_packet();
        while !self.assemble()? {
            self.incoming.reserve(self.read_ahead);
            let read = self.transport.read_buf(&mut self.incoming);
            let count = match silence {
                None => read.await?,
                Some(limit) => tokio::time::timeout(limit, read)
                    .await
                    .map_err(|_| LinkError::Silent(limit))??,
            };
            if count == 0 {
                return Err(LinkError::Closed);
            }
        }
        self.whole = true;
        Ok(())
    }

    /// Receives the next packet to keep it; an ERR packet is an error.
    pub(crate) async fn receive_ok(
        &mut self,
        silence: Option<Duration>,
    ) -> Result<Bytes, LinkError> {
        self.fill(silence).await?;
        self.keep()
    }

    /// Returns the next packet, to keep it, if all of it was read ahead; an ERR packet is an error.
    pub(crate) fn arrived(&mut self) -> Result<Option<Bytes>, LinkError> {
        self.begin_packet();
        if !self.assemble()? {
            return Ok(None);
        }
        self.whole = true;
        self.keep().map(Some)
    }

    fn keep(&mut self) -> Result<Bytes, LinkError> {
        let packet = std::mem::take(&mut self.packet).freeze();
        checked(&packet)?;
        Ok(packet)
    }

    /// Receives the next packet to look at it; an ERR packet is an error.
    pub(super) async fn look(&mut self, silence: Option<Duration>) -> Result<&[u8], LinkError> {
        self.fill(silence).await?;
        checked(&self.packet)?;
        Ok(&self.packet)
    }
}

fn checked(packet: &[u8]) -> Result<(), LinkError> {
    // No other packet begins with 0xff, which is no length.
    match packet.first() {
        Some(0xff) => Err(server_error(packet)),
        Some(_) => Ok(()),
        None => Err(LinkError::Protocol("empty packet".to_owned())),
    }
}

/// Reads an ERR packet: 0xff, number, '#' with a state of five characters (not before the
/// greeting), text.
fn server_error(packet: &[u8]) -> LinkError {
    let mut reader = Reader::new(packet.get(1..).unwrap_or_default());
    let code = reader.u16("error number").unwrap_or_default();
    let rest = reader.rest();
    let text = if rest.first() == Some(&b'#') { rest.get(6..).unwrap_or_default() } else { rest };
    LinkError::Server { code, message: String::from_utf8_lossy(text).into_owned() }
}
