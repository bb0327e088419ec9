//! The login of a server, from the keys that source and target share.

use std::path::PathBuf;

use csa_applier::{PublicKey, TlsOptions};
use csa_provider::server::TlsMode;
use csa_provider::server::link::{Password, secret_text};
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::error::{ConfigError, Result, refuse};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Tls {
    /// No TLS.
    Disabled,
    /// TLS if the server has it.
    #[default]
    Preferred,
    /// TLS, with any certificate.
    Required,
    /// TLS, with a certificate of an authority in `tls_ca`.
    VerifyCa,
    /// The same, and the certificate must have the name of the host.
    VerifyIdentity,
}

impl From<Tls> for TlsMode {
    fn from(tls: Tls) -> Self {
        match tls {
            Tls::Disabled => Self::Disabled,
            Tls::Preferred => Self::Preferred,
            Tls::Required => Self::Required,
            Tls::VerifyCa => Self::VerifyCa,
            Tls::VerifyIdentity => Self::VerifyIdentity,
        }
    }
}

pub(super) fn check_tls(side: &str, tls: &TlsOptions) -> Result<()> {
    if tls.mode.verifies() && tls.ca.is_none() {
        return refuse(format!("{side}.tls: a mode that verifies needs tls_ca"));
    }
    if tls.cert.is_some() != tls.key.is_some() {
        return refuse(format!("{side}: tls_cert and tls_key go together"));
    }
    Ok(())
}

/// Like native replication: off unless requested.
pub(super) fn public_key(side: &str, file: Option<PathBuf>, get: bool) -> Result<PublicKey> {
    match (file, get) {
        (Some(_), true) => refuse(format!("{side}: public_key_file or get_public_key, not both")),
        (Some(file), false) => Ok(PublicKey::Pinned(file)),
        (None, true) => Ok(PublicKey::Asked),
        (None, false) => Ok(PublicKey::None),
    }
}

pub(super) fn password(
    side: &str,
    literal: Option<SecretString>,
    file: Option<PathBuf>,
    env: Option<String>,
) -> Result<Password> {
    match (literal, file, env) {
        (Some(password), None, None) => Ok(password.into()),
        (None, Some(path), None) => Password::in_file(&path).map_err(|error| {
            ConfigError(format!("{side}.password_file: {}: {error}", path.display()))
        }),
        (None, None, Some(name)) => match std::env::var(&name) {
            Ok(text) => Ok(secret_text(&text).into()),
            Err(_) => refuse(format!("{side}.password_env: the environment has no {name}")),
        },
        (None, None, None) => {
            refuse(format!("{side}: password_file, password_env or password is missing"))
        }
        _ => {
            refuse(format!("{side}: one of password_file, password_env and password, not several"))
        }
    }
}
