//! The questions to the servers, each over sessions of its own, so that one that hangs holds up nothing
//! else.

use std::time::Duration;

use crate::observe::gtid_lag::GtidLag;
use csa_applier::{Purpose, TargetOptions, connect, prelude};
use csa_provider::binlog::GtidSet;
use csa_provider::server::Vendor;
use csa_provider::server::link::{FromRow, Limits, Link, LinkError, Row, Side, Value};
use csa_provider::sql_text::quote;
use tokio::time::Instant;

/// A connection and its answer within this time. An overloaded server may need long for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Or the reason why there is no answer.
type Answered<T> = Result<T, String>;

/// A question that is asked again and again.
#[derive(Debug)]
pub(super) enum HealthQuestion {
    /// Sessions that execute something, without those of this account.
    Threads { target: AskedServer },
    /// The operator's own.
    Query { target: AskedServer, text: String },
    /// Seconds by which a replica lags the target.
    Lag { target: Box<AskedServer>, replica: Box<AskedServer>, lag: GtidLag },
    /// Milliseconds in which a source answers small queries.
    AnswerTime { source: AskedServer },
}

impl HealthQuestion {
    /// Returns the server that is asked.
    pub(super) fn server(&self) -> &AskedServer {
        match self {
            Self::Lag { replica, .. } => replica,
            Self::Threads { target } | Self::Query { target, .. } => target,
            Self::AnswerTime { source } => source,
        }
    }

    pub(super) async fn ask(&mut self) -> Answered<f64> {
        match self {
            Self::Threads { target } => {
                let vendor = target.vendor().await?;
                let query = threads_running(vendor, &target.options.user);
                let value = target.value(&query).await?;
                let needs = |why| format!("{why}; the target needs performance_schema = ON");
                number(value).map_err(needs)
            }
            Self::Query { target, text } => number(target.value(text).await?),
            Self::AnswerTime { source } => source.answer_time().await,
            Self::Lag { target, replica, lag } => {
                let executed = target.executed().await?;
                lag.source_at(Instant::now().into_std(), executed);
                let executed = replica.executed().await.map_err(|why| format!("replica: {why}"))?;
                lag.target_at(&executed);
                Ok(lag.get(Instant::now().into_std()).as_secs_f64())
            }
        }
    }
}

/// The sessions of our account are the channel's own load: its workers', of which all but those that wait
/// for a lock or their turn execute something.
fn threads_running(vendor: Vendor, user: &str) -> String {
    let user = quote(user);
    match vendor {
        // Threads that wait for a client to send more, and those that serve replicas, cost nothing.
        Vendor::MySql | Vendor::MySql57 => format!(
            "SELECT IF(@@GLOBAL.performance_schema, COUNT(*), NULL) FROM performance_schema.threads \
             WHERE TYPE='FOREGROUND' AND PROCESSLIST_USER<>{user} AND PROCESSLIST_COMMAND NOT IN \
             ('Sleep','Daemon','Connect','Binlog Dump','Binlog Dump GTID')"
        ),
        // Its performance_schema is off unless asked for. Without PROCESS an account sees its own sessions,
        // which are all that is needed.
        Vendor::MariaDb => format!(
            "SELECT CAST(VARIABLE_VALUE AS SIGNED) - (SELECT COUNT(*) FROM \
             information_schema.PROCESSLIST WHERE USER={user} AND COMMAND<>'Sleep') FROM \
             information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME='THREADS_RUNNING'"
        ),
    }
}

fn number(value: Value) -> Answered<f64> {
    let text = match value {
        Value::NULL => return Err("it returned NULL".to_owned()),
        Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        other => other.as_sql(true),
    };
    let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite());
    // The value itself may be data.
    number.ok_or_else(|| "it returned something other than a number".to_owned())
}

/// A server that is asked, and the session once there is one.
#[derive(Debug)]
pub(super) struct AskedServer {
    side: Side,
    options: TargetOptions,
    link: Option<(Link, Vendor)>,
}

