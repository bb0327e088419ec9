//! What a replica has to change in a statement's text before it runs it. Pure.
//!
//! Two kinds of statement depend on where, or by whom, they are run. MySQL's own applier knows it is
//! one; a session like ours has to say so:
//! - an event exists on a replica but is not carried out there
//!   (<https://dev.mysql.com/doc/refman/en/replication-features-invoked.html>), and whoever alters it
//!   becomes its definer;
//! - `CURRENT_USER` in an account statement is the account that ran it on the source.

use csa_provider::SessionContext;

mod collation;
mod lexer;

pub(crate) use collation::implied_collation;
use lexer::{Lexer, Token, TokenKind};

/// Leaves an event in place without carrying it out; servers older than 8.2 know it as an event that
/// is disabled.
const DISABLED: &[u8] = b" DISABLE /*!80200 ON REPLICA */ ";

/// The text to run instead of `text`; `None` where that is the text itself.
///
/// # Errors
/// What is missing to know the account that is meant.
pub(crate) fn on_replica(
    text: &[u8],
    context: &SessionContext,
) -> Result<Option<Vec<u8>>, &'static str> {
    let tokens: Vec<Token<'_>> = Lexer::new(text, context).collect();
    let mut edits = Vec::new();
    if let Some(event) = Event::find(&tokens) {
        edits.push((event.status, DISABLED.to_vec()));
        if let Some(place) = event.definer {
            // A source that does not tell leaves the definer to us.
            if let Some(account) = account(context)? {
                edits.push((place..place, [b" DEFINER=", account.as_slice()].concat()));
            }
        }
        let head = tokens.get(..event.head).unwrap_or_default();
        edits.extend(current_users(head, context)?);
    } else if is_about_accounts(&tokens) {
        edits.extend(current_users(&tokens, context)?);
    }
    if edits.is_empty() {
        return Ok(None);
    }
    edits.sort_by_key(|(place, _)| place.start);
    let mut out = Vec::with_capacity(text.len() + 64);
    let mut at = 0;
    for (place, new) in edits {
        out.extend_from_slice(text.get(at..place.start).unwrap_or_default());
        out.extend_from_slice(&new);
        at = place.end;
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
    Ok(Some(out))
}

type Range = std::ops::Range<usize>;

/// A CREATE EVENT or ALTER EVENT statement.
#[derive(Debug)]
struct Event {
    /// Where its status stands or belongs.
    status: Range,
    /// Where a definer belongs, if an ALTER has none.
    definer: Option<usize>,
    /// Tokens up to its name.
    head: usize,
}

