//! A statement with the session it ran in.

use super::EventError;
use crate::binlog::bytes_reader::{Malformed, Reader};

/// A statement as the source logged it. Borrowed from the event's body.
#[derive(Debug, Clone, Copy)]
pub struct QueryEvent<'a> {
    pub thread_id: u32,
    /// The error with which the statement ended; 0 for none.
    pub error_code: u16,
    /// Default database; empty for none.
    pub database: &'a [u8],
    status_vars: &'a [u8],
    /// The text in the character set of the session's `character_set_client`.
    pub statement: &'a [u8],
}

impl<'a> QueryEvent<'a> {
    /// Reads the body of a query event.
    ///
    /// # Errors
    /// Malformed bytes.
    pub fn parse(body: &'a [u8]) -> Result<Self, EventError> {
        Self::read(body).map_err(malformed)
    }

    fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let thread_id = reader.u32("thread id")?;
        reader.u32("execution time")?;
        let database_len = usize::from(reader.u8("database length")?);
        let error_code = reader.u16("error code")?;
        let status_len = usize::from(reader.u16("status variables length")?);
        let status_vars = reader.take(status_len, "status variables")?;
        let database = reader.take(database_len, "database")?;
        reader.u8("end of database")?;
        let statement = reader.rest();
        Ok(Self { thread_id, error_code, database, status_vars, statement })
    }

    /// The session settings as they were logged: equal bytes are equal settings.
    #[must_use]
    pub const fn status_vars(&self) -> &'a [u8] {
        self.status_vars
    }

    /// Returns the session settings the statement ran under.
    ///
    /// # Errors
    /// [`EventError::UnknownStatusVariable`], or malformed bytes.
    pub fn context(&self) -> Result<SessionContext, EventError> {
        SessionContext::parse(self.status_vars)
    }

    /// Returns the settings before the first variable that this version does not know. Servers
    /// write them in the order in which they were introduced.
    #[must_use]
    pub fn known_context(&self) -> SessionContext {
        SessionContext::read_all(self.status_vars).0
    }
}

/// Character sets of a session, as collation ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryCharset {
    pub client: u16,
    pub connection: u16,
    pub server: u16,
}

/// Session settings in a query event; `None` for those it does not hold.
///
/// All status variables of MySQL 8.0 to 9.7 (`Query_event::Query_event_status_vars`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionContext {
    pub flags2: Option<u32>,
    pub sql_mode: Option<u64>,
    /// Increment and offset.
    pub auto_increment: Option<(u16, u16)>,
    pub charset: Option<QueryCharset>,
    pub time_zone: Option<String>,
    pub lc_time_names: Option<u16>,
    pub charset_database: Option<u16>,
    /// User and host on whose behalf the statement ran.
    pub invoker: Option<(String, String)>,
    pub microseconds: Option<u32>,
    pub explicit_defaults_for_timestamp: Option<bool>,
    /// Transaction id of an atomic DDL statement.
    pub ddl_xid: Option<u64>,
    pub default_collation_for_utf8mb4: Option<u16>,
    pub sql_require_primary_key: Option<bool>,
    pub default_table_encryption: Option<bool>,
}

/// A count of updated databases that stands for "too many to name".
const TOO_MANY_DATABASES: u8 = 254;

impl SessionContext {
    /// Reads the status variables of a query event.
    ///
    /// # Errors
    /// [`EventError::UnknownStatusVariable`], or malformed bytes: variables have no length field,
    /// so nothing after an unknown one can be read.
    pub fn parse(bytes: &[u8]) -> Result<Self, EventError> {
        let (context, outcome) = Self::read_all(bytes);
        outcome.map(|()| context)
    }

    fn read_all(bytes: &[u8]) -> (Self, Result<(), EventError>) {
        let mut context = Self::default();
        let mut reader = Reader::new(bytes);
        let mut read = || {
            while !reader.is_empty() {
                let code = reader.u8("status variable").map_err(malformed)?;
                if !context.read(code, &mut reader).map_err(malformed)? {
                    return Err(EventError::UnknownStatusVariable(code));
                }
            }
            Ok(())
        };
        let outcome = read();
        (context, outcome)
    }

    /// Returns the settings that matter for rows logged as images. All that a server computes from such
    /// rows (checks, generated columns, partitions, defaults of its own columns) depends on nothing
    /// else. `foreign_key_checks` and `unique_checks` are in the rows events, the time in their
    /// headers.
    #[must_use]
    pub fn for_rows(self) -> Self {
        Self {
            sql_mode: self.sql_mode,
            charset: self.charset,
            time_zone: self.time_zone,
            lc_time_names: self.lc_time_names,
            default_collation_for_utf8mb4: self.default_collation_for_utf8mb4,
            ..Self::default()
        }
    }

    /// Reads one variable; `false` for an unknown code.
    fn read(&mut self, code: u8, reader: &mut Reader<'_>) -> Result<bool, Malformed> {
        // Only 5.0.0 to 5.0.3 write 2 (a catalog with a zero at its end, 6 since then); no server
        // writes 14 and 15.
        match code {
            0 => self.flags2 = Some(reader.u32("flags2")?),
            1 => self.sql_mode = Some(reader.u64("sql_mode")?),
            2 => {
                reader.short_string("catalog")?;
                reader.u8("end of catalog")?;
            }
            3 => {
                let increment = reader.u16("auto_increment_increment")?;
                self.auto_increment = Some((increment, reader.u16("auto_increment_offset")?));
            }
            4 => {
                self.charset = Some(QueryCharset {
                    client: reader.u16("character_set_client")?,
                    connection: reader.u16("collation_connection")?,
                    server: reader.u16("collation_server")?,
                });
            }
            5 => self.time_zone = Some(text(reader.short_string("time_zone")?)),
            6 => drop(reader.short_string("catalog")?),
            7 => self.lc_time_names = Some(reader.u16("lc_time_names")?),
            8 => self.charset_database = Some(reader.u16("collation_database")?),
            9 => drop(reader.u64("table map for update")?),
            10 => drop(reader.u32("data written")?),
            11 => {
                let user = text(reader.short_string("invoker")?);
                self.invoker = Some((user, text(reader.short_string("invoker host")?)));
            }
            12 => updated_databases(reader)?,
            13 => self.microseconds = Some(reader.uint(3, "microseconds")? as u32),
            16 => self.explicit_defaults_for_timestamp = Some(flag(reader)?),
            17 => self.ddl_xid = Some(reader.u64("DDL transaction id")?),
            18 => self.default_collation_for_utf8mb4 = Some(reader.u16("default collation")?),
            19 => self.sql_require_primary_key = Some(flag(reader)?),
            20 => self.default_table_encryption = Some(flag(reader)?),
            // 9.7 writes it with statements that change rows, where it is on.
            21 => drop(flag(reader)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn updated_databases(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    let count = reader.u8("updated databases")?;
    if count < TOO_MANY_DATABASES {
        for _ in 0..count {
            reader.until_zero("updated database")?;
        }
    }
    Ok(())
}

fn flag(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    Ok(reader.u8("flag")? != 0)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn malformed(source: Malformed) -> EventError {
    EventError::Malformed { event: "Query", source }
}
