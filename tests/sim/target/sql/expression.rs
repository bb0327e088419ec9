//! Expressions of a query without a table.

use super::parser::Parser;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expression {
    /// A variable in lower case, without its scope.
    Variable(String),
    /// Takes a named lock within so many seconds.
    GetLock(String, u32),
    IsUsedLock(String),
    /// The server's number of the session that asks.
    ConnectionId,
    /// Another number each time.
    UuidShort,
    /// True if the set is part of `gtid_executed`.
    IsExecuted(String),
}

pub(super) fn list(parser: &mut Parser<'_>) -> Option<Vec<Expression>> {
    parser.list(expression)
}

fn expression(parser: &mut Parser<'_>) -> Option<Expression> {
    if parser.symbol(b'@').is_some() {
        return variable(parser).map(Expression::Variable);
    }
    let function = parser.word()?.to_ascii_uppercase();
    parser.symbol(b'(')?;
    let found = match function.as_str() {
        // Both functions that it is used with are NULL where the server says nothing; 0 here.
        "COALESCE" => {
            let inner = expression(parser)?;
            parser.symbol(b',')?;
            parser.words(&["0"])?;
            inner
        }
        "GET_LOCK" => {
            let name = parser.text()?;
            parser.symbol(b',')?;
            Expression::GetLock(name, parser.number()?.try_into().ok()?)
        }
        "UUID_SHORT" => Expression::UuidShort,
        "CONNECTION_ID" => Expression::ConnectionId,
        "IS_USED_LOCK" => Expression::IsUsedLock(parser.text()?),
        "GTID_SUBSET" => {
            let set = parser.text()?;
            parser.symbol(b',')?;
            parser.symbol(b'@')?;
            if variable(parser)? != "gtid_executed" {
                return None;
            }
            Expression::IsExecuted(set)
        }
        _ => return None,
    };
    parser.symbol(b')')?;
    Some(found)
}

/// Returns the part after the first `@` of a system variable.
fn variable(parser: &mut Parser<'_>) -> Option<String> {
    parser.symbol(b'@')?;
    let first = parser.name()?;
    let name = match parser.symbol(b'.') {
        Some(()) => parser.name()?,
        None => first,
    };
    Some(name.to_ascii_lowercase())
}
