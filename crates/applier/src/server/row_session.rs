//! The session in which rows were written, set again on the target where it computes from them.
//!
//! A row image of a plain table means the same in every session, so such rows are sent under our own settings
//! (`sql_mode=''`, UTC) whatever the source's were, and share statements. The server evaluates expressions in
//! checks, generated columns, indexes and partitions, and for defaults of columns that images lack. Its own
//! applier has then taken over the session of the BEGIN before the rows (`Query_log_event::do_apply_event`);
//! here it is set before the BINLOG statement.

use csa_provider::binlog::SessionContext;

use csa_provider::sql_text::quote;

/// Restores our own settings. `SET NAMES` is a statement of its own and comes first: until it has
/// run, the server converts strings to a character set of the source's.
pub(crate) const OWN: &str = "SET NAMES utf8mb4;SET SESSION sql_mode='',time_zone='+00:00',\
     lc_time_names='en_US'";

/// Follows such a text where the server takes our statements as bytes: `SET NAMES` ended that.
pub(crate) const AND_BYTES: &str = ",character_set_client=binary";

/// Number of statements in such a text.
pub(crate) fn count(statements: &str) -> usize {
    statements.split(';').count()
}

/// Modes of MySQL before 8.0, which its own applier drops and SET refuses.
pub(crate) const FORMER_MODES: u64 = 0x1003_ff00;
/// Modes that only the text of a statement knows, and that older servers refuse: INTERPRET_UTF8_AS_UTF8MB4 (9.7).
const PARSER_MODES: u64 = 1 << 33;

/// Returns the statements for the settings that rows depend on. `default_collation` is the
/// session's present one.
///
/// `character_set_client` stays ours: no expression depends on it, and the server reads our own texts
/// by it. `auto_increment_increment` and `_offset` stay too: they only number the rows of a column that
/// the source lacks, and need a privilege.
pub(crate) fn statements(session: &SessionContext, default_collation: Option<u16>) -> String {
    // The source logs a time zone only where it was used; without one MySQL's applier uses its server's.
    let zone = session.time_zone.as_deref().map_or_else(|| "DEFAULT".to_owned(), quote);
    let mut set = format!(
        "SET NAMES utf8mb4;SET SESSION sql_mode={},time_zone={zone},lc_time_names={}",
        session.sql_mode.unwrap_or_default() & !FORMER_MODES & !PARSER_MODES,
        session.lc_time_names.unwrap_or_default(),
    );
    if let Some(charset) = session.charset {
        set.push_str(&format!(",collation_connection={}", charset.connection));
    }
    if let Some(wanted) = session.default_collation_for_utf8mb4
        && default_collation.is_some_and(|has| has != wanted)
    {
        set.push_str(&format!(",default_collation_for_utf8mb4={wanted}"));
    }
    set
}

/// The same for rows that are written as SQL: settings by which the server reads our own texts stay
/// ours, and the time zone is set only where no local time is ambiguous.
pub(crate) fn for_statements(session: &SessionContext) -> String {
    format!(
        "SET SESSION time_zone='{}',lc_time_names={}",
        zone_for_statements(session).unwrap_or("+00:00"),
        session.lc_time_names.unwrap_or_default()
    )
}

/// Returns the time zone that [`for_statements`] sets, if it is not UTC.
pub(crate) fn zone_for_statements(session: &SessionContext) -> Option<&str> {
    let zone = session.time_zone.as_deref()?;
    let is_offset = zone.starts_with(['+', '-'])
        && zone.chars().skip(1).all(|c| c.is_ascii_digit() || c == ':');
    (is_offset && zone != "+00:00").then_some(zone)
}

/// Undoes [`for_statements`].
pub(crate) const OWN_FOR_STATEMENTS: &str = "SET SESSION time_zone='+00:00',lc_time_names='en_US'";

/// Returns the number of a collation that `default_collation_for_utf8mb4` can be.
pub(crate) fn default_collation(name: &str) -> Option<u16> {
    match name {
        "utf8mb4_general_ci" => Some(45),
        "utf8mb4_0900_ai_ci" => Some(255),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::QueryCharset;

    use super::*;

    #[test]
    fn statements_are_counted() {
        assert_eq!([OWN, OWN_FOR_STATEMENTS].map(count), [2, 1]);
    }

    #[test]
    fn statements_take_over_zones_in_which_no_time_is_two() {
        let text = |zone: &str| {
            for_statements(&SessionContext {
                time_zone: Some(zone.to_owned()),
                lc_time_names: Some(4),
                ..SessionContext::default()
            })
        };
        assert_eq!(text("-08:30"), "SET SESSION time_zone='-08:30',lc_time_names=4");
        for zone in ["SYSTEM", "Europe/Berlin", "+00:00"] {
            assert_eq!(text(zone), "SET SESSION time_zone='+00:00',lc_time_names=4");
        }
    }

    #[test]
    fn everything_is_set_every_time() {
        let nothing = statements(&SessionContext::default(), Some(255));
        assert!(nothing.ends_with("sql_mode=0,time_zone=DEFAULT,lc_time_names=0"), "{nothing}");
        let all = SessionContext {
            sql_mode: Some(0x2_1000_0004),
            time_zone: Some("+03:00".to_owned()),
            lc_time_names: Some(7),
            charset: Some(QueryCharset { client: 255, connection: 35, server: 8 }),
            default_collation_for_utf8mb4: Some(45),
            ..SessionContext::default()
        };
        assert_eq!(
            statements(&all, Some(255)),
            "SET NAMES utf8mb4;SET SESSION sql_mode=4,time_zone='+03:00',lc_time_names=7,\
             collation_connection=35,default_collation_for_utf8mb4=45"
        );
        assert!(!statements(&all, Some(45)).contains("default_collation"));
        // A server that does not have the variable.
        assert!(!statements(&all, None).contains("default_collation"));
    }
}
