//! A group (Group Replication, InnoDB Cluster), as one of its members sees it; and the order in which addresses of
//! members are tried. All of it is pure but for one query.

mod candidates;

use super::Version;
use super::ask::{Ask, TextRow};
use super::link::Limits;

pub use candidates::{Address, Candidates, KnownMembers};

/// The members of the group that a server belongs to, as that server sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupView {
    pub members: Vec<Member>,
}

/// A row of `performance_schema.replication_group_members`
/// (<https://dev.mysql.com/doc/refman/en/performance-schema-replication-group-members-table.html>).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// It is the server that was asked.
    pub is_asked: bool,
    /// `report_host` and `report_port` of the member.
    pub address: Address,
    /// `ONLINE`, `RECOVERING`, `OFFLINE`, `ERROR` or `UNREACHABLE`.
    pub state: String,
    /// `None` where the server does not say: before 8.0, and where it is in no group now.
    pub is_primary: Option<bool>,
}

/// The part of a server in its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is ONLINE, and the majority of the group is reachable from it.
    Healthy { is_primary: Option<bool> },
    /// Its data may be old, and may stay so; the text says why.
    Unfit(String),
}

/// The knowledge about a server's group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Membership {
    /// The server has never been told to be a member.
    #[default]
    None,
    /// The account may not see the members.
    Hidden,
    Known(GroupView),
}

/// The privilege that reading the members takes.
pub const MEMBERS_PRIVILEGE: &str = "SELECT ON performance_schema.replication_group_members";

impl Member {
    fn is(&self, state: &str) -> bool {
        self.state == state
    }
}

impl GroupView {
    /// Asks a server for the members of its group; none where it has never been in one.
    ///
    /// # Errors
    /// The session's; 1142 without [`MEMBERS_PRIVILEGE`].
    pub async fn read<S: Ask + Send>(session: &mut S, version: &Version) -> Result<Self, S::Error> {
        let role = if version.numbers() >= [8, 0, 2] { "MEMBER_ROLE" } else { "''" };
        let query = format!(
            "SELECT MEMBER_ID=@@GLOBAL.server_uuid, MEMBER_HOST, MEMBER_PORT, MEMBER_STATE, {role} \
             FROM performance_schema.replication_group_members"
        );
        let rows = session.ask(&query, Limits::LIST).await?;
        Ok(Self { members: rows.into_iter().filter_map(member).collect() })
    }

    /// Judges the server that was asked.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let Some(own) = self.members.iter().find(|member| member.is_asked) else {
            return Standing::Unfit("it is not a member of a group".to_owned());
        };
        let all = self.members.len();
        let unreachable = self.members.iter().filter(|member| member.is("UNREACHABLE")).count();
        // The lost majority first: soon afterwards the member may go into ERROR, and the cause is this one.
        if unreachable * 2 >= all {
            let text = format!(
                "it reaches {} of the {all} members of its group, which is no majority, so what it has stays as \
                 it is",
                all - unreachable
            );
            return Standing::Unfit(text);
        }
        match own.state.as_str() {
            "ONLINE" => Standing::Healthy { is_primary: own.is_primary },
            "RECOVERING" => {
                Standing::Unfit("it is RECOVERING: it has not caught up with its group".to_owned())
            }
            state => Standing::Unfit(format!(
                "its state in its group is {state}: it receives nothing of the group any more"
            )),
        }
    }

    /// Returns the addresses of the members, those first that probably serve: ONLINE ones, and of these primaries
    /// or secondaries.
    #[must_use]
    pub fn addresses(&self, primaries_first: bool) -> Vec<Address> {
        let mut members: Vec<&Member> = self
            .members
            .iter()
            .filter(|member| !member.address.0.is_empty() && member.address.1 != 0)
            .collect();
        // Stable: the server's order decides between equals.
        members.sort_by_key(|member| {
            (!member.is("ONLINE"), member.is_primary.unwrap_or(false) != primaries_first)
        });
        members.into_iter().map(|member| member.address.clone()).collect()
    }

    /// Returns true if another ONLINE member is a secondary.
    #[must_use]
    pub fn has_other_secondary(&self) -> bool {
        let serves = |member: &&Member| member.is("ONLINE") && member.is_primary == Some(false);
        self.members.iter().filter(serves).any(|member| !member.is_asked)
    }

    /// Returns the group in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let member = |member: &Member| {
            let (host, port) = &member.address;
            let role = match member.is_primary {
                Some(true) => " PRIMARY",
                Some(false) => " SECONDARY",
                None => "",
            };
            format!("{host}:{port} {}{role}", member.state)
        };
        self.members.iter().map(member).collect::<Vec<_>>().join(", ")
    }
}

fn member(row: TextRow) -> Option<Member> {
    let mut values = row.into_iter().map(Option::unwrap_or_default);
    let (is_asked, host) = (values.next()? == "1", values.next()?);
    let port = values.next()?.parse().unwrap_or(0);
    let state = values.next()?;
    let is_primary = match values.next()?.as_str() {
        "PRIMARY" => Some(true),
        "SECONDARY" => Some(false),
        _ => None,
    };
    Some(Member { is_asked, address: (host, port), state, is_primary })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One word for each member: state, `+` for a primary, `!` for the one that was asked.
    fn view(text: &str) -> GroupView {
        let member = |(number, word): (u16, &str)| Member {
            is_asked: word.contains('!'),
            address: ("h".to_owned(), number),
            state: word.trim_matches(['!', '+']).to_owned(),
            is_primary: (!word.starts_with("ERR") && !word.starts_with("OFF"))
                .then(|| word.contains('+')),
        };
        GroupView { members: (1..).zip(text.split_whitespace()).map(member).collect() }
    }

    #[test]
    fn only_a_member_that_follows_its_group_is_healthy() {
        for (group, expected) in [
            ("ONLINE!+ ONLINE ONLINE", Ok(Some(true))),
            ("ONLINE+ ONLINE! RECOVERING", Ok(Some(false))),
            ("ONLINE!+", Ok(Some(true))),
            // One of three is away, but not expelled yet.
            ("ONLINE!+ ONLINE UNREACHABLE", Ok(Some(true))),
            ("ONLINE!+ UNREACHABLE UNREACHABLE", Err("reaches 1 of the 3")),
            ("ONLINE!+ UNREACHABLE", Err("no majority")),
            ("ERROR! UNREACHABLE UNREACHABLE", Err("no majority")),
            ("RECOVERING! ONLINE+ ONLINE", Err("RECOVERING")),
            ("ERROR!", Err("ERROR")),
            ("OFFLINE!", Err("OFFLINE")),
            ("", Err("not a member")),
        ] {
            match (view(group).standing(), expected) {
                (Standing::Healthy { is_primary }, Ok(expected)) => {
                    assert_eq!(is_primary, expected, "{group}");
                }
                (Standing::Unfit(why), Err(part)) => assert!(why.contains(part), "{group}: {why}"),
                (other, _) => panic!("{group}: {other:?}"),
            }
        }
    }

    #[test]
    fn members_that_probably_serve_come_first() {
        let order = |group: &str, primaries_first| -> Vec<u16> {
            view(group).addresses(primaries_first).into_iter().map(|(_, port)| port).collect()
        };
        assert_eq!(order("UNREACHABLE ONLINE! RECOVERING ONLINE+", true), [4, 2, 1, 3]);
        assert_eq!(order("ONLINE+ ONLINE! ONLINE", false), [2, 3, 1]);
        assert!(view("ONLINE+! ONLINE").has_other_secondary());
        assert!(!view("ONLINE+! RECOVERING").has_other_secondary());
    }
}
