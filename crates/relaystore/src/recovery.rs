//! Opening: what is there, what is whole, and whether it fits the target.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read};
use std::path::Path;

use bytes::Bytes;
use csa_provider::{FormatDescription, GtidSet};

use crate::RelayPosition;
use crate::directory::Directory;
use crate::error::{Error, Result, io};
use crate::segment::{
    FRAME_HEADER_LEN, FrameHeader, FrameKind, HeaderError, SegmentHeader, decode_metadata,
    verify_frame,
};
use crate::store::Segment;

/// What opening found and did, for the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes cut from the end of the last segment: an unfinished transaction.
    pub cut_bytes: u64,
    /// Segments dropped because their header was never completed, or because one before is missing.
    pub dropped_segments: usize,
    /// The store was emptied: it begins with transactions that do not follow the target's.
    pub emptied_for: Option<GtidSet>,
}

pub(crate) struct Recovered {
    pub(crate) segments: BTreeMap<u64, Segment>,
    pub(crate) end: RelayPosition,
    pub(crate) received: GtidSet,
    pub(crate) format: Option<FormatDescription>,
    pub(crate) transactions: u64,
    pub(crate) event_bytes: u64,
    pub(crate) report: Recovery,
}

/// Largest header: GTID sets of thousands of sources fit.
const HEADER_LEN_MAX: u64 = 64 << 20;

pub(crate) fn recover(directory: &Directory, executed: &GtidSet) -> Result<Recovered> {
    let mut report = Recovery::default();
    let mut segments = read_headers(directory, &mut report)?;
    let first = segments.values().next().map(|segment| segment.header.previous.clone());
    if let Some(missing) = first.map(|first| first.difference(executed))
        && !missing.is_empty()
    {
        for number in segments.keys() {
            directory.remove(*number)?;
        }
        segments.clear();
        report.emptied_for = Some(missing);
    }
    let Some((&number, last)) = segments.last_key_value() else {
        return Ok(empty(executed, report));
    };
    let path = directory.segment_path(number);
    let scan = Scan::run(&path, last)?;
    report.cut_bytes = last.len - scan.end;
    if report.cut_bytes > 0 {
        truncate(&path, scan.end)?;
    }
    let (transactions, event_bytes) = (
        last.header.transactions_before + scan.transactions,
        last.header.bytes_before + scan.bytes,
    );
    let end = RelayPosition { segment: number, offset: scan.end };
    if let Some(last) = segments.get_mut(&number) {
        last.len = scan.end;
    }
    Ok(Recovered {
        segments,
        end,
        received: scan.received,
        format: scan.format,
        transactions,
        event_bytes,
        report,
    })
}

fn empty(executed: &GtidSet, report: Recovery) -> Recovered {
    Recovered {
        segments: BTreeMap::new(),
        end: RelayPosition { segment: 0, offset: 0 },
        received: executed.clone(),
        format: None,
        transactions: 0,
        event_bytes: 0,
        report,
    }
}

/// Headers of the segments that follow each other without a gap.
fn read_headers(directory: &Directory, report: &mut Recovery) -> Result<BTreeMap<u64, Segment>> {
    let mut segments: BTreeMap<u64, Segment> = BTreeMap::new();
    let mut numbers = directory.segments()?.into_iter();
    while let Some(number) = numbers.next() {
        let path = directory.segment_path(number);
        let follows = segments.last_key_value().is_none_or(|(last, _)| last + 1 == number);
        let read = if follows { read_header(&path)? } else { Err(HeaderError::Damaged("gap")) };
        match read {
            Ok(segment) if segment.header.number == number => {
                segments.insert(number, segment);
            }
            Err(HeaderError::Version(version)) => return Err(Error::Version { path, version }),
            Ok(_) | Err(HeaderError::Damaged(_)) => {
                // Nothing behind a hole can be applied in order.
                for number in std::iter::once(number).chain(numbers.by_ref()) {
                    directory.remove(number)?;
                    report.dropped_segments += 1;
                }
            }
        }
    }
    Ok(segments)
}

fn read_header(path: &Path) -> Result<std::result::Result<Segment, HeaderError>> {
    let file = File::open(path).map_err(io("opening", path))?;
    let len = file.metadata().map_err(io("reading", path))?.len();
    let mut bytes = Vec::new();
    file.take(len.min(HEADER_LEN_MAX).min(1 << 20))
        .read_to_end(&mut bytes)
        .map_err(io("reading", path))?;
    if len > bytes.len() as u64
        && matches!(SegmentHeader::parse(&bytes), Err(HeaderError::Damaged("header is cut short")))
    {
        let file = File::open(path).map_err(io("opening", path))?;
        bytes.clear();
        file.take(len.min(HEADER_LEN_MAX)).read_to_end(&mut bytes).map_err(io("reading", path))?;
    }
    Ok(SegmentHeader::parse(&bytes).map(|(header, header_len)| Segment {
        header,
        header_len: header_len as u64,
        len,
    }))
}

/// One pass over a segment's frames, up to the last whole transaction.
struct Scan {
    end: u64,
    transactions: u64,
    bytes: u64,
    received: GtidSet,
    format: Option<FormatDescription>,
}

impl Scan {
    fn run(path: &Path, segment: &Segment) -> Result<Self> {
        let mut file =
            BufReader::with_capacity(1 << 20, File::open(path).map_err(io("opening", path))?);
        std::io::copy(&mut file.by_ref().take(segment.header_len), &mut std::io::sink())
            .map_err(io("reading", path))?;
        let mut scan = Self {
            end: segment.header_len,
            transactions: 0,
            bytes: 0,
            received: segment.header.previous.clone(),
            format: segment.header.format.clone(),
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
                        open = Some((metadata.gtid, 0));
                    }
                    if let Some((_, bytes)) = open.as_mut() {
                        *bytes += event_bytes;
                    }
                    if last && let Some((gtid, bytes)) = open.take() {
                        scan.received.add(&gtid);
                        scan.transactions += 1;
                        scan.bytes += bytes;
                        scan.end = offset;
                    }
                }
                _ => break,
            }
        }
        Ok(scan)
    }
}

/// Reads one frame whole; `false` at the end of the file, torn or not.
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

fn truncate(path: &Path, len: u64) -> Result<()> {
    let file = OpenOptions::new().write(true).open(path).map_err(io("opening", path))?;
    file.set_len(len).and_then(|()| file.sync_all()).map_err(io("truncating", path))
}

pub(crate) fn discard_from(directory: &Directory, position: RelayPosition) -> Result<()> {
    for number in directory.segments()?.into_iter().rev() {
        if number > position.segment {
            directory.remove(number)?;
        } else if number == position.segment {
            truncate(&directory.segment_path(number), position.offset)?;
        }
    }
    directory.sync()
}
