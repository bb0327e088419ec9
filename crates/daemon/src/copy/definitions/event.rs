//! Events exist on a replica but do not run there
//! (<https://dev.mysql.com/doc/refman/en/replication-features-invoked.html>). Pure.

use csa_provider::sql_text::{Dialect, Lexer, Token};

/// All versions of MySQL and MariaDB understand this; `ON REPLICA` is new in MySQL 8.2.
const DISABLED: &[u8] = b"DISABLE ON SLAVE";

/// Returns a text from SHOW CREATE EVENT with the event disabled as on a replica; `None` if it is not such a
/// text. An event that is disabled altogether stays so.
pub(super) fn disabled_on_replica(text: &[u8]) -> Option<Vec<u8>> {
    // The head is in UTF-8 with names in quotes of either kind; its strings are in single quotes. The event's
    // own sql_mode and character set apply to its body only.
    let mut tokens = Lexer::new(text, Dialect::of_names()).map_while(Result::ok);
    tokens.find(|token| token.is("COMPLETION"))?;
    tokens.find(|token| token.is("PRESERVE"))?;
    let status = tokens.next()?;
    let mut end = status.range().end;
    let is_on_replica = |token: Token<'_>| token.is("SLAVE") || token.is("REPLICA");
    if status.is("DISABLE") {
        match (tokens.next(), tokens.next()) {
            (Some(on), Some(side)) if on.is("ON") && is_on_replica(side) => end = side.range().end,
            _ => return Some(text.to_vec()),
        }
    } else if !status.is("ENABLE") {
        return None;
    }
    Some([text.get(..status.start)?, DISABLED, text.get(end..)?].concat())
}

/// Returns true if no session reads the whole text as the server keeps it: the head comes in UTF-8, and the body in
/// `client`, the event's character set.
pub(super) fn mixes_character_sets(text: &[u8], client: &str) -> bool {
    if client.starts_with("utf8") || client == "binary" {
        return false;
    }
    let mut tokens = Lexer::new(text, Dialect::of_names()).map_while(Result::ok);
    let is_known = tokens.any(|token| token.is("COMPLETION"));
    let body = tokens.find(|token| is_known && token.is("DO"));
    let head = body.and_then(|body| text.get(..body.start)).unwrap_or(text);
    !head.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "CREATE DEFINER=`ENABLE`@`%` EVENT `PRESERVE ENABLE` ON SCHEDULE EVERY '1:30' \
                        HOUR_MINUTE STARTS '2030-01-01 00:00:00' ON COMPLETION";

    fn changed(rest: &str) -> String {
        let text = disabled_on_replica(format!("{HEAD} {rest}").as_bytes()).unwrap();
        String::from_utf8(text).unwrap().strip_prefix(HEAD).unwrap().to_owned()
    }

    #[test]
    fn an_event_does_not_run_on_the_target() {
        let (comment, body) = ("COMMENT 'ENABLE'", "DO SELECT 'ENABLE' FROM \"ENABLE");
        for status in ["ENABLE", "DISABLE ON SLAVE", "DISABLE ON REPLICA"] {
            assert_eq!(
                changed(&format!("NOT PRESERVE {status} {comment} {body}")),
                format!(" NOT PRESERVE DISABLE ON SLAVE {comment} {body}")
            );
            assert_eq!(
                changed(&format!("PRESERVE {status} {body}")),
                format!(" PRESERVE DISABLE ON SLAVE {body}")
            );
        }
    }

    #[test]
    fn a_disabled_event_stays_so() {
        let text = " PRESERVE DISABLE DO SELECT 1";
        assert_eq!(changed(text.trim()), text);
    }

    #[test]
    fn a_head_in_utf8_and_a_body_that_is_not_need_two_sessions() {
        let text = |name: &str, comment: &str, body: &[u8]| {
            let head = format!(
                "CREATE DEFINER=`r`@`%` EVENT `{name}` ON SCHEDULE EVERY 1 DAY ON COMPLETION \
                 NOT PRESERVE DISABLE COMMENT '{comment}' DO SELECT "
            );
            [head.as_bytes(), body].concat()
        };
        let latin1: &[u8] = b"'z\xe4hler'";
        assert!(mixes_character_sets(&text("zähler", "", b"1"), "latin1"));
        assert!(mixes_character_sets(&text("DO", "DO ä", b"1"), "latin1"));
        assert!(!mixes_character_sets(&text("DO", "DO a", latin1), "latin1"));
        assert!(!mixes_character_sets(&text("zähler", "ä", "'ä'".as_bytes()), "utf8mb3"));
        assert!(!mixes_character_sets(&text("zähler", "ä", latin1), "binary"));
    }

    #[test]
    fn other_texts_are_refused() {
        assert_eq!(disabled_on_replica(b"CREATE VIEW v AS SELECT 1"), None);
    }
}
