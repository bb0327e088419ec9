use csa_scheduler::sequence::Sequence;

use super::*;
use crate::ownership::channel_record::ChannelIdentity;

const A: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
const B: &str = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb";
const OWN: &str = "01010101-0101-0101-0101-010101010101";

fn set(text: &str) -> GtidSet {
    let text = text.replace("A:", &format!("{A}:")).replace("B:", &format!("{B}:"));
    text.replace("T:", &format!("{OWN}:")).parse().expect("a set")
}

fn record(channel: &str, executed: &str) -> ChannelRecord {
    let checkpoint = Checkpoint { sequence: Sequence::new(7), executed: set(executed), epoch: 1 };
    ChannelRecord {
        channel: channel.to_owned(),
        checkpoint: Some(checkpoint),
        ..ChannelRecord::default()
    }
}

/// A start of channel `new`, whose source has executed A:1-100.
#[derive(Clone)]
struct Case {
    start: StartFrom,
    is_copy_unsaid: bool,
    gtids: TargetGtids,
    source: Option<&'static str>,
    source_uuid: &'static str,
    target: &'static str,
    channels: Vec<ChannelRecord>,
    relayed: &'static str,
    is_relay_kept: bool,
    shared: SharedTables,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            start: StartFrom::Target,
            is_copy_unsaid: false,
            gtids: TargetGtids::Own,
            source: Some("A:1-100"),
            source_uuid: A,
            target: "",
            channels: Vec::new(),
            relayed: "",
            is_relay_kept: true,
            shared: SharedTables::Unknown,
        }
    }
}

impl Case {
    fn check(&self) -> Result<Vec<String>, String> {
        let source = self.source.map(set);
        let position = StartPosition {
            channel: "new",
            address: "target:3306",
            start: &self.start,
            is_copy_unsaid: self.is_copy_unsaid,
            gtids: self.gtids,
            source: source.as_ref(),
            source_uuid: self.source_uuid.parse().ok(),
            target: &set(self.target),
            target_uuids: &OWN.parse().into_iter().collect(),
            channels: &self.channels,
            relayed: &set(self.relayed),
            is_relay_kept: self.is_relay_kept,
        };
        position.check(|_| self.shared.clone())
    }

    #[track_caller]
    fn starts(&self) {
        assert_eq!(self.check(), Ok(Vec::new()));
    }

    #[track_caller]
    fn refused(&self, words: &[&str]) {
        let why = self.check().expect_err("refused");
        for word in words {
            let word = word.replace("A:", &format!("{A}:")).replace("T:", &format!("{OWN}:"));
            assert!(why.contains(&word), "{word:?} is missing in {why}");
        }
    }
}

fn at(set_text: &str) -> StartFrom {
    StartFrom::Executed(set(set_text))
}

#[test]
fn copies_and_empty_targets_start() {
    for target in ["", "T:1-9", "A:1-60", "A:1-60,T:1-3", "A:1-100,B:5-9:20"] {
        Case { target, ..Case::default() }.starts();
    }
    // The source has these holes too.
    Case { source: Some("A:1-50:60-100"), target: "A:1-50:60-70", ..Case::default() }.starts();
    Case { source: Some("A:1-50,A:blue:1-20"), target: "A:1-30,A:blue:1-9", ..Case::default() }
        .starts();
}

#[test]
fn a_target_with_the_server_uuid_of_its_source_is_refused() {
    let twin =
        || Case { source: Some("T:1-100"), source_uuid: OWN, target: "T:1-60", ..Case::default() };
    for case in [
        twin(),
        Case { start: StartFrom::Source, ..twin() },
        Case { start: at("T:1-60"), ..twin() },
        Case { gtids: TargetGtids::Source, ..twin() },
        Case { channels: vec![record("new", "T:1-60")], ..twin() },
        Case { source: Some(""), target: "", ..twin() },
    ] {
        let words = ["same server_uuid", OWN, "auto.cnf", "RESET BINARY LOGS AND GTIDS"];
        case.refused(&words);
    }
    // One that was the target before may be the source.
    let mut record = record("new", "B:1-60");
    record.target_uuids = [B, OWN].map(|uuid| uuid.parse().expect("a UUID")).into();
    let swapped = Case { source: Some("B:1-100"), source_uuid: B, ..Case::default() };
    Case { target: "B:1-60,T:1-3", channels: vec![record], ..swapped }.starts();
}

