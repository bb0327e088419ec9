//! The name of a table.

use std::fmt;
use std::str::FromStr;

use csa_provider::server::visible::{shell_argument, toml_string};
use csa_provider::sql_text::{identifier, quoted_name};

/// A schema and a table in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    pub schema: String,
    pub table: String,
}

impl From<(String, String)> for TableName {
    fn from((schema, table): (String, String)) -> Self {
        Self { schema, table }
    }
}

impl From<TableName> for (String, String) {
    fn from(TableName { schema, table }: TableName) -> Self {
        (schema, table)
    }
}

impl TableName {
    /// Returns the name as an argument in a command for a shell.
    pub(crate) fn argument(&self) -> String {
        shell_argument(&self.to_string()).into_owned()
    }

    /// Returns the name as `replicate_ignore_table` and the like take it: a string in TOML without backticks.
    pub(crate) fn rule(&self) -> String {
        toml_string(&format!("{}.{}", self.schema, self.table))
    }
}

impl fmt::Display for TableName {
    /// Writes `schema.table`, with backticks around a part that would be read as something else.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |part: &str, is_unclear: bool| match is_unclear || part.starts_with('`') {
            true => identifier(part),
            false => part.to_owned(),
        };
        let schema = shown(&self.schema, self.schema.contains('.'));
        write!(formatter, "{schema}.{}", shown(&self.table, false))
    }
}

impl FromStr for TableName {
    type Err = String;

    /// Reads `schema.table`; the first dot outside of backticks parts them.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not SCHEMA.TABLE");
        let (schema, rest) = match quoted_name(text) {
            Some((schema, rest)) => (schema, rest.strip_prefix('.').ok_or_else(wrong)?),
            None => {
                let (schema, rest) = text.split_once('.').ok_or_else(wrong)?;
                (schema.to_owned(), rest)
            }
        };
        let table = match quoted_name(rest) {
            Some((table, "")) => table,
            Some(_) => return Err(wrong()),
            None => rest.to_owned(),
        };
        match schema.is_empty() || table.is_empty() {
            true => Err(wrong()),
            false => Ok(Self { schema, table }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_shown() {
        for (schema, table, shown) in [
            ("d", "t", "d.t"),
            ("my.shop", "t", "`my.shop`.t"),
            ("d", "a.b", "d.a.b"),
            ("a`b", "we`ird", "a`b.we`ird"),
            ("d", "`t", "d.```t`"),
            ("d", "order lines", "d.order lines"),
        ] {
            let name = TableName { schema: schema.to_owned(), table: table.to_owned() };
            assert_eq!(name.to_string(), shown);
            assert_eq!(shown.parse::<TableName>(), Ok(name));
        }
        let name: TableName = "my.shop.t".parse().unwrap();
        assert_eq!((&*name.schema, &*name.table), ("my", "shop.t"));
        for text in ["t", ".t", "d.", "`d`", "`d`t", "``.t", "d.`t`x"] {
            assert!(text.parse::<TableName>().is_err(), "{text}");
        }
        assert_eq!("d.x;id".parse::<TableName>().unwrap().argument(), "'d.x;id'");
    }
}
