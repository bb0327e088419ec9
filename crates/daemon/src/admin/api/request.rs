//! The parts of a request that several routes read: the daemon, the channel in its path, its query and its body.

use std::sync::Arc;

use axum::http::StatusCode;
use csa_provider::binlog::GtidSet;
use serde::de::DeserializeOwned;

use super::error::ApiError;
use crate::channel::Supervisor;
use crate::daemon::Daemon;

pub(super) type Shared = Arc<Daemon>;

pub(super) fn channel(daemon: &Daemon, name: &str) -> Result<Arc<Supervisor>, ApiError> {
    daemon.channel(name).ok_or_else(|| {
        let channels = daemon.channels();
        let known: Vec<&str> = channels.iter().map(|channel| channel.name()).collect();
        ApiError::new(
            StatusCode::NOT_FOUND,
            format!("no channel {name:?}"),
            format!("the channels are {}", known.join(", ")),
        )
    })
}

/// The query of a request, after the question mark.
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Refuses unknown parameters.
    pub(super) fn read(query: Option<&str>, known: &[&str]) -> Result<Self, ApiError> {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let pairs: Vec<(String, String)> = pairs.into_owned().collect();
        match pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => Err(ApiError::bad(
                format!("{name}: unknown parameter"),
                format!("known parameters: {}", known.join(", ")),
            )),
            None => Ok(Self(pairs)),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns what `parse` reads in a parameter, which is refused where that is nothing.
    pub(super) fn parsed<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Option<T>,
        fix: impl Into<String>,
    ) -> Result<Option<T>, ApiError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        match parse(text) {
            None => Err(ApiError::bad(format!("{name}: {text:?}"), fix)),
            value => Ok(value),
        }
    }

    pub(super) fn gtid_set(&self) -> Result<Option<GtidSet>, ApiError> {
        let parse = |text: &str| {
            text.parse().map_err(|error: csa_provider::binlog::ParseGtidError| {
                ApiError::bad(error.to_string(), "write it the way gtid_executed shows it")
            })
        };
        self.get("gtid_set").map(parse).transpose()
    }
}

pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad(format!("body: {error}"), "see /openapi.json for its form"))
}
