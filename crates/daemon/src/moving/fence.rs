//! The means by which a server takes no more writes of applications.

use std::time::Duration;

use csa_provider::server::ask::first;
use csa_provider::sql_text::quote;
use tokio::time::Instant;

use super::decide::ServerAccess;
use super::server::{Asked, Server, ServerError};
use crate::config::{Account, FenceMeans};
use crate::host::{Output, run_program};

/// The longest wait of a fence for statements that run. `lock_wait_timeout` ends it earlier.
const FENCE: Duration = Duration::from_secs(4);
const POLL: Duration = Duration::from_millis(20);

/// The fence of a pair of servers.
#[derive(Debug, Clone)]
pub(crate) struct Fence {
    pub(crate) means: FenceMeans,
    pub(crate) timeout: Duration,
}

impl Fence {
    /// Returns the statements, or the call of a program, that let this server be used so.
    pub(crate) fn statements(&self, wanted: ServerAccess, persists: bool) -> Vec<String> {
        match &self.means {
            FenceMeans::ReadOnly => {
                let set = if persists { "SET PERSIST" } else { "SET GLOBAL" };
                // In an order in which no moment is more open than the outcome.
                let values = match wanted {
                    ServerAccess::Closed => ["super_read_only = ON", "read_only = ON"],
                    ServerAccess::Following => ["read_only = ON", "super_read_only = OFF"],
                    ServerAccess::Open => ["super_read_only = OFF", "read_only = OFF"],
                };
                values.map(|value| format!("{set} {value}")).to_vec()
            }
            FenceMeans::LockAccounts(accounts) => {
                let state = if wanted == ServerAccess::Open { "UNLOCK" } else { "LOCK" };
                accounts
                    .iter()
                    .map(|account| format!("ALTER USER {} ACCOUNT {state}", name(account)))
                    .collect()
            }
            FenceMeans::Command(program) => {
                vec![format!("CSA_MOVE_ACTION={} {}", action(wanted), program.join(" "))]
            }
        }
    }

    /// Returns how an operator lets the server be used so.
    pub(crate) fn by_hand(&self, server: &Server, wanted: ServerAccess) -> String {
        let how = self.statements(wanted, server.identity.persists).join("; ");
        let how = match &self.means {
            FenceMeans::LockAccounts(_) if wanted != ServerAccess::Open => {
                format!("{how}; KILL of their sessions")
            }
            FenceMeans::Command(_) => {
                let (host, port) = server.host();
                format!("CSA_MOVE_HOST={host} CSA_MOVE_PORT={port} {how}")
            }
            FenceMeans::ReadOnly | FenceMeans::LockAccounts(_) => how,
        };
        format!("to {} {}: {how}", action(wanted), server.address())
    }

    /// Returns whom the server lets write.
    pub(crate) async fn access(&self, server: &mut Server) -> Asked<ServerAccess> {
        match &self.means {
            FenceMeans::ReadOnly => {
                let query = "SELECT CONCAT(@@GLOBAL.read_only, @@GLOBAL.super_read_only)";
                Ok(match first(server.ask(query).await?).as_deref() {
                    Some("11") => ServerAccess::Closed,
                    Some("10") => ServerAccess::Following,
                    _ => ServerAccess::Open,
                })
            }
            FenceMeans::LockAccounts(accounts) => {
                let query = format!(
                    "SELECT COUNT(*) FROM mysql.user WHERE account_locked = 'Y' AND ({})",
                    any(accounts, "User", "Host")
                );
                let locked = first(server.ask(&query).await?).unwrap_or_default();
                let is_closed =
                    locked == accounts.len().to_string() && !has_sessions(server, accounts).await?;
                Ok(if is_closed { ServerAccess::Closed } else { ServerAccess::Open })
            }
            FenceMeans::Command(program) => {
                // It has to answer, too: a program that says "closed" proves little of a server that is away.
                server.ask("DO 0").await?;
                match self.call(program, server, "state").await?.as_str() {
                    "closed" => Ok(ServerAccess::Closed),
                    "open" => Ok(ServerAccess::Open),
                    other => Err(failed(format!(
                        "move.fence_command: it printed {other:?} for CSA_MOVE_ACTION=state; it has to \
                         print open or closed"
                    ))),
                }
            }
        }
    }

    /// Lets the server be used so. Does nothing where it is so already.
    pub(crate) async fn set(&self, server: &mut Server, wanted: ServerAccess) -> Asked<()> {
        let statements = self.statements(wanted, server.identity.persists);
        match &self.means {
            FenceMeans::ReadOnly => {
                for statement in statements {
                    server.ask_within(&statement, FENCE).await?;
                }
                Ok(())
            }
            FenceMeans::LockAccounts(accounts) => {
                server.run(&statements).await?;
                match wanted {
                    ServerAccess::Open => Ok(()),
                    ServerAccess::Following | ServerAccess::Closed => {
                        end_sessions(server, accounts).await
                    }
                }
            }
            FenceMeans::Command(program) => {
                // The lock of the move has to be held still.
                server.ask("DO 0").await?;
                self.call(program, server, action(wanted)).await.map(drop)
            }
        }
    }

