//! The limits of an account, as its server shows them.

use super::check_session::CheckSession;

/// The limits of an account, each 0 for none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AccountLimits {
    /// By the hour: name in ALTER USER, and number.
    pub(super) hourly: Vec<(&'static str, u64)>,
    /// The number of sessions at the same time.
    pub(super) sessions: u64,
}

impl AccountLimits {
    /// Reads them; none where the server does not show them.
    pub(super) async fn read(session: &mut CheckSession) -> Self {
        let shown = session.value("SHOW CREATE USER CURRENT_USER()").await;
        Self::parse(&shown.ok().flatten().unwrap_or_default())
    }

    fn parse(shown: &str) -> Self {
        let number = |name: &str| {
            let (_, rest) = shown.split_once(&format!(" {name} "))?;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        let hourly = ["MAX_QUERIES_PER_HOUR", "MAX_UPDATES_PER_HOUR", "MAX_CONNECTIONS_PER_HOUR"];
        Self {
            hourly: hourly.into_iter().filter_map(|name| Some((name, number(name)?))).collect(),
            sessions: number("MAX_USER_CONNECTIONS").unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_an_account_are_read() {
        for (shown, hourly, sessions) in [
            (
                "CREATE USER `csa`@`%` IDENTIFIED WITH 'x' AS 'y' REQUIRE NONE PASSWORD EXPIRE DEFAULT",
                vec![],
                0,
            ),
            (
                "CREATE USER `csa`@`%` REQUIRE NONE WITH MAX_QUERIES_PER_HOUR 90 MAX_USER_CONNECTIONS 3 PASSWORD",
                vec![("MAX_QUERIES_PER_HOUR", 90)],
                3,
            ),
            (
                "CREATE USER 'csa'@'%' WITH MAX_UPDATES_PER_HOUR 5",
                vec![("MAX_UPDATES_PER_HOUR", 5)],
                0,
            ),
            ("", vec![], 0),
        ] {
            assert_eq!(AccountLimits::parse(shown), AccountLimits { hourly, sessions }, "{shown}");
        }
    }
}
