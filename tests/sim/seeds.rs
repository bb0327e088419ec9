//! Runs of a simulation: a seed decides each, and a run that fails is made smaller until it no longer does.

use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A run: its seed, and the most that may happen in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) transactions: usize,
    pub(crate) faults: u32,
    /// Ends of daemons before their work is done.
    pub(crate) kills: usize,
}

impl Case {
    pub(crate) const fn of(seed: u64) -> Self {
        Self { seed, transactions: 1 << 20, faults: 1 << 20, kills: 1 << 20 }
    }

    /// Smaller runs, by much and by one.
    fn smaller(self) -> impl Iterator<Item = Self> {
        let transactions = [self.transactions / 2, self.transactions.saturating_sub(1)];
        let faults = [0, self.faults / 2, self.faults.saturating_sub(1)];
        let kills = [0, self.kills / 2, self.kills.saturating_sub(1)];
        let cases = kills.into_iter().map(move |kills| Self { kills, ..self });
        let cases = cases.chain(faults.into_iter().map(move |faults| Self { faults, ..self }));
        let fewer = transactions.into_iter().filter(|&transactions| transactions > 0);
        let cases = cases.chain(fewer.map(move |transactions| Self { transactions, ..self }));
        cases.filter(move |case| *case != self)
    }
}

thread_local! {
    /// Panics of this thread are expected.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if the run panics, which is not printed.
pub(crate) fn fails(case: Case, run: impl Fn(Case)) -> bool {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
    QUIET.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(|| run(case)));
    QUIET.set(false);
    outcome.is_err()
}

/// Returns the smallest run found that fails as well.
fn shrunk(mut case: Case, run: impl Fn(Case)) -> Case {
    while let Some(smaller) = case.smaller().find(|&smaller| fails(smaller, &run)) {
        case = smaller;
    }
    case
}

/// Runs each of `seeds`, or those that `CSA_SIM_SEEDS` names as `FIRST..END`, on all processors.
/// `CSA_SIM_SECONDS` lets them follow each other for that time, from the first on.
/// `CSA_SIM_MOST=TRANSACTIONS,FAULTS,KILLS` limits each run.
pub(crate) fn each(test: &str, seeds: Range<u64>, run: impl Fn(Case) + Sync) {
    let text = |name| std::env::var(name).ok();
    let mut seeds = text("CSA_SIM_SEEDS").map_or(seeds, |text| {
        let (first, end) = text.split_once("..").expect("FIRST..END");
        first.parse().expect("a number")..end.parse().expect("a number")
    });
    let time = text("CSA_SIM_SECONDS").map(|text| text.parse().expect("a number"));
    if time.is_some() {
        seeds.end = u64::MAX;
    }
    let began = Instant::now();
    let is_over = || time.is_some_and(|time| began.elapsed() >= Duration::from_secs(time));
    let most = text("CSA_SIM_MOST").map(|text| {
        let numbers = text.split(',').map(|number| number.parse().expect("a number"));
        let numbers: [u32; 3] = numbers.collect::<Vec<_>>().try_into().expect("three numbers");
        numbers
    });
    let (next, has_failed) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let work = || {
        while !has_failed.load(Ordering::Relaxed) && !is_over() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let mut case = Case::of(seed);
            if let Some([transactions, faults, kills]) = most {
                let (transactions, kills) = (transactions as usize, kills as usize);
                case = Case { seed, transactions, faults, kills };
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| run(case)));
            if outcome.is_err() && !has_failed.swap(true, Ordering::Relaxed) {
                report(test, case, &run);
            }
        }
    };
    // A run that is to be looked at must not be mixed with others.
    let threads = match seeds.end - seeds.start {
        1 => 1,
        _ => std::thread::available_parallelism().map_or(1, usize::from),
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    if time.is_some() {
        let runs = next.into_inner() - seeds.start;
        eprintln!("{test}: {runs} seeds from {} on in {:.0?}", seeds.start, began.elapsed());
    }
    assert!(!has_failed.into_inner(), "a run has failed, see above");
}

/// Names the smallest run like one that has failed.
fn report(test: &str, case: Case, run: impl Fn(Case)) {
    eprintln!("seed {} fails; looking for a smaller run that does", case.seed);
    let Case { seed, transactions, faults, kills } = shrunk(case, run);
    eprintln!(
        "to repeat it: CSA_SIM_SEEDS={seed}..{} CSA_SIM_MOST={transactions},{faults},{kills} \
         CSA_SIM_TRACE=1 cargo test --workspace --test sim -- --include-ignored {test}",
        seed + 1
    );
}