    async fn call(&self, program: &[String], server: &Server, action: &str) -> Asked<String> {
        let (host, port) = server.host();
        let variables = [
            ("CSA_MOVE_ACTION", action.to_owned()),
            ("CSA_MOVE_HOST", host.to_owned()),
            ("CSA_MOVE_PORT", port.to_string()),
        ];
        let run = run_program(program, variables, b"", Output::Kept);
        match tokio::time::timeout(self.timeout, run).await {
            Ok(said) => said.map_err(|why| failed(format!("move.fence_command: {why}"))),
            Err(_) => {
                let seconds = self.timeout.as_secs();
                let text = format!("move.fence_command: not done within {seconds} s");
                // What it was to change may still happen.
                let code = (action == "state").then_some(0);
                Err(ServerError { code, text })
            }
        }
    }
}

fn failed(text: String) -> ServerError {
    ServerError { code: Some(0), text }
}

const fn action(wanted: ServerAccess) -> &'static str {
    match wanted {
        ServerAccess::Open => "open",
        ServerAccess::Following | ServerAccess::Closed => "close",
    }
}

fn name(account: &Account) -> String {
    format!("{}@{}", quote(&account.user), quote(&account.host))
}

fn any(accounts: &[Account], user: &str, host: &str) -> String {
    let one = |account: &Account| {
        format!("({user} = {} AND {host} = {})", quote(&account.user), quote(&account.host))
    };
    accounts.iter().map(one).collect::<Vec<_>>().join(" OR ")
}

/// Returns true if a session lasts. A login that fails at the lock is gone soon.
async fn has_sessions(server: &mut Server, accounts: &[Account]) -> Asked<bool> {
    const SOON: Duration = Duration::from_millis(100);
    let before = sessions(server, accounts, Sessions::Alone).await?;
    if before.is_empty() {
        return Ok(false);
    }
    tokio::time::sleep(SOON).await;
    let now = sessions(server, accounts, Sessions::Alone).await?;
    Ok(now.iter().any(|session| before.contains(session)))
}

/// Ends the sessions of locked accounts.
async fn end_sessions(server: &mut Server, accounts: &[Account]) -> Asked<()> {
    let until = Instant::now() + FENCE;
    // The first look includes logins, which may have begun before the lock.
    let mut which = Sessions::AndLogins;
    loop {
        let left = sessions(server, accounts, which).await?;
        which = Sessions::Alone;
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            let text = format!("{} sessions do not end", left.len());
            return Err(failed(format!("{}: {text}", server.address())));
        }
        for session in left {
            server.kill(&session).await?;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Logins fail at the lock, and clients try again and again.
#[derive(Debug, Clone, Copy)]
enum Sessions {
    Alone,
    AndLogins,
}

/// Returns the sessions of the accounts, whatever host they come from.
async fn sessions(
    server: &mut Server,
    accounts: &[Account],
    which: Sessions,
) -> Asked<Vec<String>> {
    let query = sessions_query(accounts, which);
    Ok(server.ask(&query).await?.into_iter().flatten().flatten().collect())
}

/// Compares bytes: names of accounts are case-sensitive, and the list's own collation is not.
fn sessions_query(accounts: &[Account], which: Sessions) -> String {
    let users: Vec<String> = accounts.iter().map(|account| quote(&account.user)).collect();
    let logins = match which {
        Sessions::Alone => " AND COMMAND <> 'Connect'",
        Sessions::AndLogins => "",
    };
    format!(
        "SELECT ID FROM information_schema.PROCESSLIST \
         WHERE CAST(USER AS BINARY) IN ({}) AND ID <> CONNECTION_ID(){logins}",
        users.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(means: FenceMeans) -> Fence {
        Fence { means, timeout: Duration::from_secs(1) }
    }

    #[test]
    fn no_moment_of_a_change_is_more_open_than_its_outcome() {
        let by_setting = fence(FenceMeans::ReadOnly);
        assert_eq!(
            by_setting.statements(ServerAccess::Following, true),
            ["SET PERSIST read_only = ON", "SET PERSIST super_read_only = OFF"]
        );
        assert_eq!(
            by_setting.statements(ServerAccess::Closed, false),
            ["SET GLOBAL super_read_only = ON", "SET GLOBAL read_only = ON"]
        );
        let account = Account { user: "o'n".to_owned(), host: "%".to_owned() };
        let by_lock = fence(FenceMeans::LockAccounts(vec![account]));
        assert_eq!(
            by_lock.statements(ServerAccess::Closed, true),
            ["ALTER USER 'o''n'@'%' ACCOUNT LOCK"]
        );
        assert_eq!(
            by_lock.statements(ServerAccess::Open, true),
            ["ALTER USER 'o''n'@'%' ACCOUNT UNLOCK"]
        );
    }

    #[test]
    fn sessions_of_accounts_in_other_letters_are_left_alone() {
        let account = Account { user: "app".to_owned(), host: "%".to_owned() };
        assert_eq!(
            sessions_query(&[account], Sessions::Alone),
            "SELECT ID FROM information_schema.PROCESSLIST WHERE CAST(USER AS BINARY) IN ('app') \
             AND ID <> CONNECTION_ID() AND COMMAND <> 'Connect'"
        );
    }
}
