//! ANALYZE TABLE … UPDATE HISTOGRAM and DROP HISTOGRAM. Pure.
//!
//! Histograms are no content. MySQL 5.7 has none, and MariaDB makes its own by other statements.

use csa_provider::binlog::SessionContext;
use csa_provider::sql_text::Dialect;

use super::tokens::Tokens;

/// Returns true if a statement makes or drops histograms.
pub(crate) fn is_of_histograms(text: &[u8], context: &SessionContext) -> bool {
    let read = Tokens::of(text, Dialect::of(context));
    read.tokens.first().is_some_and(|verb| verb.is("ANALYZE"))
        && read.tokens.windows(2).any(|pair| match pair {
            [verb, what] => (verb.is("UPDATE") || verb.is("DROP")) && what.is("HISTOGRAM"),
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_their_clause_makes_or_drops_histograms() {
        for (expected, text) in [
            (true, "ANALYZE TABLE t UPDATE HISTOGRAM ON a, b WITH 4 BUCKETS"),
            (true, "analyze /* c */ table d.t drop histogram on a"),
            (false, "ANALYZE TABLE histogram"),
            (false, "ANALYZE TABLE `drop`, histogram"),
            (false, "ALTER TABLE t DROP histogram"),
        ] {
            let context = SessionContext::default();
            assert_eq!(is_of_histograms(text.as_bytes(), &context), expected, "{text}");
        }
    }
}
