//! Logins at a source beside a dump, whose own link lasts whatever the source says to them.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::seams::backoff::Backoff;
use crate::source::cause::SourceCause;
use crate::source::connection::ConnectionError;
use crate::source::options::SourceOptions;

/// The longest pause after a login that fails by TLS or by its plugin.
const LONGEST: Duration = Duration::from_secs(600);

/// The pause that all logins beside one dump keep after one that was refused. Without it an account with another
/// password would soon be locked (`FAILED_LOGIN_ATTEMPTS`), and the dump shows nothing of that.
#[derive(Debug)]
pub(crate) struct SideLogins {
    earliest: Instant,
    /// The pauses after logins that fail by TLS or by their plugin.
    unprotected: Backoff,
    has_warned: bool,
}

impl SideLogins {
    pub(crate) fn new() -> Self {
        let unprotected = Backoff::unhurried(Duration::from_secs(30), LONGEST);
        Self { earliest: Instant::now(), unprotected, has_warned: false }
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
            Ok(_) => return *self = Self::new(),
            Err(error) => error,
        };
        let chance = &*options.environment.chance;
        let pause = match error.refused_pause(chance) {
            Some(pause) => pause,
            // A source counts each, and blocks this host after some (`max_connect_errors`) until an operator helps.
            None if error.cause() == SourceCause::Protection => {
                self.unprotected.jittered(0.75..1.25, chance)
            }
            None => return,
        };
        self.earliest = Instant::now() + pause;
        if !std::mem::replace(&mut self.has_warned, true) {
            warn!(
                %host, port, %error,
                "a login at the source fails beside the dump, which continues; correct the account, the \
                 certificate or the limit before the link ends, or the next login will fail, too"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::link::LinkError;
    use crate::source::connection::fake_source::options;

    /// After a hundred of them a source blocks this host.
    #[tokio::test(start_paused = true)]
    async fn logins_that_fail_by_tls_become_rare() {
        let (mut logins, options) = (SideLogins::new(), options());
        let mut pause_after = |result: Result<(), ConnectionError>| {
            logins.note(&result, &options, ("source", 3306));
            logins.earliest() - Instant::now()
        };
        let failed = || Err(ConnectionError::from(LinkError::Tls("another authority".to_owned())));
        let first = pause_after(failed());
        assert!((22..=38).contains(&first.as_secs()), "{first:?}");
        let later = (0..10).map(|_| pause_after(failed())).max();
        assert!(later >= Some(LONGEST * 3 / 4), "{later:?}");
        assert_eq!(pause_after(Ok(())), Duration::ZERO);
        let again = pause_after(failed());
        assert!((22..=38).contains(&again.as_secs()), "{again:?}");
    }
}
