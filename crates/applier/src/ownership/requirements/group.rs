//! The requirements for a target that is a member of a group. Pure.

use csa_provider::server::group::{MEMBERS_PRIVILEGE, Membership, Standing};
use csa_provider::server::{Finding, Place, ServerFacts};

use crate::options::{TargetGtids, TargetOptions};
use crate::server::search::primary;

/// Bytes of the row changes of a group of transactions at most, with room for what is around them.
const SIZE_MIN: u64 = 16 << 20;

/// Judges a member by what the channel needs of its group.
pub(super) fn requirements(target: &ServerFacts, options: &TargetOptions) -> Vec<Finding> {
    let mut found = vec![member(target, options.route.discovers())];
    if target.group != Membership::None {
        found.push(gtids(options.gtids));
        found.push(transaction_size(target));
    }
    found
}

fn member(target: &ServerFacts, discovers: bool) -> Finding {
    const CHECK: &str = "target.group";
    let discover = "[channel.target] discover = \"group\"";
    let grant = format!("GRANT {MEMBERS_PRIVILEGE} TO {};", target.grants.account());
    let view = match (&target.group, discovers) {
        (Membership::None, false) => return Finding::ok(CHECK, "it is in no group"),
        (Membership::None, true) => {
            return Finding::error(CHECK, "it is in no group, which target.discover asks for").fix(
                Place::Configuration,
                "[channel.target] host and port of a member, or no discover",
            );
        }
        (Membership::Hidden, true) => {
            return Finding::error(CHECK, "the account can't read the members of its group")
                .fix(Place::Target, grant);
        }
        (Membership::Hidden, false) => {
            return Finding::warning(
                CHECK,
                "it may be a member of a group, whose members the account can't read",
            )
            .fix(Place::Target, grant);
        }
        (Membership::Known(view), _) => view,
    };
    let is_left = view.members.iter().all(|member| member.state == "OFFLINE");
    match (primary(view, true), discovers) {
        (Ok(()), true) => Finding::ok(CHECK, view.line()),
        (Ok(()), false) => Finding::warning(
            CHECK,
            "it is the primary of its group: once another member is, the channel waits for this one",
        )
        .fix(Place::Configuration, discover),
        (Err(why), false) if is_left => Finding::warning(CHECK, why),
        (Err(why), _) => {
            let members = view.members.iter().filter(|_| {
                matches!(view.standing(), Standing::Healthy { .. })
            });
            let primary = members.into_iter().find(|member| member.is_primary == Some(true));
            let finding = Finding::error(CHECK, format!("{why}; {}", view.line()))
                .fix(Place::Configuration, discover);
            match primary.map(|member| &member.address) {
                Some((host, port)) => finding.fix(
                    Place::Configuration,
                    format!("[channel.target] host = \"{host}\", port = {port}, its primary"),
                ),
                None => finding,
            }
        }
    }
}

fn gtids(gtids: TargetGtids) -> Finding {
    const CHECK: &str = "target.group_gtids";
    let own = "[channel.applier] target_gtids = \"own\"";
    match gtids {
        TargetGtids::Own => Finding::ok(CHECK, "commits have the group's GTIDs"),
        TargetGtids::Mirror => Finding::error(
            CHECK,
            "target_gtids = \"mirror\" keeps rows out of the binary log, and so from the other members",
        )
        .fix(Place::Configuration, own),
        TargetGtids::Source => Finding::warning(
            CHECK,
            "a group takes no gtid_purged (3911), which target_gtids = \"source\" sets where gtid_executed lacks \
             what the checkpoint has",
        )
        .fix(Place::Configuration, own),
    }
}

fn transaction_size(target: &ServerFacts) -> Finding {
    const CHECK: &str = "target.group_transaction_size";
    let name = "group_replication_transaction_size_limit";
    match target.number(name) {
        None | Some(0) => Finding::ok(CHECK, "no limit"),
        Some(bytes) if bytes < SIZE_MIN => Finding::warning(
            CHECK,
            format!("{bytes} bytes: groups of transactions may be refused, and are then applied one by one"),
        )
        .fix(Place::Target, format!("SET PERSIST {name}=150000000; -- on each member")),
        Some(bytes) => Finding::ok(CHECK, format!("{bytes} bytes; a larger transaction stops the channel")),
    }
}
