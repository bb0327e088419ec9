//! A lock that a session of ours waits for, in words.

use std::fmt;

use tokio::time::Instant;

use crate::server::processes::time_in;

/// A wait of the channel for a lock that others hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockWait {
    /// The transaction that waits, or its statement.
    pub what: String,
    /// The target's number of our connection.
    pub connection: u32,
    pub since: Instant,
    pub found: FoundLock,
}

/// A lock, and the sessions that keep others from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLock {
    /// The lock in words: a table, or a lock of the whole server.
    pub lock: String,
    pub holders: Vec<LockHolder>,
    /// A statement to run on the target where the account may not see who holds the lock.
    pub unseen: Option<String>,
    /// A query for the operator.
    pub look: String,
}

/// A session that has a lock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockHolder {
    /// The target's number; `None` for a distributed transaction that was prepared and has no session.
    pub connection: Option<u64>,
    /// Empty where the account may not see it, as the following.
    pub user: String,
    pub host: String,
    /// `Sleep` for a session that waits for its client.
    pub command: String,
    /// The time since its last statement began; MariaDB counts that of `Sleep` from the statement's end.
    pub seconds: i64,
    /// The statement that it executes, or has executed last, without values.
    pub statement: String,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connection, user, host, command, seconds, statement } = self;
        let Some(connection) = connection else {
            return f.write_str("a prepared distributed transaction (XA RECOVER lists them)");
        };
        write!(f, "connection {connection}")?;
        if user.is_empty() {
            return Ok(());
        }
        write!(f, " ({user}@{host}, ")?;
        let time = time_in(command, *seconds);
        match (command.as_str(), statement.as_str()) {
            ("Sleep", "") => write!(f, "idle for {time}")?,
            ("Sleep", last) => write!(f, "idle for {time} after: {last}")?,
            (command, "") => write!(f, "{command} for {time}")?,
            (_, statement) => write!(f, "executing for {time}: {statement}")?,
        }
        f.write_str(")")
    }
}

impl fmt::Display for LockWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} needs {}", self.what, self.found)
    }
}

impl fmt::Display for FoundLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lock, holders, unseen, look } = self;
        let named: Vec<String> =
            holders.iter().take(HOLDERS_NAMED).map(ToString::to_string).collect();
        match named.is_empty() {
            true => write!(f, "{lock}, which another session holds")?,
            false => write!(f, "{lock}, held by {}", named.join(" and "))?,
        }
        if holders.len() > HOLDERS_NAMED {
            write!(f, " and {} more", holders.len() - HOLDERS_NAMED)?;
        }
        match unseen {
            Some(unseen) => write!(f, "; to see whose it is, run there: {unseen}"),
            None => write!(f, "; look there: {look}"),
        }
    }
}

/// Holders in a sentence.
const HOLDERS_NAMED: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(connection: u64, command: &str, statement: &str) -> LockHolder {
        LockHolder {
            connection: Some(connection),
            user: "ann".to_owned(),
            host: "db1".to_owned(),
            command: command.to_owned(),
            seconds: 12,
            statement: statement.to_owned(),
        }
    }

    #[test]
    fn a_sentence_names_who_holds_the_lock() {
        let unknown = LockHolder { user: String::new(), ..holder(9, "", "") };
        let prepared = LockHolder::default();
        for (one, said) in [
            (
                holder(7, "Sleep", "SELECT ?"),
                "connection 7 (ann@db1, idle for up to 12 s after: SELECT ?)",
            ),
            (holder(7, "Sleep", ""), "connection 7 (ann@db1, idle for up to 12 s)"),
            (holder(7, "Query", "ALTER"), "connection 7 (ann@db1, executing for 12 s: ALTER)"),
            (holder(7, "Query", ""), "connection 7 (ann@db1, Query for 12 s)"),
            (unknown.clone(), "connection 9"),
            (prepared, "a prepared distributed transaction (XA RECOVER lists them)"),
        ] {
            assert_eq!(one.to_string(), said);
        }
        let found = |holders: Vec<LockHolder>, unseen: Option<&str>| FoundLock {
            lock: "table d.t".to_owned(),
            holders,
            unseen: unseen.map(str::to_owned),
            look: "SELECT 1".to_owned(),
        };
        let many = found(vec![unknown; 5], None).to_string();
        assert_eq!(
            many,
            "table d.t, held by connection 9 and connection 9 and connection 9 and 2 more; look there: SELECT 1"
        );
        let none = found(Vec::new(), Some("GRANT x")).to_string();
        assert_eq!(
            none,
            "table d.t, which another session holds; to see whose it is, run there: GRANT x"
        );
    }
}
