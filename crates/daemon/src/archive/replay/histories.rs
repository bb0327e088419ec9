//! The choice between the histories of an archive. Pure.
//!
//! A later history begins where the source had lost transactions that are archived. From there on the two may have
//! different transactions under the same GTIDs, and a target that has some of these does not say which. To continue with
//! those of the other history would bring wrong rows, so whatever is in doubt is refused.

use csa_provider::binlog::GtidSet;

/// A history, as far as the choice depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) begins_after: GtidSet,
    /// Everything up to its last file.
    pub(super) end: GtidSet,
    /// The reason why none of its files follows what the target has.
    pub(super) refused: Option<String>,
}

/// The end that is wanted, as far as it tells one history from another.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal<'a> {
    Everything,
    Moment,
    Gtids(&'a GtidSet),
}

/// Two histories that are no continuation of each other.
#[derive(Debug)]
struct Parting<'a> {
    older: &'a Candidate,
    newer: &'a Candidate,
    /// Transactions of the older one that do not come before the newer one.
    lost: GtidSet,
    /// These, and everything in the newer one.
    apart: GtidSet,
}

/// Returns the newest of all histories that follows what the target has received. The oldest is the first of them.
///
/// # Errors
/// None follows, or the target or its operator may mean another one than the newest.
pub(super) fn choose<'a>(
    histories: &'a [Candidate],
    received: &GtidSet,
    goal: Goal<'_>,
) -> Result<&'a Candidate, String> {
    let Some(chosen) = histories.iter().rev().find(|history| history.follows()) else {
        let newest = histories.last().and_then(|newest| newest.refused.clone());
        return Err(newest.unwrap_or_default());
    };
    // Also between others: a later history may follow the target only by the numbers of its transactions.
    for (place, newer) in histories.iter().enumerate() {
        for older in histories.iter().take(place) {
            if let Some(parting) = Parting::between(older, newer) {
                parting.check(chosen, received, goal)?;
            }
        }
    }
    Ok(chosen)
}

impl Candidate {
    const fn follows(&self) -> bool {
        self.refused.is_none()
    }

    /// Returns the transactions in its files, also in those that were deleted.
    fn archived(&self) -> GtidSet {
        self.end.difference(&self.begins_after)
    }

    fn shown(&self) -> String {
        let archived = self.archived();
        match archived.is_empty() {
            true => format!("{} (no transactions)", self.name),
            false => format!("{} ({})", self.name, archived.brief()),
        }
    }
}

impl<'a> Parting<'a> {
    /// Returns `None` if the newer history continues the older one.
    fn between(older: &'a Candidate, newer: &'a Candidate) -> Option<Self> {
        let lost = older.archived().difference(&newer.begins_after);
        let mut apart = newer.archived();
        apart.union(&lost);
        (!lost.is_empty()).then_some(Self { older, newer, lost, apart })
    }

    /// Refuses `chosen` if it may be the wrong one of the two.
    fn check(&self, chosen: &Candidate, received: &GtidSet, goal: Goal<'_>) -> Result<(), String> {
        let has = self.apart.intersection(received);
        // The older one may have ended after its last file, so also numbers above its end prove nothing.
        if has.uuids().any(|uuid| self.lost.has_uuid(&uuid)) {
            let why = format!("the target's {} may be of either one", has.brief());
            return Err(self.doubt(&why, ""));
        }
        if chosen.name == self.newer.name {
            return self.check_newer(&has, received, goal);
        }
        match chosen.name == self.older.name {
            true => self.check_older(&has, goal),
            false => Ok(()),
        }
    }

