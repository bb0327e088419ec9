//! Files with secrets: passwords and tokens.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use csa_provider::server::link::secret_text;
use secrecy::{ExposeSecret as _, SecretString};
use toml::{Table, Value};

use super::error::{ConfigError, Result};

/// A shorter token could be guessed.
const TOKEN_LEN_MIN: usize = 16;

/// Returns the secret of a file.
pub(super) fn secret(key: &str, path: &Path) -> Result<SecretString> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError(format!("{key}: {}: {error}", path.display())))?;
    Ok(secret_text(&text).into())
}

/// Returns true if a file contains a password itself, in whatever form it is written.
pub(super) fn holds_password(text: &str) -> bool {
    fn is_in(value: &Value) -> bool {
        match value {
            Value::Table(table) => {
                table.iter().any(|(key, value)| key == "password" && value.is_str() || is_in(value))
            }
            Value::Array(values) => values.iter().any(is_in),
            _ => false,
        }
    }
    text.parse::<Table>().is_ok_and(|table| is_in(&Value::Table(table)))
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
    fn a_password_is_found_however_it_is_written() {
        for text in [
            "[[channel]]\n[channel.source]\npassword = 'x'\n",
            "[[channel]]\nsource = { host = 'h', password = 'x' }\n",
            "[[channel]]\nsource.password = 'x'\n",
            "[defaults.target]\n\"password\" = 'x'\n",
        ] {
            assert!(holds_password(text), "{text}");
        }
        assert!(!holds_password("[[channel]]\n# password = 'x'\nsource.password_file = '/f'\n"));
    }

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
