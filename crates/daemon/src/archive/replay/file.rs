//! One file of the archive, read as its bytes arrive.

use std::io::Write as _;

use bytes::Bytes;
use csa_provider::binlog::file::{BinlogFileParser, FileEvent};
use csa_provider::binlog::{FormatDescription, GtidSet, RawEvent};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use sha2::{Digest as _, Sha256};

use crate::archive::index::{Compression, FileIndex};
use crate::archive::store::{ArchivedHistory, Result};

/// Reads the events of a file, and checks at its end that they are those that were written.
pub(crate) struct FileReader {
    history: ArchivedHistory,
    index: FileIndex,
    bytes: BoxStream<'static, Result<Bytes>>,
    decoder: Decoder,
    parser: BinlogFileParser,
    digest: Sha256,
    stored: u64,
    is_over: bool,
}

impl std::fmt::Debug for FileReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileReader").field("index", &self.index).finish_non_exhaustive()
    }
}

enum Decoder {
    Plain,
    Zstd(Box<zstd::stream::write::Decoder<'static, Vec<u8>>>),
}

impl FileReader {
    pub(crate) async fn open(history: &ArchivedHistory, index: FileIndex) -> Result<Self> {
        let bytes = history.read(&index.file).await?;
        let decoder = match index.compression {
            Compression::None => Decoder::Plain,
            Compression::Zstd => zstd::stream::write::Decoder::new(Vec::new())
                .map(|decoder| Decoder::Zstd(Box::new(decoder)))
                .map_err(|error| history.archive().damaged(format!("zstd: {error}")))?,
        };
        Ok(Self {
            history: history.clone(),
            index,
            bytes,
            decoder,
            parser: BinlogFileParser::new(),
            digest: Sha256::new(),
            stored: 0,
            is_over: false,
        })
    }

    pub(crate) const fn index(&self) -> &FileIndex {
        &self.index
    }

    /// Returns the next event, and first of all the format description; `None` at the end of the file.
    pub(crate) async fn next(&mut self) -> Result<Option<RawEvent>> {
        loop {
            match self.parser.next_event() {
                Ok(Some(FileEvent::Event(event))) => return Ok(Some(event)),
                Ok(Some(FileEvent::Format(format))) => return Ok(Some(as_event(&format))),
                Ok(Some(FileEvent::Previous(before))) => self.check_before(&before)?,
                Ok(None) if self.is_over => return self.end(),
                Ok(None) => {
                    let plain = self.next_bytes().await?;
                    self.parser.feed(&plain);
                }
                Err(error) => return Err(self.damaged(&error.to_string())),
            }
        }
    }

    /// Returns the next bytes of the binary log file; nothing at its end.
    pub(crate) async fn next_bytes(&mut self) -> Result<Bytes> {
        let Some(bytes) = self.bytes.next().await.transpose()? else {
            self.is_over = true;
            self.check_stored()?;
            return Ok(Bytes::new());
        };
        self.digest.update(&bytes);
        self.stored += bytes.len() as u64;
        match &mut self.decoder {
            Decoder::Plain => Ok(bytes),
            Decoder::Zstd(decoder) => {
                let decoded = decoder.write_all(&bytes).and_then(|()| decoder.flush());
                let plain = std::mem::take(decoder.get_mut());
                decoded.map_err(|error| self.damaged(&format!("zstd: {error}")))?;
                Ok(plain.into())
            }
        }
    }

    /// Returns true once [`Self::next_bytes`] has returned all bytes.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    fn check_before(&self, before: &GtidSet) -> Result<()> {
        if *before == self.index.before {
            return Ok(());
        }
        Err(self.damaged("it begins after other transactions than its index says"))
    }

    fn check_stored(&mut self) -> Result<()> {
        let digest = format!("{:x}", std::mem::take(&mut self.digest).finalize());
        if self.stored != self.index.stored_bytes || digest != self.index.sha256 {
            return Err(self.damaged(&format!(
                "it has {} bytes with SHA-256 {digest}; {} bytes with {} were written",
                self.stored, self.index.stored_bytes, self.index.sha256
            )));
        }
        Ok(())
    }

    fn end(&self) -> Result<Option<RawEvent>> {
        self.parser.finish().map_err(|error| self.damaged(&error.to_string()))?;
        Ok(None)
    }

    fn damaged(&self, what: &str) -> crate::archive::store::ArchiveError {
        let (history, file) = (&self.history.name, &self.index.file);
        self.history.archive().damaged(format!("file {history}/{file}: {what}"))
    }
}

/// Returns the event of a format description, which a channel's relay store needs before the events after it.
pub(super) fn as_event(format: &FormatDescription) -> RawEvent {
    let checksum = csa_provider::binlog::ChecksumAlgorithm::Crc32;
    RawEvent::trusted(format.raw().clone(), checksum).expect("it was parsed as one")
}
