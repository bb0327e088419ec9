//! Servers that refuse: sessions for a time or beyond a number, and statements, with every error that the product's
//! table of server errors has.

use csa_provider::server::link::{Consequence, Opening, RULES, Rule};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Duration, Instant};

use crate::seeds::Case;

/// An error that is in no table.
const UNKNOWN: u16 = 4999;

/// Its draws are its own, so that a seed keeps the other faults of its run.
#[derive(Debug)]
pub(crate) struct Refusals {
    random: StdRng,
    /// Refusals left; without an end no run would reach its own.
    left: u32,
    rate: f64,
    /// Sessions that the server permits in this run.
    most: usize,
    /// A time of refusals.
    spell: Option<Spell>,
}

#[derive(Debug, Clone, Copy)]
struct Spell {
    code: u16,
    /// Sessions beyond these are refused.
    most: usize,
    until: Instant,
}

fn any(random: &mut StdRng, is_meant: impl Fn(&Rule) -> bool) -> u16 {
    let of = RULES.iter().filter(|rule| is_meant(rule)).flat_map(|rule| rule.errors);
    let codes: Vec<u16> = of.map(|(code, _)| *code).collect();
    codes[random.random_range(0..codes.len())]
}

impl Refusals {
    pub(crate) fn of(case: Case) -> Self {
        let mut random = StdRng::seed_from_u64(case.seed ^ 0x4ef0_5a15);
        let rate = [0.0, 0.0, 0.001, 0.01][random.random_range(0..4)];
        let left = random.random_range(0..20).min(case.faults);
        // Room for two daemons that hold the channel or look at it, and for one group.
        let most = match case.faults > 0 && random.random_bool(0.25) {
            true => random.random_range(3..6),
            false => usize::MAX,
        };
        Self { random, left, rate, most, spell: None }
    }

    /// Refuses nothing but sessions beyond a number, which is less than one daemon with its workers needs.
    pub(crate) fn full(case: Case) -> Self {
        let mut random = StdRng::seed_from_u64(case.seed ^ 0x4ef0_5a15);
        // One holds the channel.
        let most = random.random_range(2..5);
        Self { random, left: 0, rate: 0.0, most, spell: None }
    }

    /// Leaves room for so many sessions more.
    pub(crate) fn with_room(self, sessions: usize) -> Self {
        Self { most: self.most.saturating_add(sessions), ..self }
    }

    /// The server has little room for sessions, for good.
    pub(crate) fn is_limited(&self) -> bool {
        self.most < usize::MAX
    }

    fn happens(&mut self, times: f64) -> bool {
        let happens = self.left > 0 && self.random.random_bool(self.rate * times);
        self.left -= u32::from(happens);
        happens
    }

    /// Returns the error with which a session is refused that would be one more than `sessions`.
    pub(crate) fn session(&mut self, sessions: usize) -> Option<u16> {
        if self.happens(10.0) {
            self.spell = Some(self.begun());
        }
        if sessions >= self.most {
            return Some(any(&mut self.random, |rule| rule.opening == Opening::Full));
        }
        let spell = self.spell.filter(|spell| Instant::now() < spell.until)?;
        (sessions >= spell.most).then_some(spell.code)
    }

    fn begun(&mut self) -> Spell {
        let seconds = [1, 60, 600][self.random.random_range(0..3)];
        let until = Instant::now() + Duration::from_secs(self.random.random_range(0..=seconds));
        if self.random.random_bool(0.5) {
            let most = self.random.random_range(0..5);
            let code = any(&mut self.random, |rule| rule.opening == Opening::Full);
            return Spell { code, most, until };
        }
        let code = match self.random.random_range(0..8) {
            0 => UNKNOWN,
            _ => any(&mut self.random, |_| true),
        };
        Spell { code, most: 0, until }
    }

    /// The error of a statement; only such as pass.
    pub(crate) fn statement(&mut self) -> Option<u16> {
        let passes =
            |rule: &Rule| matches!(rule.consequence, Consequence::Wait | Consequence::Slowly);
        self.happens(1.0).then(|| any(&mut self.random, passes))
    }
}
