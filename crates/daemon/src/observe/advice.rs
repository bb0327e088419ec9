//! Next steps after an error, for the status page. Pure: chosen by the cause, which is known where the
//! error arises, and never by what a message says.

use csa_provider::server::by_hand::of_account;
use csa_provider::server::link::{Opening, rule_of};
use csa_provider::source::SourceCause;

/// The place where an error occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum About {
    /// The link to the source, which is retried.
    Source,
    /// The sessions on the target, which are opened again.
    Target,
    /// The channel has stopped.
    Channel,
}

/// A cause, as precisely as its advice depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorCause {
    /// The link to the source is down and being retried.
    Link(SourceCause),
    /// The target is away, or takes no writes for now.
    TargetAway,
    /// Reception ended for good, or the source is unsuitable.
    Source(SourceCause),
    /// A server's error number on the target; 0 for none.
    Target(u16),
    /// The message itself names what to do.
    Named,
}

/// Next steps, in a sentence or two.
pub(crate) fn advice(cause: ErrorCause) -> &'static str {
    match cause {
        ErrorCause::Link(cause) => of_source(cause, RETRIED),
        ErrorCause::TargetAway => {
            "Check that the target runs, can be reached from here, takes logins of the channel's account, and is \
             writable (not super_read_only). The channel resumes on its own; nothing is lost."
        }
        ErrorCause::Source(cause) => of_source(cause, NAMED),
        ErrorCause::Target(number) => of_target(number),
        ErrorCause::Named => NAMED,
    }
}

/// Next steps while a channel waits for a server: by the number of the error that the server sent, which `detail`
/// holds as every text of ours does.
pub(crate) fn while_waiting(about: About, detail: &str) -> Option<String> {
    let side = match about {
        About::Source => "source",
        About::Target => "target",
        About::Channel => return None,
    };
    if detail.contains("may not replicate") {
        return Some("Run that statement; reception resumes on its own.".to_owned());
    }
    let number = detail.split("error ").skip(1).find_map(|rest| {
        let (number, _) = rest.split_once(':')?;
        number.parse::<u16>().ok()
    })?;
    let steps = match number {
        1045 | 1698 => format!(
            "Write the account's password into password_file of [channel.{side}] (docs/passwords.md). The daemon \
             notices a new one within a second"
        ),
        // A router has a count of its own, and no table of it.
        1129 if detail.contains("Too many connection errors from") => {
            "Restart the MySQL Router in between, which counts this host's errors".to_owned()
        }
        1129 => format!("Run on the {side}: TRUNCATE TABLE performance_schema.host_cache"),
        3118 | 3955 | 4151 => {
            let unlock = of_account("ALTER USER … ACCOUNT UNLOCK");
            format!("Run on the {side}, with the account's name: {unlock}")
        }
        1820 | 1862 => {
            format!(
                "Give the account on the {side} a password that does not expire (docs/passwords.md)"
            )
        }
        1836 | 1874 => {
            "Nobody can write there while innodb_read_only is ON, as on a reader of Aurora: have the address lead to the \
             server that takes writes"
                .to_owned()
        }
        1207 | 1290 | 1792 => {
            // It ends super_read_only, too, which MariaDB does not know.
            "If this server is still the one to write to, run there: SET GLOBAL read_only = OFF"
                .to_owned()
        }
        _ if rule_of(number).is_some_and(|rule| rule.opening == Opening::Full) => format!(
            "Raise the limit that the error names on the {side} (max_connections, or the account's \
             MAX_USER_CONNECTIONS), or end other sessions there"
        ),
        _ => return None,
    };
    Some(format!("{steps}; the channel resumes on its own."))
}

const PURGED: &str = "The source has purged binary logs that the target still needs. Connect a source that still has \
     them (source.failover), or copy the source again (docs/provisioning.md#copy-again).";

const ACCOUNT: &str =
    "The source refuses the account. Check user and password; it needs REPLICATION SLAVE.";

const PROTECTION: &str = "The two do not agree on how the link is protected. Check tls, tls_ca and the host \
     name in [channel.source], and the source's certificate.";

const OTHER_HISTORY: &str = "The source lacks transactions that were received: it was reset, restored, is another \
     server, or is a replica that is catching up. Reception resumes on its own once it has them. Otherwise connect the \
     right server, or copy the source again (docs/provisioning.md#copy-again).";

const NAMED: &str = "Everything before is committed and nothing after it. Change what the message names, \
     then restart the channel. A change of the configuration file needs csa-daemon reload before that.";

/// The advice for a link that is retried.
const RETRIED: &str = "Check that the source runs and can be reached from here. Reception resumes on its own where it \
     stopped; what was received is applied meanwhile.";

