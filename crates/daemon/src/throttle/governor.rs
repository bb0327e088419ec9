//! The rate that the health of the target leaves to a channel. Pure.
//!
//! Above a limit the rate falls second by second, and below it rises again, so it settles where the
//! limit is just kept. It never falls below a floor above zero: a limit slows a channel down and can't
//! stop it, whoever causes the load.

use std::num::NonZeroU32;

/// One look at all limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pressure {
    /// A limit is exceeded, and nothing gets better: the limit divided by the value, 0 to 1.
    Over(f64),
    /// Nothing should change: near a limit, above it and improving, or not known.
    Hold,
    /// All are well below their limits.
    Calm,
}

impl Pressure {
    /// Returns the limit that two limits make together.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Over(one), Self::Over(other)) => Self::Over(one.min(other)),
            (Self::Over(factor), _) | (_, Self::Over(factor)) => Self::Over(factor),
            (Self::Hold, _) | (_, Self::Hold) => Self::Hold,
            (Self::Calm, Self::Calm) => Self::Calm,
        }
    }
}

/// The factors of a fall of the rate in one second: the most and the least that is taken away.
const FALL: (f64, f64) = (0.5, 0.9);
/// The factor of the rate, and of the floor, by which the rate rises in one second, so that a low
/// rate soon rises too.
const RISE: f64 = 1.2;
/// The throttle is released at so many times the rate at which it began: the limits were kept up to there.
const RELEASE: f64 = 2.0;

/// Decides once a second.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Governor {
    held: Option<Held>,
}

/// Transactions per second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Held {
    rate: f64,
    /// The channel's own rate when a limit was exceeded first.
    began_at: f64,
}

impl Governor {
    /// Returns the rate permitted for the next second; `None` for any. `floor` is the lowest rate, `applied` that
    /// of the last seconds.
    pub(super) fn step(
        &mut self,
        verdict: Pressure,
        floor: NonZeroU32,
        applied: f64,
    ) -> Option<NonZeroU32> {
        let floor = f64::from(floor.get());
        self.held = match (self.held, verdict) {
            (None, Pressure::Hold | Pressure::Calm) => None,
            (None, Pressure::Over(factor)) => {
                let began_at = applied.max(floor);
                Some(Held { rate: fallen(began_at, factor), began_at })
            }
            (Some(held), Pressure::Hold) => Some(held),
            (Some(held), Pressure::Over(factor)) => {
                Some(Held { rate: fallen(held.rate, factor), ..held })
            }
            (Some(held), Pressure::Calm) => {
                let rate = held.rate * RISE + floor / 2.0;
                (rate < held.began_at * RELEASE).then_some(Held { rate, ..held })
            }
        };
        let held = self.held.as_mut()?;
        held.rate = held.rate.clamp(floor, f64::from(u32::MAX));
        NonZeroU32::new(held.rate as u32)
    }
}

fn fallen(rate: f64, factor: f64) -> f64 {
    rate * factor.clamp(FALL.0, FALL.1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CALM_BELOW: f64 = 0.8;

    /// Returns a target on which the load per transaction and the load of others are known.
    fn verdict(load: f64, limit: f64) -> Pressure {
        if load > limit {
            Pressure::Over(limit / load)
        } else if load > limit * CALM_BELOW {
            Pressure::Hold
        } else {
            Pressure::Calm
        }
    }

    fn rate(rate: Option<NonZeroU32>) -> f64 {
        rate.map_or(f64::INFINITY, |rate| f64::from(rate.get()))
    }

    fn any_verdict() -> impl Strategy<Value = Pressure> {
        prop_oneof![(0.0..1.0).prop_map(Pressure::Over), Just(Pressure::Hold), Just(Pressure::Calm),]
    }

    fn floor(rate: u32) -> NonZeroU32 {
        NonZeroU32::new(rate).expect("not 0")
    }

    proptest! {
        #[test]
        fn nothing_takes_the_rate_below_the_floor(
            verdicts in prop::collection::vec((any_verdict(), 0.0..1e6), 1..300),
            least in 1..5000_u32,
        ) {
            let mut governor = Governor::default();
            for (verdict, applied) in verdicts {
                let permitted = rate(governor.step(verdict, floor(least), applied));
                prop_assert!(permitted >= f64::from(least), "{permitted}");
            }
        }

        #[test]
        fn a_limit_that_the_channel_exceeds_itself_is_kept_and_nearly_used(
            capacity in 100.0..50_000.0_f64,
            demand in 1.1..20.0_f64,
            others in 0.0..0.5_f64,
        ) {
            let mut governor = Governor::default();
            let (limit, least) = (1.0, floor(10));
            let room = capacity * (limit - others);
            let mut applied = capacity * demand;
            let mut settled = Vec::new();
            for second in 0..300 {
                let load = others + applied / capacity;
                applied = rate(governor.step(verdict(load, limit), least, applied)).min(capacity * demand);
                if second >= 200 {
                    settled.push(applied);
                }
            }
            let average = settled.iter().sum::<f64>() / settled.len() as f64;
            prop_assert!(average > 0.45 * room && average < 1.2 * room, "{average} of {room}");
            prop_assert!(settled.iter().all(|&applied| applied < 2.0 * room), "{settled:?} of {room}");
        }

        #[test]
        fn load_of_others_leaves_the_floor_and_its_end_releases(
            demand in 1.0..100_000.0_f64,
            load in 1.01..50.0_f64,
            seconds in 1..200_u32,
            least in 1..100_u32,
        ) {
            let mut governor = Governor::default();
            let least = floor(least);
            let mut permitted = None;
            for _ in 0..seconds.max(150) {
                permitted = governor.step(Pressure::Over(1.0 / load), least, demand);
            }
            prop_assert_eq!(permitted, Some(least), "the load stays");
            let released = (0..120).position(|_| governor.step(Pressure::Calm, least, demand).is_none());
            prop_assert!(released.is_some(), "{governor:?}");
        }
    }

    #[test]
    fn a_look_without_news_changes_nothing() {
        let mut governor = Governor::default();
        let least = floor(10);
        assert_eq!(governor.step(Pressure::Hold, least, 1000.0), None);
        let first = governor.step(Pressure::Over(0.7), least, 1000.0);
        assert_eq!(first, NonZeroU32::new(700));
        assert_eq!(governor.step(Pressure::Hold, least, 0.0), first);
        assert_eq!(governor.step(Pressure::Over(0.1), least, 0.0), NonZeroU32::new(350));
        assert_eq!(
            Pressure::Calm.and(Pressure::Hold).and(Pressure::Over(0.5)),
            Pressure::Over(0.5)
        );
    }
}
