//! How many rows a group should have.

/// What a group cost on the target.
#[derive(Debug, Clone, Copy)]
pub struct GroupCost {
    /// Source rows in it.
    pub rows: usize,
    /// From its first statement to the last before COMMIT, in seconds; waits for locks included.
    pub apply_seconds: f64,
    /// Of COMMIT alone, in seconds.
    pub commit_seconds: f64,
}

/// Finds the group size with the highest throughput from what was seen lately.
///
/// Large groups share the cost of a commit, but the larger they are the more of them conflict. As
/// commits come one after the other, a group that depends on another `n` places before it loses
/// nothing if it can be applied while the `n` commits between them go on; only nearer ones make it
/// wait. All costs are measured; the size with the least expected time per row is taken:
///
/// ```text
/// a(r) = fixed + row * r                              to apply a group of r rows
/// near(r) = min(a(r) / commit, parallel - 1)          groups that must not be conflicted with
/// q(r) = 1 - exp(-density * r * r * near(r))          a group has to wait for one of them
/// t(r) = max(commit, (a(r) + commit) * ((1 - q) / parallel + q)) / r
/// ```
#[derive(Debug)]
pub(crate) struct Packing {
    smallest: usize,
    largest: usize,
    /// Groups that run beside each other.
    parallel: f64,
    commit: Mean,
    fixed: Mean,
    row: Mean,
    /// Conflicts met, and pairs of rows that could have conflicted.
    conflicts: f64,
    pairs: f64,
    target: usize,
}

/// An exponential moving average.
#[derive(Debug, Clone, Copy)]
struct Mean(f64);

impl Mean {
    fn add(&mut self, value: f64) {
        const WEIGHT: f64 = 0.05;
        self.0 += (value - self.0) * WEIGHT;
    }
}

/// Evidence is halved when it has grown to so many groups' worth.
const PAIRS_MAX: f64 = 2e8;

impl Packing {
    pub(crate) fn new(largest: usize) -> Self {
        let largest = largest.max(1);
        let mut packing = Self {
            smallest: largest.min(64),
            largest,
            parallel: 1.0,
            // Until measured: a millisecond for a commit and for two round trips, 20 µs for a row.
            commit: Mean(0.001),
            fixed: Mean(0.001),
            row: Mean(0.00002),
            conflicts: 0.0,
            pairs: 1.0,
            target: largest,
        };
        packing.choose();
        packing
    }

    /// Groups that may run beside each other: what the target's cores are good for is not known, and
    /// beyond a few it makes no difference to the choice.
    pub(crate) fn set_parallel(&mut self, workers: usize) {
        self.parallel = workers.clamp(1, 4) as f64;
        self.choose();
    }

    /// A transaction of so many rows was put beside so many rows in flight.
    pub(crate) fn examined(&mut self, rows: usize, in_flight: usize, conflict: bool) {
        self.pairs += rows as f64 * in_flight as f64;
        self.conflicts += f64::from(u8::from(conflict));
        if self.pairs > PAIRS_MAX {
            self.pairs /= 2.0;
            self.conflicts /= 2.0;
        }
    }

    /// A group was committed.
    pub(crate) fn measured(&mut self, cost: GroupCost) {
        if cost.rows == 0 {
            return;
        }
        self.commit.add(cost.commit_seconds);
        let rows = cost.rows as f64;
        // One equation and two unknowns: small groups tell of the fixed part, large ones of the row.
        let fixed = (cost.apply_seconds - self.row.0 * rows).max(0.0);
        if rows <= 16.0 {
            self.fixed.add(fixed.min(cost.apply_seconds));
        } else {
            self.row.add((cost.apply_seconds - self.fixed.0).max(0.0) / rows);
        }
        self.choose();
    }

    /// Whether a group of so many rows may as well depend on another so many places before it.
    pub(crate) fn may_depend(&self, rows: usize, places: u64) -> bool {
        self.apply_seconds(rows as f64) < self.commit.0 * places as f64
    }

    fn apply_seconds(&self, rows: f64) -> f64 {
        self.fixed.0 + self.row.0 * rows
    }

    /// Rows to put into a group while more are waiting.
    pub(crate) fn target(&self) -> usize {
        self.target
    }

    fn choose(&mut self) {
        let mut best = (f64::INFINITY, self.largest);
        let mut rows = self.smallest;
        loop {
            let seconds = self.seconds_per_row(rows as f64);
            if seconds < best.0 {
                best = (seconds, rows);
            }
            if rows == self.largest {
                break;
            }
            rows = (rows * 3 / 2).min(self.largest);
        }
        self.target = best.1;
    }

    fn seconds_per_row(&self, rows: f64) -> f64 {
        let density = self.conflicts / self.pairs;
        let apply = self.apply_seconds(rows);
        let near = (apply / self.commit.0.max(1e-6)).min(self.parallel - 1.0);
        let conflict = 1.0 - (-density * rows * rows * near).exp();
        let share = (1.0 - conflict) / self.parallel + conflict;
        ((apply + self.commit.0) * share).max(self.commit.0) / rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packing(density_of: f64) -> Packing {
        let mut packing = Packing::new(4096);
        packing.set_parallel(4);
        for _ in 0..1000 {
            packing.pairs += 1e5;
            packing.conflicts += 1e5 / density_of;
        }
        packing.choose();
        packing
    }

    #[test]
    fn without_conflicts_groups_are_as_large_as_they_may() {
        assert_eq!(packing(1e12).target(), 4096);
    }

    #[test]
    fn a_hot_row_makes_large_groups_too() {
        assert_eq!(packing(16.0).target(), 4096);
    }

    #[test]
    fn conflicts_among_many_rows_make_groups_that_seldom_meet() {
        let target = packing(800_000.0).target();
        assert!((64..600).contains(&target), "{target}");
    }
}
