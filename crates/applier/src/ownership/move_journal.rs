//! `csa.move` on the servers of a pair of channels: how far a move of the applications is.

use csa_provider::sql_text::quote;

/// The statements that make the table. There is a row for each pair, which a move replaces.
pub const CREATE_MOVE: [&str; 2] = [
    "CREATE DATABASE IF NOT EXISTS csa",
    "CREATE TABLE IF NOT EXISTS csa.move (\
     channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, \
     number BIGINT UNSIGNED NOT NULL, \
     at TIMESTAMP(6) NOT NULL, \
     journal LONGTEXT CHARACTER SET utf8mb4 NOT NULL) ENGINE=InnoDB",
];

/// Returns the query for a pair's journal; `channel` is the one that leads to the new server.
#[must_use]
pub fn read_move(channel: &str) -> String {
    format!("SELECT journal FROM csa.move WHERE channel={}", quote(channel))
}

/// Returns the statement that replaces a pair's journal.
#[must_use]
pub fn write_move(channel: &str, number: u64, journal: &str) -> String {
    let (channel, journal) = (quote(channel), quote(journal));
    format!(
        "REPLACE INTO csa.move (channel, number, at, journal) VALUES ({channel}, {number}, NOW(6), {journal})"
    )
}
