//! Passwords of accounts.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{Instant, sleep, sleep_until};

/// How often a pause looks whether the file has another password.
const LOOK: Duration = Duration::from_secs(1);

/// A file that is written in place holds half of its text for a moment.
const WRITTEN: Duration = Duration::from_millis(200);

/// A password, or the file that holds it. The file is read at each login, so a new password needs no restart.
#[derive(Debug, Clone)]
pub struct Password {
    /// The text when the options were made, from the file if there is one.
    text: SecretString,
    file: Option<PathBuf>,
}

impl Password {
    /// Reads a file, in which [`secret_text`] counts.
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

    /// Waits before another attempt to log in. A file that gets another password ends the wait: that is the change a
    /// refused login waits for, and one attempt for each change harms no server.
    pub async fn pause(&self, pause: Duration) {
        let end = Instant::now() + pause;
        let Some(file) = self.file.as_deref() else { return sleep_until(end).await };
        let before = self.current();
        while Instant::now() < end {
            sleep_until(end.min(Instant::now() + LOOK)).await;
            // One that is away or empty is being replaced.
            let now = read(file).ok().filter(|now| !now.expose_secret().is_empty());
            if now.is_some_and(|now| now.expose_secret() != before.expose_secret()) {
                return sleep(WRITTEN).await;
            }
        }
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
    Ok(secret_text(&std::fs::read_to_string(path)?).into())
}

/// Returns the secret of a file or a variable: editors and clusters write a newline after it, and some a byte order
/// mark before it, which are no part of any password.
#[must_use]
pub fn secret_text(text: &str) -> &str {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.strip_suffix("\r\n").or_else(|| text.strip_suffix('\n')).unwrap_or(text)
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

    #[test]
    fn what_editors_write_around_a_password_does_not_count() {
        for (text, secret) in [
            ("s", "s"),
            ("s\n", "s"),
            ("s\r\n", "s"),
            ("\u{feff}s\r\n", "s"),
            ("\u{feff}\n", ""),
            (" s \n\n", " s \n"),
            ("s\r", "s\r"),
            ("s\u{feff}", "s\u{feff}"),
        ] {
            assert_eq!(secret_text(text), secret, "{text:?}");
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            let password = Password::in_file(file.path()).unwrap();
            assert_eq!(password.current().expose_secret(), secret, "{text:?}");
        }
    }

    /// Returns how long a pause of 30 s lasts where the file is written after five seconds.
    async fn paused(file: &Path, texts: &[&str]) -> Duration {
        std::fs::write(file, "old\n").unwrap();
        let password = Password::in_file(file).unwrap();
        let begin = Instant::now();
        let change = async {
            for text in texts {
                sleep(Duration::from_secs(5)).await;
                std::fs::write(file, text).unwrap();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = password.pause(Duration::from_secs(30)) => {}
            () = change => {}
        }
        begin.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_ends_when_the_file_gets_another_password() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        let seconds = |from, to| Duration::from_secs(from)..Duration::from_secs(to);
        for (texts, lasts) in [
            (&["new\n"][..], seconds(5, 7)),
            // Nothing but the time of the file changes, or it is emptied before it is written.
            (&["old\n"], seconds(30, 31)),
            (&["", "new\n"], seconds(10, 12)),
            (&["", "old\n"], seconds(30, 31)),
        ] {
            let lasted = paused(&file, texts).await;
            assert!(lasts.contains(&lasted), "{texts:?}: {lasted:?}");
        }
        let begin = Instant::now();
        Password::from("x").pause(Duration::from_secs(30)).await;
        assert_eq!(begin.elapsed(), Duration::from_secs(30));
    }
}
