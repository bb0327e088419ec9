//! How a drain grows with the cores: the scheduler as it is, and a model of everything else from costs that were
//! measured (docs/performance.md). `cargo bench --bench cores` prints it.
//!
//! Workers compute on shared cores, and wait for commits. Groups, their order and their late rows are the scheduler's own.

mod transactions;

use std::collections::BTreeMap;

use csa_provider::binlog::GtidSet;
use csa_relaystore::read::RelayedTransaction;
use csa_scheduler::admission::AdmittedTransaction;
use csa_scheduler::changes::{RowChange, RowChanges};
use csa_scheduler::group::{Group, GroupLimits};
use csa_scheduler::keys::{KeyRole, KeyUse, TableId, TableUse};
use csa_scheduler::scheduler::Scheduler;
use csa_scheduler::sequence::Sequence;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use transactions::{admitted, relayed};

/// Transactions of a drain, rows of each, and rows of the tables.
const TRANSACTIONS: u64 = 60_000;
const ROWS: u32 = 10;
const TABLE_ROWS: u64 = 800_000;

/// The target's work for a row and for a statement, in microseconds like all costs here.
const TARGET_ROW: f64 = 11.0;
const STATEMENT: f64 = 250.0;
/// A worker's work in the daemon for a row, and that of the intake, which is one task.
const MERGE_ROW: f64 = 1.5;
const INTAKE_ROW: f64 = 1.5;
/// The time between a packet and its answer, beside the work.
const ROUND_TRIP: f64 = 120.0;
/// The time of a COMMIT, and the more that each row takes: one COMMIT after the other writes the binary log.
const COMMIT: f64 = 500.0;
const COMMIT_ROW: f64 = 2.4;

/// How rows are sent that wait for other groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Late {
    /// They are sent together, once the last of these groups is committed.
    AtOnce,
    /// They are sent in two parts, the second in the packet of the COMMIT.
    InParts,
}

/// The next thing that a worker does.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Microseconds of a core.
    Compute(f64),
    /// Microseconds without one.
    Pause(f64),
    /// For the commit of this group and all before it.
    After(u64),
}

struct Running {
    group: Group,
    /// The last step comes first.
    steps: Vec<Step>,
}

struct Model {
    cores: f64,
    late: Late,
    scheduler: Scheduler,
    running: Vec<Running>,
    low_water: u64,
    random: StdRng,
    admitted: u64,
    /// The rest of the intake's work for the next transactions; `None` while it waits for room.
    intake: Option<f64>,
    template: RelayedTransaction,
    /// Microseconds.
    now: f64,
}

/// Transactions that the intake hands over at once.
const BATCH: u64 = 16;

impl Model {
    fn new(cores: usize, workers: usize, late: Late) -> Self {
        let scheduler =
            Scheduler::new(GroupLimits::default(), workers, Sequence::default(), GtidSet::new());
        Self {
            cores: cores as f64,
            late,
            scheduler,
            running: Vec::new(),
            low_water: 0,
            random: StdRng::seed_from_u64(1),
            admitted: 0,
            intake: None,
            template: relayed(1, ROWS as i32),
            now: 0.0,
        }
    }

    /// Returns transactions per second, and late rows of all.
    fn drain(mut self) -> (f64, f64) {
        let (mut rows, mut late) = (0, 0);
        while self.low_water == 0 || !self.running.is_empty() || self.admitted < TRANSACTIONS {
            self.feed();
            while let Some(group) = self.scheduler.next_group() {
                let held_back = self.begin(group);
                late += held_back;
                rows += self.running.last().map_or(0, |it| it.group.rows);
            }
            self.advance();
        }
        (TRANSACTIONS as f64 / self.now * 1e6, late as f64 / rows as f64)
    }

    fn feed(&mut self) {
        if self.intake.is_none() && self.admitted < TRANSACTIONS && !self.scheduler.is_full() {
            self.intake = Some(INTAKE_ROW * f64::from(ROWS) * BATCH as f64);
        }
    }

