//! One file of the archive, read as its bytes arrive.

use bytes::{Buf as _, Bytes};
use csa_provider::binlog::file::{BinlogFileParser, FileEvent};
use csa_provider::binlog::{ChecksumAlgorithm, FormatDescription, GtidSet, RawEvent};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use sha2::{Digest as _, Sha256};
use zstd::stream::raw::{Decoder, Operation as _};

use crate::archive::index::{Compression, FileIndex};
use crate::archive::store::{ArchivedHistory, Result};

/// The most bytes of the binary log file that are made at once. A part of the object may hold a thousand times its size.
const PIECE: usize = 64 << 10;

/// Reads the events of a file, and checks at its end that they are those that were written.
pub(crate) struct FileReader {
    history: ArchivedHistory,
    index: FileIndex,
    bytes: BoxStream<'static, Result<Bytes>>,
    /// The rest of the last part of the object.
    part: Bytes,
    /// `None` for a file that is not compressed.
    decoder: Option<Box<Decoder<'static>>>,
    /// The decoder may have more bytes than the last piece had room for.
    is_piece_full: bool,
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

impl FileReader {
    pub(crate) async fn open(history: &ArchivedHistory, index: FileIndex) -> Result<Self> {
        let bytes = history.read(&index.file).await?;
        let decoder = match index.compression {
            Compression::None => None,
            Compression::Zstd => Decoder::new()
                .map(|decoder| Some(Box::new(decoder)))
                .map_err(|error| history.archive().damaged(format!("zstd: {error}")))?,
        };
        Ok(Self {
            history: history.clone(),
            index,
            bytes,
            part: Bytes::new(),
            decoder,
            is_piece_full: false,
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
                Ok(Some(FileEvent::Format(format))) => {
                    // Nothing else would find damage in an event before it is applied.
                    if format.checksum() == ChecksumAlgorithm::Off {
                        let read = whole(&self.history, &self.index.file).await?;
                        self.check_digest(read)?;
                    }
                    return Ok(Some(as_event(&format)));
                }
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

    /// Returns the next bytes of the binary log file, which may be none; none and [`Self::is_over`] at its end.
    pub(crate) async fn next_bytes(&mut self) -> Result<Bytes> {
        if self.part.is_empty() && !self.is_piece_full {
            let Some(part) = self.bytes.next().await.transpose()? else {
                self.is_over = true;
                let digest = std::mem::take(&mut self.digest);
                self.check_digest((digest, self.stored))?;
                return Ok(Bytes::new());
            };
            self.digest.update(&part);
            self.stored += part.len() as u64;
            self.part = part;
        }
        let Some(decoder) = &mut self.decoder else {
            let size = self.part.len().min(PIECE);
            return Ok(self.part.split_to(size));
        };
        let mut piece = vec![0; PIECE];
        let decoded = decoder.run_on_buffers(&self.part, &mut piece);
        let decoded = decoded.map_err(|error| self.damaged(&format!("zstd: {error}")))?;
        self.part.advance(decoded.bytes_read);
        piece.truncate(decoded.bytes_written);
        self.is_piece_full = piece.len() == PIECE;
        Ok(piece.into())
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

    fn check_digest(&self, (digest, stored): (Sha256, u64)) -> Result<()> {
        let digest = format!("{:x}", digest.finalize());
        if stored != self.index.stored_bytes || digest != self.index.sha256 {
            return Err(self.damaged(&format!(
                "it has {stored} bytes with SHA-256 {digest}; {} bytes with {} were written",
                self.index.stored_bytes, self.index.sha256
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

/// Returns the digest of a whole object, and its bytes.
async fn whole(history: &ArchivedHistory, file: &str) -> Result<(Sha256, u64)> {
    let mut bytes = history.read(file).await?;
    let (mut digest, mut stored) = (Sha256::new(), 0);
    while let Some(part) = bytes.next().await.transpose()? {
        digest.update(&part);
        stored += part.len() as u64;
    }
    Ok((digest, stored))
}

/// Returns the event of a format description, which a channel's relay store needs before the events after it.
pub(super) fn as_event(format: &FormatDescription) -> RawEvent {
    RawEvent::trusted(format.raw().clone(), ChecksumAlgorithm::Crc32).expect("it was parsed as one")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use csa_provider::binlog::EventType;
    use csa_provider::binlog::file::BinlogFileWriter;
    use csa_provider::test_util::{event, format_description};
    use object_store::memory::InMemory;
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::archive::index::tests::index;
    use crate::archive::store::Archive;

    /// Stores an object with these bytes, and returns its history and its index.
    async fn stored(object: &[u8], compression: Compression) -> (ArchivedHistory, FileIndex) {
        let history = Archive::over(Arc::new(InMemory::new()), "shop").history("first");
        let index = FileIndex {
            compression,
            stored_bytes: object.len() as u64,
            sha256: format!("{:x}", Sha256::digest(object)),
            ..index(1, "", "")
        };
        write(&history, &index, object).await;
        (history, index)
    }

    async fn write(history: &ArchivedHistory, index: &FileIndex, object: &[u8]) {
        let mut out = history.writer(&index.file, 0);
        out.write_all(object).await.expect("written");
        out.shutdown().await.expect("written");
    }

    #[tokio::test]
    async fn a_file_is_made_in_pieces_however_well_it_is_compressed() {
        let mut file = Vec::new();
        let mut writer = BinlogFileWriter::begin(&format_description(), &GtidSet::new(), &mut file);
        let row = event(EventType::ROWS_QUERY, &[7; 300_000]);
        for _ in 0..20 {
            writer.push(&row, &mut file);
        }
        let compressed = zstd::encode_all(&file[..], 3).expect("compressed");
        assert!(compressed.len() < PIECE, "all of it is in one part");
        for (object, compression) in [(&file, Compression::None), (&compressed, Compression::Zstd)]
        {
            let (history, index) = stored(object, compression).await;
            let mut reader = FileReader::open(&history, index.clone()).await.expect("opened");
            let mut read = Vec::new();
            while !reader.is_over() {
                let piece = reader.next_bytes().await.expect("whole");
                assert!(piece.len() <= PIECE, "{}", piece.len());
                read.extend_from_slice(&piece);
            }
            assert!(read == file, "{compression:?}");
            let mut reader = FileReader::open(&history, index).await.expect("opened");
            let mut events = 0;
            while reader.next().await.expect("whole").is_some() {
                events += 1;
            }
            assert_eq!(events, 21, "the format description, and the rows");
        }
    }
}
