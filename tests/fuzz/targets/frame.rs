//! A relay segment with bytes changed or cut off: what is read is what was written, or an error.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use csa_provider::test_util::{event, format_description, gtid_event};
use csa_provider::binlog::{ChecksumAlgorithm, EventType, Gtid, GtidSet, RawEvent, Tag, TransactionHeader, Uuid};
use csa_provider::source::{Placement, TransactionSink as _};
use csa_relaystore::disk::{RealFs, RelayStoreOptions, SyncPolicy};
use csa_relaystore::opening::RelayStore;
use libfuzzer_sys::fuzz_target;

const TRANSACTIONS: u64 = 6;

fn options(directory: &Path) -> RelayStoreOptions {
    RelayStoreOptions {
        directory: directory.to_owned(),
        segment_size: 1 << 20,
        space_limit: 0,
        min_free_disk: 0,
        sync: SyncPolicy::Os,
        archived: false,
        tail_bytes: 0,
        frame_bytes: 120,
        wake_bytes: RelayStoreOptions::WAKE_BYTES,
        files: RealFs::shared(),
    }
}

fn events(gno: u64) -> Vec<(RawEvent, Placement)> {
    let gtid = Gtid { uuid: Uuid::from_bytes([3; 16]), tag: Tag::untagged(), gno };
    let begin = gtid_event(&gtid, gno * 1000);
    let header = TransactionHeader::parse(&begin).expect("well-formed");
    let body = vec![gno as u8; 30 * gno as usize];
    vec![
        (begin, Placement::Begin(header)),
        (event(EventType::WRITE_ROWS, &body), Placement::Body),
        (event(EventType::XID, &gno.to_le_bytes()), Placement::End),
    ]
}

/// Returns the one segment of a store with some transactions: its file name and bytes.
fn segment() -> &'static (String, Vec<u8>) {
    static SEGMENT: OnceLock<(String, Vec<u8>)> = OnceLock::new();
    SEGMENT.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, _) =
            RelayStore::open(options(directory.path()), &GtidSet::new()).expect("opens");
        let mut inlet = store.inlet().expect("a thread");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let format = format_description().raw().clone();
            let format = RawEvent::trusted(format, ChecksumAlgorithm::Crc32).expect("whole");
            inlet.append(format, Placement::Outside).await.expect("room");
            for gno in 1..=TRANSACTIONS {
                for (event, placement) in events(gno) {
                    inlet.append(event, placement).await.expect("room");
                }
            }
        });
        let mut reader = store.reader(GtidSet::new());
        for _ in 0..TRANSACTIONS {
            let next = runtime.block_on(reader.next(Duration::from_secs(5)));
            next.expect("undamaged").expect("all arrive");
        }
        drop((inlet, reader, store));
        let mut files = std::fs::read_dir(directory.path()).expect("readable");
        let file = files.find_map(|file| {
            let path = file.expect("an entry").path();
            path.extension().is_some_and(|e| e == "relay").then_some(path)
        });
        let path = file.expect("a segment");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, std::fs::read(&path).expect("readable"))
    })
}

// Layout: length to keep (2 bytes), then changes of three bytes: place and value.
fuzz_target!(|data: &[u8]| {
    let (name, whole) = segment();
    let Some((keep, changes)) = data.split_at_checked(2) else { return };
    let mut bytes = whole.clone();
    for change in changes.chunks_exact(3).take(8) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len();
        bytes[at] ^= change[2];
    }
    let keep = usize::from(u16::from_le_bytes([keep[0], keep[1]]));
    bytes.truncate(whole.len().saturating_sub(keep % (whole.len() + 1)));
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join(name), &bytes).expect("written");
    let Ok((store, _)) = RelayStore::open(options(directory.path()), &GtidSet::new()) else {
        return;
    };
    let mut reader = store.reader(GtidSet::new());
    let mut expected = 1;
    while let Ok(Some(relayed)) = reader.next_now() {
        assert_eq!(relayed.header.gtid.gno, expected);
        let read: Vec<u8> =
            relayed.events().flat_map(|e| e.expect("whole").bytes().to_vec()).collect();
        let written: Vec<u8> =
            events(expected).iter().flat_map(|(event, _)| event.bytes().to_vec()).collect();
        assert_eq!(read, written);
        expected += 1;
    }
});
