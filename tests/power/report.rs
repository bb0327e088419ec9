//! The losses of all rounds, by kind and `target_gtids`.

use std::fmt::Write as _;

use crate::kinds::Kind;
use crate::rounds::Outcome;
use crate::world::MODES;

/// So many losses of a kind that may take something do take something.
const MANY: u64 = 15;

#[derive(Default)]
struct Line {
    rounds: u64,
    target_lost: u64,
    relay_lost: u64,
    rewound: u64,
    stopped: u64,
}

/// Sums of all rounds so far.
pub(crate) struct Report {
    seed: u64,
    /// A line for each kind and mode.
    lines: Vec<(&'static Kind, [Line; MODES.len()])>,
}

impl Report {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, lines: Vec::new() }
    }

    pub(crate) fn add(&mut self, kind: &'static Kind, outcomes: Vec<Outcome>) {
        println!("  {outcomes:?}");
        if !self.lines.iter().any(|(known, _)| known.name == kind.name) {
            self.lines.push((kind, Default::default()));
        }
        let found = self.lines.iter_mut().find(|(known, _)| known.name == kind.name);
        let (_, lines) = found.expect("just added");
        for (line, outcome) in lines.iter_mut().zip(outcomes) {
            line.rounds += 1;
            line.target_lost += outcome.target_lost;
            line.relay_lost += outcome.relay_lost;
            line.rewound += u64::from(outcome.rewound);
            line.stopped += u64::from(outcome.stopped);
        }
    }

    /// Prints the table, and writes it to the file that `CSA_POWER_REPORT` names.
    pub(crate) fn print(&self) {
        let mut text = format!(
            "seed {}; no difference\n\n| machine and settings | target_gtids | losses of power | lost by \
             the target | lost by the relay store | rewound | stopped |\n\
             | --- | --- | ---: | ---: | ---: | ---: | ---: |\n",
            self.seed
        );
        for (kind, lines) in &self.lines {
            for (mode, line) in MODES.iter().zip(lines) {
                let Line { rounds, target_lost, relay_lost, rewound, stopped } = line;
                let _ = writeln!(
                    text,
                    "| {} | {mode} | {rounds} | {target_lost} | {relay_lost} | {rewound} | {stopped} |",
                    kind.name
                );
            }
        }
        println!("{text}");
        if let Some(file) = std::env::var_os("CSA_POWER_REPORT") {
            std::fs::write(file, text).expect("writing the report");
        }
    }

    /// Losses that cost nothing show nothing: few of a kind may take nothing by chance, and many may not.
    ///
    /// # Panics
    /// If machines that may lose transactions lost none.
    pub(crate) fn check(&self) {
        let sum = |may: fn(&Kind, &str) -> bool, lost: fn(&Line) -> u64| {
            let (mut rounds, mut all) = (0, 0);
            for (kind, lines) in &self.lines {
                let lines = MODES.iter().zip(lines).filter(|(mode, _)| may(kind, mode));
                let (of_kind, taken) = lines.fold((0, 0), |(rounds, taken), (_, line)| {
                    (rounds + line.rounds, taken + lost(line))
                });
                assert!(of_kind < MANY || taken > 0, "no power loss took anything: {}", kind.name);
                rounds += of_kind;
                all += taken;
            }
            assert!(rounds == 0 || all > 0, "no power loss took anything");
        };
        sum(Kind::target_may_lose, |line| line.target_lost);
        sum(Kind::relay_may_lose, |line| line.relay_lost);
    }
}
