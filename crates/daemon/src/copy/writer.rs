//! A session on the target that makes tables and inserts rows.

use std::collections::BTreeSet;

use csa_applier::{Purpose, Target, TargetGtids, TargetLink, UNHURRIED, prelude};
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::server::Vendor;
use csa_provider::server::link::{FromRow, Limits, LinkError, Side, rows_as};
use csa_provider::sql_text::quote;

use super::definitions::{Program, additions, qualified};
use super::error::{CopyError, Result};
use super::ranges::ChunkNote;
use crate::verify::{REPAIR_SESSION, RunningQuery, TableName, connect_error};

/// Characters of a statement that an error shows.
const SHOWN: usize = 120;
/// Variables by which a target refuses or changes tables of the source. Each is unknown to some version.
const ADDITIONAL_RULES: [&str; 3] = [
    "sql_generate_invisible_primary_key",
    "sql_require_primary_key",
    "restrict_fk_on_non_standard_key",
];
const UNKNOWN_VARIABLE: u16 = 1193;
/// ER_NET_PACKET_TOO_LARGE
const PACKET_TOO_LARGE: u16 = 1153;
/// The largest `max_allowed_packet`.
const PACKET_MAX: usize = 1 << 30;
/// A table, an index or a foreign key of this name is there: ER_TABLE_EXISTS_ERROR, ER_DUP_KEYNAME, ER_FK_DUP_NAME.
const IS_THERE: [u16; 3] = [1050, 1061, 1826];

#[derive(Debug)]
pub(super) struct TargetWriter {
    link: Box<dyn TargetLink>,
    /// The way to the target for another session.
    server: Target,
    /// The server's number of this session; what stands between may greet with another one.
    connection: u32,
    address: String,
    vendor: Vendor,
    /// Bytes that the server takes in one packet.
    max_allowed_packet: usize,
}

impl TargetWriter {
    /// Connects, and sets up a session in which each value means what it does on the source.
    pub(super) async fn connect(target: &Target) -> Result<Self> {
        let link = target.connect().await;
        let link = link.map_err(|error| connect_error(Side::Target, target, error))?;
        let (server, address) = (target.clone(), target.address());
        let vendor = Vendor::default();
        let mut writer =
            Self { link, server, connection: 0, address, vendor, max_allowed_packet: usize::MAX };
        // Definitions and numbers are the source's own text.
        let single = writer.link.take_several(false).await;
        single.map_err(|source| writer.error("COM_SET_OPTION", source))?;
        let facts = format!(
            "SELECT {UNHURRIED} @@version, @@SESSION.max_allowed_packet, CONNECTION_ID() LIMIT 1"
        );
        if let Some((version, limit, connection)) =
            writer.asked::<(String, usize, u32)>(&facts).await?.pop()
        {
            writer.vendor = Vendor::of(&version);
            writer.max_allowed_packet = limit;
            writer.connection = connection;
        }
        let vendor = writer.vendor;
        for statement in prelude(vendor, Purpose::Apply) {
            writer.run(&statement).await?;
        }
        for statement in REPAIR_SESSION {
            writer.run(statement).await?;
        }
        if target.gtids == TargetGtids::Mirror {
            writer.run("SET SESSION sql_log_bin=0").await?;
        }
        // Tables get the keys that they have on the source, and no others.
        for variable in ADDITIONAL_RULES {
            let query = format!("SELECT @@SESSION.{variable}");
            match writer.rows::<u8>(&query).await {
                Ok(found) if found == [1] => {
                    writer.run(&format!("SET SESSION {variable}=OFF")).await?;
                }
                Err(LinkError::Server { code: UNKNOWN_VARIABLE, .. }) | Ok(_) => {}
                Err(source) => return Err(writer.error(&query, source)),
            }
        }
        // Off, a TIMESTAMP column without a default would get one.
        let defaults = "SELECT @@SESSION.explicit_defaults_for_timestamp";
        if writer.asked::<u8>(defaults).await? == [0] {
            writer.run("SET SESSION explicit_defaults_for_timestamp=ON").await?;
        }
        Ok(writer)
    }

