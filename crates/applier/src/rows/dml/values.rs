//! Values to be stored in columns of the target. Pure.

use csa_provider::binlog::{ColumnValue, Field, JsonValue, ValueType};

use super::conversion::{Strings, describe_target};
use super::fixed_point::number_to_write;
use super::json::{push_document, push_text_document};
use super::literal::{push_double, push_plain, push_string, push_timestamp};
use super::plan::PlannedColumn;
use super::refusal::{Refusal, codes, unreadable};
use super::statements::RowStatements;
use crate::server::definitions::table::{FixedPoint, TargetType};

impl RowStatements<'_> {
    /// Appends a value to be stored; `true` for one that a strict session refuses.
    pub(super) fn push_assigned(
        &self,
        column: &PlannedColumn<'_>,
        field: &Field<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Refusal> {
        let bytes = match field {
            Field::Bytes(bytes) => bytes,
            Field::Null => {
                out.extend_from_slice(b"NULL");
                return Ok(false);
            }
            Field::Absent | Field::JsonDiff(_) => {
                return Err(unreadable("a change of a document where a document should be"));
            }
        };
        // A source that is not strict stores it where a row leaves the column out. There is no literal for it.
        let is_vector = column.target.target_type == TargetType::Vector;
        if is_vector && bytes.is_empty() && !column.target.has_default {
            out.extend_from_slice(b"DEFAULT");
            return Ok(true);
        }
        match column.target.target_type {
            TargetType::Float(Some(fixed)) | TargetType::Double(Some(fixed)) => {
                self.push_fixed_point(column, fixed, bytes, out)?;
            }
            _ => self.push_value(column, bytes, out)?,
        }
        // ENUM value 0 is no member.
        let is_enum = matches!(column.value_type, ValueType::Enum { .. });
        Ok(is_enum && bytes.iter().all(|&byte| byte == 0))
    }

    pub(super) fn push_value(
        &self,
        column: &PlannedColumn<'_>,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let value = self.read(column, bytes)?;
        let pushed = match (&value, column.value_type) {
            (ColumnValue::Json(bytes), _) => {
                let document = JsonValue::parse(bytes).map_err(unreadable)?;
                match column.target.target_type {
                    TargetType::Json => push_document(&document, false, out),
                    _ => push_text_document(&document, out),
                }
            }
            // The image leaves out trailing zeros, which are part of the value.
            (ColumnValue::Bytes(bytes), ValueType::Char { max_bytes })
                if column.strings == Strings::Binary =>
            {
                let mut padded = bytes.to_vec();
                padded.resize(padded.len().max(usize::from(max_bytes)), 0);
                push_string(&Strings::Binary, &padded, out);
                Ok(())
            }
            (ColumnValue::Bytes(bytes), ValueType::Geometry | ValueType::Vector) => {
                push_string(&Strings::Binary, bytes, out);
                Ok(())
            }
            (ColumnValue::Bytes(bytes), _) => {
                push_string(&column.strings, bytes, out);
                Ok(())
            }
            (ColumnValue::Timestamp(time), _) => {
                push_timestamp(&time.to_string(), self.plan.zone.as_deref(), out);
                Ok(())
            }
            _ => push_plain(&value, out),
        };
        pushed.map_err(|what| self.refusal(column, codes::CONVERSION, what))
    }

    fn push_fixed_point(
        &self,
        column: &PlannedColumn<'_>,
        fixed: FixedPoint,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let Some(number) = number_to_write(fixed, &self.read(column, bytes)?) else {
            let target = describe_target(&column.target.target_type);
            let what = format!("a value of the source does not fit into {target} without loss");
            return Err(self.refusal(column, codes::CONVERSION, what));
        };
        push_double(number, out).map_err(|what| self.refusal(column, codes::CONVERSION, what))
    }

    pub(super) fn read<'a>(
        &self,
        column: &PlannedColumn<'_>,
        bytes: &'a [u8],
    ) -> Result<ColumnValue<'a>, Refusal> {
        ColumnValue::read(column.value_type, column.unsigned, bytes)
            .map_err(|error| self.refusal(column, codes::CONVERSION, error.to_string()))
    }

    /// Returns the value that a session which is not strict stores for a column without a default.
    pub(super) fn implicit_default(
        &self,
        column: &PlannedColumn<'_>,
    ) -> Result<&'static [u8], Refusal> {
        Ok(match column.target.target_type {
            TargetType::Enum => b"1",
            TargetType::Text { .. } | TargetType::Binary { .. } => b"''",
            TargetType::Date | TargetType::DateTime { .. } | TargetType::Timestamp { .. } => {
                b"'0000-00-00'"
            }
            TargetType::Vector => b"DEFAULT",
            TargetType::Json | TargetType::Geometry | TargetType::Other(_) => {
                let what = "the source left it out, and it has no default on the target".to_owned();
                return Err(self.refusal(column, codes::NO_DEFAULT, what));
            }
            _ => b"0",
        })
    }
}