#[test]
fn a_target_without_any_of_the_sources_transactions_needs_a_word() {
    for target in ["", "T:1-9", "B:1-5"] {
        let case = Case { target, is_copy_unsaid: true, ..Case::default() };
        case.refused(&["no checkpoint", "100 transactions", "\"copy\"", "\"target\"", "GTID set"]);
        Case { source: Some(""), ..case.clone() }.starts();
        Case { target: "A:1-60", ..case.clone() }.starts();
        Case { channels: vec![record("new", "")], ..case }.starts();
    }
    // What is known better comes first.
    let renamed = vec![record("old", "A:1-70")];
    Case { is_copy_unsaid: true, channels: renamed, ..Case::default() }.refused(&["adopt"]);
}

#[test]
fn definitions_alone_are_no_copy() {
    for target in ["A:1-6:41-45:68", "A:2", "A:1-6:8,T:1-100"] {
        let case = Case { target, ..Case::default() };
        case.refused(&["no checkpoint", "not that of a copy", "start_from"]);
        // The operator knows better.
        Case { start: at("A:1-100"), ..case.clone() }.starts();
        // In this mode it is the checkpoint.
        Case { gtids: TargetGtids::Source, ..case }.starts();
    }
    Case { target: "A:1-6:41", ..Case::default() }.refused(&[
        "34 transactions",
        "A:7-40",
        "\"A:1-6",
    ]);
}

#[test]
fn a_renamed_channel_is_refused_and_told_how_to_adopt() {
    let renamed = Case { channels: vec![record("old", "A:1-90")], ..Case::default() };
    for target in ["", "A:1-60", "A:1-60:70"] {
        Case { target, ..renamed.clone() }.refused(&[
            "channel \"old\"",
            "second time",
            "csa-daemon adopt --from old --channel new",
            "start_from",
            "A:1-90\"",
        ]);
    }
    // The target's GTIDs include the other's checkpoint.
    Case { target: "A:1-90", ..renamed.clone() }.starts();
    Case { target: "A:1-95", gtids: TargetGtids::Mirror, ..renamed.clone() }.starts();
    // The last of several names has applied most, and is the one to adopt.
    let twice =
        vec![record("before", "A:1-30"), record("old", "A:1-90"), record("stale", "A:1-89")];
    Case { channels: twice, ..renamed.clone() }.refused(&["adopt --from old --channel new"]);
    // Also where what an earlier name lacks is all there.
    let earlier = vec![record("before", "A:1-30"), record("old", "A:1-100")];
    let late = Case { start: StartFrom::Source, channels: earlier, ..renamed.clone() };
    Case { shared: SharedTables::Table("d.t".to_owned()), ..late }.refused(&[
        "passed over",
        "A:31-100",
        "adopt --from old --channel new",
    ]);
    // A set or "source" left from its own first start is no better.
    let same = Case { shared: SharedTables::Table("d.t".to_owned()), ..renamed.clone() };
    Case { start: at("A:1-60"), ..same.clone() }.refused(&["both write d.t", "A:61-90", "adopt"]);
    let late = Case { start: StartFrom::Source, ..same.clone() };
    late.refused(&["passed over", "A:91-100", "adopt"]);
    Case { start: at("A:1-90"), ..same.clone() }.starts();
    // Where the target's GTIDs are level with the other's, the recorded sources decide.
    let mut level = Case { target: "A:1-90", gtids: TargetGtids::Mirror, ..late };
    let follows = |server: &str| ChannelIdentity {
        source_uuids: [server.parse().expect("a UUID")].into(),
        ..ChannelIdentity::default()
    };
    level.channels[0].identity = Some(follows(A));
    level.refused(&["passed over", "A:91-100"]);
    level.channels[0].identity = Some(follows(B));
    level.starts();
}

