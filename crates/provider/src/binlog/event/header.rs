use super::EventType;
use crate::binlog::bytes_reader::{Malformed, Reader};

/// The common header of every event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventHeader {
    /// The time at which the statement began on the source, in seconds since the epoch.
    pub timestamp: u32,
    pub event_type: EventType,
    pub server_id: u32,
    /// Bytes of the whole event: header, body and checksum.
    pub event_size: u32,
    /// End of the event in the source's binary log file, modulo 2^32.
    pub log_pos: u32,
    pub flags: u16,
}

impl EventHeader {
    /// The number of bytes of a header.
    pub const LEN: usize = 19;
    /// The offset of the type code.
    pub const EVENT_TYPE_OFFSET: usize = 4;
    /// The offset of the event's size.
    pub const EVENT_SIZE_OFFSET: usize = 9;
    /// The offset of the flags.
    pub const FLAGS_OFFSET: usize = 17;
    /// Flag of a format description in a file that is being written; not covered by its checksum.
    pub const FLAG_IN_USE: u16 = 1;
    /// Flag of a statement that depends on its session, such as by a temporary table
    /// (`LOG_EVENT_THREAD_SPECIFIC_F`).
    pub const FLAG_THREAD_SPECIFIC: u16 = 4;
    /// Flag of an event that a replica may pass over if it does not know its type.
    pub const FLAG_IGNORABLE: u16 = 0x80;
    /// Flag of an event that the source made for this dump and that is in no file.
    pub const FLAG_ARTIFICIAL: u16 = 0x20;

    /// Reads a header.
    ///
    /// # Errors
    /// Fewer than [`Self::LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        Ok(Self {
            timestamp: reader.u32("event header")?,
            event_type: EventType(reader.u8("event header")?),
            server_id: reader.u32("event header")?,
            event_size: reader.u32("event header")?,
            log_pos: reader.u32("event header")?,
            flags: reader.u16("event header")?,
        })
    }
}
