//! Every server error that a session of ours is known to meet, with its meaning for a channel. The table covers
//! target and source, MySQL 5.7 to 9.7 and MariaDB, and the proxies between (MySQL Router, ProxySQL, MaxScale,
//! RDS Proxy). docs/server-errors.md has the table for operators, and tests walk it.
//!
//! An error that is not listed is [`Consequence::Stop`] in a statement, because repeating what is not understood may
//! hide a difference, and [`Opening::Away`] where a session is opened, because nothing was begun there.

/// A session could not be opened: the pause before the next attempt, and whether a channel may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Somebody has to change the account. A start is refused; a channel that runs tries again every half minute.
    Account,
    /// The server wants another protection of the link; otherwise as for an account.
    Protection,
    /// There is no room for another session: a channel continues with those it has, and asks again every half minute.
    Full,
    /// The server refuses this host for now: tried again every half minute.
    Blocked,
    /// The server is away, busy, or does not say why: tried again soon.
    Away,
}

impl Opening {
    /// An attempt a second would fill the server's log, and might keep an account locked.
    #[must_use]
    pub const fn is_tried_slowly(self) -> bool {
        !matches!(self, Self::Away)
    }
}

/// The meaning of an error of a statement for the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consequence {
    /// Another transaction was in the way: rolled back, and tried again at once.
    Retry,
    /// The target is away or takes no writes for now: waited for.
    Wait,
    /// The channel fails and tries again slowly, for ever: the cause is the server's and can pass.
    Slowly,
    /// The channel fails until a person restarts it.
    Stop,
}

/// The cause of an error of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// The server: every transaction would meet it, so none is named, and none is to be skipped.
    Server,
    /// A privilege of our account. A statement that lacks one is named, as nobody may be able to grant it.
    Privilege,
    /// The contents of the transaction.
    Transaction,
}

/// Errors with the same meaning.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub opening: Opening,
    pub consequence: Consequence,
    pub about: About,
    pub why: &'static str,
    /// Sent by what stands between us and the server: it says nothing about the server itself.
    pub is_between: bool,
    /// Numbers and names. Those above 4150 and of MariaDB are in no list of MySQL's.
    pub errors: &'static [(u16, &'static str)],
}

const fn rule(
    opening: Opening,
    consequence: Consequence,
    about: About,
    why: &'static str,
    errors: &'static [(u16, &'static str)],
) -> Rule {
    Rule { opening, consequence, about, why, is_between: false, errors }
}

use About::{Privilege, Server, Transaction};
use Consequence::{Retry, Slowly, Stop, Wait};
use Opening::{Account, Away, Blocked, Full, Protection};

