//! Samples of call stacks, as a tree.

use std::collections::BTreeMap;

/// A function with the samples in it and in what it calls.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stacks {
    pub(super) samples: u64,
    pub(super) calls: BTreeMap<String, Stacks>,
}

/// The kernel's process when a processor has nothing to do.
const IDLE: &str = "swapper";
const UNKNOWN: &str = "[unknown]";

impl Stacks {
    /// Reads what `perf script` prints with the fields comm, pid, ip, sym: a line for each sample, then its
    /// functions, the innermost first, then an empty line. The outermost level is the process, by its role
    /// or else its name.
    pub(super) fn of(script: &str, roles: &BTreeMap<u32, &str>) -> Self {
        let mut all = Self::default();
        for sample in script.split("\n\n") {
            let mut lines = sample.lines().filter(|line| !line.is_empty());
            let Some(head) = lines.next() else { continue };
            let (name, pid) = head.trim().rsplit_once(' ').unwrap_or((head, ""));
            let role = pid.parse().ok().and_then(|pid: u32| roles.get(&pid).copied());
            let process = match (role, name.trim()) {
                (Some(role), _) => role,
                (None, IDLE) => "idle",
                (None, name) => name,
            };
            let mut frames: Vec<&str> = lines.map(function).collect();
            // An idle processor waits somewhere, which says nothing.
            frames.truncate(if process == "idle" { 0 } else { frames.len() });
            let outermost_first = frames.into_iter().rev().filter(|name| *name != UNKNOWN);
            all.add(std::iter::once(process).chain(outermost_first));
        }
        all
    }

    fn add<'a>(&mut self, stack: impl Iterator<Item = &'a str>) {
        self.samples += 1;
        let mut at = self;
        for name in stack {
            at = at.calls.entry(name.to_owned()).or_default();
            at.samples += 1;
        }
    }

    /// Returns the levels below this one.
    pub(super) fn depth(&self) -> usize {
        self.calls.values().map(|call| call.depth() + 1).max().unwrap_or_default()
    }
}

/// A line has an address and the function there, whose name may hold spaces.
fn function(line: &str) -> &str {
    line.trim().split_once(' ').map_or(UNKNOWN, |(_, name)| name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_become_a_tree() {
        let script = "csa-worker 70 \n\t  10a974 recv\n\t  10a000 [unknown]\n\t  1 run<A, B>\n\n\
                      connection  80 \n\t  20 apply\n\t  21 command\n\n\
                      csa-worker 70 \n\t  2 run<A, B>\n\n\
                      swapper     0 \n\tffff pv_native_safe_halt\n\n";
        let stacks = Stacks::of(script, &BTreeMap::from([(70, "csa-daemon"), (80, "target")]));
        let names: Vec<_> = stacks.calls.keys().map(String::as_str).collect();
        assert_eq!((stacks.samples, names), (4, vec!["csa-daemon", "idle", "target"]));
        let run = &stacks.calls["csa-daemon"].calls["run<A, B>"];
        assert_eq!((run.samples, run.calls["recv"].samples, run.depth()), (2, 1, 1));
        assert!(stacks.calls["idle"].calls.is_empty());
        assert_eq!(stacks.depth(), 3);
    }
}
