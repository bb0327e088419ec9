//! Logins at a source beside a dump, whose own link lasts whatever the source says to them.

use tokio::time::Instant;
use tracing::warn;

use crate::source::connection::ConnectionError;
use crate::source::options::SourceOptions;

/// The pause that all logins beside one dump keep after one that was refused. Without it an account with another
/// password would soon be locked (`FAILED_LOGIN_ATTEMPTS`), and the dump shows nothing of that.
#[derive(Debug)]
pub(crate) struct SideLogins {
    earliest: Instant,
    has_warned: bool,
}

impl SideLogins {
    pub(crate) fn new() -> Self {
        Self { earliest: Instant::now(), has_warned: false }
    }

    /// Returns the time before which no login may begin.
    pub(crate) const fn earliest(&self) -> Instant {
        self.earliest
    }

    /// Notes the result of a login and of the questions after it.
    pub(crate) fn note<T>(
        &mut self,
        result: &Result<T, ConnectionError>,
        options: &SourceOptions,
        (host, port): (&str, u16),
    ) {
        let error = match result {
            Ok(_) => return self.has_warned = false,
            Err(error) => error,
        };
        let Some(pause) = error.refused_pause(&*options.environment.chance) else { return };
        self.earliest = Instant::now() + pause;
        if !std::mem::replace(&mut self.has_warned, true) {
            warn!(
                %host, port, %error,
                "the source refuses a login beside the dump, which continues; correct the account or the limit \
                 before the link ends, or the next login will be refused, too"
            );
        }
    }
}