    /// Runs a statement.
    ///
    /// # Errors
    /// It fails; the error shows its beginning.
    pub(super) async fn run(&mut self, statement: &str) -> Result<()> {
        self.ask(statement).await.map_err(|source| self.error(&shortened(statement), source))
    }

    /// Runs a statement, and returns the server's own error.
    pub(super) async fn ask(&mut self, statement: &str) -> std::result::Result<(), LinkError> {
        check_packet(statement.len(), self.max_allowed_packet, self.vendor)?;
        self.link.query(statement, Limits::LIST).await.map(drop)
    }

    /// Makes a program; with `again` in place of one that an earlier copy made.
    ///
    /// # Errors
    /// See [`Self::run`].
    pub(super) async fn make(&mut self, program: &Program, again: bool) -> Result<()> {
        if again {
            self.run(&program.removal()).await?;
        }
        for statement in program.preparation(self.vendor == Vendor::MySql57) {
            self.run(&statement).await?;
        }
        let made = self.send(&program.text).await;
        for statement in program.restoration() {
            self.run(&statement).await?;
        }
        for statement in REPAIR_SESSION {
            self.run(statement).await?;
        }
        made.map_err(|source| self.error(&program.to_string(), source))
    }

    /// Runs a statement in whatever character set the session reads.
    async fn send(&mut self, statement: &[u8]) -> std::result::Result<(), LinkError> {
        check_packet(statement.len(), self.max_allowed_packet, self.vendor)?;
        self.link.begin(statement).await?;
        self.link.answers(Limits::SETTING, 1).await.map(drop)
    }

    /// Returns the rows of a short answer.
    ///
    /// # Errors
    /// See [`Self::run`].
    pub(super) async fn asked<R: FromRow>(&mut self, query: &str) -> Result<Vec<R>> {
        self.rows(query).await.map_err(|source| self.error(&shortened(query), source))
    }

    /// Returns the rows of a query that reads a whole table. Dropped before the answer, it ends the query on the target.
    ///
    /// # Errors
    /// See [`Self::run`].
    pub(super) async fn asked_at_length<R: FromRow>(&mut self, query: &str) -> Result<Vec<R>> {
        let running = RunningQuery::new(&self.server, self.connection, query);
        let rows = self.link.query(query, Limits::SETTING).await;
        running.answered();
        let rows = rows.and_then(|rows| rows_as(query, rows));
        rows.map_err(|source| self.error(&shortened(query), source))
    }

    async fn rows<R: FromRow>(&mut self, query: &str) -> std::result::Result<Vec<R>, LinkError> {
        let rows = self.link.query(query, Limits::SETTING).await?;
        rows_as(query, rows)
    }

    /// Drops a table, if it is there.
    ///
    /// # Errors
    /// See [`Self::run`].
    pub(super) async fn drop_table(&mut self, name: &TableName) -> Result<()> {
        self.run(&format!("DROP TABLE IF EXISTS {}", qualified(name))).await
    }

    /// Adds a table, keys or foreign keys, each unless it is there: an earlier attempt did it, or the channel has applied
    /// a change of the source.
    ///
    /// # Errors
    /// See [`Self::run`].
    pub(super) async fn add(&mut self, statement: &str) -> Result<()> {
        if self.is_added(statement).await? {
            return Ok(());
        }
        // One of several is there.
        for addition in additions(statement) {
            self.is_added(&addition).await?;
        }
        Ok(())
    }

    /// Runs a statement. Returns `false` if something that it adds is there.
    async fn is_added(&mut self, statement: &str) -> Result<bool> {
        match self.ask(statement).await {
            Err(LinkError::Server { code, .. }) if IS_THERE.contains(&code) => Ok(false),
            other => {
                other.map(|()| true).map_err(|source| self.error(&shortened(statement), source))
            }
        }
    }

