use csa_provider::binlog::Tag;
use csa_provider::test_util;
use csa_provider::test_util::{event, gtid_event, int_table_map, query_event};

use super::*;
use crate::test_util::now;

const TARGET: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
/// A server that the target has replaced.
const BEFORE: &str = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb";
const OTHER: &str = "cccccccc-cccc-cccc-cccc-cccccccccccc";

fn set(text: &str) -> GtidSet {
    let text = text.replace("T:", &format!("{TARGET}:")).replace("B:", &format!("{BEFORE}:"));
    text.replace("C:", &format!("{OTHER}:")).parse().unwrap()
}

/// A target that has executed a set, and counts how often it is asked.
struct Target {
    executed: GtidSet,
    asked: u32,
}

impl KeySource for Target {
    async fn table(
        &mut self,
        _: &[u8],
        _: &[u8],
    ) -> Result<(crate::keys::TableId, Option<std::sync::Arc<crate::keys::TableKeys>>)> {
        unreachable!("no table is asked for")
    }

    async fn trigger_table(&mut self, _: &str, _: &str) -> Result<Option<String>> {
        Ok(None)
    }

    async fn is_own(&mut self, server: &Uuid) -> Result<bool> {
        Ok([TARGET, BEFORE].contains(&server.to_string().as_str()))
    }

    async fn executed(&mut self, wanted: &GtidSet) -> Result<GtidSet> {
        self.asked += 1;
        Ok(self.executed.intersection(wanted))
    }

    fn forget(&mut self) {}
}

fn target(executed: &str) -> Target {
    Target { executed: set(executed), asked: 0 }
}

/// Returns the table map of `csa.checkpoint`.
fn checkpoint_map() -> RawEvent {
    let mut body = 70_u64.to_le_bytes()[..6].to_vec();
    body.extend_from_slice(&1_u16.to_le_bytes());
    for name in ["csa", "checkpoint"] {
        body.push(name.len() as u8);
        body.extend_from_slice(name.as_bytes());
        body.push(0);
    }
    // VARCHAR(64), SMALLINT, BIGINT, MEDIUMTEXT, BIGINT, TIMESTAMP(6).
    body.push(6);
    body.extend_from_slice(&[15, 2, 8, 252, 8, 17]);
    body.extend_from_slice(&[4, 64, 0, 3, 6]);
    body.push(0);
    event(EventType::TABLE_MAP, &body)
}

fn image(executed: &str) -> Vec<u8> {
    let mut image = vec![0];
    image.extend_from_slice(b"\x04shop");
    image.extend_from_slice(&[0; 2]);
    image.extend_from_slice(&[0; 8]);
    let text = set(executed).to_string();
    image.extend_from_slice(&(text.len() as u32).to_le_bytes()[..3]);
    image.extend_from_slice(text.as_bytes());
    image.extend_from_slice(&[0; 8]);
    image.extend_from_slice(&[0; 7]);
    image
}

fn update(before: &str, after: &str) -> RawEvent {
    let images = [image(before), image(after)].concat();
    test_util::rows_event(EventType::UPDATE_ROWS, 70, 6, &images)
}

fn origin(origins: &mut Origins, target: &mut Target, before: &str, after: &str) -> Origin {
    origins.next_transaction();
    let begin = query_event("", "BEGIN");
    assert_eq!(now(origins.of_event(target, &begin)).unwrap(), Origin::Other);
    assert_eq!(now(origins.of_event(target, &checkpoint_map())).unwrap(), Origin::Checkpoint);
    now(origins.of_event(target, &update(before, after))).unwrap()
}

#[test]
fn a_checkpoint_names_the_transactions_that_came_with_it() {
    let mut origins = Origins::default();
    let mut has = target("T:1-100,C:1-3");
    for (before, after, expected) in [
        ("T:1-50", "T:1-53", Origin::Target),
        // With what the target had of another server when it took over.
        ("T:1-50,C:1-2", "T:1-51,C:1-3", Origin::Target),
        ("T:1-50,C:1-9", "T:1-50,C:1-10", Origin::Other),
        // An epoch, or an adopted channel: nothing was brought.
        ("T:1-50", "T:1-50", Origin::Other),
        // Everything of it is lost, so it is applied again.
        ("T:1-100", "T:1-102", Origin::Other),
    ] {
        assert_eq!(origin(&mut origins, &mut has, before, after), expected, "{before} {after}");
    }
    let Origin::Torn(why) = origin(&mut origins, &mut has, "T:1-98", "T:1-102") else {
        panic!("it has a part of it")
    };
    assert!(why.contains(&set("T:99-100").to_string()), "{why}");
    assert!(why.contains(&set("T:101-102").to_string()), "{why}");
}

#[test]
fn transactions_of_a_server_that_was_replaced_are_the_targets_own() {
    let mut origins = Origins::default();
    // The replica that took over had not received the last ones.
    let mut has = target("B:1-99,T:1-3");
    for (before, after, expected) in [
        ("B:1-95", "B:1-97", Origin::Target),
        ("B:1-99", "B:1-101", Origin::Other),
        // It has lost some, which does not make the others foreign.
        ("B:1-97", "B:1-98,T:1", Origin::Target),
    ] {
        assert_eq!(origin(&mut origins, &mut has, before, after), expected, "{before} {after}");
    }
    let torn = origin(&mut origins, &mut has, "B:1-97", "B:1-101");
    assert!(matches!(torn, Origin::Torn(_)), "{torn:?}");
}

#[test]
fn a_chain_of_channels_asks_once() {
    let mut origins = Origins::default();
    // Definitions have the GTIDs of the first source.
    let mut has = target("T:1-9,C:5");
    assert_eq!(origin(&mut origins, &mut has, "C:1-3", "C:1-6"), Origin::Other);
    assert_eq!(origin(&mut origins, &mut has, "C:1-6", "C:1-7"), Origin::Other);
    assert_eq!(has.asked, 1);
}

#[test]
fn other_tables_decide_nothing() {
    let mut origins = Origins::default();
    let mut has = target("T:1-9");
    let map = int_table_map(70, "shop", "checkpoint", 6);
    assert_eq!(now(origins.of_event(&mut has, &map)).unwrap(), Origin::Other);
    assert_eq!(now(origins.of_event(&mut has, &update("T:1", "T:1-2"))).unwrap(), Origin::Other);
}

#[test]
fn a_gtid_of_the_target_comes_back_unless_it_was_lost() {
    let origins = Origins::default();
    let mut has = target("T:1-9,B:1-9,C:1-9");
    let gtid =
        |uuid: &str, gno| Gtid { uuid: Uuid::parse_str(uuid).unwrap(), tag: Tag::untagged(), gno };
    for (uuid, gno, expected) in [
        (TARGET, 9, Origin::Target),
        (TARGET, 10, Origin::Other),
        (BEFORE, 9, Origin::Target),
        (BEFORE, 10, Origin::Other),
        (OTHER, 9, Origin::Other),
    ] {
        assert_eq!(now(origins.of_gtid(&mut has, &gtid(uuid, gno))).unwrap(), expected);
        // Its own event decides nothing more.
        let event = gtid_event(&gtid(uuid, gno), 1);
        assert_eq!(now(Origins::default().of_event(&mut has, &event)).unwrap(), Origin::Other);
    }
}
