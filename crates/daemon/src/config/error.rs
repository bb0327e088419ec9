//! Bad input in the configuration.

use crate::host::Failure;

/// Bad input: one line that names the file and the key.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(pub(crate) String);

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Input(error.0)
    }
}

pub(super) type Result<T> = std::result::Result<T, ConfigError>;

/// Refuses for this reason.
pub(super) fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(ConfigError(why.into()))
}

/// Returns a TOML error with its line, on one line.
pub(super) fn one_line(error: &toml::de::Error, text: &str) -> String {
    let line = error
        .span()
        .map(|span| text.get(..span.start).unwrap_or_default().matches('\n').count() + 1);
    let message = error.message().replace('\n', " ");
    match line {
        Some(line) => format!("line {line}: {message}"),
        None => message,
    }
}
