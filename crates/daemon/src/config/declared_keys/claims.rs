//! The keys of `[claims]`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults::{number, seconds};
use crate::config::units::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::config) enum ClaimsEngine {
    /// Nothing is shared: this daemon runs all channels, or waits for their locks on the targets
    /// (`standby`).
    #[default]
    None,
    /// etcd 3.4 or later.
    Etcd,
    /// Lease objects in a namespace of Kubernetes.
    Kubernetes,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct ClaimsConfig {
    /// Service that keeps the claims.
    #[serde(default)]
    pub(in crate::config) engine: ClaimsEngine,
    /// Servers of the engine, tried in order. In a pod with `kubernetes`: by default the cluster's API server.
    #[serde(default)]
    #[schemars(
        example = ["https://etcd1.example.com:2379", "https://etcd2.example.com:2379"],
        extend("x-takes" = "list of `http://HOST:PORT` and `https://HOST:PORT`")
    )]
    pub(in crate::config) endpoints: Vec<String>,
    /// Beginning of all keys in the engine, or of the names of all Leases (without the slash, so `csa-daemon`).
    /// Daemons with the same prefix are a fleet.
    #[serde(default = "prefix")]
    pub(in crate::config) prefix: String,
    /// Name of this daemon in the fleet; by default that of the host.
    #[schemars(example = &"db7", extend("x-takes" = "1 to 64 of a-z A-Z 0-9 . _ -"))]
    pub(in crate::config) name: Option<String>,
    /// Share of this daemon, relative to those of the others; 0 for none.
    #[serde(default = "number::<u32, 100>")]
    #[schemars(range(min = 0, max = 1000000))]
    pub(in crate::config) weight: u32,
    /// Time after which the channels of a daemon that dies go to others; whole seconds. A daemon that
    /// restarts within this time keeps its channels.
    #[serde(default = "seconds::<15>")]
    #[schemars(extend("x-at-least" = "3s"))]
    pub(in crate::config) ttl: Duration,
    /// Time after the last daemon has joined or left the fleet until channels move to where they belong.
    #[serde(default = "seconds::<60>")]
    pub(in crate::config) rebalance_delay: Duration,
    /// Namespace of the Leases (`kubernetes`); by default that of the pod.
    #[schemars(example = &"replication")]
    pub(in crate::config) namespace: Option<String>,
    /// File with the token of the account (`kubernetes`), read before each request; by default that of the pod.
    #[schemars(example = "/etc/csa-daemon/kubernetes.token")]
    pub(in crate::config) token_file: Option<PathBuf>,
    /// Account in the engine, if it has accounts (`etcd`).
    #[schemars(example = &"csa")]
    pub(in crate::config) user: Option<String>,
    /// File with the account's password.
    #[schemars(example = "/etc/csa-daemon/etcd.pw")]
    pub(in crate::config) password_file: Option<PathBuf>,
    /// Certificates of the authorities to trust for https; with `kubernetes` by default those of the pod.
    #[schemars(example = "/etc/csa-daemon/etcd-ca.pem")]
    pub(in crate::config) tls_ca: Option<PathBuf>,
    /// Certificate of this daemon.
    #[schemars(example = "/etc/csa-daemon/etcd-client.pem")]
    pub(in crate::config) tls_cert: Option<PathBuf>,
    /// Private key of `tls_cert`.
    #[schemars(example = "/etc/csa-daemon/etcd-client-key.pem")]
    pub(in crate::config) tls_key: Option<PathBuf>,
}

fn prefix() -> String {
    "/csa-daemon".to_owned()
}