/// All rules; each error is in one of them.
pub const RULES: &[Rule] = &[
    rule(
        Account,
        Slowly,
        Privilege,
        "the account lacks a privilege or has another password; both may be changed back",
        &[
            (1044, "ER_DBACCESS_DENIED_ERROR"),
            (1045, "ER_ACCESS_DENIED_ERROR"),
            (1095, "ER_KILL_DENIED_ERROR"),
            (1142, "ER_TABLEACCESS_DENIED_ERROR"),
            (1143, "ER_COLUMNACCESS_DENIED_ERROR"),
            (1227, "ER_SPECIFIC_ACCESS_DENIED_ERROR"),
            (1370, "ER_PROCACCESS_DENIED_ERROR"),
            (1410, "ER_CANT_CREATE_USER_WITH_GRANT"),
            (1419, "ER_BINLOG_CREATE_ROUTINE_NEED_SUPER"),
            (1698, "ER_ACCESS_DENIED_NO_PASSWORD_ERROR"),
            (3879, "ER_DB_ACCESS_DENIED"),
            (6126, "ER_ACCESS_DENIED_NO_PROXY_GRANT"),
            (6127, "ER_ACCESS_DENIED_NO_PROXY"),
        ],
    ),
    rule(
        Account,
        Wait,
        Server,
        "the account is locked, expired or of another kind; that may be changed back",
        &[
            (1130, "ER_HOST_NOT_PRIVILEGED"),
            (1251, "ER_NOT_SUPPORTED_AUTH_MODE"),
            (1820, "ER_MUST_CHANGE_PASSWORD"),
            (1862, "ER_MUST_CHANGE_PASSWORD_LOGIN"),
            (1873, "ER_ACCESS_DENIED_CHANGE_USER_ERROR"),
            (3118, "ER_ACCOUNT_HAS_BEEN_LOCKED"),
            (3955, "ER_USER_ACCESS_DENIED_FOR_USER_ACCOUNT_BLOCKED_BY_PASSWORD_LOCK"),
            // MariaDB's.
            (4151, "ER_ACCOUNT_HAS_BEEN_LOCKED"),
        ],
    ),
    rule(
        Protection,
        Wait,
        Server,
        "the server takes only encrypted links now; that setting may be changed back",
        &[(3159, "ER_SECURE_TRANSPORT_REQUIRED"), (3160, "ER_NO_SECURE_TRANSPORTS_CONFIGURED")],
    ),
    rule(
        Full,
        Wait,
        Server,
        "a limit on sessions, or on what the account does in an hour, is reached",
        &[
            (1040, "ER_CON_COUNT_ERROR"),
            (1135, "ER_CANT_CREATE_THREAD"),
            (1203, "ER_TOO_MANY_USER_CONNECTIONS"),
            (1226, "ER_USER_LIMIT_REACHED"),
        ],
    ),
    rule(
        Blocked,
        Wait,
        Server,
        "the server counts too many interrupted logins from this host, until FLUSH HOSTS or a restart",
        &[(1129, "ER_HOST_IS_BLOCKED")],
    ),
    rule(
        Away,
        Wait,
        Server,
        "the server shuts down, starts or is offline",
        &[
            (1053, "ER_SERVER_SHUTDOWN"),
            (1079, "ER_SHUTDOWN_COMPLETE"),
            (3032, "ER_SERVER_OFFLINE_MODE"),
            (3168, "ER_SERVER_ISNT_AVAILABLE"),
            (6400, "ER_SERVER_OFFLINE_MODE_REASON"),
        ],
    ),
    rule(
        Away,
        Wait,
        Server,
        "the server takes no writes, as before a switchover",
        &[
            (1207, "ER_READ_ONLY_TRANSACTION"),
            (1290, "ER_OPTION_PREVENTS_STATEMENT"),
            (1792, "ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION"),
            (1836, "ER_READ_ONLY_MODE"),
            (1874, "ER_INNODB_READ_ONLY"),
        ],
    ),
    rule(
        Away,
        Wait,
        Server,
        "the server's group or cluster has no quorum, or this member is not ready; a COMMIT that is refused twice (3100) \
         is too large for the group, and fails",
        &[
            (1047, "ER_UNKNOWN_COM_ERROR"),
            (3100, "ER_RUN_HOOK_ERROR"),
            (3781, "ER_GR_HOLD_WAIT_TIMEOUT"),
            (3782, "ER_GR_HOLD_KILLED"),
            (3796, "ER_GRP_TRX_CONSISTENCY_NOT_ALLOWED"),
            (3797, "ER_GRP_TRX_CONSISTENCY_BEFORE"),
            (3798, "ER_GRP_TRX_CONSISTENCY_AFTER_ON_TRX_BEGIN"),
        ],
    ),
    rule(
        Away,
        Wait,
        Server,
        "somebody ended the statement or the session, or a limit of time did",
        &[
            (1028, "ER_FILSORT_ABORT"),
            (1317, "ER_QUERY_INTERRUPTED"),
            (1927, "ER_CONNECTION_KILLED"),
            (1969, "ER_STATEMENT_TIMEOUT"),
            (3024, "ER_QUERY_TIMEOUT"),
            (3169, "ER_SESSION_WAS_KILLED"),
            (4031, "ER_CLIENT_INTERACTION_TIMEOUT"),
            (4081, "ER_DA_GLOBAL_CONN_LIMIT"),
            (4082, "ER_DA_CONN_LIMIT"),
        ],
    ),
    rule(
        Away,
        Wait,
        Server,
        "the link was disturbed",
        &[
            (1042, "ER_BAD_HOST_ERROR"),
            (1043, "ER_HANDSHAKE_ERROR"),
            (1152, "ER_ABORTING_CONNECTION"),
            (1155, "ER_NET_FCNTL_ERROR"),
            (1156, "ER_NET_PACKETS_OUT_OF_ORDER"),
            (1157, "ER_NET_UNCOMPRESS_ERROR"),
            (1158, "ER_NET_READ_ERROR"),
            (1159, "ER_NET_READ_INTERRUPTED"),
            (1160, "ER_NET_ERROR_ON_WRITE"),
            (1161, "ER_NET_WRITE_INTERRUPTED"),
            (1184, "ER_NEW_ABORTING_CONNECTION"),
            (1189, "ER_SOURCE_NET_READ"),
            (1190, "ER_SOURCE_NET_WRITE"),
            (1835, "ER_MALFORMED_PACKET"),
        ],
    ),
    Rule {
        is_between: true,
        ..rule(
            Away,
            Wait,
            Server,
            "a router or proxy reaches no server for now, as during a failover",
            &[
                (2002, "CR_CONNECTION_ERROR"),
                (2003, "CR_CONN_HOST_ERROR"),
                (2006, "CR_SERVER_GONE_ERROR"),
                (2012, "CR_SERVER_HANDSHAKE_ERR"),
                (2013, "CR_SERVER_LOST"),
                (2026, "CR_SSL_CONNECTION_ERROR"),
                (2055, "CR_SERVER_LOST_EXTENDED"),
                (9001, "ProxySQL: max connect timeout"),
                (9002, "ProxySQL: max connect failure"),
                (9004, "ProxySQL: backend offline"),
                (9006, "ProxySQL: locked to another hostgroup"),
                (9501, "RDS Proxy: no connection in time"),
            ],
        )
    },
    rule(
        Away,
        Retry,
        Server,
        "another session has a lock; the channel waits for it as long as it takes, and says for whom",
        &[(1205, "ER_LOCK_WAIT_TIMEOUT")],
    ),
    rule(
        Away,
        Retry,
        Server,
        "another transaction was in the way; transaction_retries limits the attempts",
        &[
            (1020, "ER_CHECKREAD"),
            (1213, "ER_LOCK_DEADLOCK"),
            (1297, "ER_GET_TEMPORARY_ERRMSG"),
            (1412, "ER_TABLE_DEF_CHANGED"),
            (1613, "ER_XA_RBTIMEOUT"),
            (1614, "ER_XA_RBDEADLOCK"),
            (1615, "ER_NEED_REPREPARE"),
            (1689, "ER_LOCK_ABORTED"),
            (3058, "ER_USER_LOCK_DEADLOCK"),
            (3101, "ER_TRANSACTION_ROLLBACK_DURING_COMMIT"),
            (3197, "ER_XA_RETRY"),
        ],
    ),
    rule(
        Full,
        Slowly,
        Server,
        "the server has no memory or no thread left",
        &[
            (5, "EE_OUTOFMEMORY"),
            (1037, "ER_OUTOFMEMORY"),
            (1038, "ER_OUT_OF_SORTMEMORY"),
            (1041, "ER_OUT_OF_RESOURCES"),
            (3015, "ER_ENGINE_OUT_OF_MEMORY"),
            (3985, "ER_MDL_OUT_OF_RESOURCES"),
        ],
    ),
    rule(
        Away,
        Slowly,
        Server,
        "transactions of others hold all undo slots of the server, until they end",
        &[(1637, "ER_TOO_MANY_CONCURRENT_TRXS")],
    ),
    rule(
        Away,
        Slowly,
        Server,
        "the server's disk is full or fails, or a file of it can't be opened",
        &[
            (1, "EE_CANTCREATEFILE"),
            (2, "EE_READ"),
            (3, "EE_WRITE"),
            (20, "EE_DISK_FULL"),
            (23, "EE_OUT_OF_FILERESOURCES"),
            (1004, "ER_CANT_CREATE_FILE"),
            (1015, "ER_CANT_LOCK"),
            (1016, "ER_CANT_OPEN_FILE"),
            (1021, "ER_DISK_FULL"),
            (1024, "ER_ERROR_ON_READ"),
            (1026, "ER_ERROR_ON_WRITE"),
            (1030, "ER_GET_ERRNO"),
            (1036, "ER_OPEN_AS_READONLY"),
            (1114, "ER_RECORD_FILE_FULL"),
            (1180, "ER_ERROR_DURING_COMMIT"),
            (1181, "ER_ERROR_DURING_ROLLBACK"),
            (1194, "ER_CRASHED_ON_USAGE"),
            (1195, "ER_CRASHED_ON_REPAIR"),
            (1534, "ER_BINLOG_ROW_LOGGING_FAILED"),
            (1598, "ER_BINLOG_LOGGING_IMPOSSIBLE"),
            (1712, "ER_INDEX_CORRUPT"),
            (1812, "ER_TABLESPACE_MISSING"),
            (1878, "ER_TEMP_FILE_WRITE_FAILURE"),
            (3019, "ER_INNODB_UNDO_LOG_FULL"),
            (3675, "ER_DISK_FULL_NOWAIT"),
        ],
    ),
    rule(
        Away,
        Slowly,
        Server,
        "the server's binlog_format is STATEMENT, which can't log what the channel writes; it may be changed back",
        &[
            (1665, "ER_BINLOG_STMT_MODE_AND_ROW_ENGINE"),
            (1666, "ER_BINLOG_ROW_INJECTION_AND_STMT_MODE"),
        ],
    ),
    rule(
        Away,
        Slowly,
        Server,
        "a plugin or an option of the server refuses, or a key of its encryption is away",
        &[
            (3164, "ER_AUDIT_API_ABORT"),
            (3182, "ER_MASTER_KEY_ROTATION_SE_UNAVAILABLE"),
            (3185, "ER_CANNOT_FIND_KEY_IN_KEYRING"),
            (3989, "ER_SCHEMA_READ_ONLY"),
            (6544, "ER_AUDIT_LOG_ABORT"),
        ],
    ),
    rule(
        Away,
        Slowly,
        Transaction,
        "larger than a setting of the server permits, which can be raised while the channel tries again",
        &[
            (1153, "ER_NET_PACKET_TOO_LARGE"),
            (1197, "ER_TRANS_CACHE_FULL"),
            (1206, "ER_LOCK_TABLE_FULL"),
            (1301, "ER_WARN_ALLOWED_PACKET_OVERFLOWED"),
            (1705, "ER_STMT_CACHE_FULL"),
            (3231, "ER_WRITE_SET_EXCEEDS_LIMIT"),
        ],
    ),
    rule(
        Away,
        Slowly,
        Transaction,
        "BINLOG says no more for some causes; a missing privilege on the table is one of them",
        &[(1105, "ER_UNKNOWN_ERROR")],
    ),
    rule(
        Away,
        Stop,
        Transaction,
        "rows or definitions of the target differ from the source's: a person has to compare them",
        &[
            (1005, "ER_CANT_CREATE_TABLE"),
            (1007, "ER_DB_CREATE_EXISTS"),
            (1008, "ER_DB_DROP_EXISTS"),
            (1032, "ER_KEY_NOT_FOUND"),
            (1048, "ER_BAD_NULL_ERROR"),
            (1050, "ER_TABLE_EXISTS_ERROR"),
            (1051, "ER_BAD_TABLE_ERROR"),
            (1054, "ER_BAD_FIELD_ERROR"),
            (1060, "ER_DUP_FIELDNAME"),
            (1061, "ER_DUP_KEYNAME"),
            (1062, "ER_DUP_ENTRY"),
            (1091, "ER_CANT_DROP_FIELD_OR_KEY"),
            (1146, "ER_NO_SUCH_TABLE"),
            (1169, "ER_DUP_UNIQUE"),
            (1264, "ER_WARN_DATA_OUT_OF_RANGE"),
            (1292, "ER_TRUNCATED_WRONG_VALUE"),
            (1356, "ER_VIEW_INVALID"),
            (1364, "ER_NO_DEFAULT_FOR_FIELD"),
            (1366, "ER_TRUNCATED_WRONG_VALUE_FOR_FIELD"),
            (1396, "ER_CANNOT_USER"),
            (1406, "ER_DATA_TOO_LONG"),
            (1449, "ER_NO_SUCH_USER"),
            (1451, "ER_ROW_IS_REFERENCED_2"),
            (1452, "ER_NO_REFERENCED_ROW_2"),
            (1526, "ER_NO_PARTITION_FOR_GIVEN_VALUE"),
            (1586, "ER_DUP_ENTRY_WITH_KEY_NAME"),
            (1644, "ER_SIGNAL_EXCEPTION"),
            (1677, "ER_REPLICA_CONVERSION_FAILED"),
            (3098, "ER_BEFORE_DML_VALIDATION_ERROR"),
            (3635, "ER_APPLIER_LOG_EVENT_VALIDATION_ERROR"),
            (3819, "ER_CHECK_CONSTRAINT_VIOLATED"),
        ],
    ),
    rule(
        Account,
        Stop,
        Transaction,
        "the server lacks an authentication plugin: our account's at a login, that of a named account in a statement",
        &[(1524, "ER_PLUGIN_IS_NOT_LOADED")],
    ),
    rule(
        Account,
        Stop,
        Transaction,
        "the database is not there; no session of ours asks for one when it is opened",
        &[(1049, "ER_BAD_DB_ERROR")],
    ),
    rule(
        Away,
        Stop,
        Transaction,
        "the target's version or settings do not know it",
        &[
            (1064, "ER_PARSE_ERROR"),
            (1115, "ER_UNKNOWN_CHARACTER_SET"),
            (1193, "ER_UNKNOWN_SYSTEM_VARIABLE"),
            (1231, "ER_WRONG_VALUE_FOR_VAR"),
            (1235, "ER_NOT_SUPPORTED_YET"),
            (1273, "ER_UNKNOWN_COLLATION"),
            (1286, "ER_UNKNOWN_STORAGE_ENGINE"),
            (1305, "ER_SP_DOES_NOT_EXIST"),
            (1772, "ER_MALFORMED_GTID_SET_SPECIFICATION"),
            (1785, "ER_GTID_UNSAFE_NON_TRANSACTIONAL_TABLE"),
            (1786, "ER_GTID_UNSAFE_CREATE_SELECT"),
        ],
    ),
    rule(
        Away,
        Stop,
        Transaction,
        "a distributed transaction is not as the source left it",
        &[
            (1397, "ER_XAER_NOTA"),
            (1398, "ER_XAER_INVAL"),
            (1399, "ER_XAER_RMFAIL"),
            (1400, "ER_XAER_OUTSIDE"),
            (1401, "ER_XAER_RMERR"),
            (1402, "ER_XA_RBROLLBACK"),
            (1440, "ER_XAER_DUPID"),
        ],
    ),
    rule(
        Away,
        Stop,
        Transaction,
        "the session has another GTID than the statement needs; not known to happen",
        &[
            (1781, "ER_CANT_SET_GTID_NEXT_TO_GTID_WHEN_GTID_MODE_IS_OFF"),
            (1790, "ER_CANT_SET_GTID_NEXT_WHEN_OWNING_GTID"),
            (1837, "ER_GTID_NEXT_TYPE_UNDEFINED_GTID"),
        ],
    ),
    rule(
        Away,
        Slowly,
        Server,
        "the source ends the stream: what it misses may be on the next server at its address",
        &[(SOURCE_FATAL, "ER_SOURCE_FATAL_ERROR_READING_BINLOG")],
    ),
];

