//! Commands to channels whose servers do not answer.

use csa_provider::binlog::{
    ChecksumAlgorithm, EventType, Gtid, GtidSet, RawEvent, Tag, TransactionHeader, Uuid,
};
use csa_provider::server::link::{Connecting, Endpoint, Network};
use csa_provider::source::{Foreign, Placement, TransactionSink as _};
use csa_provider::test_util::{event, format_description, gtid_event};
use csa_relaystore::opening::RelayStore;
use csa_scheduler::until::Until;
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::*;
use crate::channel::live_settings::Paused;
use crate::config::Config;
use crate::config::tests::in_folder;
use crate::host::Sender;
use crate::observe::relay_dump::{Dump, WantedTransactions};

/// A channel, and the end of its process.
struct Alone {
    channel: Supervisor,
    stop: CancellationToken,
    _folder: TempDir,
}

impl Alone {
    /// Returns a channel that does not run, with further keys of its target and further sections.
    fn new(target_port: u16, keys: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let text = in_folder(folder.path(), target_port)
            + keys
            + "\n[channel.relay]\nmin_free_disk = \"0\"\nsync = \"os\"\n";
        let settings = Config::parse(&text).expect("valid").channels.remove(0);
        let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
        let channel = Supervisor::new(settings, stop.clone(), kill);
        Self { channel, stop, _folder: folder }
    }
}

fn gtid() -> Gtid {
    Gtid { uuid: Uuid::from_bytes([7; 16]), tag: Tag::untagged(), gno: 1 }
}

