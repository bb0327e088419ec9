use super::EventError;
use crate::bytes_reader::{Malformed, Reader};

/// The table that the rows events behind it are about. Borrowed from the event's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableMap<'a> {
    /// The source's number for the table; six bytes.
    pub table_id: u64,
    pub schema: &'a [u8],
    pub table: &'a [u8],
}

impl<'a> TableMap<'a> {
    /// Reads the names from the body of a table map event.
    ///
    /// # Errors
    /// Malformed bytes.
    pub fn parse(body: &'a [u8]) -> Result<Self, EventError> {
        Self::read(body).map_err(|source| EventError::Malformed { event: "Table_map", source })
    }

    fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let table_id = reader.uint(6, "table id")?;
        reader.u16("flags")?;
        let schema = reader.short_string("schema")?;
        reader.u8("end of schema")?;
        let table = reader.short_string("table")?;
        Ok(Self { table_id, schema, table })
    }
}
