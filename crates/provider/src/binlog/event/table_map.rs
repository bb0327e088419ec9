use super::value::{ValueColumn, ValueType};
use super::{ColumnType, EventError};
use crate::binlog::bytes_reader::{Malformed, Reader};

/// The table of the rows events after it. Borrowed from the event's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableMap<'a> {
    /// The source's number for the table; six bytes.
    pub table_id: u64,
    flags: u16,
    pub schema: &'a [u8],
    pub table: &'a [u8],
    types: &'a [u8],
    metadata: &'a [u8],
    optional: &'a [u8],
}

/// A column as the source's row images hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub column_type: ColumnType,
    /// Number of the source's collation, if it was logged; 63 is binary.
    pub collation: Option<u16>,
}

/// The type code of YEAR.
const YEAR: u8 = 13;

impl<'a> TableMap<'a> {
    /// Bytes of the table id, which opens the body of table maps and rows events.
    pub const ID_LEN: usize = 6;
    // The server's `TM_GENERATED_INVISIBLE_PK_F`.
    const GENERATED_PRIMARY_KEY: u16 = 4;

    /// Reads the body of a table map event.
    ///
    /// # Errors
    /// Malformed bytes.
    pub fn parse(body: &'a [u8]) -> Result<Self, EventError> {
        Self::read(body).map_err(malformed)
    }

    /// Returns `body` with the schema name replaced by one of at most 255 bytes.
    ///
    /// # Errors
    /// Malformed bytes.
    pub fn with_schema(body: &[u8], schema: &[u8]) -> Result<Vec<u8>, EventError> {
        let mut reader = Reader::new(body);
        let mut read = || -> Result<&[u8], Malformed> {
            reader.take(Self::ID_LEN, "table id")?;
            reader.u16("flags")?;
            reader.short_string("schema")?;
            Ok(reader.rest())
        };
        // It begins with the zero that ends the name.
        let rest = read().map_err(malformed)?;
        let len = u8::try_from(schema.len())
            .map_err(|_| malformed(Malformed { what: "schema", offset: Self::ID_LEN + 2 }))?;
        let head = body.get(..Self::ID_LEN + 2).unwrap_or_default();
        Ok([head, &[len], schema, rest].concat())
    }

    fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let table_id = reader.uint(Self::ID_LEN, "table id")?;
        let flags = reader.u16("flags")?;
        let schema = reader.short_string("schema")?;
        reader.u8("end of schema")?;
        let table = reader.short_string("table")?;
        reader.u8("end of table")?;
        let count = reader.length_encoded("column count")? as usize;
        let types = reader.take(count, "column types")?;
        let len = reader.length_encoded("metadata length")? as usize;
        let metadata = reader.take(len, "column metadata")?;
        reader.take(count.div_ceil(8), "nullable columns")?;
        Ok(Self { table_id, flags, schema, table, types, metadata, optional: reader.rest() })
    }

    /// Returns true if the first column is an invisible primary key that the source generated
    /// (<https://dev.mysql.com/doc/refman/en/create-table-gipks.html>).
    #[must_use]
    pub const fn has_generated_primary_key(&self) -> bool {
        self.flags & Self::GENERATED_PRIMARY_KEY != 0
    }

    /// Returns the columns in their order.
    ///
    /// # Errors
    /// Malformed bytes, or a column type this version does not know.
    pub fn columns(&self) -> Result<Vec<Column>, EventError> {
        self.read_columns().map_err(malformed)
    }

    fn read_columns(&self) -> Result<Vec<Column>, Malformed> {
        let mut metadata = Reader::new(self.metadata);
        let mut columns = Vec::with_capacity(self.types.len());
        for &code in self.types {
            let column_type = ColumnType::read(code, &mut metadata)?;
            columns.push(Column { column_type, collation: None });
        }
        self.read_collations(&mut columns)?;
        Ok(columns)
    }

    /// Returns the columns in their order, with everything needed to read their values.
    ///
    /// `years_have_signs`: see [`super::FormatDescription::years_have_signs`]. Without it a sign counts only if
    /// it is the same with and without signs of YEAR columns.
    ///
    /// # Errors
    /// Malformed bytes, or a column type this version does not know.
    pub fn value_columns(&self, years_have_signs: bool) -> Result<Vec<ValueColumn>, EventError> {
        self.read_value_columns(years_have_signs).map_err(malformed)
    }

    fn read_value_columns(&self, years_have_signs: bool) -> Result<Vec<ValueColumn>, Malformed> {
        let columns = self.read_columns()?;
        let signs = self.read_signs()?;
        let mut names = self.read_names()?.into_iter();
        let mut metadata = Reader::new(self.metadata);
        let (mut number, mut without_years) = (0, 0);
        let mut read = |(&code, column): (&u8, &Column)| {
            let start = metadata.offset();
            ColumnType::read(code, &mut metadata)?;
            let own = self.metadata.get(start..metadata.offset()).unwrap_or_default();
            let mut unsigned = None;
            if ValueType::has_sign(code) {
                unsigned = signs.map(|signs| bit(signs, number));
                number += 1;
                if code != YEAR {
                    let other = signs.map(|signs| bit(signs, without_years));
                    without_years += 1;
                    unsigned = unsigned.filter(|_| years_have_signs || unsigned == other);
                }
            }
            let value_type = ValueType::read(code, own, unsigned)?;
            Ok(ValueColumn { value_type, collation: column.collation, name: names.next() })
        };
        self.types.iter().zip(&columns).map(&mut read).collect()
    }

    /// Returns one bit for each numeric column, the highest of a byte first; `None` if the source
    /// does not log them.
    fn read_signs(&self) -> Result<Option<&'a [u8]>, Malformed> {
        const SIGNEDNESS: u8 = 1;
        self.optional_field(SIGNEDNESS)
    }

    /// Names of all columns; empty if the source does not log them.
    fn read_names(&self) -> Result<Vec<String>, Malformed> {
        const COLUMN_NAME: u8 = 4;
        let Some(field) = self.optional_field(COLUMN_NAME)? else { return Ok(Vec::new()) };
        let mut field = Reader::new(field);
        let mut names = Vec::with_capacity(self.types.len());
        while !field.is_empty() {
            let len = field.length_encoded("column name")? as usize;
            let name = field.take(len, "column name")?;
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        Ok(names)
    }

    fn optional_field(&self, wanted: u8) -> Result<Option<&'a [u8]>, Malformed> {
        let mut fields = Reader::new(self.optional);
        while !fields.is_empty() {
            let kind = fields.u8("optional metadata")?;
            let len = fields.length_encoded("optional metadata")? as usize;
            let field = fields.take(len, "optional metadata")?;
            if kind == wanted {
                return Ok(Some(field));
            }
        }
        Ok(None)
    }

    /// Reads collations from the optional metadata, which has one for each character column, or a
    /// default with exceptions.
    fn read_collations(&self, columns: &mut [Column]) -> Result<(), Malformed> {
        const DEFAULT_CHARSET: u8 = 2;
        const COLUMN_CHARSET: u8 = 3;
        const WHAT: &str = "column charsets";
        let mut characters: Vec<&mut Column> =
            columns.iter_mut().filter(|column| column.column_type.is_character()).collect();
        let mut fields = Reader::new(self.optional);
        while !fields.is_empty() {
            let kind = fields.u8("optional metadata")?;
            let len = fields.length_encoded("optional metadata")? as usize;
            let mut field = Reader::new(fields.take(len, "optional metadata")?);
            match kind {
                DEFAULT_CHARSET => {
                    let default = u16::try_from(field.length_encoded(WHAT)?).ok();
                    characters.iter_mut().for_each(|column| column.collation = default);
                    while !field.is_empty() {
                        let index = field.length_encoded(WHAT)? as usize;
                        let collation = u16::try_from(field.length_encoded(WHAT)?).ok();
                        let column =
                            characters.get_mut(index).ok_or_else(|| field.malformed(WHAT))?;
                        column.collation = collation;
                    }
                }
                COLUMN_CHARSET => {
                    for column in &mut characters {
                        column.collation = u16::try_from(field.length_encoded(WHAT)?).ok();
                    }
                    // Too many: some type of column has a charset that
                    // `is_character` does not know of.
                    if !field.is_empty() {
                        return Err(field.malformed(WHAT));
                    }
                }
                // Collations of ENUM and SET have fields of their own (10 and 11); images hold
                // their numbers, which depend on no collation.
                _ => {}
            }
        }
        Ok(())
    }
}

fn bit(bits: &[u8], number: usize) -> bool {
    bits.get(number / 8).is_some_and(|byte| byte << (number % 8) & 0x80 != 0)
}

fn malformed(source: Malformed) -> EventError {
    EventError::Malformed { event: "Table_map", source }
}
