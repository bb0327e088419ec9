//! Packets of the client protocol over any transport.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use mysql_common::proto::MySerialize;
use mysql_common::proto::codec::PacketCodec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{ConnectionError, Transport};
use crate::bytes_reader::Reader;

/// The protocol's own limit; an event may be as large as that.
const PACKET_BYTES_MAX: usize = 1 << 30;
/// Read ahead from the socket: many small events come with one system call.
const READ_AHEAD: usize = 256 << 10;

pub(super) struct Packets {
    transport: Box<dyn Transport>,
    codec: PacketCodec,
    incoming: BytesMut,
    packet: BytesMut,
}

impl Packets {
    pub(super) fn new(transport: Box<dyn Transport>) -> Self {
        // One byte beyond the largest event for the packet's own header byte.
        let mut codec = PacketCodec::default();
        codec.max_allowed_packet = PACKET_BYTES_MAX + 1;
        Self { transport, codec, incoming: BytesMut::new(), packet: BytesMut::new() }
    }

    /// Takes the transport away to encrypt it; nothing may have been read ahead.
    pub(super) fn into_transport(
        self,
    ) -> Result<(Box<dyn Transport>, PacketCodec), ConnectionError> {
        if self.incoming.has_remaining() {
            return Err(ConnectionError::Protocol("bytes ahead of the TLS handshake".to_owned()));
        }
        Ok((self.transport, self.codec))
    }

    /// Goes on over an encrypted transport, with the packet numbering where it was.
    pub(super) fn resume(transport: Box<dyn Transport>, codec: PacketCodec) -> Self {
        Self { transport, codec, incoming: BytesMut::new(), packet: BytesMut::new() }
    }

    /// A new command begins packet numbering anew.
    pub(super) fn begin_command(&mut self) {
        self.codec.reset_seq_id();
    }

    pub(super) async fn send(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        let mut framed = BytesMut::with_capacity(payload.len() + 4);
        self.codec
            .encode(&mut &*payload, &mut framed)
            .map_err(|error| ConnectionError::Protocol(error.to_string()))?;
        self.transport.write_all(&framed).await?;
        self.transport.flush().await?;
        Ok(())
    }

    pub(super) async fn send_struct(
        &mut self,
        message: &impl MySerialize,
    ) -> Result<(), ConnectionError> {
        let mut payload = Vec::new();
        message.serialize(&mut payload);
        self.send(&payload).await
    }

    /// The next packet, whatever it says.
    ///
    /// `silence` bounds the time without a single byte: a large packet that arrives slowly is alive.
    pub(super) async fn receive(
        &mut self,
        silence: Option<Duration>,
    ) -> Result<Bytes, ConnectionError> {
        loop {
            let whole = self
                .codec
                .decode(&mut self.incoming, &mut self.packet)
                .map_err(|error| ConnectionError::Protocol(error.to_string()))?;
            if whole {
                return Ok(self.packet.split().freeze());
            }
            self.incoming.reserve(READ_AHEAD);
            let read = self.transport.read_buf(&mut self.incoming);
            let count = match silence {
                None => read.await?,
                Some(limit) => tokio::time::timeout(limit, read)
                    .await
                    .map_err(|_| ConnectionError::Silent(limit))??,
            };
            if count == 0 {
                return Err(ConnectionError::Closed);
            }
        }
    }

    /// The next packet; an ERR packet is an error.
    pub(super) async fn receive_ok(
        &mut self,
        silence: Option<Duration>,
    ) -> Result<Bytes, ConnectionError> {
        let packet = self.receive(silence).await?;
        match packet.first() {
            Some(0xff) => Err(server_error(&packet)),
            Some(_) => Ok(packet),
            None => Err(ConnectionError::Protocol("empty packet".to_owned())),
        }
    }
}

/// 0xff, number, and since 4.1 '#' with a state of five characters, then the text.
fn server_error(packet: &[u8]) -> ConnectionError {
    let mut reader = Reader::new(packet.get(1..).unwrap_or_default());
    let code = reader.u16("error number").unwrap_or_default();
    let rest = reader.rest();
    let text = if rest.first() == Some(&b'#') { rest.get(6..).unwrap_or_default() } else { rest };
    ConnectionError::Server { code, message: String::from_utf8_lossy(text).into_owned() }
}
