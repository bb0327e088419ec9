//! The next steps of one member, from all that is known. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::desired::Shares;
use super::engine::Claim;

/// Channels that a member gives away at a time: each of them stands still from the end here to the start
/// there.
const MOVES: usize = 8;

/// A channel that this member has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    Working,
    /// Running groups are being finished.
    Ending,
}

/// Everything that the next steps depend on.
#[derive(Debug)]
pub(super) struct Situation<'a> {
    pub(super) me: &'a str,
    /// Channels in this member's configuration.
    pub(super) known: &'a BTreeSet<String>,
    /// Channels that it runs.
    pub(super) mine: &'a BTreeMap<String, Hold>,
    /// Channels that an operator has paused or stopped here.
    pub(super) held: &'a BTreeSet<String>,
    pub(super) claims: &'a BTreeMap<String, Claim>,
    pub(super) shares: &'a Shares,
    /// The others have had time to join too, so this member takes its share and not everything.
    pub(super) is_settled: bool,
    /// No member has joined, left or changed for some time: channels may move to where they belong.
    pub(super) is_stable: bool,
    pub(super) is_draining: bool,
}

/// Channels by what is to be done with them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    /// Channels to claim and, if they do not run, to begin.
    pub(super) take: Vec<String>,
    /// Channels to end, then to release.
    pub(super) end: Vec<String>,
    /// Channels to end, then to release, unless an operator holds them first.
    pub(super) moves: Vec<String>,
    /// Channels to release: nothing of them runs.
    pub(super) release: Vec<String>,
    /// There was more to move than may move at a time.
    pub(super) has_more: bool,
}

