//! The error that stopped a channel, as an operator needs to see it.

use csa_applier::{
    Executor, FailingColumn, FailingRow, PresentRow, RELOAD_AND_RESTART, TargetGtids,
};
use csa_provider::server::by_hand::UNLOGGED;
use csa_provider::server::link::{About, Consequence, NO_TABLE, rule_of};
use csa_provider::server::visible::shell_argument;

use crate::channel::error::ChannelError;
use crate::observe::advice::{ErrorCause, advice};
use crate::observe::view::{ErrorValues, ErrorView, FailingColumnView, FailingRowView};

/// Errors that `exec_mode = "idempotent"` passes over: ER_KEY_NOT_FOUND and ER_DUP_ENTRY, the same
/// as the server's `replica_exec_mode`.
const IDEMPOTENT: [u16; 2] = [1032, 1062];

/// Errors of rows for which a table of the target differs or is missing.
const DIFFERENT_TABLE: [u16; 4] = [1032, 1062, 1049, 1146];

/// The end of a text for readers who are not shown the values.
const VALUES_ELSEWHERE: &str = " The row's values, and a statement that repairs it where there is one, \
     are shown by csa-daemon status, and here with the token that permits everything.";

/// Errors of a target that has already what the source makes.
const ALREADY_THERE: [u16; 5] = [1062, 1007, 1050, 1060, 1061];

/// The channel, as far as the next steps depend on it.
#[derive(Debug, Clone, Copy)]
pub(in crate::channel) struct FailedChannel<'a> {
    pub(in crate::channel) name: &'a str,
    pub(in crate::channel) gtids: TargetGtids,
    /// How rows are written; `None` before the target has answered.
    pub(in crate::channel) executor: Option<Executor>,
}

impl FailedChannel<'_> {
    const fn takes_row_images(self) -> bool {
        !matches!(self.executor, Some(Executor::Sql))
    }

    /// Returns true if `copy --table` is possible.
    pub(in crate::channel) fn takes_copies(self) -> bool {
        self.takes_row_images() && self.gtids != TargetGtids::Source
    }

    /// Returns the beginning of a statement on the target that its binary log must not have.
    fn by_hand(self) -> &'static str {
        if self.gtids == TargetGtids::Own { "" } else { UNLOGGED }
    }

    /// Returns the steps for a target whose copy is newer than the place at which the channel began; `None` where its own
    /// `gtid_executed` says what it has.
    fn begins_later(self) -> Option<String> {
        if self.gtids == TargetGtids::Source {
            return None;
        }
        let Self { name, .. } = self;
        Some(format!(
            "if the target is a copy that is newer than the channel's start, leave its rows as they are: \
             csa-daemon stop --channel {name}; on the target: {}DELETE FROM csa.checkpoint WHERE channel='{name}'; \
             start_from = the copy's GTID set in [channel.applier], then: {RELOAD_AND_RESTART} --channel {name}",
            self.by_hand()
        ))
    }
}