    /// Refuses the newer history for an end that may be one of the older history. `has` is its own.
    fn check_newer(&self, has: &GtidSet, received: &GtidSet, goal: Goal<'_>) -> Result<(), String> {
        let in_both = match goal {
            Goal::Everything => false,
            Goal::Moment => true,
            Goal::Gtids(set) => {
                let wanted = set.difference(received);
                wanted.intersects(&self.lost) && wanted.is_subset_of(&self.older.end)
            }
        };
        match in_both && has.is_empty() && self.older.follows() {
            true => Err(self.doubt("both follow what the target has", "")),
            false => Ok(()),
        }
    }

    /// Refuses the older history, which alone follows what the target has, where the two part.
    fn check_older(&self, has: &GtidSet, goal: Goal<'_>) -> Result<(), String> {
        // The target has transactions of the newer one.
        if let (false, Some(refused)) = (has.is_empty(), &self.newer.refused) {
            return Err(refused.clone());
        }
        match goal {
            Goal::Gtids(set) if !set.intersects(&self.apart) => Ok(()),
            _ => Err(self.doubt(
                "only the first follows what the target has, and it leads away from the second",
                ", or an end before these transactions with --until",
            )),
        }
    }

    fn doubt(&self, why: &str, or: &str) -> String {
        format!(
            "histories {} and {} part: the source began the second one without {} of the first. It is in doubt which \
             one is wanted, since {why}; name it with --history{or}",
            self.older.shown(),
            self.newer.shown(),
            self.lost.brief(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a set of two servers: `5` and `a5` are transactions of the first and of the second one.
    fn set(intervals: &str) -> GtidSet {
        let parts = intervals.split(',').filter(|part| !part.is_empty()).map(|part| {
            let (digit, numbers) = part.strip_prefix('a').map_or(('7', part), |rest| ('a', rest));
            let of = |len| digit.to_string().repeat(len);
            format!("{}-{}-{}-{}-{}:{numbers}", of(8), of(4), of(4), of(4), of(12))
        });
        parts.collect::<Vec<_>>().join(",").parse().expect("a set")
    }

    /// Returns the choice between histories h1, h2, …, of which each has the set after which it begins, and its end.
    fn decide(
        histories: &[(&str, &str)],
        received: &str,
        goal: Goal<'_>,
    ) -> Result<String, String> {
        let received = set(received);
        let candidate = |(place, (begin, end)): (usize, &(&str, &str))| {
            let begins_after = set(begin);
            let missing = begins_after.difference(&received);
            Candidate {
                name: format!("h{}", place + 1),
                begins_after,
                end: set(end),
                refused: (!missing.is_empty()).then(|| format!("missing: {missing}")),
            }
        };
        let histories: Vec<Candidate> = histories.iter().enumerate().map(candidate).collect();
        choose(&histories, &received, goal).map(|chosen| chosen.name.clone())
    }

    fn all(histories: &[(&str, &str)], received: &str) -> Result<String, String> {
        decide(histories, received, Goal::Everything)
    }

    fn chosen(name: &str) -> Result<String, String> {
        Ok(name.to_owned())
    }

    #[track_caller]
    fn in_doubt(decided: Result<String, String>) {
        let said = decided.expect_err("it is in doubt");
        for word in ["h1 (", "h2 (", "--history"] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }

    /// The source was set back from 6000 to 5000.
    const SET_BACK: [(&str, &str); 2] = [("", "1-6000"), ("1-5000", "1-8000")];

    #[test]
    fn a_single_history_is_taken_wherever_the_target_is() {
        for received in ["", "1-40", "1-100", "1-120", "1-40,a1-9"] {
            assert_eq!(all(&[("", "1-100")], received), chosen("h1"), "{received}");
        }
        let said = all(&[("1-50", "1-100")], "1-40").expect_err("a gap");
        assert!(said.contains("missing: ") && said.contains(":41-50"), "{said}");
    }

    #[test]
    fn a_history_that_begins_where_another_one_ends_continues_it() {
        for after in ["1-100", "1-100,a1-7"] {
            let both = [("", "1-100"), (after, "1-200,a1-7")];
            let until = set("1-150");
            for goal in [Goal::Everything, Goal::Moment, Goal::Gtids(&until)] {
                assert_eq!(decide(&both, "1-40", goal), chosen("h1"));
                assert_eq!(decide(&both, "1-100,a1-7", goal), chosen("h2"));
                assert_eq!(decide(&both, "1-150,a1-7", goal), chosen("h2"));
            }
        }
    }

    #[test]
    fn a_target_within_what_two_histories_have_may_be_of_either() {
        // An interrupted restore of the first one, or a backup of the second.
        for received in ["1-5500", "1-6000", "1-5500,a1-9"] {
            in_doubt(all(&SET_BACK, received));
        }
        // Also where the first one had more, which was never archived.
        in_doubt(all(&SET_BACK, "1-6500"));
        // Files of the first one that are too old are deleted. It did begin there.
        in_doubt(all(&[("", "1-6000"), ("", "1-300")], "1-200"));
    }

    #[test]
    fn a_target_before_both_gets_all_of_the_newest() {
        assert_eq!(all(&SET_BACK, "1-5000"), chosen("h2"));
        // The source was reset, and its first transactions are in both.
        assert_eq!(all(&[("", "1-4"), ("", "1-6")], ""), chosen("h2"));
        assert_eq!(all(&[("", "1-4"), ("", "1-6")], "a1-9"), chosen("h2"));
    }

    #[test]
    fn an_end_that_both_have_is_in_doubt() {
        in_doubt(decide(&SET_BACK, "1-5000", Goal::Moment));
        in_doubt(decide(&SET_BACK, "1-5000", Goal::Gtids(&set("1-5500"))));
        in_doubt(decide(&SET_BACK, "1-5000", Goal::Gtids(&set("5500"))));
        assert_eq!(decide(&SET_BACK, "1-5000", Goal::Gtids(&set("1-7000"))), chosen("h2"));
    }

    #[test]
    fn an_older_history_is_not_followed_past_the_place_where_a_newer_one_begins() {
        in_doubt(all(&SET_BACK, "1-4000"));
        in_doubt(decide(&SET_BACK, "1-4000", Goal::Moment));
        in_doubt(decide(&SET_BACK, "1-4000", Goal::Gtids(&set("1-5001"))));
        assert_eq!(decide(&SET_BACK, "1-4000", Goal::Gtids(&set("1-5000"))), chosen("h1"));
        assert_eq!(decide(&SET_BACK, "", Goal::Gtids(&set("4500"))), chosen("h1"));
    }

    #[test]
    fn transactions_of_another_server_show_the_history() {
        // A replica without 5991 to 6000 became the source.
        let failover = [("", "1-6000"), ("1-5990", "1-5990,a1-200")];
        assert_eq!(all(&failover, "1-5990,a1-50"), chosen("h2"));
        assert_eq!(decide(&failover, "1-5990,a1-50", Goal::Moment), chosen("h2"));
        in_doubt(all(&failover, "1-6000"));
        in_doubt(decide(&failover, "1-5990", Goal::Moment));
        assert_eq!(decide(&failover, "1-5990", Goal::Gtids(&set("a1-20"))), chosen("h2"));
        // The files that follow the target are missing, and those of the first one are wrong.
        let kept = [("", "1-6000"), ("1-5990,a1-100,a300", "1-5990,a1-200,a300")];
        let said = all(&kept, "1-5990,a1-150").expect_err("a gap");
        assert!(said.starts_with("missing: "), "{said}");
    }

    #[test]
    fn a_third_history_does_not_hide_the_doubt_between_two() {
        let three = [("", "1-6000"), ("1-5000", "1-5200"), ("1-5100", "1-9000")];
        in_doubt(all(&three, "1-5100"));
        let said = all(&three, "1-5000").expect_err("the third one leads elsewhere");
        assert!(said.contains("h2 (") && said.contains("h3 ("), "{said}");
    }
}