/// Advice about a source; `otherwise` if neither its account, its protection nor its history is the cause.
fn of_source(cause: SourceCause, otherwise: &'static str) -> &'static str {
    match cause {
        SourceCause::Account => ACCOUNT,
        SourceCause::Protection => PROTECTION,
        SourceCause::Purged => PURGED,
        SourceCause::OtherHistory => OTHER_HISTORY,
        SourceCause::Unreachable
        | SourceCause::Anonymous
        | SourceCause::Stream
        | SourceCause::Setting
        | SourceCause::Spool => otherwise,
    }
}

fn of_target(number: u16) -> &'static str {
    match number {
        1032 => {
            "The row is not on the target as the source had it. Compare the row on both servers, \
             bring the target's level with the one before this transaction, then restart the channel."
        }
        1062 => {
            "The target already has a row with this key that the source did not have. Find out who wrote the row, \
             remove it from the target, then restart the channel."
        }
        1451 | 1452 => {
            "A foreign key of the target is not met: a parent or child row differs from the source. \
             Correct it on the target, then restart the channel."
        }
        1049 | 1146 => {
            "The target lacks this database or table. If the target is not a copy of the source yet, make it one \
             (docs/provisioning.md). Else copy the table from the source (csa-daemon copy --table), which also allows \
             for changes that are still to come. MariaDB, executor = \"sql\" and target_gtids = \"source\" do not \
             permit that; a table that is made by hand must have the rows from before this transaction: with later \
             ones the channel meets them again (1062)."
        }
        1007 | 1050 | 1060 | 1061 => {
            "The target already has what the statement creates. Compare the definition with the source's. If they are \
             the same, skip the transaction (csa-daemon skip), which continues. If not, \
             rename or drop what is there, then restart the channel."
        }
        1044 | 1045 | 1142 | 1143 | 1227 => {
            "The account on the target may not do this. Grant what config/grants-target.sql lists."
        }
        1205 => {
            "Another session on the target holds a lock. Find it in performance_schema.data_locks and \
             performance_schema.metadata_locks, and wait for its end or end it; then restart the channel."
        }
        1213 => {
            "Others on the target write the same rows. Find them in SHOW ENGINE INNODB STATUS, keep them off \
             the target, or raise transaction_retries and run csa-daemon reload; then restart the channel."
        }
        1114 | 1021 | 1030 => "The target has no room left. Free some there.",
        _ => NAMED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_waits_is_told_what_the_server_wants() {
        for (about, detail, words) in [
            (About::Target, "target t:1: error 1045: Access denied", "[channel.target]"),
            (About::Source, "source s:1: error 1045: Access denied", "[channel.source]"),
            (About::Source, "error 1045: 'r'@'%' has logged in and may not replicate", "statement"),
            (About::Target, "target t:1: error 1226: User 'csa' has exceeded", "Raise the limit"),
            (About::Source, "error 1040: Too many connections", "on the source"),
            (About::Target, "error 1290: running with the --read-only option", "read_only = OFF"),
            (About::Target, "error 1874: InnoDB is in read only mode.", "innodb_read_only"),
            (About::Target, "error 3118: Account is locked", "UNLOCK"),
            (About::Target, "error 1129: Host is blocked", "host_cache"),
            (About::Source, "error 1129: Too many connection errors from 10.0.0.7", "Router"),
        ] {
            let steps = while_waiting(about, detail).expect(detail);
            assert!(steps.contains(words) && steps.contains("on its own"), "{steps}");
        }
        for detail in ["Connection refused (os error 111)", "error 1053: shutdown", "no answer"] {
            assert_eq!(while_waiting(About::Target, detail), None, "{detail}");
        }
    }

    #[test]
    fn advice_fits_the_cause() {
        for (cause, words) in [
            (ErrorCause::Target(1062), "already has a row"),
            (ErrorCause::Target(1032), "Compare the row"),
            // A target's error numbers are not a source's, and error 0 has no advice of its own.
            (ErrorCause::Target(1236), "what the message names"),
            (ErrorCause::Target(0), "what the message names"),
            (ErrorCause::Source(SourceCause::Purged), "copy the source again"),
            (ErrorCause::Source(SourceCause::Stream), "what the message names"),
            (ErrorCause::Source(SourceCause::Account), "REPLICATION SLAVE"),
            (ErrorCause::Link(SourceCause::Unreachable), "source runs"),
            (ErrorCause::Link(SourceCause::Account), "REPLICATION SLAVE"),
            (ErrorCause::Link(SourceCause::Purged), "copy the source again"),
            (ErrorCause::TargetAway, "target runs"),
            (ErrorCause::Named, "what the message names"),
        ] {
            let advice = advice(cause);
            assert!(advice.contains(words), "{cause:?}: {advice}");
        }
    }
}
