//! Opens a store: finds its segments, cuts off an unfinished transaction, and checks that the rest
//! follows from the target's transactions.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::path::Path;

use bytes::Bytes;
use csa_provider::binlog::{FormatDescription, GtidSet};
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::source::LastReceived;

use crate::disk::directory::{Directory, SegmentFiles};
use crate::disk::error::{Error, Result, io};
use crate::disk::fs::{StoredFile, Stream};
use crate::disk::segment::RelayPosition;
use crate::disk::segment::{
    FRAME_HEADER_LEN, FrameHeader, FrameKind, HeaderError, SegmentHeader, decode_metadata,
    verify_frame,
};
use crate::state::segments::{Segment, holes, received_before, released};

/// The report of opening a store, for the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes cut from the end of the last segment.
    pub cut_bytes: u64,
    /// Transactions that begin in these bytes, as far as they can be read: usually the one that was
    /// being written.
    pub cut_transactions: GtidSet,
    /// Segments dropped because their header was never completed or is damaged, or because something before
    /// them is missing.
    pub dropped_segments: usize,
    /// The transactions missing between the target and the
    /// store, which was emptied because of them.
    pub emptied_for: Option<GtidSet>,
}

pub(crate) struct Recovered {
    pub(crate) segments: BTreeMap<u64, Segment>,
    pub(crate) end: RelayPosition,
    /// Everything below it is executed on the target.
    pub(crate) released: RelayPosition,
    pub(crate) received: GtidSet,
    /// The last transaction of the last segment, or else the one before that, if its header names one.
    pub(crate) last: Option<LastReceived>,
    pub(crate) format: Option<FormatDescription>,
    pub(crate) transactions: u64,
    pub(crate) event_bytes: u64,
    pub(crate) report: Recovery,
}

/// More than nearly every header has.
const HEADER_LEN_USUAL: u64 = 64 << 10;
/// The largest header; GTID sets of thousands of sources fit.
const HEADER_LEN_MAX: u64 = 64 << 20;

/// Recovers the store. The target has the first of `known`, and nobody needs the second any more; while they are
/// unknown, every whole transaction is kept.
pub(crate) fn recover(
    directory: &Directory,
    known: Option<(&GtidSet, &GtidSet)>,
) -> Result<Recovered> {
    let mut report = Recovery::default();
    let (executed, settled) = known.unzip();
    let Headers { mut segments, stale, doomed } = read_headers(directory, settled)?;
    for &number in &stale {
        directory.remove(number)?;
    }
    // In any order: what a crash leaves of these is judged again by the same rules.
    for number in doomed {
        directory.remove(number)?;
        report.dropped_segments += 1;
    }
    if let Some(executed) = executed {
        keep_what_follows(directory, &mut segments, executed, &mut report)?;
    }
    // Removals are durable before new segments reuse the numbers. A process may also have been killed
    // before it could do this for a new segment, which now gets transactions.
    directory.sync()?;
    let Some((&number, last)) = segments.last_key_value() else {
        return Ok(empty(executed.cloned().unwrap_or_default(), report));
    };
    let mut scan = Scan::run(directory, number, last, received_before(&segments, number))?;
    if is_planted(Bug::TornTailKept) {
        scan.end = last.len;
    }
    report.cut_bytes = last.len - scan.end;
    if report.cut_bytes > 0 {
        directory.truncate(number, scan.end)?;
        report.cut_transactions = scan.cut;
    }
    let (transactions, event_bytes) = (
        last.header.transactions_before + scan.transactions,
        last.header.bytes_before + scan.bytes,
    );
    let end = RelayPosition { segment: number, offset: scan.end };
    if let Some(last) = segments.get_mut(&number) {
        last.len = scan.end;
        last.transactions_end = scan.transactions_end;
    }
    let released = match executed {
        Some(executed) => released(&segments, end, &scan.received, executed),
        None => RelayPosition { segment: 0, offset: 0 },
    };
    Ok(Recovered {
        segments,
        end,
        released,
        received: scan.received,
        last: scan.last,
        format: scan.format,
        transactions,
        event_bytes,
        report,
    })
}

