//! One file on its way into the archive: transactions become its bytes, some at a time.

use std::io::Write as _;
use std::sync::Arc;

use csa_provider::binlog::file::BinlogFileWriter;
use csa_provider::binlog::{FormatDescription, GtidSet};
use csa_relaystore::read::{EventCursor, RelayReader, RelayedTransaction};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::archive::index::Compression;
use crate::archive::store::SEVERAL_MAX;

/// Bytes that are handed over at a time.
const CHUNK: usize = 4 << 20;
/// Level at which zstd keeps up with a link of a gigabit.
const LEVEL: i32 = 1;

/// The reason no file can be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum PartError {
    #[error("relay store: {0}")]
    Relay(#[from] csa_relaystore::disk::Error),
    #[error("zstd: {0}")]
    Compression(#[from] std::io::Error),
}

type Result<T> = std::result::Result<T, PartError>;

/// Reads transactions and makes files of them.
pub(super) struct PartMaker {
    reader: RelayReader,
    compression: Compression,
    /// Bytes after which a file ends, at the next transaction.
    size: u64,
    /// A transaction that belongs to the next file.
    next: Option<RelayedTransaction>,
    part: Option<UnfinishedFile>,
}

/// A file that is being made.
struct UnfinishedFile {
    writer: BinlogFileWriter,
    out: Output,
    format: Arc<FormatDescription>,
    contents: Contents,
    /// Event bytes of the first transaction.
    first_bytes: u64,
    begun: Instant,
    open: Option<(RelayedTransaction, EventCursor)>,
    last_sequence: i64,
}

/// The contents of a file.
#[derive(Debug, Clone)]
pub(super) struct Contents {
    pub(super) before: GtidSet,
    pub(super) added: GtidSet,
    pub(super) transactions: u64,
    /// Commits on the source, in microseconds since the epoch.
    pub(super) first_committed: u64,
    pub(super) last_committed: u64,
    pub(super) source_version: String,
    /// Event bytes of everything that the relay store has received up to its beginning, and up to here.
    pub(super) bytes_before: u64,
    pub(super) read_bytes: u64,
}

/// A file that is whole.
#[derive(Debug)]
pub(super) struct FinishedFile {
    pub(super) contents: Contents,
    pub(super) bytes: u64,
    pub(super) stored_bytes: u64,
    pub(super) sha256: String,
}

/// The next piece of work.
#[derive(Debug)]
pub(super) enum Made {
    /// Bytes of the file.
    Bytes(Vec<u8>),
    /// The last bytes of it.
    Last(Vec<u8>, Box<FinishedFile>),
    /// Nothing more has been received so far.
    Nothing,
}

impl PartMaker {
    pub(super) fn new(reader: RelayReader, compression: Compression, size: u64) -> Self {
        let mut reader = reader;
        reader.set_inline_limit(CHUNK as u64);
        Self { reader, compression, size, next: None, part: None }
    }

    /// Returns the event bytes of everything that was read or passed over, as [`Contents::read_bytes`] counts them.
    pub(super) fn read_bytes(&self) -> u64 {
        self.reader.read_so_far().1
    }

    /// Returns what the file that is being made holds so far.
    pub(super) fn contents(&self) -> Option<&Contents> {
        self.part.as_ref().map(|part| &part.contents)
    }

    /// Returns the event bytes of the first transaction of the file that is being made.
    pub(super) fn first_bytes(&self) -> u64 {
        self.part.as_ref().map_or(0, |part| part.first_bytes)
    }

    /// Makes the next bytes. A new file begins after `archived`. It ends at its size, or once it is older than
    /// `interval`; with all that was received, if it `is_awaited`. Blocks on the disk.
    ///
    /// # Errors
    /// The relay store can't be read.
    pub(super) fn make(
        &mut self,
        archived: &GtidSet,
        interval: std::time::Duration,
        is_awaited: bool,
    ) -> Result<Made> {
        loop {
            if let Some(part) = &mut self.part {
                part.push_open(CHUNK)?;
                if part.out.len() >= CHUNK {
                    return Ok(Made::Bytes(part.out.take()));
                }
                if part.open.is_some() {
                    continue;
                }
            }
            let next = match self.next.take() {
                Some(next) => Some(next),
                None => self.reader.next_now()?,
            };
            let is_over = match (&self.part, &next) {
                (None, None) => return Ok(Made::Nothing),
                (None, Some(_)) => false,
                (Some(part), None) => is_awaited || part.begun.elapsed() >= interval,
                (Some(part), Some(next)) => {
                    part.begun.elapsed() >= interval || part.ends_before(next, self.size)
                }
            };
            if is_over && let Some(part) = self.part.take() {
                self.next = next;
                let (bytes, finished) = part.finish()?;
                return Ok(Made::Last(bytes, Box::new(finished)));
            }
            let Some(next) = next else {
                // Young, and without more to put into it.
                let out = self.part.as_mut().map(|part| part.out.take()).unwrap_or_default();
                return Ok(if out.is_empty() { Made::Nothing } else { Made::Bytes(out) });
            };
            match &mut self.part {
                Some(part) => part.begin(next),
                None => {
                    let mut part = UnfinishedFile::new(&next, archived, self.compression)?;
                    part.begin(next);
                    self.part = Some(part);
                }
            }
        }
    }
}

impl UnfinishedFile {
    fn new(first: &RelayedTransaction, before: &GtidSet, compression: Compression) -> Result<Self> {
        let mut out = Output::new(compression)?;
        let mut head = Vec::new();
        let writer = BinlogFileWriter::begin(&first.format, before, &mut head);
        out.write(&head)?;
        let committed = first.header.immediate_commit_timestamp;
        let extent = first.extent();
        Ok(Self {
            writer,
            out,
            format: Arc::clone(&first.format),
            contents: Contents {
                before: before.clone(),
                added: GtidSet::new(),
                transactions: 0,
                first_committed: committed,
                last_committed: committed,
                source_version: first.format.server_version().to_owned(),
                bytes_before: extent.cumulative_bytes.saturating_sub(extent.event_bytes),
                read_bytes: 0,
            },
            first_bytes: extent.event_bytes,
            begun: Instant::now(),
            open: None,
            last_sequence: 0,
        })
    }

    /// A file has one layout, numbers of the logical clock that rise, as in a file of the source, and no more parts than a
    /// store takes.
    fn ends_before(&self, next: &RelayedTransaction, size: u64) -> bool {
        self.writer.position() >= size
            || self.writer.position().saturating_add(next.event_bytes) > SEVERAL_MAX
            || *self.format != *next.format
            || next.header.sequence_number <= self.last_sequence && next.header.sequence_number > 0
    }

    fn begin(&mut self, transaction: RelayedTransaction) {
        let events = transaction.events();
        self.open = Some((transaction, events));
    }

    /// Adds events of the transaction that is open, until there are so many bytes.
    fn push_open(&mut self, enough: usize) -> Result<()> {
        let Some((transaction, events)) = &mut self.open else { return Ok(()) };
        let mut bytes = Vec::new();
        for event in events.by_ref() {
            let event = event?;
            self.writer.push(&event, &mut bytes);
            if bytes.len() + self.out.len() >= enough {
                return self.out.write(&bytes);
            }
        }
        self.out.write(&bytes)?;
        let header = &transaction.header;
        self.contents.added.add(&header.gtid);
        self.contents.transactions += 1;
        self.contents.last_committed = header.immediate_commit_timestamp;
        self.contents.read_bytes = transaction.extent().cumulative_bytes;
        self.last_sequence = header.sequence_number;
        self.open = None;
        Ok(())
    }

    fn finish(self) -> Result<(Vec<u8>, FinishedFile)> {
        let bytes = self.writer.position();
        let (last, stored_bytes, sha256) = self.out.finish()?;
        Ok((last, FinishedFile { contents: self.contents, bytes, stored_bytes, sha256 }))
    }
}

/// The bytes of a file as they are stored, and their digest.
struct Output {
    encoder: Encoder,
    digest: Sha256,
    stored: u64,
}

enum Encoder {
    Plain(Vec<u8>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
}

impl Output {
    fn new(compression: Compression) -> Result<Self> {
        let encoder = match compression {
            Compression::None => Encoder::Plain(Vec::new()),
            Compression::Zstd => zstd::stream::write::Encoder::new(Vec::new(), LEVEL)
                .map(|encoder| Encoder::Zstd(Box::new(encoder)))?,
        };
        Ok(Self { encoder, digest: Sha256::new(), stored: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.encoder {
            Encoder::Plain(out) => out.extend_from_slice(bytes),
            Encoder::Zstd(encoder) => encoder.write_all(bytes)?,
        }
        Ok(())
    }

    /// Returns the number of bytes that wait to be taken.
    fn len(&self) -> usize {
        match &self.encoder {
            Encoder::Plain(out) => out.len(),
            Encoder::Zstd(encoder) => encoder.get_ref().len(),
        }
    }

    fn take(&mut self) -> Vec<u8> {
        let bytes = match &mut self.encoder {
            Encoder::Plain(out) => std::mem::take(out),
            Encoder::Zstd(encoder) => std::mem::take(encoder.get_mut()),
        };
        self.count(&bytes);
        bytes
    }

    fn count(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.stored += bytes.len() as u64;
    }

    fn finish(mut self) -> Result<(Vec<u8>, u64, String)> {
        let last = match std::mem::replace(&mut self.encoder, Encoder::Plain(Vec::new())) {
            Encoder::Plain(out) => out,
            Encoder::Zstd(encoder) => encoder.finish()?,
        };
        self.count(&last);
        Ok((last, self.stored, format!("{:x}", self.digest.finalize())))
    }
}
