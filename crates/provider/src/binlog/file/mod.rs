//! Binary log files: the bytes of one, made from events and taken apart again. Pure
//! (<https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication.html>).

mod parser;
mod writer;

#[cfg(test)]
mod tests;

pub use parser::{BinlogFileError, BinlogFileParser, FileEvent};
pub use writer::BinlogFileWriter;

/// The first bytes of every binary log file.
pub const MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];
/// The first bytes of one that the server has encrypted (`binlog_encryption`).
pub const ENCRYPTED_MAGIC: [u8; 4] = [0xfd, b'b', b'i', b'n'];
