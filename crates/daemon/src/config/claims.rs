//! Conversion of `[claims]`; the part for Kubernetes is in [`claims_kubernetes`](super::claims_kubernetes).

use std::time::Duration;

use crate::claims::etcd::EtcdOptions;
use crate::claims::http::Endpoint;
use crate::claims::kubernetes::KubernetesOptions;

use super::addresses::is_private;
use super::claims_kubernetes::{Pod, kubernetes};
use super::claims_tls::tls;
use super::declared_keys::{ClaimsConfig, ClaimsEngine};
use super::error::{ConfigError, Result, refuse};
use super::secrets::{is_world_readable, secret};

/// Length limit of a name, which is part of a key in the engine.
const NAME_LEN_MAX: usize = 64;

/// This daemon's place in a fleet.
#[derive(Debug)]
pub(crate) struct Claims {
    pub(crate) engine: BackEnd,
    pub(crate) name: String,
    pub(crate) weight: u32,
    pub(crate) ttl: Duration,
    pub(crate) rebalance_delay: Duration,
}

/// The service that keeps the claims.
#[derive(Debug)]
pub(crate) enum BackEnd {
    Etcd(EtcdOptions),
    Kubernetes(KubernetesOptions),
}

/// Returns `None` where nothing is shared.
pub(super) fn resolve(config: ClaimsConfig, warnings: &mut Vec<String>) -> Result<Option<Claims>> {
    if config.engine == ClaimsEngine::None {
        if !config.endpoints.is_empty() {
            warnings.push("claims.endpoints: without effect: claims.engine is \"none\"".to_owned());
        }
        return Ok(None);
    }
    for (key, path) in [
        ("password_file", &config.password_file),
        ("token_file", &config.token_file),
        ("tls_key", &config.tls_key),
    ] {
        if let Some(path) = path.as_deref().filter(|path| is_world_readable(path)) {
            let path = path.display();
            warnings.push(format!("claims.{key}: everyone can read {path}; chmod 600"));
        }
    }
    let ttl = config.ttl.0;
    if ttl.subsec_nanos() != 0 {
        return refuse(format!("claims.ttl: {ttl:?}: whole seconds, like \"15s\""));
    }
    Ok(Some(Claims {
        name: name(config.name.clone())?,
        weight: config.weight,
        ttl,
        rebalance_delay: config.rebalance_delay.0,
        engine: match config.engine {
            ClaimsEngine::Kubernetes => BackEnd::Kubernetes(kubernetes(config, &Pod::own())?),
            ClaimsEngine::Etcd => BackEnd::Etcd(etcd(config)?),
            ClaimsEngine::None => return Ok(None),
        },
    }))
}

fn name(written: Option<String>) -> Result<String> {
    let (from, name) = match written {
        Some(name) => ("", name),
        None => {
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            ("the host is called ", host.trim().to_owned())
        }
    };
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match name.is_empty() || name.len() > NAME_LEN_MAX || !name.bytes().all(known) {
        true => refuse(format!(
            "claims.name: {from}{name:?}: 1 to 64 of a-z, A-Z, 0-9, ., _ and - are allowed"
        )),
        false => Ok(name),
    }
}

fn etcd(config: ClaimsConfig) -> Result<EtcdOptions> {
    for (key, is_set) in
        [("namespace", config.namespace.is_some()), ("token_file", config.token_file.is_some())]
    {
        if is_set {
            return refuse(format!("claims.{key}: only with claims.engine = \"kubernetes\""));
        }
    }
    let prefix = config.prefix.trim_end_matches('/').to_owned();
    if prefix.is_empty() {
        return refuse("claims.prefix: must not be empty");
    }
    if config.endpoints.is_empty() {
        return refuse(
            "claims.endpoints: name at least one server, like \"http://127.0.0.1:2379\"",
        );
    }
    let login = match (config.user, config.password_file) {
        (None, None) => None,
        (Some(user), Some(file)) => Some((user, secret("claims.password_file", &file)?)),
        _ => return refuse("claims.user: user and password_file go together"),
    };
    let files = (config.tls_cert.as_deref(), config.tls_key.as_deref());
    let tls = config.tls_ca.as_deref().map(|ca| tls(ca, files)).transpose()?;
    let endpoint = |text: &String| {
        if login.is_some() && !is_private(text) {
            return refuse(format!(
                "claims.endpoints: {text}: others could read the password of claims.user there; use https"
            ));
        }
        let hint = if text.starts_with("https") { "; set claims.tls_ca" } else { "" };
        Endpoint::parse(text, tls.as_ref())
            .map_err(|why| ConfigError(format!("claims.endpoints: {why}{hint}")))
    };
    let endpoints = config.endpoints.iter().map(endpoint).collect::<Result<_>>()?;
    Ok(EtcdOptions { endpoints, prefix, ttl: config.ttl.0, login })
}