#[test]
fn a_record_without_servers_leaves_out_no_channel() {
    let begun_on_nothing = |executed, foreign: &[&str]| ChannelRecord {
        identity: Some(ChannelIdentity {
            foreign_uuids: foreign.iter().map(|server| server.parse().expect("a UUID")).collect(),
            ..ChannelIdentity::default()
        }),
        ..record("old", executed)
    };
    let renamed = |executed, foreign| Case {
        target: "A:1-6:41",
        channels: vec![begun_on_nothing(executed, foreign)],
        shared: SharedTables::Table("d.t".to_owned()),
        ..Case::default()
    };
    let adopt = "csa-daemon adopt --from old --channel new";
    let case = renamed("A:1-90", &[]);
    case.refused(&["second time", "A:7-40:42-90", adopt]);
    Case { start: at("A:1-60"), ..case.clone() }.refused(&["A:61-90", adopt]);
    Case { start: StartFrom::Source, ..case.clone() }.refused(&["passed over", "A:91-100", adopt]);
    // Level with the target, which says nothing about who applied it.
    let level = Case { target: "A:1-90", gtids: TargetGtids::Mirror, ..case };
    level.starts();
    Case { start: StartFrom::Source, ..level }.refused(&["passed over", adopt]);
    // It had them when it began, so they are no sign of a common source.
    let other = Case { start: StartFrom::Source, ..renamed("A:1-90,B:1-5", &[A]) };
    other.starts();
    // It has applied nothing, or what the target made itself.
    Case { start: StartFrom::Source, ..renamed("", &[]) }.starts();
    let own = Case { source: Some("A:1-100,T:1-9"), target: "T:1-9", ..renamed("T:1-9", &[]) };
    Case { start: at("A:1-100"), ..own }.starts();
}

#[test]
fn channels_with_tables_of_their_own_start_where_they_are_told() {
    let beside = Case {
        target: "A:1-60",
        channels: vec![record("other", "A:1-90")],
        shared: SharedTables::Nothing,
        ..Case::default()
    };
    Case { start: at("A:1-70"), ..beside.clone() }.starts();
    Case { start: StartFrom::Source, ..beside.clone() }.starts();
    // The target's GTIDs are not those of this channel's tables.
    beside.refused(&["on tables of their own", "start_from"]);
    let unknown = Case { start: at("A:1-70"), shared: SharedTables::Unknown, ..beside };
    assert!(unknown.check().is_ok_and(|warnings| warnings[0].contains("\"other\"")));
}

/// Returns the record of a channel whose sources had transactions of these servers.
fn other(servers: &[&str]) -> ChannelRecord {
    let servers = servers.iter().map(|server| server.parse().expect("a UUID"));
    ChannelRecord {
        identity: Some(ChannelIdentity {
            source_uuids: servers.collect(),
            ..ChannelIdentity::default()
        }),
        ..record("other", "A:1-90")
    }
}

#[test]
fn what_one_channel_leaves_out_is_not_executed_for_another() {
    let beside = |gtids, server| Case {
        start: at("A:1-90"),
        gtids,
        channels: vec![other(&[server])],
        shared: SharedTables::Nothing,
        ..Case::default()
    };
    let words = ["channels \"new\" and \"other\" share a source", "target_gtids = \"own\""];
    for gtids in [TargetGtids::Mirror, TargetGtids::Source] {
        let case = beside(gtids, A);
        case.refused(&words);
        let channels = vec![other(&[A]), record("new", "A:1-95")];
        Case { channels, ..case.clone() }.refused(&words);
        // They bring the same transactions.
        Case { shared: SharedTables::Table("d.t".to_owned()), ..case }.starts();
        beside(gtids, B).starts();
    }
    // The source was another one's replica before.
    let promoted = Case { source: Some("A:1-100,B:1-50"), ..beside(TargetGtids::Mirror, A) };
    Case { channels: vec![other(&[A, B])], ..promoted }.refused(&words);
    let mut own = beside(TargetGtids::Own, A);
    own.starts();
    own.channels[0].follows_target = true;
    own.refused(&words);
}