/// Shows the failure in a form that is safe for the log and for those who have only the right to
/// look. `timestamp`: when it happened; `is_retried`: the channel could not start, and the daemon
/// tries again.
pub(in crate::channel) fn shown(
    failed: FailedChannel<'_>,
    error: &ChannelError,
    timestamp: String,
    is_retried: bool,
) -> ErrorView {
    let channel = failed.name;
    let number = error.code().unwrap_or(0);
    let is_half_way = matches!(error, ChannelError::Applier(error) if error.is_half_way());
    // Nothing passes over rows that are half there, and their message says what to do.
    let reason = if is_half_way { 0 } else { number };
    let row = match error {
        ChannelError::Applier(error) => error.row(),
        _ => None,
    };
    let transaction = error.gtid();
    let message = error.to_string();
    let mut first = advice(cause(error, reason)).to_owned();
    if is_retried {
        first.push_str(&format!(
            " The daemon tries again within 5 minutes; to retry at once: \
             csa-daemon restart --channel {channel}"
        ));
    }
    let mut first_with_values = first.clone();
    if let Some(repair) = row.and_then(|row| row.repair.as_ref()) {
        let pair = match failed.gtids {
            TargetGtids::Own => {
                " (begin with SET sql_log_bin=0 if a channel leads from there back)"
            }
            TargetGtids::Mirror | TargetGtids::Source => "",
        };
        first_with_values.push_str(&format!(
            " Run there{pair}: {}{repair}; then: csa-daemon restart --channel {channel}",
            failed.by_hand()
        ));
    }
    if row.is_some() {
        first.push_str(VALUES_ELSEWHERE);
    }
    let of_table = row.and_then(|row| step_for_table(failed, reason, &row.table));
    // Without its table, leaving this transaction out only leads to the next.
    let (table_first, table_last) =
        if NO_TABLE.contains(&reason) { (of_table, None) } else { (None, of_table) };
    let mut ways_on = vec![first];
    ways_on.extend(table_first);
    // What the whole server has is no reason to leave one transaction out.
    let is_servers = rule_of(reason)
        .is_some_and(|rule| rule.about == About::Server && rule.consequence == Consequence::Slowly);
    if let Some(gtid) = transaction.as_ref().filter(|_| !is_servers) {
        ways_on.push(format!(
            "leave the whole transaction out: csa-daemon skip {gtid} --channel {channel}; then see \
             what differs: csa-daemon verify --channel {channel}; its --repair writes statements for rows"
        ));
        if IDEMPOTENT.contains(&reason) && failed.takes_row_images() {
            ways_on.push(format!(
                "pass over missing rows and overwrite those that are there, until it is set back: \
                 exec_mode = \"idempotent\" in the channel's [applier], then: {RELOAD_AND_RESTART} \
                 --channel {channel}; verify afterwards"
            ));
        }
    }
    ways_on.extend(table_last);
    if ALREADY_THERE.contains(&reason) {
        ways_on.extend(failed.begins_later());
    }
    let values = Box::new(ErrorValues {
        message: match error {
            ChannelError::Applier(error) => error.with_values(),
            other => other.to_string(),
        },
        ways_on: [first_with_values].into_iter().chain(ways_on.iter().skip(1).cloned()).collect(),
        columns: row.iter().flat_map(|row| &row.columns).map(column_view).collect(),
    });
    let row = row.map(row_view);
    let transaction = transaction.map(|gtid| gtid.to_string());
    ErrorView { number, message, timestamp, transaction, ways_on, row, values: Some(values) }
}

/// Returns the next step that concerns the whole table.
fn step_for_table(failed: FailedChannel<'_>, reason: u16, table: &str) -> Option<String> {
    let channel = failed.name;
    // A managed service has tables of its own there, which nobody can make elsewhere, and no copy has tables of this
    // schema. A rule for all of it would leave out accounts as well.
    if NO_TABLE.contains(&reason) && table.starts_with("mysql.") {
        return Some(format!(
            "leave out the table, if it is a managed service's own: replicate_ignore_table = [\"{table}\"] in the \
             channel's [applier] (docs/managed.md leaves out all of them), then: {RELOAD_AND_RESTART} --channel {channel}"
        ));
    }
    let is_copied = DIFFERENT_TABLE.contains(&reason) && failed.takes_copies();
    is_copied.then(|| {
        format!(
            "make the whole table a copy of the source's again, while the channel follows the source: \
             csa-daemon copy --channel {channel} --table {}",
            shell_argument(table)
        )
    })
}

fn cause(error: &ChannelError, reason: u16) -> ErrorCause {
    match error {
        ChannelError::Applier(_) => ErrorCause::Target(reason),
        ChannelError::Reception(end) => ErrorCause::Source(end.error.cause()),
        ChannelError::Source(error) => ErrorCause::Source(error.cause()),
        ChannelError::Target(_)
        | ChannelError::Relay(_)
        | ChannelError::Archive(_)
        | ChannelError::Refused(_)
        | ChannelError::Answered { .. }
        | ChannelError::State(_) => ErrorCause::Named,
    }
}

fn row_view(row: &FailingRow) -> FailingRowView {
    let (target_row, target_row_detail) = match &row.present {
        PresentRow::Present => ("present", None),
        PresentRow::Missing => ("missing", None),
        PresentRow::Unknown(why) => ("unknown", Some(why.clone())),
    };
    FailingRowView {
        table: row.table.clone(),
        event_type: row.event_type.to_owned(),
        event_number: row.event_number,
        row_number: row.row_number,
        end_log_pos: (row.end_log_pos > 0).then_some(row.end_log_pos),
        key: row.key.clone(),
        target_row: target_row.to_owned(),
        target_row_detail,
        columns: Vec::new(),
    }
}

fn column_view(column: &FailingColumn) -> FailingColumnView {
    FailingColumnView {
        name: column.name.clone(),
        source_before: column.before.clone(),
        source_after: column.after.clone(),
        target: column.target.clone(),
    }
}

#[cfg(test)]
mod tests {
    use csa_applier::ServerText;
    use csa_provider::server::link::RULES;

    use super::*;

    const CHANNEL: FailedChannel<'_> =
        FailedChannel { name: "c", gtids: TargetGtids::Own, executor: None };