/// Leaves a relay store with one transaction.
pub(in crate::channel) async fn fill(settings: &ChannelSettings) {
    let (store, _) = RelayStore::open(settings.relay.clone(), &GtidSet::new()).expect("created");
    let mut inlet = store.inlet().expect("a thread");
    let format = format_description().raw().clone();
    let format = RawEvent::trusted(format, ChecksumAlgorithm::Crc32).expect("well-formed");
    let begin = gtid_event(&gtid(), 1);
    let header = TransactionHeader::parse(&begin).expect("well-formed");
    let end = event(EventType::XID, &1_u64.to_le_bytes());
    let events =
        [(format, Placement::Outside), (begin, Placement::Begin(header)), (end, Placement::End)];
    for (event, placement) in events {
        inlet.append(event, placement).await.expect("room");
    }
    inlet.stored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reception_continues_where_a_stop_came_while_its_store_was_opened_again() {
    let Alone { channel, stop, _folder } = Alone::new(1, "");
    let (settings, none) = (channel.settings(), GtidSet::new());
    fill(&settings).await;
    let attach = |settings: &Arc<ChannelSettings>| {
        let (settings, none, reception) =
            (Arc::clone(settings), none.clone(), Arc::clone(&channel.reception));
        async move { reception.attach(&settings, &none, None, Foreign::default()).await }
    };
    let attached = attach(&settings).await.expect("opened");
    // Whoever reads the store keeps it from being opened again, and the stop comes meanwhile.
    let changed = Arc::new(ChannelSettings::clone(&settings));
    let dropped = tokio::time::timeout(Duration::from_millis(500), attach(&changed)).await;
    assert!(dropped.is_err(), "it waits for the lock of the store");
    assert!(!channel.reception.holds_store().await);
    drop(attached);
    channel.keep_receiving().await;
    assert!(channel.reception.holds_store().await, "received again");

    // An attempt that fails is repeated as well.
    let attached = attach(&settings).await.expect("opened again");
    attach(&changed).await.expect_err("the store is locked");
    drop(attached);
    channel.keep_receiving().await;
    assert!(channel.reception.holds_store().await, "received again after a failure");

    // An end on request stays.
    let attached = attach(&settings).await.expect("opened again");
    attach(&changed).await.expect_err("the store is locked");
    channel.reception.end().await;
    drop(attached);
    channel.keep_receiving().await;
    assert!(!channel.reception.holds_store().await, "nobody wants it any more");
    stop.cancel();
    channel.finish().await.expect("nothing failed");
}

/// A network with a bug.
#[derive(Debug)]
struct Panics;

impl Network for Panics {
    fn connect<'a>(&'a self, _: &'a Endpoint, _: Option<Duration>) -> Connecting<'a> {
        panic!("a bug")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reception_that_panics_has_ended_and_may_begin_again() {
    let Alone { channel, stop, _folder } = Alone::new(1, "");
    let mut settings = ChannelSettings::clone(&channel.settings());
    settings.source.environment.network = Arc::new(Panics);
    let (settings, none) = (Arc::new(settings), GtidSet::new());
    let attached = channel.reception.attach(&settings, &none, None, Foreign::default()).await;
    let mut end = attached.expect("opened").end;
    let ended = tokio::time::timeout(Duration::from_secs(60), end.wait_for(Option::is_some)).await;
    let ended = ended.expect("it ends").expect("it says so").clone().expect("ended");
    assert!(ended.to_string().contains("the task of reception failed"), "{ended}");
    assert!(ended.error.may_pass());
    stop.cancel();
    channel.finish().await.expect("nothing failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn reception_whose_archive_cannot_begin_leaves_nothing_behind() {
    let archive = "\n[channel.archive]\nurl = \"file:///nowhere/at/all\"\n";
    let Alone { channel, stop, _folder } = Alone::new(1, archive);
    let settings = channel.settings();
    let mut wrong = ChannelSettings::clone(&settings);
    wrong.archive.as_mut().expect("configured").location.url = "ftp://host/x".to_owned();
    let attach = async |settings: &Arc<ChannelSettings>| {
        let none = GtidSet::new();
        channel.reception.attach(settings, &none, None, Foreign::default()).await
    };
    let refused = attach(&Arc::new(wrong)).await.expect_err("no archive").to_string();
    assert!(refused.contains("s3:, gs:, az: or file:"), "{refused}");
    attach(&settings).await.expect("the store is free");
    stop.cancel();
    channel.finish().await.expect("nothing failed");
}

#[tokio::test(start_paused = true)]
async fn a_skip_that_waits_for_its_target_gives_way_to_whatever_ends_the_channel() {
    // Accepts connections and never answers.
    let target = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = target.local_addr().expect("an address").port();
    let limit = Duration::from_secs(300);
    for ends in ["stop", "restart", "hand-over", "removal", "SIGTERM", "second SIGTERM"] {
        let Alone { channel, stop, _folder } = Alone::new(port, "connect_timeout = \"300s\"\n");
        let by_hand = csa_applier::Error::InDoubt {
            gtid: gtid().to_string(),
            channel: "orders".to_owned(),
            by_hand: "",
            if_done: String::new(),
        };
        channel.watch.failed(&by_hand.into());
        let channel = Arc::new(channel);
        let skipping = Arc::clone(&channel);
        let sender = Sender { peer: "a test".to_owned(), claimed: None };
        let skip = tokio::spawn(async move { skipping.skip(&gtid(), &sender).await });
        while channel.state.try_lock().is_ok() {
            tokio::task::yield_now().await;
        }
        let begun = tokio::time::Instant::now();
        match ends {
            "stop" => assert!(channel.stop(limit, false, false).await.is_err(), "nothing runs"),
            "restart" => assert!(channel.restart(limit, false, None).await.is_ok()),
            "hand-over" => channel.give_away(limit).await,
            "removal" => assert!(channel.remove(limit).await),
            "SIGTERM" => stop.cancel(),
            _ => channel.process.kill.cancel(),
        }
        let refused = skip.await.expect("no panic").expect_err("not recorded");
        assert!(refused.error.contains("given up") && refused.by_target, "{ends}: {refused:?}");
        assert!(refused.fix.contains("skip the transaction again"), "{ends}: {refused:?}");
        let took = begun.elapsed();
        assert!(took <= Duration::from_secs(3), "{ends}: {took:?}");
        stop.cancel();
        channel.finish().await.expect("nothing failed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_once_another_daemon_has_the_channel() {
    let Alone { channel, stop: _stop, _folder } = Alone::new(1, "");
    let channel = Arc::new(channel);
    let waiting = Arc::clone(&channel);
    let set: GtidSet = gtid().to_string().parse().expect("a GTID is a set");
    let never = set.clone();
    let hour = Duration::from_secs(3600);
    let wait = tokio::spawn(async move { waiting.wait_for(&never, hour).await });
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!wait.is_finished(), "a channel that does not run may be started");
    channel.give_away(Duration::ZERO).await;
    let begun = tokio::time::Instant::now();
    let refused = wait.await.expect("no panic").expect_err("nobody here learns of it");
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert!(refused.error.contains("given away"), "{refused:?}");
    assert!(channel.wait_for(&set, hour).await.is_err(), "nor does a later one wait");
    let none = channel.wait_for(&GtidSet::new(), hour).await;
    assert!(none.is_ok_and(|missing| missing.is_empty()), "what is known to be applied is applied");
}

#[tokio::test(start_paused = true)]
async fn a_wait_lasts_while_its_daemon_joins_the_fleet() {
    let Alone { channel, stop: _stop, _folder } = Alone::new(1, "");
    let channel = Arc::new(channel.unclaimed());
    let set: GtidSet = gtid().to_string().parse().expect("a GTID is a set");
    let missing = channel.wait_for(&set, Duration::from_secs(1)).await;
    assert_eq!(missing.expect("it may get the channel"), set);
    let waiting = Arc::clone(&channel);
    let wait = tokio::spawn(async move { waiting.wait_for(&set, Duration::from_secs(3600)).await });
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!wait.is_finished(), "it may still get the channel");
    channel.show_elsewhere("daemon db2 has claimed the channel");
    let refused = wait.await.expect("no panic").expect_err("another daemon has it");
    assert!(refused.error.contains("db2"), "{refused:?}");
}

/// Gives a channel a run whose groups never finish.
async fn run_for_ever(channel: &Supervisor) {
    let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
    let killed = kill.clone();
    let task = tokio::spawn(async move {
        killed.cancelled().await;
        Ok(())
    });
    channel.state.lock().await.life = Some(Life { stop, kill, task });
}

#[tokio::test]
async fn a_pause_ends_where_another_daemon_has_the_channel() {
    let Alone { channel, stop: _stop, _folder } = Alone::new(1, "");
    run_for_ever(&channel).await;
    let pause = || channel.set_paused(Some(Paused { by: "ann".to_owned(), since: 1 }));
    let is_paused = || channel.controls().paused().is_some() || channel.controls().tuning().paused;
    pause().await.expect("it runs");
    assert!(channel.is_held());
    channel.watch.standing_by("another daemon has the channel");
    assert!(!is_paused() && !channel.is_held());
    let refused = pause().await.expect_err("another daemon has it");
    assert!(refused.error.contains("standby") && !is_paused(), "{refused:?}");
    channel.set_paused(None).await.expect("nothing to resume");

    channel.watch.starting(&channel.settings());
    pause().await.expect("it has the channel again");
    channel.give_away(Duration::ZERO).await;
    assert!(!is_paused(), "it would come back with the channel");
    channel.watch.starting(&channel.settings());
    channel.watch.stopped("stopped on request");
    assert!(channel.is_held());
}

/// Returns a stop with an hour for running groups, once it has the channel.
async fn stop_within_an_hour(channel: &Arc<Supervisor>) -> JoinHandle<Done<Stopped>> {
    run_for_ever(channel).await;
    let stopping = Arc::clone(channel);
    let hour = Duration::from_secs(3600);
    let stop = tokio::spawn(async move { stopping.stop(hour, false, false).await });
    while channel.state.try_lock().is_ok() {
        tokio::task::yield_now().await;
    }
    stop
}

#[tokio::test(start_paused = true)]
async fn a_stop_under_way_has_no_more_time_than_a_later_command_allows() {
    for ends in ["stop", "restart", "hand-over", "removal"] {
        let Alone { channel, stop, _folder } = Alone::new(1, "");
        let channel = Arc::new(channel);
        let first = stop_within_an_hour(&channel).await;
        let begun = tokio::time::Instant::now();
        let limit = Duration::from_secs(5);
        match ends {
            "stop" => assert!(channel.stop(limit, false, false).await.is_err(), "it is stopped"),
            "restart" => assert!(channel.restart(limit, false, None).await.is_ok()),
            "hand-over" => channel.give_away(limit).await,
            _ => assert!(channel.remove(limit).await),
        }
        let took = begun.elapsed();
        assert!(took >= limit && took <= limit + Duration::from_secs(1), "{ends}: {took:?}");
        let stopped = first.await.expect("no panic").expect("it ran");
        assert!(!stopped.drained, "{ends}: what ran was given up");
        stop.cancel();
        channel.finish().await.expect("nothing failed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_was_held_since_its_move_was_planned_stays() {
    let Alone { channel, stop: _stop, _folder } = Alone::new(1, "");
    let channel = Arc::new(channel);
    let moves = || channel.give_away_unless_held(Duration::ZERO);
    run_for_ever(&channel).await;
    let paused = Paused { by: "ann".to_owned(), since: 1 };
    channel.set_paused(Some(paused)).await.expect("it runs");
    assert!(!moves().await);
    assert!(channel.controls().paused().is_some(), "its pause lasts");
    channel.set_paused(None).await.expect("it runs");

    let stopping = stop_within_an_hour(&channel).await;
    assert!(!moves().await, "the stop may take an hour");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!stopping.is_finished(), "a move leaves it its time");
    assert!(channel.stop(Duration::ZERO, false, false).await.is_err(), "it is stopped");
    stopping.await.expect("no panic").expect("it ran");
    // As the end of a run does.
    channel.watch.stopped("stopped on request");
    assert!(!moves().await);
    assert!(channel.check_present().is_ok(), "it is here");

    channel.watch.starting(&channel.settings());
    run_for_ever(&channel).await;
    assert!(moves().await);
    assert!(channel.check_present().is_err(), "it may run elsewhere");
}

#[tokio::test(start_paused = true)]
async fn a_reload_neither_waits_for_a_long_stop_nor_shortens_it() {
    let Alone { channel, stop, _folder } = Alone::new(1, "");
    let channel = Arc::new(channel);
    let first = stop_within_an_hour(&channel).await;
    let begun = tokio::time::Instant::now();
    let limit = Duration::from_secs(10);
    assert!(!channel.restart_unless_stopped(limit).await, "it is to be stopped");
    let took = begun.elapsed();
    assert!(took <= limit + Duration::from_secs(1), "{took:?}");
    assert!(!first.is_finished());
    assert!(channel.stop(Duration::ZERO, false, false).await.is_err(), "it is stopped");
    assert!(!first.await.expect("no panic").expect("it ran").drained);
    stop.cancel();
    channel.finish().await.expect("nothing ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_was_stopped_has_not_reached_its_end() {
    let Alone { channel, stop, _folder } = Alone::new(1, "");
    channel.start().await;
    channel.controls().set_until(Some(Until::BeforeTime(1))).expect("not past");
    channel.stop(Duration::from_secs(10), false, false).await.expect("it ran");
    assert_eq!(channel.view().state, ChannelState::Stopped);
    assert!(!channel.has_stopped_at_end());
    stop.cancel();
    channel.finish().await.expect("stopped");
}

/// A client that is gone, and the bytes of each attempt to send it something.
struct Gone(Vec<usize>);

impl std::io::Write for Gone {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.push(bytes.len());
        Err(std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_that_finds_nothing_ends_with_its_client() {
    let Alone { channel, stop: _stop, _folder } = Alone::new(1, "");
    let settings = channel.settings();
    fill(&settings).await;
    let wanted = WantedTransactions { gtid_set: Some(GtidSet::new()), limit: 1, rows: false };
    let mut gone = Gone(Vec::new());
    let dump = Dump::new(&settings, wanted, Handle::current(), &mut gone);
    assert!(dump.run().is_err());
    assert_eq!(gone.0, [0], "it looks before it has a line to send");
}
