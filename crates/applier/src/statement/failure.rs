//! Errors of statements, with the next steps of the operator.

use super::next_steps::{map_it, steps_by_hand};
use super::source_statement::SourceStatement;
use crate::error::Error;
use crate::error::server_text::ServerText;
use csa_provider::server::Vendor;

const DENIED_SCHEMA: u16 = 1044;
const DENIED: u16 = 1045;
const DENIED_TABLE: u16 = 1142;
const DENIED_PRIVILEGE: u16 = 1227;
/// Syntax, character set, collation, function and the like, values of variables (`sql_mode`), and GTIDs with a tag.
const NOT_KNOWN: [u16; 8] = [1064, 1115, 1193, 1231, 1235, 1286, 1305, MALFORMED_GTID];
const MALFORMED_GTID: u16 = 1772;
/// Unknown collation.
const UNKNOWN_COLLATION: u16 = 1273;
/// MySQL 5.7, and later ones: a GRANT names an account that is not there.
const NO_ACCOUNT: [u16; 2] = [1133, 1410];
/// CREATE FUNCTION or CREATE TRIGGER, without `log_bin_trust_function_creators`.
const NO_TRUST: [u16; 2] = [1418, 1419];
/// `XAER_NOTA`: no such distributed transaction.
const UNKNOWN_XID: u16 = 1397;

/// An error of an attempt, by the place where it arose.
#[derive(Debug)]
pub(super) enum Failure {
    /// The source's statement met it.
    Statement(Error),
    /// A statement of ours met it, before or after the source's.
    Own(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Own(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Statement(error) => error,
            // The only GTID in statements of ours is the source's: it has a tag, which the target does not know.
            Failure::Own(error) if error.code() == Some(MALFORMED_GTID) => error,
            Failure::Own(error) => error.of_bookkeeping(),
        }
    }
}

/// Returns the error with the statement that it is about.
pub(super) fn named(statement: &SourceStatement, error: Error, vendor: Vendor) -> Error {
    let gtid = &statement.gtid;
    let is_elsewhere =
        matches!(error, Error::Transaction { .. } | Error::Connecting(_) | Error::Bookkeeping(_));
    match error.code() {
        Some(code) if !is_elsewhere => Error::Transaction {
            gtid: gtid.clone(),
            of: statement.words.clone(),
            code,
            row: None,
            half_way: false,
            message: explained(code, error.server_text(), statement, vendor),
        },
        _ => error,
    }
}

/// The server's message, with what to do about it where that is known.
fn explained(
    code: u16,
    mut said: ServerText,
    statement: &SourceStatement,
    vendor: Vendor,
) -> ServerText {
    // A target that does not know its tag can't execute anything under it.
    let under_gtid = statement.under_gtid && code != MALFORMED_GTID;
    let steps = || steps_by_hand(&statement.gtid, under_gtid);
    match code {
        UNKNOWN_XID => {
            return ServerText::own(format!(
                "the target has no such prepared transaction: it was provisioned between its PREPARE \
                 and its end, its PREPARE was skipped, or the target has crashed meanwhile; MySQL 9.7 \
                 itself loses prepared transactions when it recovers, if its last binary log has some \
                 of different format IDs; provision it again, or execute by hand what the source's \
                 binary log holds of it: {}",
                steps()
            ));
        }
        UNKNOWN_COLLATION => said.push(&format!("; {}; or {}", map_it(), steps())),
        _ if NO_TRUST.contains(&code) => said.push(&format!(
            "; SET GLOBAL log_bin_trust_function_creators=ON on the target (and in its option file) permits it, then \
             run csa-daemon restart; or {}",
            steps()
        )),
        _ if vendor == Vendor::MariaDb => {
            said.push(&format!(" (MariaDB); {}", steps()));
        }
        _ if NO_ACCOUNT.contains(&code) => said.push(&format!(
            "; if the target lacks the account, create it there and run csa-daemon restart, or {}",
            steps()
        )),
        _ if NOT_KNOWN.contains(&code) => {
            said.push(&format!("; the target's version may not know it: {}", steps()));
        }
        DENIED | DENIED_SCHEMA | DENIED_TABLE | DENIED_PRIVILEGE => said.push(&format!(
            "; the channel's account lacks a privilege for it (csa-daemon check --connect names \
             the usual ones; a GRANT needs what it grants, WITH GRANT OPTION); where nobody can grant \
             it, {}",
            steps()
        )),
        _ => {}
    }
    said
}
