//! The limits of `[channel.throttle_by]`.

use std::num::NonZeroU32;
use std::time::Duration;

use super::declared_keys::ThrottleByConfig;
use super::error::ConfigError;

/// Limits on the health of the target and of its replicas.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ThrottleBy {
    /// Sessions that execute something.
    pub(crate) threads_running: Option<u32>,
    /// How far replicas may lag, and their hosts and ports.
    pub(crate) replica_lag: Option<(Duration, Vec<(String, u16)>)>,
    /// A query, and the highest number that it may return.
    pub(crate) query: Option<(String, f64)>,
    /// Transactions per second; `None` for 1.
    pub(crate) at_least: Option<NonZeroU32>,
}

impl ThrottleBy {
    pub(crate) const KEYS: [&str; 6] = [
        "throttle_by.threads_running",
        "throttle_by.replica_lag",
        "throttle_by.replicas",
        "throttle_by.query",
        "throttle_by.query_limit",
        "throttle_by.at_least",
    ];

    /// Something is limited.
    pub(crate) fn is_set(&self) -> bool {
        self.threads_running.is_some() || self.replica_lag.is_some() || self.query.is_some()
    }

    /// Returns the values in words, in the order of [`Self::KEYS`].
    pub(crate) fn shown(&self) -> [String; Self::KEYS.len()] {
        let lag = self.replica_lag.as_ref();
        let servers = lag.map(|(_, servers)| {
            let named: Vec<_> =
                servers.iter().map(|(host, port)| format!("{host}:{port}")).collect();
            named.join(", ")
        });
        let none = || "none".to_owned();
        let query = self.query.as_ref();
        [
            self.threads_running.map_or_else(none, |limit| limit.to_string()),
            lag.map_or_else(none, |(limit, _)| format!("{limit:?}")),
            servers.unwrap_or_else(none),
            query.map_or_else(none, |(query, _)| query.clone()),
            query.map_or_else(none, |(_, limit)| limit.to_string()),
            self.at_least.map_or(1, NonZeroU32::get).to_string(),
        ]
    }
}

/// Checks that keys which need each other are there.
pub(super) fn settings(config: ThrottleByConfig) -> Result<ThrottleBy, ConfigError> {
    let wrong = |text: &str| Err(ConfigError(format!("throttle_by.{text}")));
    let replicas: Vec<_> = config.replicas.into_iter().map(|a| (a.host, a.port)).collect();
    let replica_lag = match (config.replica_lag, replicas.is_empty()) {
        (Some(lag), false) => Some((lag.0, replicas)),
        (None, true) => None,
        (Some(_), true) => {
            return wrong(
                "replica_lag: the target does not know how far its replicas are; name them: \
                 replicas = [{ host = \"…\", port = 3306 }]",
            );
        }
        (None, false) => {
            return wrong(
                "replicas: without replica_lag they mean nothing; set it, such as \"5s\"",
            );
        }
    };
    let query = match (config.query, config.query_limit) {
        (Some(query), Some(limit)) if !query.trim().is_empty() && limit.is_finite() => {
            Some((query, limit))
        }
        (None, None) => None,
        (Some(query), _) if query.trim().is_empty() => return wrong("query: it is empty"),
        (Some(_), _) => {
            return wrong("query: set query_limit to the highest number that it may return");
        }
        (None, Some(_)) => return wrong("query_limit: set query, which returns the number"),
    };
    Ok(ThrottleBy {
        threads_running: config.threads_running,
        replica_lag,
        query,
        at_least: NonZeroU32::new(config.at_least),
    })
}
