//! Changes that a replica has to make to a statement's text before it runs it. Pure.
//!
//! Collations that the target lacks may have others in their place ([`with_collations`]).
//!
//! Two kinds of statement depend on where, or by whom, they are run. MySQL's own applier handles them;
//! for a session like ours the text has to change:
//! - an event exists on a replica but is disabled there
//!   (<https://dev.mysql.com/doc/refman/en/replication-features-invoked.html>), and the account that
//!   alters it becomes its definer;
//! - `CURRENT_USER` in an account statement is the account that ran it on the source.

use csa_provider::binlog::SessionContext;
use csa_provider::sql_text::{Dialect, SpecialComment, Token, TokenKind, identifier};

mod checks;
mod collation;
mod histograms;
mod numbering;
mod references;
mod tokens;

pub(crate) use checks::has_checks;
pub(crate) use collation::{implied_collation, with_collations};
pub(crate) use histograms::is_of_histograms;
pub(crate) use numbering::numbered_table;
pub(crate) use references::has_inline_references;
use tokens::Tokens;

/// Disables an event: DISABLE ON REPLICA since 8.2, plain DISABLE on older servers.
const DISABLED: &[u8] = b" DISABLE /*!80200 ON REPLICA */ ";
/// The same inside a version comment: these do not nest.
const DISABLED_INSIDE: &[u8] = b" DISABLE */ /*!80200 ON REPLICA */ /*!50000 ";

/// Returns the text to run instead of `text`; `None` if nothing has to change.
///
/// # Errors
/// The missing piece: the account that CURRENT_USER stands for, or the end of a quoted text.
pub(crate) fn on_replica(
    text: &[u8],
    context: &SessionContext,
) -> Result<Option<Vec<u8>>, &'static str> {
    let Tokens { tokens, comments, whole } = Tokens::of(text, Dialect::of(context));
    let mut edits = Vec::new();
    let event = Event::find(&tokens);
    let is_about_accounts = event.is_none() && is_about_accounts(&tokens);
    if whole.is_err() && (event.is_some() || is_about_accounts) {
        return Err("a quote or comment in it is not closed");
    }
    if let Some(event) = event {
        let at = event.status.start;
        let is_inside = |comment: &SpecialComment| {
            !comment.mariadb_only && (comment.inside.start..=comment.inside.end).contains(&at)
        };
        let disabled = if comments.iter().any(is_inside) { DISABLED_INSIDE } else { DISABLED };
        edits.push((event.status, disabled.to_vec()));
        if let Some(place) = event.definer {
            // If the source did not log the account, ours becomes the definer.
            if let Some(account) = account(context)? {
                edits.push((place..place, [b" DEFINER=", account.as_slice()].concat()));
            }
        }
        let head = tokens.get(..event.head).unwrap_or_default();
        edits.extend(current_users(head, context)?);
    } else if is_about_accounts {
        edits.extend(current_users(&tokens, context)?);
    }
    Ok(edited(text, edits))
}

/// Returns the text with these places replaced; `None` if there are none.
fn edited(text: &[u8], mut edits: Vec<(Range, Vec<u8>)>) -> Option<Vec<u8>> {
    if edits.is_empty() {
        return None;
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
    Some(out)
}

type Range = std::ops::Range<usize>;

/// A CREATE EVENT or ALTER EVENT statement.
#[derive(Debug)]
struct Event {
    /// Place of its status, or where to put one.
    status: Range,
    /// Place for a definer, if an ALTER has none.
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
        // IF NOT EXISTS; ALTER has no IF.
        if tokens.get(at)?.is("IF") && tokens.get(at + 1).is_some_and(|token| token.is("NOT")) {
            at += 3;
        }
        at = after_name(tokens, at);
        let end = tokens.last().map_or(0, |token| token.range().end);
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
                    status = token.range();
                    break;
                }
                _ if token.is("DISABLE") => {
                    let more = tokens.get(at + 1).is_some_and(|token| token.is("ON"));
                    let last = if more { tokens.get(at + 2) } else { None };
                    status = token.start..last.unwrap_or(token).range().end;
                    break;
                }
                _ if token.is("COMMENT") || token.is("DO") || token.is_symbol(b';') => {
                    status = token.start..token.start;
                    break;
                }
                _ => {}
            }
            at += 1;
        }
        let definer = (alters && !has_definer).then_some(verb.range().end);
        Some(Self { status, definer, head })
    }
}

/// Returns the place after `name` or `schema.name`.
fn after_name(tokens: &[Token<'_>], at: usize) -> usize {
    match tokens.get(at + 1) {
        Some(token) if token.is_symbol(b'.') => at + 3,
        _ => at + 1,
    }
}

/// Returns the place after an account: `user`, `user@host`, or `CURRENT_USER()`. A host follows its
/// `@` directly.
fn after_account(tokens: &[Token<'_>], at: usize) -> usize {
    let next = at + 1;
    if tokens.get(at).is_some_and(|token| token.is("CURRENT_USER")) {
        return after_parentheses(tokens, next);
    }
    match (tokens.get(next), tokens.get(next + 1)) {
        (Some(sign), Some(host)) if sign.is_symbol(b'@') && host.start == sign.range().end => {
            next + 2
        }
        (Some(sign), _) if sign.is_symbol(b'@') => next + 1,
        _ => next,
    }
}

fn after_parentheses(tokens: &[Token<'_>], at: usize) -> usize {
    let has = |at: usize, symbol| tokens.get(at).is_some_and(|token| token.is_symbol(symbol));
    if has(at, b'(') && has(at + 1, b')') { at + 2 } else { at }
}

/// True for GRANT, REVOKE, and statements that create, change or drop accounts and roles.
fn is_about_accounts(tokens: &[Token<'_>]) -> bool {
    let is = |at: usize, words: &[&str]| {
        tokens.get(at).is_some_and(|token| words.iter().any(|word| token.is(word)))
    };
    is(0, &["GRANT", "REVOKE"])
        || is(0, &["CREATE", "ALTER", "DROP", "RENAME"]) && is(1, &["USER", "ROLE"])
        || is(0, &["SET"]) && is(1, &["DEFAULT", "PASSWORD"])
}

/// Edits that replace each CURRENT_USER by the account.
fn current_users(
    tokens: &[Token<'_>],
    context: &SessionContext,
) -> Result<Vec<(Range, Vec<u8>)>, &'static str> {
    let mut edits = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if !token.is("CURRENT_USER") {
            continue;
        }
        let Some(account) = account(context)? else {
            return Err("it has CURRENT_USER, and the source did not log which account that was");
        };
        let last = after_parentheses(tokens, at + 1) - 1;
        let end = tokens.get(last).unwrap_or(token).range().end;
        edits.push((token.start..end, account));
    }
    Ok(edits)
}

/// Returns the account that ran the statement on the source, as an SQL account name.
fn account(context: &SessionContext) -> Result<Option<Vec<u8>>, &'static str> {
    let Some((user, host)) = &context.invoker else { return Ok(None) };
    if !user.is_ascii() && !Dialect::of(context).is_utf8() {
        return Err("the account that ran it can't be named in the statement's character set");
    }
    Ok(Some(format!("{}@{}", identifier(user), identifier(host)).into_bytes()))
}

#[cfg(test)]
mod tests;