/// Drops segments that can't be applied to a target that has `executed`.
fn keep_what_follows(
    directory: &Directory,
    segments: &mut BTreeMap<u64, Segment>,
    executed: &GtidSet,
    report: &mut Recovery,
) -> Result<()> {
    if is_planted(Bug::GapAccepted) {
        return Ok(());
    }
    let missing = segments.values().next().map(|first| first.grown.difference(executed));
    if let Some(missing) = missing.filter(|missing| !missing.is_empty()) {
        // In any order: `previous` only grows, so nothing that a crash leaves follows from the target.
        for number in segments.keys() {
            directory.remove(*number)?;
        }
        segments.clear();
        report.emptied_for = Some(missing);
    }
    let holes = holes(segments, executed);
    // The last first: a crash in between leaves no gap.
    for number in segments.split_off(&holes).into_keys().rev() {
        directory.remove(number)?;
        report.dropped_segments += 1;
    }
    Ok(())
}

fn empty(executed: GtidSet, report: Recovery) -> Recovered {
    Recovered {
        segments: BTreeMap::new(),
        end: RelayPosition { segment: 0, offset: 0 },
        released: RelayPosition { segment: 0, offset: 0 },
        received: executed,
        last: None,
        format: None,
        transactions: 0,
        event_bytes: 0,
        report,
    }
}

/// The headers of the segments that follow each other without a gap.
#[derive(Default)]
pub(crate) struct Headers {
    pub(crate) segments: BTreeMap<u64, Segment>,
    /// Segments before a gap that were purged.
    pub(crate) stale: Vec<u64>,
    /// Segments whose header is damaged, and those after a gap, which can't be applied in order.
    pub(crate) doomed: Vec<u64>,
}

/// Reads the headers of a store whose target has `executed`. A crash in the middle of a purge may
/// leave any of the purged files, and a damaged header is as good as a missing file. So with a gap the target
/// decides which side of it counts; while it is unknown, neither does, and nothing is deleted.
pub(crate) fn read_headers(files: &SegmentFiles, executed: Option<&GtidSet>) -> Result<Headers> {
    let mut found = Headers::default();
    let mut before = GtidSet::new();
    let mut numbers = files.numbers()?.into_iter();
    while let Some(number) = numbers.next() {
        let path = files.path(number);
        let segment = match read_header(&*files.open(number)?, &path)? {
            Ok(segment) if segment.header.number == number => Some(segment),
            Err(HeaderError::Version(version)) => return Err(Error::Version { path, version }),
            Ok(_) | Err(HeaderError::Damaged(_)) => None,
        };
        let Headers { segments, stale, doomed } = &mut found;
        let Some(mut segment) = segment else {
            doomed.push(number);
            continue;
        };
        let follows = segments.last_key_value().is_none_or(|(last, _)| last + 1 == number);
        match executed {
            _ if follows => {}
            Some(executed) if segment.grown.is_subset_of(executed) => {
                stale.extend(std::mem::take(segments).into_keys());
                before = GtidSet::new();
            }
            Some(_) => {
                doomed.push(number);
                doomed.extend(numbers.by_ref());
                break;
            }
            None => return Ok(Headers::default()),
        }
        let all = std::mem::take(&mut segment.grown);
        segment.grown = all.difference(&before);
        before = all;
        segments.insert(number, segment);
    }
    Ok(found)
}

/// Reads a segment's header as that of the first one in its store.
pub(crate) fn read_header(
    file: &dyn StoredFile,
    path: &Path,
) -> Result<std::result::Result<Segment, HeaderError>> {
    let len = file.size().map_err(io("reading", path))?;
    let most = len.min(HEADER_LEN_MAX);
    let mut wanted = most.min(HEADER_LEN_USUAL);
    let parsed = loop {
        let bytes = file.read_start(wanted).map_err(io("reading", path))?;
        match SegmentHeader::parse(&bytes) {
            Err(HeaderError::Damaged("header is cut short")) if wanted < most => {
                wanted = most.min(wanted * 16);
            }
            parsed => break parsed,
        }
    };
    Ok(parsed.map(|(header, grown, header_len)| Segment {
        header,
        grown,
        header_len: header_len as u64,
        len,
        // The exact value is unknown before a scan, or before a reader has passed the segment: a format
        // description may be at its end.
        transactions_end: len,
        unwritten: None,
    }))
}

/// One pass over a segment's frames, up to the last whole transaction.
pub(crate) struct Scan {
    end: u64,
    transactions_end: u64,
    transactions: u64,
    bytes: u64,
    pub(crate) received: GtidSet,
    last: Option<LastReceived>,
    format: Option<FormatDescription>,
    /// Transactions that begin after `end`.
    cut: GtidSet,
}

