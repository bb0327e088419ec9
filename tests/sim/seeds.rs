//! The seeds of a run.

use std::ops::Range;

/// Names the seed of a run that fails.
struct Named<'a> {
    test: &'a str,
    seed: u64,
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        let Self { test, seed } = *self;
        if std::thread::panicking() {
            eprintln!(
                "seed {seed}; to repeat it: CSA_SIM_SEEDS={seed}..{} CSA_SIM_TRACE=1 cargo test \
                 --workspace --test sim -- {test}",
                seed + 1
            );
        }
    }
}

/// Runs `test` with each of `seeds`, or with those that `CSA_SIM_SEEDS` names as `FIRST..END`.
pub(crate) fn each(test: &str, seeds: Range<u64>, run: impl Fn(u64)) {
    let seeds = match std::env::var("CSA_SIM_SEEDS") {
        Ok(text) => {
            let (first, end) = text.split_once("..").expect("FIRST..END");
            first.parse().expect("a number")..end.parse().expect("a number")
        }
        Err(_) => seeds,
    };
    for seed in seeds {
        let _named = Named { test, seed };
        run(seed);
    }
}
