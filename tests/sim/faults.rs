//! Faults by chance: how often, and of which kinds, differs from seed to seed.

use std::convert::Infallible;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Duration, sleep};

use crate::refusals::Refusals;
use crate::seeds::Case;
use crate::target::{Crash, Faults, Run, Server, Transit};

#[derive(Debug)]
pub(crate) struct Chaos {
    random: StdRng,
    /// Faults left; without an end no run would reach its own.
    left: u32,
    link: f64,
    statement: f64,
    crash: f64,
    loses: usize,
    /// A gone client can be noticed only after a long time.
    lingers: bool,
    refusals: Option<Refusals>,
}

impl Chaos {
    /// `loses`: the most commits that a crash takes back.
    pub(crate) fn of(case: Case, loses: usize) -> Self {
        let mut random = StdRng::seed_from_u64(case.seed ^ 0x00c0_ffee);
        let rates = [0.0, 0.002, 0.01, 0.05];
        let mut rate = || rates[random.random_range(0..rates.len())];
        let (link, statement, crash) = (rate(), rate(), rate() / 4.0);
        let lingers = random.random_bool(0.5);
        let left = random.random_range(0..60).min(case.faults);
        let refusals = Refusals::of(case);
        // The sessions of those who are gone would fill the room for hours, as each daemon opens one each second.
        let lingers = lingers && !refusals.is_limited();
        let refusals = Some(refusals);
        Self { random, left, link, statement, crash, loses, lingers, refusals }
    }

    /// Returns the same with few faults, and without refused sessions and statements.
    pub(crate) fn rarely(mut self) -> Self {
        let most = [0, 4, 12][self.random.random_range(0..3)];
        Self { refusals: None, left: self.left.min(most), ..self }
    }

    /// Returns the same with room for so many sessions more.
    pub(crate) fn with_room(self, sessions: usize) -> Self {
        let refusals = self.refusals.map(|refusals| refusals.with_room(sessions));
        Self { refusals, ..self }
    }

    /// Restarts, of which each loses up to `loses` commits, and long statements: so one daemon meets another
    /// that is about to take the channel.
    pub(crate) fn restarts(case: Case, loses: usize) -> Self {
        let mut random = StdRng::seed_from_u64(case.seed ^ 0x00c0_ffee);
        let crash = [0.005, 0.01, 0.02][random.random_range(0..3)];
        let left = random.random_range(10..80).min(case.faults);
        let (link, statement) = (0.0, 0.05);
        Self { random, left, link, statement, crash, loses, lingers: false, refusals: None }
    }

    /// Returns a target that has too little room for sessions, and no other faults.
    pub(crate) fn full(case: Case) -> Self {
        let random = StdRng::seed_from_u64(case.seed ^ 0x00c0_ffee);
        let refusals = Some(Refusals::full(case));
        let (link, statement, crash) = (0.0, 0.0, 0.0);
        Self { random, left: 0, link, statement, crash, loses: 0, lingers: false, refusals }
    }

    fn happens(&mut self, rate: f64) -> bool {
        let happens = self.left > 0 && self.random.random_bool(rate);
        self.left -= u32::from(happens);
        happens
    }

    fn millis(&mut self, limit: u64) -> Duration {
        Duration::from_millis(self.random.random_range(0..=limit))
    }

    fn noticed(&mut self) -> Duration {
        match self.random.random_range(0..3) {
            0 if self.lingers => self.millis(3_600_000),
            1 => self.millis(5_000),
            _ => Duration::ZERO,
        }
    }

    fn crashed(&mut self) -> Crash {
        let down = self.millis(20_000);
        Crash { down, loses: self.random.random_range(0..=self.loses) }
    }

    fn transit(&mut self, times: f64) -> Transit {
        if self.happens(self.crash * times) {
            return Transit::Crash(self.crashed());
        }
        if !self.happens(self.link * times) {
            return match self.random.random_range(0..3) {
                0 => Transit::Late(self.millis(3)),
                _ => Transit::Arrive,
            };
        }
        match self.random.random_range(0..4) {
            0 => Transit::Late(self.millis(100_000)),
            1 => Transit::Vanish(self.noticed()),
            _ => Transit::Cut(self.noticed()),
        }
    }
}

impl Faults for Chaos {
    fn connect(&mut self) -> Transit {
        self.transit(1.0)
    }

    fn refuses(&mut self, sessions: usize) -> Option<u16> {
        self.refusals.as_mut()?.session(sessions)
    }

    fn request(&mut self, _: &str) -> Transit {
        self.transit(1.0)
    }

    fn statement(&mut self, statement: &str) -> Run {
        if self.happens(self.crash) {
            return Run::Crash(self.crashed());
        }
        if let Some(code) = self.refusals.as_mut().and_then(Refusals::statement) {
            return Run::Fail(code);
        }
        if !self.happens(self.statement) {
            return Run::Normally;
        }
        match self.random.random_range(0..5) {
            0 => Run::ReadOnly(self.millis(20_000)),
            1 if locks(statement) => Run::Fail(1205),
            2 if locks(statement) => Run::Fail(1213),
            _ => Run::Slow(self.millis(20_000)),
        }
    }

    /// There, a lost answer leaves the daemon in doubt.
    fn answer(&mut self, packet: &str) -> Transit {
        self.transit(if packet == "COMMIT" { 10.0 } else { 1.0 })
    }

    fn hang_up(&mut self) -> Duration {
        self.noticed()
    }
}

/// Ends sessions on the server now and then, which their clients notice when they next use them.
pub(crate) async fn end_sessions(server: &Server, case: Case) -> Infallible {
    let mut random = StdRng::seed_from_u64(case.seed ^ 0x5e55);
    let left = [0, 0, 3][random.random_range(0..3)].min(case.faults);
    for _ in 0..left {
        sleep(Duration::from_millis(random.random_range(0..10_000))).await;
        // The one that holds the channel above all: then another daemon may take it.
        let of_channel = random.random_bool(0.5);
        server.end_session(of_channel, random.random_range(0..100));
    }
    std::future::pending().await
}

/// Returns a statement that may meet the locks of others.
fn locks(statement: &str) -> bool {
    let verbs = ["INSERT", "UPDATE", "DELETE", "BINLOG", "CREATE TABLE", "ALTER", "DROP"];
    verbs.iter().any(|verb| statement.starts_with(verb)) || statement.ends_with("FOR UPDATE")
}
