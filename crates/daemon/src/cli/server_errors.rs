//! `docs/server-errors.md`, from the table of the link.

use csa_provider::server::link::{Consequence, Opening, RULES, Rule};

const HEAD: &str = "# Server errors

This page lists the errors of servers that a channel is known to meet, and what it does. `csa-daemon generate` writes it from the
table in the code.

**When a session is opened** (connection, login, settings, the look whether the channel is held there), no error ends a running
channel. The channel is `waiting_for_target`, tries again, and blames no transaction. The column says how:

- `account`, `protection`: someone has to change the account or the link. The daemon tries again after 30 s, give or take a quarter,
  and at once when `password_file` gets another password. A channel that starts is refused instead: it is `failed`, and tried again
  after 30 s to 5 minutes, or when the file changes.
- `full`: there is no room for another session. The channel continues with the sessions that it has, as long as it has one beside
  the one that holds the channel. It asks for one more after 30 s.
- `blocked`: as for an account, but a start waits too.
- `away`: the daemon tries again after `connect_retry`, up to `connect_retry_max`; where nothing listens at the address,
  after 5 s at most. All errors that this page does not list are of this kind.

**In a statement**, of the channel's own or of a transaction:

- `retry`: the transaction is rolled back and tried again at once, `transaction_retries` times; after a lock wait (1205) as often as it
  takes.
- `wait`: the target counts as away; the transaction begins again when it is back.
- `fail, try again`: the channel is `failed`, with the error on its status, and tries again on its own after a minute, then at growing
  intervals of up to 5 minutes. `csa-daemon restart` tries at once. Error 1637 is tried again at once before that,
  `transaction_retries` times.
- `fail`: the channel is `failed` until someone restarts it. Errors that this page does not list are of this kind where a transaction
  met them; where no transaction did, the channel tries again as above.

A source's errors only ever delay reception, except 1236, with which a source ends its stream. With `source.failover` or
`source.discover` the next address then has its turn, and reception ends if all of them end it.

| Number | Name | When a session is opened | In a statement | Why |
| --- | --- | --- | --- | --- |
";

/// Returns the page.
pub(crate) fn page() -> String {
    let mut rows: Vec<(u16, &str, &Rule)> = RULES
        .iter()
        .flat_map(|rule| rule.errors.iter().map(move |(code, name)| (*code, *name, rule)))
        .collect();
    rows.sort_unstable_by_key(|(code, ..)| *code);
    let mut page = HEAD.to_owned();
    for (code, name, Rule { opening, consequence, why, .. }) in rows {
        let (opening, consequence) = (name_of(*opening), what(*consequence));
        page.push_str(&format!("| {code} | {name} | {opening} | {consequence} | {why} |\n"));
    }
    page
}

const fn name_of(opening: Opening) -> &'static str {
    match opening {
        Opening::Account => "account",
        Opening::Protection => "protection",
        Opening::Full => "full",
        Opening::Blocked => "blocked",
        Opening::Away => "away",
    }
}

const fn what(consequence: Consequence) -> &'static str {
    match consequence {
        Consequence::Retry => "retry",
        Consequence::Wait => "wait",
        Consequence::Slowly => "fail, try again",
        Consequence::Stop => "fail",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_the_table() {
        let document = include_str!("../../../../docs/server-errors.md");
        assert!(document == page(), "copy server-errors.md from csa-daemon generate to docs");
    }
}
