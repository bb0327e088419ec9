//! What to do about an error, for the status page. Pure.

/// Where an error was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum About {
    /// The link to the source; it is tried again.
    Source,
    /// The sessions on the target; they are opened again.
    Target,
    /// The channel has stopped.
    Channel,
}

/// The way on, in a sentence or two. `number` is the server's error number, 0 for none.
pub(crate) fn advice(about: About, number: u16, message: &str) -> &'static str {
    match (about, number) {
        (About::Source, _) => of_source(message),
        (About::Target, _) => {
            "Check that the target runs, can be reached from here and is writable (not super_read_only). \
             The channel goes on by itself; nothing is lost."
        }
        (About::Channel, 1032) => {
            "The row is not on the target as the source had it. Compare the row on both servers, \
             bring the target's level with the one before this transaction, then restart the channel."
        }
        (About::Channel, 1062) => {
            "The target already has a row with this key that the source did not have. Find out who \
             wrote it, remove it from the target, then restart the channel."
        }
        (About::Channel, 1451 | 1452) => {
            "A foreign key of the target is not met: a parent or child row differs from the source. \
             Correct it on the target, then restart the channel."
        }
        (About::Channel, 1049 | 1146) => {
            "The target lacks this database or table. Create it as the source has it, with its rows, \
             then restart the channel."
        }
        (About::Channel, 1007 | 1050 | 1060 | 1061) => {
            "The target already has what the statement creates. Compare the definition with the \
             source's, remove the target's if it is of no use, then restart the channel."
        }
        (About::Channel, 1044 | 1045 | 1142 | 1143 | 1227) => {
            "The account on the target may not do this. Grant what config/grants.sql lists, then \
             restart the channel."
        }
        (About::Channel, 1205 | 1213) => {
            "Others on the target hold the locks for too long. Find them in \
             performance_schema.data_locks, or raise transaction_retries; then restart the channel."
        }
        (About::Channel, 1114 | 1021 | 1030) => {
            "The target has no room left. Free some, then restart the channel."
        }
        (About::Channel, 1236) => PURGED,
        (About::Channel, _) if is_purged(message) => PURGED,
        (About::Channel, _) => {
            "Everything before is committed and nothing after it. Change what the message names, \
             then restart the channel."
        }
    }
}

const PURGED: &str = "The source has purged binary logs that the target still needs. Provision the target \
     anew (clone or dump), or connect a source that still has them.";

fn is_purged(message: &str) -> bool {
    message.contains("1236") || message.contains("purged")
}

fn of_source(message: &str) -> &'static str {
    if is_purged(message) {
        PURGED
    } else if message.contains("1045") || message.contains("Access denied") {
        "The source refuses the account. Check user and password; it needs REPLICATION SLAVE."
    } else {
        "Check that the source runs and can be reached from here. Reception goes on by itself where it \
         stopped; what was received is applied meanwhile."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_the_error() {
        for (about, number, message, word) in [
            (About::Channel, 1062, "Duplicate entry", "already has a row"),
            (About::Channel, 1032, "Can't find record", "Compare the row"),
            (About::Channel, 0, "source: binary logs were purged", "Provision the target"),
            (About::Channel, 0, "statement-format change", "what the message names"),
            (About::Source, 0, "connection refused", "source runs"),
            (About::Source, 0, "error 1045: Access denied", "REPLICATION SLAVE"),
            (About::Source, 0, "error 1236: purged", "Provision the target"),
            (About::Target, 0, "connection refused", "target runs"),
        ] {
            let advice = advice(about, number, message);
            assert!(advice.contains(word), "{about:?} {number} {message}: {advice}");
        }
    }
}
