//! The target's definition of a table, as far as statements for its rows depend on it.

use csa_provider::server::Vendor;

/// The engine of tables that keep no rows.
pub(crate) const BLACKHOLE: &str = "BLACKHOLE";

/// Columns, keys, triggers and other properties that decide how rows are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TargetTable {
    pub(crate) vendor: Vendor,
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) columns: Vec<TargetColumn>,
    /// The primary key first; only keys that are made of columns.
    pub(crate) unique: Vec<UniqueIndex>,
    /// Name and operation of each: `INSERT`, `UPDATE` or `DELETE`.
    pub(crate) triggers: Vec<(String, String)>,
    pub(crate) refers_to_itself: bool,
    /// Tables through which the server, and not InnoDB, cascades a DELETE, as far as it may miss rows there.
    pub(crate) missed_cascade: Option<String>,
    /// The engine, if what it writes can't be rolled back.
    pub(crate) not_transactional: Option<String>,
    /// It keeps no row: there is none to change or delete.
    pub(crate) discards_rows: bool,
    /// An index is made of expressions.
    pub(crate) functional_index: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UniqueIndex {
    pub(crate) name: String,
    /// Places of its columns in the table.
    pub(crate) columns: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TargetColumn {
    pub(crate) name: String,
    pub(crate) target_type: TargetType,
    pub(crate) generated: Generated,
    /// A row that leaves the column out is accepted.
    pub(crate) has_default: bool,
    /// An UPDATE that does not name the column sets it.
    pub(crate) on_update: bool,
    /// An INSERT that does not name the column sets it to the current time.
    pub(crate) is_now: bool,
    /// It is the first column of an index.
    pub(crate) indexed: bool,
    /// The server generated it as an invisible primary key (`my_row_id`).
    pub(crate) hidden_key: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Generated {
    #[default]
    No,
    Stored,
    Virtual,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TargetType {
    Integer { bytes: u8, unsigned: bool },
    Year,
    Float(Option<FixedPoint>),
    Double(Option<FixedPoint>),
    Decimal { precision: u8, scale: u8 },
    Date,
    Time { fraction: u8 },
    DateTime { fraction: u8 },
    Timestamp { fraction: u8 },
    Enum,
    Set,
    Bit { bits: u16 },
    Text { charset: String, max_chars: u64, max_bytes: u64, fixed: bool },
    Binary { max_bytes: u64, fixed: bool },
    Json,
    Geometry,
    Vector,
    Other(String),
}

/// The digits of a FLOAT(M,D) or DOUBLE(M,D): all of them, and those after the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FixedPoint {
    pub(crate) precision: u8,
    pub(crate) scale: u8,
}

/// A column as `information_schema.COLUMNS` describes it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ColumnRow {
    pub(crate) name: String,
    pub(crate) data_type: String,
    pub(crate) column_type: String,
    pub(crate) charset: Option<String>,
    pub(crate) max_chars: Option<u64>,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) precision: Option<u64>,
    pub(crate) scale: Option<u64>,
    pub(crate) fraction: Option<u64>,
    pub(crate) extra: String,
    pub(crate) nullable: bool,
    pub(crate) has_default: bool,
    /// The default is `CURRENT_TIMESTAMP`, with any fraction.
    pub(crate) is_now: bool,
    pub(crate) key: String,
}

impl From<ColumnRow> for TargetColumn {
    fn from(row: ColumnRow) -> Self {
        let extra = row.extra.to_lowercase();
        let generated = match () {
            () if extra.contains("virtual generated") => Generated::Virtual,
            () if extra.contains("stored generated") => Generated::Stored,
            () => Generated::No,
        };
        let counts = extra.contains("auto_increment");
        let target_type = TargetType::of(&row);
        // A string may have the same words as its default.
        let is_time =
            matches!(target_type, TargetType::Timestamp { .. } | TargetType::DateTime { .. });
        Self {
            is_now: row.is_now && is_time,
            target_type,
            generated,
            has_default: row.has_default
                || row.nullable
                || counts
                || generated != Generated::No
                || extra.contains("default_generated"),
            on_update: extra.contains("on update"),
            indexed: !row.key.is_empty(),
            hidden_key: row.name == "my_row_id" && counts && extra.contains("invisible"),
            name: row.name,
        }
    }
}

impl TargetType {
    fn of(row: &ColumnRow) -> Self {
        let small = |value: Option<u64>| u8::try_from(value.unwrap_or_default()).unwrap_or(u8::MAX);
        let fraction = small(row.fraction);
        let unsigned = row.column_type.to_lowercase().contains("unsigned");
        let integer = |bytes| Self::Integer { bytes, unsigned };
        // A FLOAT or DOUBLE without digits has no scale.
        let fixed_point = row
            .scale
            .map(|_| FixedPoint { precision: small(row.precision), scale: small(row.scale) });
        match row.data_type.to_lowercase().as_str() {
            "tinyint" => integer(1),
            "smallint" => integer(2),
            "mediumint" => integer(3),
            "int" => integer(4),
            "bigint" => integer(8),
            "year" => Self::Year,
            "float" => Self::Float(fixed_point),
            "double" => Self::Double(fixed_point),
            "decimal" => Self::Decimal { precision: small(row.precision), scale: small(row.scale) },
            "date" => Self::Date,
            "time" => Self::Time { fraction },
            "datetime" => Self::DateTime { fraction },
            "timestamp" => Self::Timestamp { fraction },
            "enum" => Self::Enum,
            "set" => Self::Set,
            "bit" => Self::Bit { bits: u16::from(small(row.precision)) },
            "json" => Self::Json,
            "vector" => Self::Vector,
            "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring"
            | "multipolygon" | "geomcollection" | "geometrycollection" => Self::Geometry,
            data_type @ ("char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext") => {
                Self::Text {
                    charset: row.charset.clone().unwrap_or_default(),
                    max_chars: row.max_chars.unwrap_or_default(),
                    max_bytes: row.max_bytes.unwrap_or_default(),
                    fixed: data_type == "char",
                }
            }
            data_type @ ("binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob"
            | "longblob") => Self::Binary {
                max_bytes: row.max_bytes.unwrap_or_default(),
                fixed: data_type == "binary",
            },
            other => Self::Other(other.to_owned()),
        }
    }
}

impl TargetTable {
    /// Returns the name for messages.
    pub(crate) fn label(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    /// Returns the trigger that a row of this operation would fire.
    pub(crate) fn trigger_on(&self, operation: &str) -> Option<&str> {
        let fires = |(_, on): &&(String, String)| on.eq_ignore_ascii_case(operation);
        self.triggers.iter().find(fires).map(|(name, _)| name.as_str())
    }
}
