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

/// Modes of MySQL before 8.0, which the applier of 8.0 drops and its SET refuses.
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
/// ours, and the time zone is that of [`zone_for_statements`].
pub(crate) fn for_statements(session: &SessionContext, zone: Option<&str>) -> String {
    format!(
        "SET SESSION time_zone='{}',lc_time_names={}",
        zone.unwrap_or("+00:00"),
        session.lc_time_names.unwrap_or_default()
    )
}

/// Returns the session's time zone for rows that are written as SQL. Returns `None`, for UTC, where a local time may be
/// ambiguous, and for an offset that the target does not take.
pub(crate) fn zone_for_statements(
    session: &SessionContext,
    takes_wide_offsets: bool,
) -> Option<&str> {
    let zone = session.time_zone.as_deref()?;
    let is_offset = zone.starts_with(['+', '-'])
        && zone.chars().skip(1).all(|c| c.is_ascii_digit() || c == ':');
    let is_taken = takes_wide_offsets || is_narrow(zone);
    (is_offset && is_taken && zone != "+00:00").then_some(zone)
}

/// Returns true for an offset from -12:59 to +13:00, which every server takes.
fn is_narrow(offset: &str) -> bool {
    let number = |digits: &str| digits.parse::<u8>().ok().map(u32::from);
    let parts = offset.get(1..).and_then(|digits| digits.split_once(':'));
    let minutes = parts.and_then(|(hours, minutes)| Some(number(hours)? * 60 + number(minutes)?));
    let most = if offset.starts_with('-') { 12 * 60 + 59 } else { 13 * 60 };
    minutes.is_some_and(|minutes| minutes <= most)
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
        let text = |zone: &str, takes_wide_offsets| {
            let session = SessionContext {
                time_zone: Some(zone.to_owned()),
                lc_time_names: Some(4),
                ..SessionContext::default()
            };
            for_statements(&session, zone_for_statements(&session, takes_wide_offsets))
        };
        let taken = |zone| format!("SET SESSION time_zone='{zone}',lc_time_names=4");
        for takes_wide_offsets in [true, false] {
            for zone in ["-08:30", "+13:00", "-12:59"] {
                assert_eq!(text(zone, takes_wide_offsets), taken(zone));
            }
            for zone in ["SYSTEM", "Europe/Berlin", "+00:00"] {
                assert_eq!(text(zone, takes_wide_offsets), taken("+00:00"));
            }
        }
        for zone in ["+13:01", "+14:00", "-13:00", "-13:59"] {
            assert_eq!(text(zone, true), taken(zone));
            assert_eq!(text(zone, false), taken("+00:00"));
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
