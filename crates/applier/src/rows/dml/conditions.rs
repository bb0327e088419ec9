//! Conditions that find one row, by a key or by all of its columns. Pure.

use std::sync::Arc;

use csa_provider::binlog::{Field, JsonValue, ValueType};

use super::conversion::{self, Strings};
use super::fixed_point::is_beyond;
use super::json::push_document;
use super::literal::push_binary;
use super::plan::{PlannedColumn, PlannedKey};
use super::refusal::{Refusal, codes, unreadable};
use super::statements::RowStatements;
use crate::server::definitions::table::{Generated, TargetType};
use csa_provider::server::Vendor;

impl RowStatements<'_> {
    /// Appends the condition that finds the row: its key, or all columns of the image.
    pub(super) fn push_condition(
        &self,
        key: Option<&PlannedKey>,
        before: &[Field<'_>],
        out: &mut Vec<u8>,
    ) -> Result<Arc<str>, Refusal> {
        let start = out.len();
        let Some(key) = key else {
            for (column, field) in self.plan.columns.iter().zip(before) {
                if column.target.generated == Generated::No && *field != Field::Absent {
                    push_and(start, out);
                    self.push_same(column, field, out)?;
                }
            }
            if out.len() == start {
                let label = self.plan.table.label();
                return Err(unreadable(format!(
                    "a row image of {label} has no column to find the row by"
                )));
            }
            return Ok(Arc::clone(&self.by_all));
        };
        for &place in &key.columns {
            push_and(start, out);
            if let Some(column) = self.plan.columns.get(place) {
                out.extend_from_slice(column.quoted.as_bytes());
                out.push(b'=');
            }
            self.push_key_value(place, before, out)?;
        }
        Ok(self.list_of(key).map_or_else(|| Arc::clone(&self.by_all), |(_, what)| Arc::clone(what)))
    }

    pub(super) fn push_key_value(
        &self,
        place: usize,
        image: &[Field<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        match (self.plan.columns.get(place), image.get(place)) {
            (Some(column), Some(Field::Bytes(bytes))) => self.push_compared(column, bytes, out),
            _ => Err(unreadable("a key column is not in the image")),
        }
    }

    /// Appends a condition that only the very same value meets: plain comparison may ignore letter case,
    /// trailing spaces and the sign of zero.
    fn push_same(
        &self,
        column: &PlannedColumn<'_>,
        field: &Field<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let name = column.quoted.as_bytes();
        let bytes = match field {
            Field::Bytes(bytes) => bytes,
            Field::Null => {
                out.extend_from_slice(name);
                out.extend_from_slice(b" IS NULL");
                return Ok(());
            }
            Field::Absent | Field::JsonDiff(_) => {
                return Err(unreadable("a column is not in the image"));
            }
        };
        let mut literal = Vec::new();
        self.push_compared(column, bytes, &mut literal)?;
        let is_text = matches!(column.target.target_type, TargetType::Text { .. });
        let mut push = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
        match column.value_type {
            // 1 and 1.0 are equal. As an equality of its own it would let the optimizer of 5.7 put the
            // literal in the column's place in the comparison of texts.
            ValueType::Json if !is_text => {
                push(&[b"COALESCE(", name, b"=", &literal, b",0) AND CAST(", name]);
                push(&[b" AS CHAR)=CAST(", &literal, b" AS CHAR)"]);
            }
            ValueType::Geometry | ValueType::Vector => {
                push(&[b"CAST(", name, b" AS BINARY)=", &literal]);
            }
            _ if is_text => {
                if column.target.indexed {
                    push(&[name, b"=", &literal, b" AND "]);
                }
                let exact = self.exact_bytes(column, bytes, &literal);
                push(&[b"CAST(", name, b" AS BINARY)=", &exact]);
            }
            // MariaDB shows zero without its sign. Where an equality stands beside it, 5.7 and 8.0 show the
            // sign of the literal.
            ValueType::Float | ValueType::Double
                if is_zero(bytes) && self.plan.table.vendor != Vendor::MariaDb =>
            {
                let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
                let text: &[u8] = if negative { b"'-0'" } else { b"'0'" };
                push(&[name, b" BETWEEN -0e0 AND 0e0 AND CONCAT(", name, b")=", text]);
            }
            // The optimizer takes a number beyond the column's largest for one that no row has.
            _ if self.is_beyond(column, bytes)? => push(&[name, b"+0e0=", &literal]),
            _ => push(&[name, b"=", &literal]),
        }
        Ok(())
    }

    fn is_beyond(&self, column: &PlannedColumn<'_>, bytes: &[u8]) -> Result<bool, Refusal> {
        match column.target.target_type {
            TargetType::Float(Some(fixed)) | TargetType::Double(Some(fixed)) => {
                Ok(is_beyond(fixed, &self.read(column, bytes)?))
            }
            _ => Ok(false),
        }
    }

    /// Returns the bytes that the target's column has for a string.
    fn exact_bytes(&self, column: &PlannedColumn<'_>, bytes: &[u8], literal: &[u8]) -> Vec<u8> {
        match (&column.target.target_type, &column.strings) {
            (TargetType::Text { charset, .. }, Strings::Text(source, _))
                if !conversion::is_same(charset, source)
                    || column.value_type == ValueType::Json =>
            {
                let converted: [&[u8]; 5] =
                    [b"CAST(CONVERT(", literal, b" USING ", charset.as_bytes(), b") AS BINARY)"];
                converted.concat()
            }
            _ => {
                let mut exact = Vec::new();
                push_binary(bytes, &mut exact);
                exact
            }
        }
    }

    /// Appends a value to be compared with the column.
    fn push_compared(
        &self,
        column: &PlannedColumn<'_>,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        match (column.value_type, &column.target.target_type) {
            (ValueType::Json, TargetType::Json) => {
                let value = JsonValue::parse(bytes).map_err(unreadable)?;
                push_document(&value, true, out)
                    .map_err(|what| self.refusal(column, codes::CONVERSION, what))
            }
            // The server compares sets as signed numbers.
            (ValueType::Set { .. }, _) => {
                let members =
                    bytes.iter().rev().fold(0_u64, |all, &byte| all << 8 | u64::from(byte));
                out.extend_from_slice(members.cast_signed().to_string().as_bytes());
                Ok(())
            }
            _ => self.push_value(column, bytes, out),
        }
    }
}

/// Returns true for a floating-point zero of either sign.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.split_last().is_some_and(|(last, rest)| last & 0x7f == 0 && rest.iter().all(|&b| b == 0))
}

fn push_and(start: usize, out: &mut Vec<u8>) {
    if out.len() > start {
        out.extend_from_slice(b" AND ");
    }
}