    fn failing(event_type: &'static str, repair: &str) -> FailingRow {
        FailingRow {
            table: "d.t".to_owned(),
            event_type,
            event_number: 1,
            end_log_pos: 4,
            row_number: Some(1),
            key: None,
            columns: Vec::new(),
            present: PresentRow::Missing,
            mismatch: None,
            denied: None,
            repair: Some(repair.to_owned()),
        }
    }

    #[test]
    fn a_lost_table_is_copied_before_anything_is_skipped() {
        let ways_in = |table: &str, code: u16, gtids, executor| {
            let mut row = failing("Write_rows", "DELETE FROM `d`.`t` WHERE 1");
            row.table = table.to_owned();
            let error = ChannelError::Applier(csa_applier::Error::Transaction {
                gtid: "3e11fa47-71ca-11e1-9e33-c80aa9429562:5".to_owned(),
                of: "row changes of d.t".to_owned(),
                code,
                message: ServerText::new(code, "why"),
                row: Some(Box::new(row)),
                half_way: false,
            });
            shown(FailedChannel { gtids, executor, ..CHANNEL }, &error, String::new(), false)
                .ways_on
        };
        let ways_of = |code, gtids, executor| ways_in("d.t", code, gtids, executor);
        let (own, images) = (TargetGtids::Own, Some(Executor::RowImage));
        let ways_on = |code| ways_of(code, own, images);
        let copy = "csa-daemon copy --channel c --table d.t";
        for code in [1049, 1146] {
            let ways = ways_on(code);
            assert!(ways[1].contains(copy) && ways[2].contains("skip"), "{ways:?}");
        }
        // One of a managed service.
        for executor in [images, Some(Executor::Sql)] {
            let ways = ways_in("mysql.rds_heartbeat2", 1146, own, executor);
            let rule = "replicate_ignore_table = [\"mysql.rds_heartbeat2\"]";
            assert!(ways[1].contains(rule), "{ways:?}");
            assert!(!ways.iter().any(|way| way.contains(" --table ")), "{ways:?}");
        }
        let ways = ways_on(1032);
        assert!(ways[1].contains("skip") && ways[3].contains(copy), "{ways:?}");
        // Neither is possible there.
        for (gtids, executor) in
            [(own, Some(Executor::Sql)), (TargetGtids::Source, Some(Executor::RowImage))]
        {
            let ways = ways_of(1146, gtids, executor);
            assert!(!ways.iter().any(|way| way.contains(copy)), "{ways:?}");
        }
        let ways = ways_of(1032, own, Some(Executor::Sql));
        assert!(!ways.iter().any(|way| way.contains("idempotent")), "{ways:?}");
    }

    /// A start asks about them before anything is applied, whatever the settings are.
    #[test]
    fn rows_that_are_half_there_are_completed_or_skipped() {
        for code in [1062, 1032, 1114] {
            let error = ChannelError::Applier(csa_applier::Error::Transaction {
                gtid: "3e11fa47-71ca-11e1-9e33-c80aa9429562:5".to_owned(),
                of: "row changes of d.t".to_owned(),
                code,
                message: ServerText::new(code, "why"),
                row: None,
                half_way: true,
            });
            let shown = shown(CHANNEL, &error, String::new(), error.may_pass());
            assert_eq!(shown.number, code);
            let ways = shown.ways_on;
            assert!(ways.len() == 2 && ways[1].contains("csa-daemon skip"), "{ways:?}");
            assert!(!ways[0].contains("tries again"), "{ways:?}");
        }
    }

    #[test]
    fn a_checkpoint_is_deleted_before_the_channel_begins_elsewhere() {
        let ways_on = |code, gtids| {
            let error = ChannelError::Applier(csa_applier::Error::Transaction {
                gtid: "3e11fa47-71ca-11e1-9e33-c80aa9429562:5".to_owned(),
                of: "CREATE TABLE".to_owned(),
                code,
                message: ServerText::new(code, "why"),
                row: None,
                half_way: false,
            });
            shown(FailedChannel { gtids, ..CHANNEL }, &error, String::new(), false).ways_on
        };
        for code in [1062, 1050] {
            let ways = ways_on(code, TargetGtids::Own);
            let way = ways.last().expect("ways");
            let deleted = ": DELETE FROM csa.checkpoint WHERE channel='c'";
            let again = "then: csa-daemon reload; csa-daemon restart --channel c";
            for words in ["stop --channel c", deleted, again] {
                assert!(way.contains(words), "{words}: {way}");
            }
            let ways = ways_on(code, TargetGtids::Mirror);
            let way = ways.last().expect("ways");
            assert!(way.contains(": SET sql_log_bin=0; DELETE FROM csa.checkpoint"), "{way}");
            let ways = ways_on(code, TargetGtids::Source);
            assert!(!ways.iter().any(|way| way.contains("csa.checkpoint")), "{ways:?}");
        }
    }