impl Event {
    fn find(tokens: &[Token<'_>]) -> Option<Self> {
        let verb = tokens.first()?;
        let alters = verb.is("ALTER");
        if !alters && !verb.is("CREATE") {
            return None;
        }
        let has_definer = tokens.get(1)?.is("DEFINER");
        let mut at = if has_definer { after_account(tokens, 3) } else { 1 };
        if !tokens.get(at)?.is("EVENT") {
            return None;
        }
        let head = at;
        at += 1;
        // IF NOT EXISTS; ALTER knows no IF.
        if tokens.get(at)?.is("IF") && tokens.get(at + 1).is_some_and(|token| token.is("NOT")) {
            at += 3;
        }
        at = after_name(tokens, at);
        let end = tokens.last().map_or(0, |token| token.range.end);
        let mut status = end..end;
        let mut depth = 0_usize;
        while let Some(token) = tokens.get(at) {
            match token.kind {
                TokenKind::Symbol(b'(') => depth += 1,
                TokenKind::Symbol(b')') => depth = depth.saturating_sub(1),
                _ if depth > 0 => {}
                _ if token.is("RENAME") => {
                    at = after_name(tokens, at + 2);
                    continue;
                }
                _ if token.is("ENABLE") => {
                    status = token.range.clone();
                    break;
                }
                _ if token.is("DISABLE") => {
                    let more = tokens.get(at + 1).is_some_and(|token| token.is("ON"));
                    let last = if more { tokens.get(at + 2) } else { None };
                    status = token.range.start..last.unwrap_or(token).range.end;
                    break;
                }
                _ if token.is("COMMENT") || token.is("DO") || token.is_symbol(b';') => {
                    status = token.range.start..token.range.start;
                    break;
                }
                _ => {}
            }
            at += 1;
        }
        let definer = (alters && !has_definer).then_some(verb.range.end);
        Some(Self { status, definer, head })
    }
}

/// Passes over `name` or `schema.name`.
fn after_name(tokens: &[Token<'_>], at: usize) -> usize {
    match tokens.get(at + 1) {
        Some(token) if token.is_symbol(b'.') => at + 3,
        _ => at + 1,
    }
}

/// Passes over an account: `user`, `user@host`, or `CURRENT_USER()`. A host without quotes consists
/// of several tokens with nothing between them.
fn after_account(tokens: &[Token<'_>], at: usize) -> usize {
    let mut next = at + 1;
    if tokens.get(at).is_some_and(|token| token.is("CURRENT_USER")) {
        return after_parentheses(tokens, next);
    }
    if tokens.get(next).is_some_and(|token| token.is_symbol(b'@')) {
        next += 2;
        let is_quoted =
            |at| tokens.get(at).is_some_and(|token: &Token<'_>| token.kind == TokenKind::Quoted);
        while !is_quoted(next - 1)
            && let (Some(before), Some(token)) = (tokens.get(next - 1), tokens.get(next))
            && before.range.end == token.range.start
        {
            next += 1;
        }
    }
    next
}

fn after_parentheses(tokens: &[Token<'_>], at: usize) -> usize {
    let has = |at: usize, symbol| tokens.get(at).is_some_and(|token| token.is_symbol(symbol));
    if has(at, b'(') && has(at + 1, b')') { at + 2 } else { at }
}

/// GRANT, REVOKE, and what creates, changes or drops accounts and roles.
fn is_about_accounts(tokens: &[Token<'_>]) -> bool {
    let is = |at: usize, words: &[&str]| {
        tokens.get(at).is_some_and(|token| words.iter().any(|word| token.is(word)))
    };
    is(0, &["GRANT", "REVOKE"])
        || is(0, &["CREATE", "ALTER", "DROP", "RENAME"]) && is(1, &["USER", "ROLE"])
        || is(0, &["SET"]) && is(1, &["DEFAULT", "PASSWORD"])
}

/// The account in place of each CURRENT_USER.
fn current_users(
    tokens: &[Token<'_>],
    context: &SessionContext,
) -> Result<Vec<(Range, Vec<u8>)>, &'static str> {
    let mut edits = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        // Not a name behind a dot or an @.
        let is_part = at.checked_sub(1).and_then(|at| tokens.get(at)).is_some_and(|before| {
            before.range.end == token.range.start
                && (before.is_symbol(b'.') || before.is_symbol(b'@'))
        });
        if !token.is("CURRENT_USER") || is_part {
            continue;
        }
        let Some(account) = account(context)? else {
            return Err("CURRENT_USER in it, and the source does not say which account that was");
        };
        let last = after_parentheses(tokens, at + 1) - 1;
        let end = tokens.get(last).unwrap_or(token).range.end;
        edits.push((token.range.start..end, account));
    }
    Ok(edits)
}

/// The account that ran the statement on the source, as an SQL account name.
fn account(context: &SessionContext) -> Result<Option<Vec<u8>>, &'static str> {
    let Some((user, host)) = &context.invoker else { return Ok(None) };
    if !user.is_ascii() && !lexer::is_utf8(context) {
        return Err("the account that ran it can't be named in the statement's character set");
    }
    let quote = |name: &str| format!("`{}`", name.replace('`', "``"));
    Ok(Some(format!("{}@{}", quote(user), quote(host)).into_bytes()))
}

#[cfg(test)]
mod tests;