impl Scan {
    /// Reads a segment, before which `received` was received.
    pub(crate) fn run(
        files: &SegmentFiles,
        number: u64,
        segment: &Segment,
        received: GtidSet,
    ) -> Result<Self> {
        let path = &files.path(number);
        let file = Stream::new(files.open(number)?, segment.header_len);
        let mut file = BufReader::with_capacity(1 << 20, file);
        let mut scan = Self {
            end: segment.header_len,
            transactions_end: segment.header_len,
            transactions: 0,
            bytes: 0,
            received,
            last: segment.header.last.clone(),
            format: segment.header.format.clone(),
            cut: GtidSet::new(),
        };
        let mut offset = segment.header_len;
        let mut open = None;
        let mut frame = Vec::new();
        while read_frame(&mut file, &mut frame, segment.len - offset)
            .map_err(io("reading", path))?
        {
            let Ok(header) = FrameHeader::parse(&frame) else { break };
            if verify_frame(&header, &frame).is_err() {
                break;
            }
            offset += frame.len() as u64;
            let body = frame.get(FRAME_HEADER_LEN..).unwrap_or_default();
            let event_bytes = (header.body_len - header.metadata_len) as u64;
            match header.kind {
                // Inside a transaction neither this nor a first frame is valid: its rest was
                // never written.
                FrameKind::FormatDescription if open.is_none() => {
                    let format = FormatDescription::parse(Bytes::copy_from_slice(body));
                    let Ok(format) = format else { break };
                    scan.format = Some(format);
                    scan.end = offset;
                }
                FrameKind::Transaction { first, last } if first == open.is_none() => {
                    if first {
                        let metadata = body.get(..header.metadata_len).unwrap_or_default();
                        let Ok(metadata) = decode_metadata(metadata) else { break };
                        let committed = metadata.original_commit_timestamp;
                        open = Some(LastReceived { gtid: metadata.gtid, committed, bytes: 0 });
                    }
                    if let Some(open) = open.as_mut() {
                        open.bytes += event_bytes;
                    }
                    if last && let Some(whole) = open.take() {
                        scan.received.add(&whole.gtid);
                        scan.transactions += 1;
                        scan.bytes += whole.bytes;
                        scan.last = Some(whole);
                        scan.end = offset;
                        scan.transactions_end = offset;
                    }
                }
                _ => break,
            }
        }
        let file = Stream::new(files.open(number)?, scan.end);
        scan.cut = transactions_after(file, segment.len - scan.end).map_err(io("reading", path))?;
        Ok(scan)
    }
}

/// Transactions that begin in the bytes to be cut, as far as intact frames show.
fn transactions_after(mut file: Stream, mut left: u64) -> std::io::Result<GtidSet> {
    let mut cut = GtidSet::new();
    let mut frame = Vec::new();
    loop {
        // The rest of a torn frame may still hold its metadata, but no checksum covers it.
        if !read_frame(&mut file, &mut frame, left)? {
            return Ok(cut);
        }
        left -= frame.len() as u64;
        let Ok(header) = FrameHeader::parse(&frame) else { return Ok(cut) };
        let first = matches!(header.kind, FrameKind::Transaction { first: true, .. });
        if first && verify_frame(&header, &frame).is_ok() {
            let metadata = FRAME_HEADER_LEN..FRAME_HEADER_LEN + header.metadata_len;
            let metadata = decode_metadata(frame.get(metadata).unwrap_or_default());
            if let Ok(metadata) = metadata {
                cut.add(&metadata.gtid);
            }
        }
    }
}

/// Reads one whole frame; `false` at the end of the file, even within a torn frame.
fn read_frame(file: &mut impl Read, frame: &mut Vec<u8>, left: u64) -> std::io::Result<bool> {
    frame.clear();
    if left < FRAME_HEADER_LEN as u64 {
        return Ok(false);
    }
    frame.resize(FRAME_HEADER_LEN, 0);
    file.read_exact(frame)?;
    let Ok(header) = FrameHeader::parse(frame) else { return Ok(false) };
    if header.frame_len() as u64 > left {
        return Ok(false);
    }
    frame.resize(header.frame_len(), 0);
    file.read_exact(&mut frame[FRAME_HEADER_LEN..])?;
    Ok(true)
}

/// Deletes everything from `position` on, the last segment first: a crash in between leaves no gap.
pub(crate) fn discard_from(directory: &Directory, position: RelayPosition) -> Result<()> {
    for number in directory.numbers()?.into_iter().rev() {
        // Truncation need not cure a file that the disk can't read.
        if number > position.segment || (number == position.segment && position.offset == 0) {
            directory.remove(number)?;
        } else if number == position.segment {
            directory.truncate(number, position.offset)?;
        }
    }
    directory.sync()
}