#[test]
fn a_history_in_common_is_no_proof_of_a_common_source() {
    const MEMBER: &str = "cccccccc-cccc-cccc-cccc-cccccccccccc";
    // The other one's source was copied from this one, or is another member of the group A.
    for (source_uuid, servers) in [(A, [A, B]), (MEMBER, [A, B])] {
        for gtids in [TargetGtids::Mirror, TargetGtids::Source] {
            let channels = vec![other(&servers), record("new", "A:1-95")];
            let shared = SharedTables::Nothing;
            let case = Case { source_uuid, gtids, channels, shared, ..Case::default() };
            let warnings = case.check().expect("it starts");
            assert!(warnings.len() == 1 && warnings[0].contains("perhaps share"), "{warnings:?}");
        }
    }
    // Both have what the target made.
    let ring = Case {
        source: Some("A:1-100,T:1-9"),
        gtids: TargetGtids::Source,
        channels: vec![other(&[B, OWN]), record("new", "A:1-95")],
        shared: SharedTables::Nothing,
        ..Case::default()
    };
    ring.starts();
}

#[test]
fn a_channel_of_another_source_is_none_of_its_business() {
    for other in ["B:1-50", "B:1-50,A:1-60"] {
        // The second began on a target that was a copy of A.
        let case =
            Case { target: "A:1-60,B:3", channels: vec![record("b", other)], ..Case::default() };
        case.starts();
        Case { start: StartFrom::Source, ..case }.starts();
    }
}

#[test]
fn what_was_received_before_may_have_been_applied() {
    let dropped = Case { target: "A:1-60", relayed: "A:1-80", ..Case::default() };
    dropped.refused(&["csa dropped", "A:61-80", "\"A:1-60\"", "\"A:1-80\""]);
    // A newer copy.
    Case { target: "A:1-90", ..dropped.clone() }.starts();
    Case { start: at("A:1-60"), ..dropped.clone() }.starts();
    Case { gtids: TargetGtids::Source, ..dropped.clone() }.starts();
    // Left in the file from the first start, "source" would leave out the backlog.
    let late = Case { start: StartFrom::Source, ..dropped };
    late.refused(&["csa dropped", "80 transactions", "passed over", "relay store"]);
    Case { relayed: "B:1-9", is_relay_kept: false, ..late }.starts();
}

#[test]
fn what_was_received_of_another_history_is_applied_to_no_copy() {
    let lacking = ["20 transactions", "A:101-120", "does not have", "would be applied"];
    let ways = ["stop --channel new --receiving", "state_dir/new/relay", "delete nothing"];
    let cloned = Case { target: "A:1-100", relayed: "A:1-120", ..Case::default() };
    for gtids in [TargetGtids::Own, TargetGtids::Mirror, TargetGtids::Source] {
        for start in [StartFrom::Target, StartFrom::Source, at("A:1-100")] {
            let case = Case { gtids, start, ..cloned.clone() };
            case.refused(&lacking);
            case.refused(&ways);
        }
    }
    // The name had another source before, which was empty when the channel began.
    Case { relayed: "B:1-9", ..cloned.clone() }.refused(&["9 transactions", B, "another server"]);
    // It is emptied when it is opened.
    Case { is_relay_kept: false, ..cloned.clone() }.starts();
    Case { channels: vec![record("new", "A:1-100")], ..cloned.clone() }.starts();
    // What the target itself made comes back and is left out, and no source has to have that.
    let own = Case { target: "A:1-100,T:1-9", relayed: "A:1-100,T:3-5", ..cloned };
    Case { start: at("A:1-100"), ..own }.starts();
}