    /// Returns true if one of the tables has a trigger.
    ///
    /// # Errors
    /// See [`Self::run`].
    pub(super) async fn has_triggers(&mut self, tables: &BTreeSet<TableName>) -> Result<bool> {
        let names = tables
            .iter()
            .map(|TableName { schema, table }| format!("({},{})", quote(schema), quote(table)));
        let query = format!(
            "SELECT EXISTS (SELECT 1 FROM information_schema.triggers \
             WHERE (event_object_schema, event_object_table) IN ({}))",
            names.collect::<Vec<_>>().join(",")
        );
        Ok(self.asked::<u8>(&query).await?.contains(&1))
    }

    /// Inserts rows in one transaction, with the note of a chunk.
    ///
    /// # Errors
    /// See [`Self::run`]; `table` names the table there. [`CopyError::Refused`] if another copy has taken over, or the
    /// channel was started.
    pub(super) async fn insert(
        &mut self,
        table: &str,
        statements: &[String],
        note: &ChunkNote,
    ) -> Result<()> {
        let failed = |writer: &Self, source| writer.error(&format!("rows of {table}"), source);
        self.ask("BEGIN").await.map_err(|source| failed(self, source))?;
        let ChunkNote { lock, update } = note;
        if update.is_some() {
            self.is_ours(table, lock).await?;
        }
        for statement in statements {
            self.ask(statement).await.map_err(|source| failed(self, source))?;
        }
        if is_planted(Bug::ChunkNotedLater) {
            self.ask("COMMIT").await.map_err(|source| failed(self, source))?;
        }
        if let Some(statement) = update {
            self.ask(statement).await.map_err(|source| failed(self, source))?;
        }
        if update.is_none() {
            self.is_ours(table, lock).await?;
        }
        self.ask("COMMIT").await.map_err(|source| failed(self, source))
    }

    async fn is_ours(&mut self, table: &str, lock: &str) -> Result<()> {
        let locked = self.rows::<u8>(lock).await;
        match locked.map_err(|source| self.error(lock, source))?.is_empty() {
            false => Ok(()),
            true => Err(CopyError::Refused(format!(
                "target {}: the channel was started, or another copy has {table} by now, so this copy ends; copy again, \
                 which continues",
                self.address
            ))),
        }
    }

    fn error(&self, what: &str, source: LinkError) -> CopyError {
        CopyError::Written { address: self.address.clone(), what: what.to_owned(), source }
    }

    pub(super) async fn close(self) {
        self.link.quit().await;
    }
}

/// The server would answer a larger packet by closing the connection, which would look like an outage for ever.
fn check_packet(bytes: usize, limit: usize, vendor: Vendor) -> std::result::Result<(), LinkError> {
    // The command takes a byte.
    if bytes < limit {
        return Ok(());
    }
    let remedy = match limit < PACKET_MAX {
        true => {
            format!("run there: {} max_allowed_packet={PACKET_MAX}, then copy again", vendor.set())
        }
        false => "no server takes more, so it can't be copied".to_owned(),
    };
    Err(LinkError::Server {
        code: PACKET_TOO_LARGE,
        message: format!(
            "a statement needs a packet of {bytes} bytes, but the target's max_allowed_packet is {limit}; {remedy}"
        ),
    })
}

fn shortened(statement: &str) -> String {
    match statement.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", statement.get(..end).unwrap_or_default()),
        None => statement.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_the_server_would_not_take_is_refused_by_name() {
        assert!(check_packet(1023, 1024, Vendor::MySql).is_ok());
        for (vendor, set) in [(Vendor::MySql, "SET PERSIST"), (Vendor::MariaDb, "SET GLOBAL")] {
            let error = check_packet(1024, 1024, vendor).expect_err("too large");
            assert_eq!(error.code(), Some(1153));
            let said = CopyError::Written {
                address: "db:3306".to_owned(),
                what: "rows of d.t".to_owned(),
                source: error,
            };
            let text = said.to_string();
            for part in ["target db:3306: rows of d.t", "1024 bytes", "max_allowed_packet", set] {
                assert!(text.contains(part), "{part} is missing in {text}");
            }
        }
        let largest = check_packet(PACKET_MAX, PACKET_MAX, Vendor::MySql).expect_err("too large");
        let text = largest.to_string();
        assert!(!text.contains("SET") && text.contains("can't be copied"), "{text}");
    }
}