    #[test]
    fn a_repair_stays_out_of_a_log_that_has_the_sources_gtids() {
        let run = |gtids| {
            let row = failing("Delete_rows", "INSERT INTO `d`.`t` VALUES (1)");
            let error = ChannelError::Applier(csa_applier::Error::Transaction {
                gtid: "3e11fa47-71ca-11e1-9e33-c80aa9429562:5".to_owned(),
                of: "row changes of d.t".to_owned(),
                code: 1032,
                message: ServerText::new(1032, "why"),
                row: Some(Box::new(row)),
                half_way: false,
            });
            let view = shown(FailedChannel { gtids, ..CHANNEL }, &error, String::new(), false);
            view.values.expect("values").ways_on[0].clone()
        };
        for gtids in [TargetGtids::Mirror, TargetGtids::Source] {
            let way = run(gtids);
            assert!(way.contains("Run there: SET sql_log_bin=0; INSERT INTO"), "{way}");
        }
        // Its replicas need it, and the other direction of a pair does not.
        let way = run(TargetGtids::Own);
        assert!(way.contains("leads from there back): INSERT INTO"), "{way}");
    }

    #[test]
    fn the_number_is_that_of_the_server_that_sent_one() {
        use csa_provider::source::{self, PreflightError, ReceptionEnd, SourceCause};

        let number = |error: ChannelError| shown(CHANNEL, &error, String::new(), true).number;
        let purged = source::Error::Refused {
            address: "s:1".to_owned(),
            at: "the start".to_owned(),
            message: "purged required binary logs".to_owned(),
            cause: SourceCause::Purged,
        };
        let end = ReceptionEnd { error: std::sync::Arc::new(purged), gtid: None };
        assert_eq!(number(end.into()), 1236);
        let (why, cause) = ("source s:1 refuses the account".to_owned(), SourceCause::Account);
        assert_eq!(number(PreflightError::Login { why, code: 1045, cause }.into()), 1045);
        let why = "target t:1 refuses the account".to_owned();
        let login = csa_applier::PreflightError::Login { why, code: 3118 };
        assert_eq!(number(ChannelError::Target(login)), 3118);
        let why = "SELECT command denied".to_owned();
        assert_eq!(number(ChannelError::Answered { why, code: 1142 }), 1142);
        let purged = PreflightError::Purged("source s:1 has purged it".to_owned());
        assert_eq!(number(purged.into()), 0, "no server sent one");
        assert_eq!(number(ChannelError::State("full".to_owned())), 0);
    }

    #[test]
    fn nothing_is_skipped_because_the_target_lacks_something_for_now() {
        use csa_provider::server::link::LinkError;

        let shown = |code| {
            let source = LinkError::Server { code, message: "why".to_owned() };
            let error = csa_applier::Error::Target { address: "t:1".to_owned(), source };
            let gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:5".parse().expect("a GTID");
            let keys = csa_applier::Error::Keys { gtid, error: Box::new(error) };
            let error = ChannelError::Applier(keys);
            shown(CHANNEL, &error, String::new(), error.may_pass())
        };
        // A full disk, no memory, no descriptors, and a grant that is missing.
        for code in [3, 23, 1021, 1037, 1041, 1114, 1142] {
            let shown = shown(code);
            assert_eq!((shown.number, &shown.transaction), (code, &None));
            assert!(!shown.ways_on.iter().any(|way| way.contains("skip")), "{:?}", shown.ways_on);
            assert!(shown.ways_on[0].contains("tries again"), "{:?}", shown.ways_on);
        }
    }

    #[test]
    fn a_transaction_is_skipped_for_its_own_errors_only() {
        for rule in RULES {
            for (code, _) in rule.errors {
                let error = ChannelError::Applier(csa_applier::Error::Transaction {
                    gtid: "3e11fa47-71ca-11e1-9e33-c80aa9429562:5".to_owned(),
                    of: "row changes of d.t".to_owned(),
                    code: *code,
                    message: ServerText::new(*code, "why"),
                    row: None,
                    half_way: false,
                });
                let shown = shown(CHANNEL, &error, String::new(), error.may_pass());
                let offers = shown.ways_on.iter().any(|way| way.contains("csa-daemon skip"));
                let is_servers =
                    rule.about == About::Server && rule.consequence == Consequence::Slowly;
                assert_eq!(offers, !is_servers, "{code}");
                let is_retried = shown.ways_on[0].contains("tries again");
                assert_eq!(is_retried, rule.consequence == Consequence::Slowly, "{code}");
            }
        }
    }
}
