//! Reads little-endian fields from untrusted bytes; never panics, never reads past the end.

/// The bytes end before the field does, or hold an impossible value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset}")]
pub struct Malformed {
    /// The field that was being read.
    pub what: &'static str,
    /// Its offset in the given bytes.
    pub offset: usize,
}

/// A cursor over borrowed bytes.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    pub(crate) fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { what, offset: self.offset }
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.offset >= self.bytes.len()
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.offset)
    }

    pub(crate) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let end = self.offset.checked_add(len).ok_or_else(|| self.malformed(what))?;
        let taken = self.bytes.get(self.offset..end).ok_or_else(|| self.malformed(what))?;
        self.offset = end;
        Ok(taken)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        self.offset = self.bytes.len();
        rest
    }

    /// Returns an unsigned little-endian integer of 1 to 8 bytes.
    pub(crate) fn uint(&mut self, len: usize, what: &'static str) -> Result<u64, Malformed> {
        let bytes = self.take(len, what)?;
        Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        Ok(self.uint(1, what)? as u8)
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, Malformed> {
        Ok(self.uint(2, what)? as u16)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        Ok(self.uint(4, what)? as u32)
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        self.uint(8, what)
    }

    /// Returns a string after a length of one byte.
    pub(crate) fn short_string(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let len = self.u8(what)?;
        self.take(usize::from(len), what)
    }

    /// Returns the bytes up to a zero byte, which is consumed.
    pub(crate) fn until_zero(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        let len = rest.iter().position(|&b| b == 0).ok_or_else(|| self.malformed(what))?;
        let taken = self.take(len, what)?;
        self.offset += 1;
        Ok(taken)
    }

    /// Returns a length-encoded integer of the client protocol
    /// (<https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_dt_integers.html>).
    pub(crate) fn length_encoded(&mut self, what: &'static str) -> Result<u64, Malformed> {
        match self.u8(what)? {
            small @ 0..=250 => Ok(u64::from(small)),
            252 => self.uint(2, what),
            253 => self.uint(3, what),
            254 => self.uint(8, what),
            _ => Err(self.malformed(what)),
        }
    }

    /// Returns a variable-length integer of `mysql::serialization`: the trailing one bits of the
    /// first byte count the bytes that follow it.
    pub(crate) fn varint(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let first = self.u8(what)?;
        let more = first.trailing_ones() as usize;
        let high = self.uint(more, what)?;
        if more >= 8 {
            return Ok(high);
        }
        Ok(u64::from(first) >> (more + 1) | high << (7 - more))
    }

    /// Returns a signed variable-length integer, zig-zag encoded.
    pub(crate) fn varint_signed(&mut self, what: &'static str) -> Result<i64, Malformed> {
        let value = self.varint(what)?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}