impl Situation<'_> {
    pub(super) fn steps(&self) -> Steps {
        let mut steps = Steps::default();
        let mut moving = self.mine.values().filter(|hold| **hold == Hold::Ending).count();
        let held = self.claims.iter().filter(|(_, claim)| claim.holder == self.me);
        let channels: BTreeSet<&String> =
            self.known.iter().chain(self.mine.keys()).chain(held.map(|(name, _)| name)).collect();
        for channel in channels {
            let claim = self.claims.get(channel);
            let claimed_by_me = claim.is_some_and(|claim| claim.holder == self.me);
            let claimed_by_other = claim.is_some() && !claimed_by_me;
            let is_known = self.known.contains(channel);
            match self.mine.get(channel) {
                Some(Hold::Ending) => {}
                // Removed from the configuration, or lost to another while the engine was away.
                Some(Hold::Working) if !is_known || claimed_by_other => {
                    steps.end.push(channel.clone());
                }
                Some(Hold::Working) if claim.is_none_or(|claim| !claim.is_current) => {
                    steps.take.push(channel.clone());
                }
                Some(Hold::Working) if !self.belongs_elsewhere(channel) => {}
                Some(Hold::Working) if moving < MOVES => {
                    moving += 1;
                    match self.is_draining {
                        true => steps.end.push(channel.clone()),
                        false => steps.moves.push(channel.clone()),
                    }
                }
                Some(Hold::Working) => steps.has_more = true,
                None if claimed_by_other => {}
                // Left behind by an earlier session, most often before a restart.
                None if claimed_by_me && is_known && !self.belongs_elsewhere(channel) => {
                    steps.take.push(channel.clone());
                }
                None if claimed_by_me => steps.release.push(channel.clone()),
                None if self.is_settled && self.shares.owner(channel) == Some(self.me) => {
                    steps.take.push(channel.clone());
                }
                None => {}
            }
        }
        steps
    }

    /// Another member should have it, and it may move now. One that an operator holds would apply there, so it moves
    /// only on request.
    fn belongs_elsewhere(&self, channel: &str) -> bool {
        let may_move = self.is_draining || (self.is_stable && !self.held.contains(channel));
        may_move && self.shares.owner(channel).is_some_and(|owner| owner != self.me)
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::Member;
    use super::*;

    /// Returns the channels that belong to `a` and to `b`, of these members.
    fn shares(draining: bool) -> (Shares, [Vec<String>; 2]) {
        let channels: BTreeSet<String> = (0..40).map(|n| format!("c{n}")).collect();
        let member = |name: &str, draining| Member {
            name: name.to_owned(),
            weight: 1,
            draining,
            channels: channels.clone(),
            ..Member::default()
        };
        let both = Shares::of(&[member("a", false), member("b", false)]);
        let of = |name| {
            let own = channels.iter().filter(|channel| both.owner(channel) == Some(name));
            own.cloned().collect()
        };
        let parts = [of("a"), of("b")];
        (Shares::of(&[member("a", draining), member("b", false)]), parts)
    }

    fn claim(holder: &str, is_current: bool) -> Claim {
        Claim { holder: holder.to_owned(), is_current }
    }

    #[test]
    fn each_case_has_its_step() {
        let (shares, [ours, theirs]) = shares(false);
        let (our, their) = (&ours[0], &theirs[0]);
        let known = BTreeSet::from([our.clone(), their.clone()]);
        let (take, end, moves, release) = ("take", "end", "move", "release");
        let working = Some(Hold::Working);
        for (channel, mine, claims, settled, stable, wanted) in [
            // Free.
            (our, None, None, true, false, take),
            (our, None, None, false, true, ""),
            (their, None, None, true, true, ""),
            // Claimed by another: nothing is taken away from it.
            (our, None, Some(claim("b", false)), true, true, ""),
            (our, working, Some(claim("b", false)), true, false, end),
            // Ours, and where it belongs.
            (our, working, Some(claim("a", true)), true, true, ""),
            (our, working, Some(claim("a", false)), false, true, take),
            (our, working, None, false, false, take),
            (their, working, None, false, false, take),
            // Left behind by an earlier session.
            (our, None, Some(claim("a", false)), false, false, take),
            (their, None, Some(claim("a", false)), false, false, take),
            (their, None, Some(claim("a", false)), true, true, release),
            // The other's share, once nothing has changed for a while.
            (their, working, Some(claim("a", true)), true, false, ""),
            (their, working, Some(claim("a", true)), true, true, moves),
            (their, Some(Hold::Ending), Some(claim("a", true)), true, true, ""),
        ] {
            let case = format!("{channel} {mine:?} {claims:?} settled {settled} stable {stable}");
            let mine = mine.map(|hold| (channel.clone(), hold)).into_iter().collect();
            let claims = claims.map(|claim| (channel.clone(), claim)).into_iter().collect();
            let situation = Situation {
                me: "a",
                known: &known,
                mine: &mine,
                held: &BTreeSet::new(),
                claims: &claims,
                shares: &shares,
                is_settled: settled,
                is_stable: stable,
                is_draining: false,
            };
            let steps = situation.steps();
            let of = |list: &[String], name| list.contains(channel).then_some(name);
            let lists = [
                of(&steps.take, take),
                of(&steps.end, end),
                of(&steps.moves, moves),
                of(&steps.release, release),
            ];
            let done: Vec<&str> = lists.into_iter().flatten().collect();
            assert_eq!(done.concat(), wanted, "{case}");
        }
    }

    #[test]
    fn a_drain_moves_a_few_at_a_time_without_waiting_for_stability() {
        let (shares, [ours, theirs]) = shares(true);
        let known: BTreeSet<String> = ours.iter().chain(&theirs).cloned().collect();
        let claims = known.iter().map(|channel| (channel.clone(), claim("a", true))).collect();
        let mut mine: BTreeMap<String, Hold> =
            known.iter().map(|channel| (channel.clone(), Hold::Working)).collect();
        let steps = |mine: &BTreeMap<String, Hold>| {
            let situation = Situation {
                me: "a",
                known: &known,
                mine,
                held: &known,
                claims: &claims,
                shares: &shares,
                is_settled: true,
                is_stable: false,
                is_draining: true,
            };
            situation.steps()
        };
        let first = steps(&mine);
        assert_eq!((first.end.len(), first.moves.len(), first.has_more), (MOVES, 0, true));
        for channel in &first.end[1..] {
            mine.insert(channel.clone(), Hold::Ending);
        }
        let next = steps(&mine);
        assert_eq!(next.end, first.end[..1], "one place is free");
        // Without its configuration a channel ends, however many do.
        let situation = Situation {
            me: "a",
            known: &BTreeSet::new(),
            mine: &mine,
            held: &known,
            claims: &claims,
            shares: &shares,
            is_settled: true,
            is_stable: false,
            is_draining: false,
        };
        assert_eq!(situation.steps().end.len(), known.len() + 1 - MOVES);
    }

    #[test]
    fn a_channel_that_an_operator_holds_stays_while_others_move_to_their_shares() {
        let (shares, [_, theirs]) = shares(false);
        let known = BTreeSet::from([theirs[0].clone(), theirs[1].clone()]);
        let mine = known.iter().map(|channel| (channel.clone(), Hold::Working)).collect();
        let claims = known.iter().map(|channel| (channel.clone(), claim("a", true))).collect();
        let situation = Situation {
            me: "a",
            known: &known,
            mine: &mine,
            held: &BTreeSet::from([theirs[0].clone()]),
            claims: &claims,
            shares: &shares,
            is_settled: true,
            is_stable: true,
            is_draining: false,
        };
        assert_eq!(situation.steps().moves, theirs[1..2]);
    }
}
