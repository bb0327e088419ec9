//! Passwords of accounts.

use std::io;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};

/// A password, or the file that holds it. The file is read at each login, so a new password needs no restart.
#[derive(Debug, Clone)]
pub struct Password {
    /// The text when the options were made, from the file if there is one.
    text: SecretString,
    file: Option<PathBuf>,
}

impl Password {
    /// Reads a file, whose last newline does not count.
    ///
    /// # Errors
    /// It can't be read.
    pub fn in_file(path: &Path) -> io::Result<Self> {
        Ok(Self { text: read(path)?, file: Some(path.to_owned()) })
    }

    /// Returns the password for a login now. A file that can't be read, such as one that is being replaced, counts as
    /// it was.
    #[must_use]
    pub fn current(&self) -> SecretString {
        let read = self.file.as_deref().and_then(|path| read(path).ok());
        read.unwrap_or_else(|| self.text.clone())
    }

    /// Returns true if both are from the same file, or have the same text.
    #[must_use]
    pub fn is_from_the_same(&self, other: &Self) -> bool {
        match (&self.file, &other.file) {
            (Some(one), Some(other)) => one == other,
            (None, None) => self.has_the_same_text(other),
            _ => false,
        }
    }

    /// Returns true if both had the same text when the options were made.
    #[must_use]
    pub fn has_the_same_text(&self, other: &Self) -> bool {
        self.text.expose_secret() == other.text.expose_secret()
    }
}

#[expect(clippy::disallowed_methods, reason = "passwords of the host")]
fn read(path: &Path) -> io::Result<SecretString> {
    let text = std::fs::read_to_string(path)?;
    Ok(text.strip_suffix('\n').unwrap_or(&text).into())
}

impl From<SecretString> for Password {
    fn from(text: SecretString) -> Self {
        Self { text, file: None }
    }
}

impl From<String> for Password {
    fn from(text: String) -> Self {
        SecretString::from(text).into()
    }
}

impl From<&str> for Password {
    fn from(text: &str) -> Self {
        SecretString::from(text).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_at_each_login_and_counts_as_it_was_while_it_is_away() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = |text: &str| std::fs::write(file.path(), text).unwrap();
        write("old\n");
        let password = Password::in_file(file.path()).unwrap();
        assert_eq!(password.current().expose_secret(), "old");
        write("new with a space \n");
        assert_eq!(password.current().expose_secret(), "new with a space ");
        let later = Password::in_file(file.path()).unwrap();
        assert!(password.is_from_the_same(&later) && !password.has_the_same_text(&later));
        drop(file);
        assert_eq!(password.current().expose_secret(), "old");
        assert!(Password::from("x").is_from_the_same(&"x".into()));
        assert!(!Password::from("x").is_from_the_same(&"y".into()));
        assert!(!password.is_from_the_same(&"old".into()));
        assert_eq!(format!("{password:?}").matches("old").count(), 0);
    }
}
