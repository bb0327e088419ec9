//! A source that is a group: any member that follows its group can send the stream.

use crate::server::group::{Address, Candidates, GroupView, KnownMembers, Standing};

/// The members of the source's group are found and may take over from each other.
#[derive(Debug, Clone, Default)]
pub struct GroupDiscovery {
    /// A primary is followed only while no secondary serves.
    pub prefers_secondary: bool,
    pub known: KnownMembers,
}

impl GroupDiscovery {
    /// Judges the member at `address` by what it says about its group, whose other members get a turn.
    ///
    /// # Errors
    /// Returns the reason not to follow it now.
    pub(crate) fn admit(
        &self,
        view: &GroupView,
        address: &Address,
        candidates: &mut Candidates,
    ) -> Result<(), String> {
        let members = view.addresses(!self.prefers_secondary);
        candidates.learn(members.iter().cloned());
        match view.standing() {
            Standing::Unfit(why) => Err(why),
            Standing::Healthy { is_primary } => {
                // Only now: one that was expelled may know no other.
                self.known.note(members);
                let is_unwanted = self.prefers_secondary && is_primary == Some(true);
                match is_unwanted && view.has_other_secondary() && candidates.set_aside(address) {
                    true => {
                        Err("it is the primary, and source.prefer asks for a secondary".to_owned())
                    }
                    false => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::group::Member;

    fn view(own: usize, states: [(&str, bool); 3]) -> GroupView {
        let member = |(number, (state, is_primary)): (usize, (&str, bool))| Member {
            is_asked: number == own,
            address: address(number),
            state: state.to_owned(),
            is_primary: Some(is_primary),
        };
        GroupView { members: states.into_iter().enumerate().map(member).collect() }
    }

    fn address(number: usize) -> Address {
        (format!("h{number}"), 3306)
    }

    #[test]
    fn a_primary_is_followed_only_for_want_of_a_secondary() {
        let discovery = GroupDiscovery { prefers_secondary: true, ..GroupDiscovery::default() };
        let mut candidates = Candidates::new([address(0)]);
        let first = candidates.next().expect("the entry");
        let states = [("ONLINE", true), ("ONLINE", false), ("ERROR", false)];
        let why = discovery.admit(&view(0, states), &first, &mut candidates).expect_err("another");
        assert!(why.contains("primary"), "{why}");
        assert_eq!(discovery.known.get().len(), 3);
        // The secondary refuses the login, say; the one in ERROR says so itself.
        assert_eq!(candidates.next(), Some(address(1)));
        assert_eq!(candidates.next(), Some(address(2)));
        let alone = view(2, [("ONLINE", true), ("ONLINE", false), ("ERROR", false)]);
        assert!(discovery.admit(&alone, &address(2), &mut candidates).is_err());
        assert_eq!(candidates.next(), Some(address(0)));
        assert_eq!(discovery.admit(&view(0, states), &address(0), &mut candidates), Ok(()));
    }
}