impl AskedServer {
    pub(super) fn new(side: Side, options: TargetOptions) -> Self {
        let connect_timeout = options.connect_timeout.min(PATIENCE);
        Self { side, options: TargetOptions { connect_timeout, ..options }, link: None }
    }

    pub(super) fn address(&self) -> String {
        self.options.address()
    }

    /// Returns the milliseconds that small queries take, of ten all but the slowest two.
    pub(super) async fn answer_time(&mut self) -> Answered<f64> {
        const QUERIES: usize = 10;
        const SLOWEST: usize = 2;
        const PAUSE: Duration = Duration::from_millis(20);
        let mut took = Vec::with_capacity(QUERIES);
        self.vendor().await?;
        for _ in 0..QUERIES {
            let begun = Instant::now();
            self.value("SELECT 1").await?;
            took.push(begun.elapsed().as_secs_f64() * 1e3);
            tokio::time::sleep(PAUSE).await;
        }
        took.sort_by(f64::total_cmp);
        Ok(took.get(QUERIES - SLOWEST - 1).copied().unwrap_or_default())
    }

    async fn vendor(&mut self) -> Answered<Vendor> {
        let opened = tokio::time::timeout(PATIENCE, self.open()).await;
        opened.unwrap_or_else(|_| Err(self.silent()))
    }

    async fn executed(&mut self) -> Answered<GtidSet> {
        if self.vendor().await? == Vendor::MariaDb {
            return Err(
                "MariaDB has no GTID sets; measure the lag with throttle_by.query".to_owned()
            );
        }
        let text: Option<String> = self.ask("SELECT @@GLOBAL.gtid_executed").await?;
        let set = text.unwrap_or_default();
        set.parse().map_err(|error| format!("gtid_executed: {error}"))
    }

    /// Returns the value in the first column of the only row.
    async fn value(&mut self, query: &str) -> Answered<Value> {
        let row: Option<Row> = self.ask(query).await?;
        let value = row.ok_or("it returned no row")?.unwrap_raw().into_iter().next();
        Ok(value.flatten().unwrap_or(Value::NULL))
    }

    /// Returns the only row.
    async fn ask<R: FromRow>(&mut self, query: &str) -> Answered<Option<R>> {
        let asked = async {
            self.open().await?;
            // Taken: it is kept neither if this future is dropped nor if an answer breaks off.
            let Some((mut link, vendor)) = self.link.take() else { return Err(String::new()) };
            let rows = link.query::<R>(query, Limits::GTIDS).await;
            if matches!(rows, Ok(_) | Err(LinkError::Server { .. })) {
                self.link = Some((link, vendor));
            }
            Ok(rows.map_err(|error| error.to_string())?.into_iter().next())
        };
        let asked = tokio::time::timeout(PATIENCE, asked).await;
        asked.unwrap_or_else(|_| Err(self.silent()))
    }

    async fn open(&mut self) -> Answered<Vendor> {
        if let Some((_, vendor)) = &self.link {
            return Ok(*vendor);
        }
        let link = connect(&self.options, self.side).await;
        let mut link = link.map_err(|error| error.to_string())?;
        let rows: Vec<String> = link
            .query("SELECT @@version LIMIT 1", Limits::SETTING)
            .await
            .map_err(|e| e.to_string())?;
        let vendor = rows.first().map_or(Vendor::default(), |version| Vendor::of(version));
        for statement in prelude(vendor, Purpose::Ask) {
            let set = link.query::<Row>(&statement, Limits::SETTING).await;
            set.map_err(|error| error.to_string())?;
        }
        self.link = Some((link, vendor));
        Ok(vendor)
    }

    fn silent(&self) -> String {
        format!("{} did not answer within {} s", self.options.address(), PATIENCE.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_are_numbers() {
        for (value, number) in [("12", 12.0), (" -0.5 ", -0.5), ("1e3", 1000.0), ("0.000", 0.0)] {
            assert_eq!(super::number(value.into()), Ok(number), "{value}");
        }
        for value in ["", "many", "nan", "inf", "1 2"] {
            super::number(value.into()).expect_err(value);
        }
        assert_eq!(super::number(Value::NULL), Err("it returned NULL".to_owned()));
    }
}