#[test]
fn a_target_restored_without_its_gtids_is_refused() {
    let own = |executed| vec![record("new", executed)];
    // At most the statement under way when it last stopped.
    for (target, executed) in [
        ("", "A:1-50"),
        ("A:1-6:41", "A:1-50"),
        ("A:1-6:51", "A:1-50"),
        ("A:1-6,T:1-700", "A:1-50,T:1-3"),
    ] {
        for source in [Some("A:1-100"), Some("A:1-100,T:1-3"), None] {
            Case { source, target, channels: own(executed), ..Case::default() }.starts();
        }
    }
    let restored = Case { target: "A:1-6:51:70,T:1-9", channels: own("A:1-50"), ..Case::default() };
    for source in [Some("A:1-100"), None] {
        for gtids in [TargetGtids::Own, TargetGtids::Mirror] {
            Case { source, gtids, ..restored.clone() }.refused(&[
                "2 transactions",
                "A:51:70",
                "restored from a backup",
                "gtid_purged",
                "WHERE channel='new'",
                "\"A:1-51:70\"",
            ]);
        }
    }
    // There a logged DELETE would stop the target's replicas, which have no such table.
    for (gtids, unlogged) in [(TargetGtids::Own, false), (TargetGtids::Mirror, true)] {
        let why = Case { gtids, ..restored.clone() }.check().expect_err("refused");
        let statement = "SET sql_log_bin=0; DELETE FROM csa.checkpoint";
        assert_eq!(why.contains(statement), unlogged, "{why}");
    }
    Case { gtids: TargetGtids::Source, ..restored.clone() }.starts();
    // In two directions the target's own are on the source, however many have not been read back.
    let own_too =
        Case { target: "A:1-6:51,T:1-900", channels: own("A:1-50,T:1-3"), ..restored.clone() };
    let both = Case { source: Some("A:1-100,T:1-900"), ..own_too.clone() };
    both.starts();
    Case { target: "A:1-6:51:70,T:1-900", ..both.clone() }.refused(&["2 transactions", "A:51:70"]);
    // A replica of the target took over, with a name of its own.
    let mut replaced = Case {
        source: Some("A:1-100,B:1-900"),
        target: "A:1-6:51,B:1-900,T:1-2",
        channels: own("A:1-50,B:1-3"),
        ..restored.clone()
    };
    replaced.refused(&["898 transactions", B]);
    replaced.channels[0].target_uuids = [B.parse().expect("a UUID")].into();
    replaced.starts();
    Case { source: None, ..replaced.clone() }.starts();
    Case { target: "A:1-6:51:70,B:1-900", ..replaced.clone() }.refused(&["A:51:70"]);
    // The server before is the source now, and what came from it would show a restore.
    Case { source_uuid: B, ..replaced }.refused(&["898 transactions"]);
    // The target's GTIDs were the checkpoint until the channel was stopped.
    let mut followed = restored.channels[0].clone();
    followed.follows_target = true;
    Case { channels: vec![followed], ..restored.clone() }.starts();
    // Another channel, with other tables, has executed them.
    let mut beside = restored.clone();
    beside.channels.push(record("other", "A:1-69"));
    beside.starts();
    // The check applies to a start that the operator named too.
    let named = Case { start: at("A:1-50"), channels: Vec::new(), ..restored };
    named.refused(&["A:51:70"]);
    Case { start: at("A:1-51:70"), ..named }.starts();
}

#[test]
fn a_target_with_another_history_of_its_source_is_refused() {
    let words = ["A:101-300", "RESET BINARY LOGS AND GTIDS", "RESET MASTER", "copy-again"];
    let old = Case { start: at("A:1-100"), target: "A:1-300,T:1-9", ..Case::default() };
    old.refused(&words);
    Case { start: StartFrom::Source, ..old.clone() }.refused(&words);
    // A source without any transaction since then.
    let reset = Case { start: StartFrom::Source, source: Some(""), target: "A:8", ..old.clone() };
    reset.refused(&["A:8", "RESET MASTER"]);
    // The channel was copied again by a version that did not look.
    let running = Case { channels: vec![record("new", "A:1-90")], ..old.clone() };
    running.refused(&["210 transactions", "was the source reset", "RESET MASTER"]);
    // There the target's GTIDs are the checkpoint, which the source has to have.
    Case { gtids: TargetGtids::Source, ..old.clone() }.starts();
    // A lagging replica of another channel's source.
    let beside = Case {
        source: Some("A:1-100,B:1-5"),
        target: "A:1-60,B:1-9",
        channels: vec![record("b", "B:1-8")],
        shared: SharedTables::Nothing,
        ..old
    };
    beside.starts();
    Case { channels: vec![record("b", "B:1-7")], ..beside }.refused(&["2 transactions", ":8-9"]);
}
