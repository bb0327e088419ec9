//! The event that ends the first phase of a distributed transaction
//! (libs/mysql/binlog/event/control_events.cpp, `XA_prepare_event`).

use super::{EventError, EventType, RawEvent};
use crate::binlog::bytes_reader::{Malformed, Reader};

/// End of a transaction that XA START opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XaPrepareEvent {
    /// True if it committed at once, without a prepared state.
    pub one_phase: bool,
    /// Its xid as XA statements write it: `X'gtrid',X'bqual',formatID`.
    pub xid: String,
}

/// The most bytes of a global transaction id, and of a branch qualifier
/// (<https://dev.mysql.com/doc/refman/en/xa-statements.html>).
const MAX_PART: u32 = 64;

impl XaPrepareEvent {
    /// Reads an XA prepare event.
    ///
    /// # Errors
    /// Malformed bytes, or another type of event.
    pub fn parse(event: &RawEvent) -> Result<Self, EventError> {
        let event_type = event.event_type();
        let parsed = match event_type {
            EventType::XA_PREPARE => read(event.body()),
            _ => Err(Malformed { what: "not an XA prepare event", offset: 0 }),
        };
        parsed.map_err(|source| EventError::Malformed { event: event_type.name(), source })
    }
}

fn read(body: &[u8]) -> Result<XaPrepareEvent, Malformed> {
    let mut reader = Reader::new(body);
    let one_phase = reader.u8("one-phase flag")? != 0;
    let format = reader.u32("format id")?;
    let global = part_length(&mut reader)?;
    let branch = part_length(&mut reader)?;
    let global = hex(reader.take(global, "global transaction id")?);
    let branch = hex(reader.take(branch, "branch qualifier")?);
    Ok(XaPrepareEvent { one_phase, xid: format!("X'{global}',X'{branch}',{format}") })
}

fn part_length(reader: &mut Reader<'_>) -> Result<usize, Malformed> {
    let offset = reader.offset();
    match reader.u32("length in a transaction id")? {
        length @ 0..=MAX_PART => Ok(length as usize),
        _ => Err(Malformed { what: "length in a transaction id", offset }),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_util::{event, xa_prepare_event};

    #[test]
    fn the_number_is_written_as_statements_write_it() {
        let parsed = XaPrepareEvent::parse(&xa_prepare_event(false, b"a\0'", b"b")).expect("whole");
        assert_eq!(
            parsed,
            XaPrepareEvent { one_phase: false, xid: "X'610027',X'62',1".to_owned() }
        );
        let parsed = XaPrepareEvent::parse(&xa_prepare_event(true, b"", b"")).expect("whole");
        assert_eq!(parsed, XaPrepareEvent { one_phase: true, xid: "X'',X'',1".to_owned() });
    }

    #[test]
    fn what_is_no_number_is_an_error() {
        let whole = xa_prepare_event(false, b"global", b"branch");
        for len in 0..whole.body().len() {
            let cut = event(EventType::XA_PREPARE, &whole.body()[..len]);
            assert!(XaPrepareEvent::parse(&cut).is_err(), "{len}");
        }
        let mut long = whole.body().to_vec();
        long[5] = 65;
        long.resize(300, 7);
        assert!(XaPrepareEvent::parse(&event(EventType::XA_PREPARE, &long)).is_err());
        assert!(XaPrepareEvent::parse(&event(EventType::XID, &[0; 8])).is_err());
    }
}
