//! The first packet of a server
//! (<https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_connection_phase_packets_protocol_handshake_v10.html>).
//! It is parsed here because mysql_common panics on an invalid length in a debug build.

use mysql_common::constants::CapabilityFlags;

use super::LinkError;
use crate::binlog::bytes_reader::{Malformed, Reader};

const PROTOCOL: u8 = 10;
/// Bytes of an authentication nonce; some packets end it with a zero.
pub(super) const NONCE_LEN: usize = 20;
const FIRST_PART: usize = 8;

#[derive(Debug)]
pub(super) struct Greeting {
    pub(super) connection_id: u32,
    pub(super) server_version: String,
    pub(super) capabilities: CapabilityFlags,
    pub(super) plugin: Vec<u8>,
    pub(super) nonce: Vec<u8>,
}

impl Greeting {
    pub(super) fn parse(packet: &[u8]) -> Result<Self, LinkError> {
        let malformed = |error: Malformed| {
            LinkError::Protocol(format!("not the greeting of a server: {error}"))
        };
        let greeting = Self::read(&mut Reader::new(packet)).map_err(malformed)?;
        let needed = CapabilityFlags::CLIENT_PROTOCOL_41
            | CapabilityFlags::CLIENT_SECURE_CONNECTION
            | CapabilityFlags::CLIENT_PLUGIN_AUTH;
        if !greeting.capabilities.contains(needed) {
            return Err(LinkError::Protocol(format!(
                "the server ({}) is too old: it has no authentication plugins",
                greeting.server_version
            )));
        }
        Ok(greeting)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        if reader.u8("protocol version")? != PROTOCOL {
            return Err(reader.malformed("protocol version"));
        }
        let server_version = String::from_utf8_lossy(reader.until_zero("version")?).into_owned();
        let connection_id = reader.u32("connection")?;
        let mut nonce = reader.take(FIRST_PART, "nonce")?.to_vec();
        reader.u8("filler")?;
        let low = reader.u16("capabilities")?;
        reader.take(3, "character set and status")?;
        let high = reader.u16("capabilities")?;
        let nonce_len = usize::from(reader.u8("nonce length")?);
        reader.take(10, "reserved")?;
        // At least 13 bytes whatever the stated length, the last of them a zero.
        nonce
            .extend_from_slice(reader.take(nonce_len.saturating_sub(FIRST_PART).max(13), "nonce")?);
        nonce.truncate(NONCE_LEN);
        let rest = reader.rest();
        let plugin = rest.strip_suffix(&[0]).unwrap_or(rest).to_vec();
        let bits = u32::from(high) << 16 | u32::from(low);
        let capabilities = CapabilityFlags::from_bits_truncate(bits);
        Ok(Self { connection_id, server_version, capabilities, plugin, nonce })
    }
}
