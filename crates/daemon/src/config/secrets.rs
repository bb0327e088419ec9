//! Files with secrets: passwords and tokens.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use csa_provider::server::link::secret_text;
use secrecy::{ExposeSecret as _, SecretString};

use super::error::{ConfigError, Result};

/// A shorter token could be guessed.
const TOKEN_LEN_MIN: usize = 16;

/// Returns the secret of a file.
pub(super) fn secret(key: &str, path: &Path) -> Result<SecretString> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError(format!("{key}: {}: {error}", path.display())))?;
    Ok(secret_text(&text).into())
}

/// Returns true if a file contains a password itself.
pub(super) fn holds_password(text: &str) -> bool {
    text.lines().any(|line| {
        line.trim_start()
            .strip_prefix("password")
            .is_some_and(|rest| rest.trim_start().starts_with('='))
    })
}

/// Reads a token from a file.
pub(crate) fn token(key: &str, path: &Path, warnings: &mut Vec<String>) -> Result<SecretString> {
    let token = secret(key, path)?;
    let text = token.expose_secret().trim();
    let usable = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.len() < TOKEN_LEN_MIN || !usable {
        return Err(ConfigError(format!(
            "{key}: {}: a token is one line of at least {TOKEN_LEN_MIN} visible ASCII characters",
            path.display()
        )));
    }
    if is_world_readable(path) {
        warnings.push(format!("{key}: everyone can read {}; chmod 600", path.display()));
    }
    Ok(text.into())
}

/// Returns true if everyone on this host can read a file.
pub(super) fn is_world_readable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_editors_write_around_a_secret_does_not_count() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = "0123456789abcdef";
        std::fs::write(file.path(), format!("\u{feff}{text}\r\n")).expect("written");
        let found = secret("claims.password_file", file.path()).expect("readable");
        assert_eq!(found.expose_secret(), text);
        let found = token("--token-file", file.path(), &mut Vec::new()).expect("a token");
        assert_eq!(found.expose_secret(), text);
    }
}
