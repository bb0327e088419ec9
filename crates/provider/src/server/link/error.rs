//! The errors of a link, and those that waiting does not fix.

use std::time::Duration;

use super::Side;
use super::server_errors::{Opening, rule_of};
use crate::seams::backoff::{Backoff, unhurried};
use crate::seams::chance::Chance;

/// The reason a connection to a server failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    #[error("{0}")]
    Io(#[source] std::io::Error),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("nothing received for {0:?}, heartbeats included: the link is dead")]
    Silent(Duration),
    #[error("error {code}: {message}")]
    Server { code: u16, message: String },
    #[error("TLS: {0}")]
    Tls(String),
    #[error("login: {0}")]
    Login(String),
    #[error("protocol: {0}")]
    Protocol(String),
    /// More than any genuine answer; nothing of it is kept.
    #[error("too long: {0}")]
    TooLong(String),
    #[error("the server closed the connection")]
    Closed,
    /// The link was lost, or a dropped future or an exceeded limit left the rest of an answer on it.
    #[error("an earlier question got no whole answer on this link, so it can't be used any more")]
    OutOfStep,
}

/// The longest pause where nothing listens at the address. The server does not see such an attempt, and so counts none,
/// and it may be back any moment.
const DOWN_PAUSE: Duration = Duration::from_secs(5);

/// Returns the pause before another attempt where a server refuses sessions, give or take a quarter.
#[must_use]
pub fn refused_pause() -> Duration {
    unhurried(Duration::from_secs(30))
}

/// No such schema, no such table.
pub const NO_TABLE: [u16; 2] = [1049, 1146];

impl From<std::io::Error> for LinkError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            // A server that ends an encrypted link without a goodbye; rustls says so with an address on the
            // web. Packets have lengths, so nothing cut off can pass for the whole.
            std::io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

impl LinkError {
    /// Returns the server's error number, if it sent one.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Server { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns the meaning of the error where a session is opened.
    #[must_use]
    pub fn opening(&self) -> Opening {
        match self {
            Self::Server { code, .. } => rule_of(*code).map_or(Opening::Away, |rule| rule.opening),
            // Tried again soon: a certificate may be being replaced, or the server have gone in the middle.
            _ => Opening::Away,
        }
    }

    /// Returns the pause before the next attempt to open a session, where that is longer than for a server that
    /// is away.
    #[must_use]
    pub fn refused_pause(&self, chance: &dyn Chance) -> Option<Duration> {
        // Jittered: all channels of a target meet the refusal at once.
        let mut pause = Backoff::new(refused_pause(), refused_pause());
        self.opening().is_tried_slowly().then(|| pause.jittered(0.75..1.25, chance))
    }

    /// Returns the pause before the next attempt to open a session, where the usual one does not depend on the error.
    #[must_use]
    pub fn pause(&self, usual: Duration, chance: &dyn Chance) -> Duration {
        match self {
            Self::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                usual.min(DOWN_PAUSE)
            }
            _ => self.refused_pause(chance).unwrap_or(usual),
        }
    }

    /// The server refuses the account.
    pub(crate) fn is_account(&self) -> bool {
        self.opening() == Opening::Account
    }

    /// Returns true if the two sides do not agree on the protection of the link.
    #[must_use]
    pub fn is_protection(&self) -> bool {
        matches!(self, Self::Tls(_) | Self::Login(_)) || self.is_unencrypted()
    }

    /// The server accepts only encrypted connections.
    fn is_unencrypted(&self) -> bool {
        self.opening() == Opening::Protection
    }

    /// The reason a login is refused, on one line that names the change it takes. `None` if the
    /// cause may pass on its own, such as a server that is unreachable, full or shutting down.
    #[must_use]
    pub fn refusal(&self, side: Side, address: &str, user: &str) -> Option<String> {
        match self {
            _ if self.is_unencrypted() => Some(format!(
                "{side} {address}: {self} (set [channel.{side}] tls to \"required\", or to \
                 \"verify-ca\" with tls_ca)"
            )),
            _ if self.is_protection() => Some(format!("{side} {address}: {self}")),
            Self::Server { code, .. } if self.is_account() => Some(format!(
                "{side} {address} refused user '{user}': {self} ({}check [channel.{side}] user and \
                 password)",
                there(*code)
            )),
            _ => None,
        }
    }
}

/// Returns the change that the server may need, before the one in the configuration.
fn there(code: u16) -> &'static str {
    match code {
        1130 => "create the account for this host there, or ",
        1251 | 1524 => "give the account caching_sha2_password there, or ",
        1820 | 1862 => "give the account a new password there, or ",
        3118 | 3955 | 4151 => "unlock the account there, or ",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seams::chance::SystemChance;

    fn refusal(error: &LinkError) -> Option<String> {
        error.refusal(Side::Target, "db:3306", "csa")
    }

    #[test]
    fn a_link_that_ends_without_a_goodbye_was_closed() {
        let text = "peer closed connection without sending TLS close_notify: https://...";
        let end = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, text);
        assert!(matches!(LinkError::from(end), LinkError::Closed));
    }

    #[test]
    fn what_only_a_change_can_cure_is_refused() {
        for (code, message) in [
            (1045, "Access denied for user"),
            (1524, "Plugin 'mysql_native_password' is not loaded"),
            (1862, "Your password has expired"),
            (3118, "Access denied: Account is locked"),
            (3159, "Connections using insecure transport are prohibited"),
        ] {
            let error = LinkError::Server { code, message: message.to_owned() };
            let text = refusal(&error).expect("refused");
            for word in ["target db:3306", &code.to_string(), message, "[channel.target]"] {
                assert!(text.contains(word), "{word:?} is missing in {text}");
            }
        }
        assert!(refusal(&LinkError::Tls("no".to_owned())).is_some());
        assert!(refusal(&LinkError::Login("no".to_owned())).is_some());
    }

    #[test]
    fn a_server_that_is_down_is_asked_more_often_than_one_that_refuses() {
        let usual = Duration::from_secs(20);
        let pause = |error: LinkError| error.pause(usual, &SystemChance);
        assert_eq!(pause(LinkError::Io(std::io::ErrorKind::ConnectionRefused.into())), DOWN_PAUSE);
        assert_eq!(pause(LinkError::Timeout(usual)), usual, "it may see the attempts");
        assert!(pause(LinkError::Server { code: 1045, message: String::new() }) > usual);
    }

    #[test]
    fn what_passes_by_itself_is_waited_for() {
        for code in [1040, 1053, 1129, 1203, 1226, 3032] {
            let error = LinkError::Server { code, message: String::new() };
            assert_eq!(refusal(&error), None);
        }
        for error in [
            LinkError::Io(std::io::ErrorKind::ConnectionRefused.into()),
            LinkError::Io(std::io::ErrorKind::ConnectionReset.into()),
            LinkError::Timeout(Duration::from_secs(1)),
            LinkError::Closed,
        ] {
            assert_eq!(refusal(&error), None, "{error}");
        }
    }
}
