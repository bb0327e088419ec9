//! Packets of a server as its client receives them, without their headers. They are made by hand, so that
//! an error in the codec is not on both sides.

/// The capabilities of a 9.x server that matter here, without TLS and compression: protocol 4.1,
/// secure connection, plugins and their data, transactions, no EOF packets.
const CAPABILITIES: u32 = 1 | 4 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 19 | 1 << 21 | 1 << 24;

pub const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
pub const END_OF_ROWS: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0];
/// The description of a column of text.
pub const COLUMN: &[u8] = b"\x03def\0\0\0\x01v\0\x0c\x2d\0\x10\0\0\0\xfd\0\0\0\0\0";
/// The password's digest is in the server's cache.
pub const CACHED: &[u8] = &[0x01, 0x03];

/// Returns the first packet of a connection.
#[must_use]
pub fn greeting(
    version: &str,
    connection_id: u32,
    nonce: &[u8; 20],
    plugin: &str,
    more_capabilities: u32,
) -> Vec<u8> {
    let capabilities = (CAPABILITIES | more_capabilities).to_le_bytes();
    let (low, high) = capabilities.split_at(2);
    let (first, rest) = nonce.split_at(8);
    let mut packet = vec![10];
    packet.extend_from_slice(version.as_bytes());
    packet.push(0);
    packet.extend_from_slice(&connection_id.to_le_bytes());
    packet.extend_from_slice(first);
    packet.push(0);
    packet.extend_from_slice(low);
    packet.extend_from_slice(&[255, 2, 0]);
    packet.extend_from_slice(high);
    packet.push(21);
    packet.extend_from_slice(&[0; 10]);
    packet.extend_from_slice(rest);
    packet.push(0);
    packet.extend_from_slice(plugin.as_bytes());
    packet.push(0);
    packet
}

#[must_use]
pub fn error(code: u16, text: &str) -> Vec<u8> {
    let mut packet = vec![0xff];
    packet.extend_from_slice(&code.to_le_bytes());
    packet.extend_from_slice(b"#HY000");
    packet.extend_from_slice(text.as_bytes());
    packet
}

/// Returns a row of one column.
///
/// # Panics
/// The text has 64 KiB or more.
#[must_use]
pub fn row_of(text: &str) -> Vec<u8> {
    let len = u16::try_from(text.len()).expect("short");
    let mut packet = match u8::try_from(len) {
        Ok(short @ ..=250) => vec![short],
        _ => [&[0xfc][..], &len.to_le_bytes()].concat(),
    };
    packet.extend_from_slice(text.as_bytes());
    packet
}
