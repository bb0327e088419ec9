//! Moves of the applications between the servers of two channels: conversion of `[channel.move]`.

use std::time::Duration;

use super::declared_keys::{FenceBy, MoveConfig};
use super::error::ConfigError;

/// A user and a host, as in `CREATE USER`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) user: String,
    pub(crate) host: String,
}

/// The means by which a server takes no more writes of applications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FenceMeans {
    ReadOnly,
    LockAccounts(Vec<Account>),
    Command(Vec<String>),
}

/// How the applications of a channel move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MoveSettings {
    /// The channel in the opposite direction.
    pub(crate) back: String,
    pub(crate) fence: FenceMeans,
    /// Empty: the applications find the server on their own.
    pub(crate) hand_over: Vec<String>,
    pub(crate) command_timeout: Duration,
    pub(crate) time_limit: Duration,
    pub(crate) max_lag: Duration,
}

/// Returns `None` without the channel in the opposite direction.
pub(super) fn settings(config: MoveConfig) -> Result<Option<MoveSettings>, ConfigError> {
    let Some(back) = config.back else { return Ok(None) };
    let wrong = |why: &str| Err(ConfigError(why.to_owned()));
    let fence = match config.fence {
        FenceBy::ReadOnly => FenceMeans::ReadOnly,
        FenceBy::LockAccounts if config.accounts.is_empty() => {
            return wrong(
                "move.accounts: missing; name those of the applications, like \"shop@%\"",
            );
        }
        FenceBy::LockAccounts => {
            let accounts = config.accounts.iter().map(|text| account(text));
            FenceMeans::LockAccounts(accounts.collect::<Result<_, _>>()?)
        }
        FenceBy::Command if config.fence_command.is_empty() => {
            return wrong("move.fence_command: missing; fence = \"command\" needs a program");
        }
        FenceBy::Command => FenceMeans::Command(config.fence_command),
    };
    Ok(Some(MoveSettings {
        back,
        fence,
        hand_over: config.hand_over,
        command_timeout: config.command_timeout.0,
        time_limit: config.time_limit.0,
        max_lag: config.max_lag.0,
    }))
}

fn account(text: &str) -> Result<Account, ConfigError> {
    match text.rsplit_once('@') {
        Some((user, host)) if !user.is_empty() && !host.is_empty() => {
            Ok(Account { user: user.to_owned(), host: host.to_owned() })
        }
        _ => Err(ConfigError(format!("move.accounts: {text:?} is not like \"shop@%\""))),
    }
}
