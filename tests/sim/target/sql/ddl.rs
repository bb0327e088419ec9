//! Definitions of schemas and tables.

use super::super::state::{Column, Reference, Table, TableName, Value};
use super::Statement;
use super::parser::Parser;

pub(super) fn definition(verb: &str, parser: &mut Parser<'_>) -> Option<Statement> {
    match verb.to_ascii_uppercase().as_str() {
        "CREATE" if parser.has("DATABASE") => {
            parser.words(&["IF", "NOT", "EXISTS"])?;
            let name = parser.name()?;
            parser.skip_all();
            Some(Statement::CreateSchema(name))
        }
        "CREATE" => create_table(parser),
        "DROP" => {
            parser.words(&["TABLE"])?;
            let if_exists = parser.words(&["IF", "EXISTS"]).is_some();
            Some(Statement::DropTable { name: parser.table()?, if_exists })
        }
        _ => {
            parser.words(&["TABLE"])?;
            let table = parser.table()?;
            if parser.words(&["ADD", "COLUMN"]).is_none() {
                let keys = parser.list(added_key)?;
                return Some(Statement::AddKeys(table, keys));
            }
            let (column, _) = column(parser)?;
            Some(Statement::AddColumn(table, column))
        }
    }
}

/// A key that is added to a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AddedKey {
    Unique(Vec<String>),
    Reference { column: String, parent: TableName },
}

fn added_key(parser: &mut Parser<'_>) -> Option<AddedKey> {
    parser.words(&["ADD"])?;
    if parser.words(&["UNIQUE", "KEY"]).is_some() {
        parser.name()?;
        return parser.in_parentheses(Parser::name).map(AddedKey::Unique);
    }
    parser.words(&["CONSTRAINT"])?;
    parser.name()?;
    parser.words(&["FOREIGN", "KEY"])?;
    let column = parser.in_parentheses(Parser::name)?.pop()?;
    parser.words(&["REFERENCES"])?;
    let parent = parser.table()?;
    parser.in_parentheses(Parser::name)?;
    Some(AddedKey::Reference { column, parent })
}

fn create_table(parser: &mut Parser<'_>) -> Option<Statement> {
    parser.words(&["TABLE"])?;
    let if_missing = parser.words(&["IF", "NOT", "EXISTS"]).is_some();
    let name = parser.table()?;
    // A parent without a schema is in the child's.
    parser.database.clone_from(&name.0);
    let mut table = Table::default();
    parser.symbol(b'(')?;
    parser.list(|parser| item(&mut table, parser))?;
    parser.symbol(b')')?;
    // Engine and character set.
    parser.skip_all();
    Some(Statement::CreateTable { name, table, if_missing })
}

fn item(table: &mut Table, parser: &mut Parser<'_>) -> Option<()> {
    if parser.words(&["PRIMARY", "KEY"]).is_some() {
        table.primary = places(table, parser)?;
    } else if parser.words(&["UNIQUE", "KEY"]).is_some() {
        // A name may stand before the columns.
        let columns = match places(table, parser) {
            Some(columns) => columns,
            None => {
                parser.name()?;
                places(table, parser)?
            }
        };
        table.unique.push(columns);
    } else if parser.words(&["CONSTRAINT"]).is_some() {
        parser.name()?;
        return item(table, parser);
    } else if parser.words(&["FOREIGN", "KEY"]).is_some() {
        let &[column] = places(table, parser)?.as_slice() else { return None };
        parser.words(&["REFERENCES"])?;
        let parent = parser.table()?;
        parser.in_parentheses(Parser::name)?;
        table.references.push(Reference { column, parent });
    } else {
        let (column, is_primary) = column(parser)?;
        if is_primary {
            table.primary = vec![table.columns.len()];
        }
        table.columns.push(column);
    }
    Some(())
}

fn places(table: &Table, parser: &mut Parser<'_>) -> Option<Vec<usize>> {
    let names = parser.in_parentheses(Parser::name)?;
    Some(names.iter().map(|name| table.column(name)).collect())
}

/// Returns a column, and whether it is the primary key.
fn column(parser: &mut Parser<'_>) -> Option<(Column, bool)> {
    let name = parser.name()?;
    let kind = parser.word()?.to_ascii_uppercase();
    let mut column = Column { name, default: Value::Null, counts_up: false };
    let mut is_primary = false;
    loop {
        if parser.words(&["NOT", "NULL"]).is_some() {
            column.default = match kind.as_str() {
                "VARCHAR" | "CHAR" | "MEDIUMTEXT" | "LONGTEXT" => Value::Text(String::new()),
                _ => Value::Number(0),
            };
        } else if parser.has("DEFAULT") {
            column.default = match parser.number() {
                Some(number) => Value::Number(number),
                None if parser.has("NULL") => Value::Null,
                None => Value::Text(parser.text()?),
            };
        } else if parser.has("AUTO_INCREMENT") {
            column.counts_up = true;
        } else if parser.words(&["PRIMARY", "KEY"]).is_some() {
            is_primary = true;
        } else if parser.in_parentheses(Parser::number).is_none() && parser.word().is_none() {
            return Some((column, is_primary));
        }
    }
}
