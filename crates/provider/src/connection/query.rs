//! Text queries: the few settings and questions ahead of a dump.

use super::{ConnectionError, SourceConnection};
use crate::bytes_reader::Reader;

const COM_QUERY: u8 = 3;
const COM_QUIT: u8 = 1;
const NULL: u8 = 0xfb;

/// A row of a text result; `None` for NULL.
pub(crate) type TextRow = Vec<Option<String>>;

impl SourceConnection {
    /// Runs one statement; its rows, if it has any.
    pub(crate) async fn query(&mut self, sql: &str) -> Result<Vec<TextRow>, ConnectionError> {
        self.command(COM_QUERY, sql.as_bytes()).await?;
        let silence = Some(self.dead_after);
        let head = self.packets.receive_ok(silence).await?;
        if head.first() == Some(&0) {
            return Ok(Vec::new());
        }
        let malformed = |error: crate::Malformed| ConnectionError::Protocol(error.to_string());
        let columns = Reader::new(&head).length_encoded("column count").map_err(malformed)?;
        for _ in 0..columns {
            self.packets.receive_ok(silence).await?;
        }
        let mut rows = Vec::new();
        loop {
            let packet = self.packets.receive_ok(silence).await?;
            // 0xfe is also the length of a huge first column, but such a packet is huge itself.
            if packet.first() == Some(&0xfe) && packet.len() < 0xff_ffff {
                return Ok(rows);
            }
            let mut reader = Reader::new(&packet);
            let mut row = Vec::new();
            for _ in 0..columns {
                row.push(column(&mut reader).map_err(malformed)?);
            }
            rows.push(row);
        }
    }

    /// First column of the first row.
    pub(crate) async fn value(&mut self, sql: &str) -> Result<String, ConnectionError> {
        let rows = self.query(sql).await?;
        let first = rows.into_iter().next().and_then(|row| row.into_iter().next());
        Ok(first.flatten().unwrap_or_default())
    }

    /// Sends one command; its answer is still to be read.
    pub(super) async fn command(&mut self, code: u8, body: &[u8]) -> Result<(), ConnectionError> {
        let mut payload = Vec::with_capacity(body.len() + 1);
        payload.push(code);
        payload.extend_from_slice(body);
        self.packets.begin_command();
        self.packets.send(&payload).await
    }

    /// Says goodbye; an error no longer matters.
    pub(crate) async fn quit(mut self) {
        let _ = self.command(COM_QUIT, &[]).await;
    }
}

fn column(reader: &mut Reader<'_>) -> Result<Option<String>, crate::Malformed> {
    let mut ahead = reader.clone();
    if ahead.u8("column")? == NULL {
        *reader = ahead;
        return Ok(None);
    }
    let len = reader.length_encoded("column length")?;
    let text = reader.take(usize::try_from(len).unwrap_or(usize::MAX), "column")?;
    Ok(Some(String::from_utf8_lossy(text).into_owned()))
}
