//! The member that should have each channel: weighted rendezvous hashing over the living members
//! (<https://www.ietf.org/archive/id/draft-ietf-bess-weighted-hrw-00.html>). Every member computes the same
//! without asking another, and a member that comes or goes moves only its own share. Pure.

use std::collections::BTreeMap;

use sha1::{Digest as _, Sha1};

use super::engine::Member;

/// The owner of each channel that at least one member can have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shares {
    owners: BTreeMap<String, String>,
}

impl Shares {
    pub(super) fn of(members: &[Member]) -> Self {
        let mut best: BTreeMap<&str, (f64, &str)> = BTreeMap::new();
        for member in members.iter().filter(|member| member.weight > 0 && !member.draining) {
            for channel in &member.channels {
                let score = score(channel, member);
                let new = (score, member.name.as_str());
                best.entry(channel)
                    .and_modify(|known| {
                        if is_better(new, *known) {
                            *known = new;
                        }
                    })
                    .or_insert(new);
            }
        }
        let owned =
            |(channel, (_, owner)): (&str, (f64, &str))| (channel.to_owned(), owner.to_owned());
        Self { owners: best.into_iter().map(owned).collect() }
    }

    pub(super) fn owner(&self, channel: &str) -> Option<&str> {
        self.owners.get(channel).map(String::as_str)
    }

    /// Returns the number of channels that a member should have.
    pub(super) fn count(&self, member: &str) -> u64 {
        self.owners.values().filter(|owner| *owner == member).count() as u64
    }
}

/// The name decides between equal scores, so that nothing depends on the order of the members.
fn is_better((score, name): (f64, &str), (known, other): (f64, &str)) -> bool {
    score.total_cmp(&known).then_with(|| name.cmp(other)).is_gt()
}

/// Members win channels in proportion to their weights, each channel independently of the others.
fn score(channel: &str, member: &Member) -> f64 {
    let mut hash = Sha1::new();
    hash.update(member.name.as_bytes());
    hash.update([0]);
    hash.update(channel.as_bytes());
    let digest: [u8; 20] = hash.finalize().into();
    let number = digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
    // 53 bits, never 0 and never 1.
    let part = ((number >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -f64::from(member.weight) / part.ln()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn members(weights: &[u32], channels: usize) -> Vec<Member> {
        let channels: BTreeSet<String> = (0..channels).map(|n| format!("shard-{n}")).collect();
        let member = |(number, weight): (usize, &u32)| Member {
            name: format!("host-{number}"),
            weight: *weight,
            channels: channels.clone(),
            ..Member::default()
        };
        weights.iter().enumerate().map(member).collect()
    }

    proptest! {
        #[test]
        fn every_channel_has_one_owner_whatever_the_order_of_members(
            weights in prop::collection::vec(0_u32..200, 1..8),
            channels in 0_usize..60,
            turn in 0_usize..8,
        ) {
            let mut members = members(&weights, channels);
            let shares = Shares::of(&members);
            members.rotate_left(turn % weights.len());
            prop_assert_eq!(&shares, &Shares::of(&members));
            let can_own = weights.iter().any(|weight| *weight > 0);
            prop_assert_eq!(shares.owners.len(), if can_own { channels } else { 0 });
            for owner in shares.owners.values() {
                let owner = members.iter().find(|member| member.name == *owner).expect("a member");
                prop_assert!(owner.weight > 0);
            }
        }

        #[test]
        fn a_member_that_comes_or_goes_moves_its_own_share_only(
            weights in prop::collection::vec(1_u32..200, 2..8),
            goes in 0_usize..8,
        ) {
            let mut members = members(&weights, 200);
            let with = Shares::of(&members);
            let gone = members.remove(goes % weights.len());
            let without = Shares::of(&members);
            for (channel, owner) in &with.owners {
                if *owner != gone.name {
                    prop_assert_eq!(without.owner(channel), Some(owner.as_str()), "{}", channel);
                }
            }
            // One that drains counts like one that is gone.
            members.push(Member { draining: true, ..gone });
            prop_assert_eq!(Shares::of(&members), without);
        }

        #[test]
        fn a_channel_belongs_to_a_member_that_has_it_configured(holes in prop::collection::vec(0_usize..5, 50)) {
            let mut members = members(&[100; 5], 50);
            for (channel, hole) in holes.iter().enumerate() {
                members[*hole].channels.remove(&format!("shard-{channel}"));
            }
            let shares = Shares::of(&members);
            for (channel, hole) in holes.iter().enumerate() {
                let owner = shares.owner(&format!("shard-{channel}"));
                let lacks_it = format!("host-{hole}");
                prop_assert!(owner.is_some_and(|owner| owner != lacks_it));
            }
        }
    }

    #[test]
    fn shares_are_in_proportion_to_weights() {
        const CHANNELS: usize = 10_000;
        for weights in [&[100; 5][..], &[100, 200, 300], &[1, 1, 8]] {
            let members = members(weights, CHANNELS);
            let shares = Shares::of(&members);
            let total: u32 = weights.iter().sum();
            for member in &members {
                let part = f64::from(member.weight) / f64::from(total);
                let wanted = part * CHANNELS as f64;
                // Five standard deviations.
                let off = 5.0 * (wanted * (1.0 - part)).sqrt();
                let has = shares.count(&member.name) as f64;
                assert!((has - wanted).abs() < off, "{weights:?}: {has} of {wanted} ± {off}");
            }
        }
    }

    /// Daemons of different versions have to agree.
    #[test]
    fn owners_do_not_change_with_the_version() {
        let shares = Shares::of(&members(&[100, 200, 300], 12));
        let owners: Vec<&str> = shares.owners.values().map(|owner| &owner[5..]).collect();
        assert_eq!(owners.concat(), "112102222221");
    }
}