    /// Gives a group to a worker, and returns the number of its rows that are late.
    fn begin(&mut self, group: Group) -> usize {
        let own = group.sequence.get();
        let keys = group.transactions.iter().filter_map(|it| it.changes.as_ref());
        let keys = keys.flat_map(|changes| changes.keys.iter().map(|key| key.key()));
        let mut parts: BTreeMap<u32, (u64, usize)> = BTreeMap::new();
        for key in keys {
            let Some(&earlier) = group.late.get(&key).filter(|&&it| it > self.low_water) else {
                continue;
            };
            let number = match self.late {
                Late::AtOnce => 0,
                Late::InParts => u32::from(earlier + 1 < own),
            };
            let part = parts.entry(number).or_default();
            *part = (part.0.max(earlier), part.1 + 1);
        }
        let held_back: usize = parts.values().map(|part| part.1).sum();
        let send = |rows: usize| {
            [Step::Compute(STATEMENT + TARGET_ROW * rows as f64), Step::Pause(ROUND_TRIP)]
        };
        let mut steps = vec![Step::Compute(MERGE_ROW * group.rows as f64)];
        steps.extend(send(group.rows - held_back));
        let last = parts.first_key_value().map(|(_, part)| part.0);
        for (after, rows) in parts.into_values().rev() {
            steps.push(Step::After(after));
            steps.extend(send(rows));
        }
        if self.late == Late::InParts && last == Some(own - 1) {
            // The COMMIT is in the packet.
            steps.pop();
        }
        steps.push(Step::After(own - 1));
        steps.push(Step::Pause(ROUND_TRIP + COMMIT + COMMIT_ROW * group.rows as f64));
        steps.reverse();
        self.running.push(Running { group, steps });
        held_back
    }

    /// Lets time pass until the next step ends.
    fn advance(&mut self) {
        self.pass_waits();
        let computing = |it: &Running| matches!(it.steps.last(), Some(Step::Compute(_)));
        let busy = self.running.iter().filter(|it| computing(it)).count();
        let busy = busy + usize::from(self.intake.is_some());
        let speed = (self.cores / busy.max(1) as f64).min(1.0);
        let ends = self.running.iter().filter_map(|it| match it.steps.last()? {
            Step::Compute(left) => Some(left / speed),
            Step::Pause(left) => Some(*left),
            Step::After(_) => None,
        });
        let intake = self.intake.map(|left| left / speed);
        let Some(time) = ends.chain(intake).min_by(f64::total_cmp) else { return };
        self.now += time;
        let passed = |left: &mut f64, by: f64| {
            *left -= by;
            *left <= 1e-6
        };
        for running in &mut self.running {
            let is_over = match running.steps.last_mut() {
                Some(Step::Compute(left)) => passed(left, time * speed),
                Some(Step::Pause(left)) => passed(left, time),
                _ => false,
            };
            if is_over {
                running.steps.pop();
            }
        }
        if let Some(left) = &mut self.intake
            && passed(left, time * speed)
        {
            self.intake = None;
            for _ in 0..BATCH.min(TRANSACTIONS - self.admitted) {
                self.admitted += 1;
                let transaction = self.transaction();
                self.scheduler.admit(transaction);
            }
        }
        self.commit();
    }

    /// Ends the groups without steps left.
    fn commit(&mut self) {
        let mut index = 0;
        while index < self.running.len() {
            if self.running[index].steps.is_empty() {
                let Running { group, .. } = self.running.swap_remove(index);
                self.scheduler.committed(&group);
                self.low_water = self.low_water.max(group.sequence.get());
            } else {
                index += 1;
            }
        }
    }

    fn pass_waits(&mut self) {
        for running in &mut self.running {
            while let Some(Step::After(group)) = running.steps.last()
                && *group <= self.low_water
            {
                running.steps.pop();
            }
        }
    }

    fn transaction(&mut self) -> AdmittedTransaction {
        let key = |random: &mut StdRng| {
            let row: u64 = random.random_range(0..TABLE_ROWS);
            KeyUse::new((row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2, KeyRole::Kept)
        };
        let row = |number| RowChange { start: 0, middle: 0, end: 0, keys_end: number };
        let changes = RowChanges {
            rows: (1..=ROWS).map(row).collect(),
            keys: (0..ROWS).map(|_| key(&mut self.random)).collect(),
            tables: vec![TableUse::Rows(TableId(1))],
            ..RowChanges::default()
        };
        admitted(&self.template, self.admitted, changes)
    }
}

fn main() {
    println!(
        "Transactions of {ROWS} updates per second; in parentheses the part of the rows that is late."
    );
    println!("| cores | workers | late rows at once | in parts |\n| ---: | ---: | ---: | ---: |");
    for cores in [2, 8, 16, 32, 64] {
        for workers in [4, 6, 8, 12, 16, 32] {
            let cells = [Late::AtOnce, Late::InParts].map(|late| {
                let (rate, late) = Model::new(cores, workers, late).drain();
                format!("{rate:.0} ({:.1} %)", late * 100.0)
            });
            println!("| {cores} | {workers} | {} |", cells.join(" | "));
        }
    }
}
