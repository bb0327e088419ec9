use proptest::prelude::*;

use super::*;
use crate::binlog::event::{EventType, RawEvent};
use crate::binlog::gtid::GtidSet;
use crate::test_util::{event, format_description};

fn parsed(file: &[u8], step: usize) -> Result<Vec<FileEvent>, BinlogFileError> {
    let mut parser = BinlogFileParser::new();
    let mut events = Vec::new();
    for bytes in file.chunks(step) {
        parser.feed(bytes);
        while let Some(event) = parser.next_event()? {
            events.push(event);
        }
    }
    parser.finish()?;
    Ok(events)
}

fn file(bodies: &[Vec<u8>], before: &GtidSet) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = BinlogFileWriter::begin(&format_description(), before, &mut out);
    for body in bodies {
        writer.push(&event(EventType::ROWS_QUERY, body), &mut out);
    }
    assert_eq!(writer.position(), out.len() as u64);
    out
}

proptest! {
    #[test]
    fn a_file_is_read_as_it_was_written(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..12),
        step in 1_usize..200,
    ) {
        let before: GtidSet = "07070707-0707-0707-0707-070707070707:1-9:12".parse().unwrap();
        let events = parsed(&file(&bodies, &before), step).unwrap();
        let mut events = events.into_iter();
        prop_assert!(matches!(events.next(), Some(FileEvent::Format(_))));
        let Some(FileEvent::Previous(set)) = events.next() else { panic!("no previous GTIDs") };
        prop_assert_eq!(set, before);
        let rest: Vec<RawEvent> = events
            .map(|event| match event {
                FileEvent::Event(event) => event,
                other => panic!("{other:?}"),
            })
            .collect();
        prop_assert_eq!(rest.len(), bodies.len());
        for (event, body) in rest.iter().zip(&bodies) {
            prop_assert_eq!(event.body(), &body[..]);
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_events(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = parsed(&bytes, 64);
        let mut begun = MAGIC.to_vec();
        begun.extend_from_slice(&bytes);
        let _ = parsed(&begun, 64);
    }

    #[test]
    fn a_damaged_byte_is_noticed(at in 0_usize..250, bit in 0_u8..8) {
        let mut bytes = file(&[vec![1; 60], vec![2; 60]], &GtidSet::new());
        // After the format description, whose checksum leaves out the flag of a file in use.
        let begin = MAGIC.len() + format_description().raw().len();
        let at = begin + at % (bytes.len() - begin);
        bytes[at] ^= 1 << bit;
        prop_assert!(parsed(&bytes, 64).is_err());
    }
}

#[test]
fn positions_are_those_of_the_file() {
    let bytes = file(&[vec![0; 10], vec![0; 20]], &GtidSet::new());
    let events = parsed(&bytes, 1000).unwrap();
    let Some(FileEvent::Event(last)) = events.last() else { panic!("an event") };
    assert_eq!(last.header().log_pos as usize, bytes.len());
}

#[test]
fn other_files_are_refused_by_name() {
    assert!(matches!(parsed(b"#!/bin/sh", 4), Err(BinlogFileError::Magic)));
    assert!(matches!(parsed(&[0xfd, b'b', b'i', b'n', 1], 5), Err(BinlogFileError::Encrypted)));
    let mut short = file(&[vec![0; 10]], &GtidSet::new());
    short.pop();
    assert!(matches!(parsed(&short, 7), Err(BinlogFileError::Short { .. })));
    let mut bare = MAGIC.to_vec();
    bare.extend_from_slice(event(EventType::ROWS_QUERY, &[1]).bytes());
    assert!(matches!(parsed(&bare, 7), Err(BinlogFileError::NoFormat { .. })));
}