/// The server's error for a dump that it can't serve.
pub(crate) const SOURCE_FATAL: u16 = 1236;
/// The errors of the client library, which something between us and a server passes on.
const CLIENT_ERRORS: std::ops::RangeInclusive<u16> = 2000..=2999;

/// Returns the rule for an error; `None` for one that is not known.
#[must_use]
pub fn rule_of(code: u16) -> Option<&'static Rule> {
    let has = |rule: &&Rule| rule.errors.iter().any(|(known, _)| *known == code);
    // All of the client library's mean the same: what is between has lost its server.
    let is_clients = |rule: &&Rule| rule.is_between && CLIENT_ERRORS.contains(&code);
    RULES.iter().find(has).or_else(|| RULES.iter().find(is_clients))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_error_is_in_one_rule() {
        let all: Vec<u16> =
            RULES.iter().flat_map(|rule| rule.errors).map(|(code, _)| *code).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
        for (code, _) in RULES.iter().flat_map(|rule| rule.errors) {
            let rule = rule_of(*code).expect("listed");
            assert!(rule.errors.iter().any(|(known, _)| known == code));
            // What waits or passes is never blamed on a transaction.
            let passes = matches!(rule.consequence, Retry | Wait);
            assert!(!passes || rule.about == Server, "{code}: {rule:?}");
        }
        assert!(rule_of(2061).is_some_and(|rule| rule.is_between), "any of the client library's");
        assert!(rule_of(4999).is_none());
    }
}
