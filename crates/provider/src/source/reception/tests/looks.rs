//! The looks at a source that is idle, over connections beside the dump. Time stands still while any task is ready.

use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use super::*;
use crate::source::connection::fake_source::Wires;
use crate::test_util::packets;

const OTHER: &str = "06060606-0606-0606-0606-060606060606";
const HOUR: i64 = 3_600_000_000;

/// A running provider, and the ends of its connections.
struct Wired {
    ends: mpsc::UnboundedReceiver<DuplexStream>,
    status: Arc<SourceStatus>,
    stop: CancellationToken,
    running: JoinHandle<Result<(), ReceptionEnd>>,
}

impl Wired {
    fn start() -> Self {
        let (options, ends) = Wires::options();
        let (status, stop) = (Arc::<SourceStatus>::default(), CancellationToken::new());
        let provider = Provider::new(options, Arc::clone(&status));
        let running = tokio::spawn(provider.run(RecordingInlet::default(), stop.clone()));
        Self { ends, status, stop, running }
    }

    /// Returns the provider's next connection, unanswered.
    async fn connection(&mut self) -> FakeSource {
        let end = tokio::time::timeout(Duration::from_secs(300), self.ends.recv()).await;
        FakeSource::new(end.expect("a connection in time").expect("a provider"))
    }

    /// The dump of an idle source, which has sent one transaction of another server.
    async fn dump(&mut self) -> FakeSource {
        let mut source = self.connection().await;
        source.accept_login().await;
        source.accept_dump("CRC32").await;
        source.event(format_description().raw()).await;
        send_transaction(&mut source, 1).await;
        source
    }

    /// Answers the next look, as the server `uuid`. The clock of another one than the dump's is ahead.
    async fn look(&mut self, uuid: &'static str, executed: &str) {
        let mut look = self.connection().await;
        look.clock_ahead = if uuid == SERVER_UUID { 0 } else { HOUR };
        look.uuid = uuid;
        look.executed = executed.to_owned();
        look.accept_look().await;
    }

    async fn stop(self) {
        self.stop.cancel();
        self.running.await.expect("no panic").expect("stopped");
    }
}

/// Sends heartbeats without end.
async fn beat(source: &mut FakeSource) {
    let heartbeat = event_bytes(EventType::HEARTBEAT, &[b'b'; 13], ChecksumAlgorithm::Crc32);
    loop {
        tokio::time::sleep(options().heartbeat_interval).await;
        source.event(&heartbeat).await;
    }
}

/// A dump of a server that was reset continues with heartbeats. A replica has no transactions of its own.
#[tokio::test(start_paused = true)]
async fn a_replica_that_lost_what_it_had_from_others_is_asked_again() {
    let mut wired = Wired::start();
    let mut dump = wired.dump().await;
    let looks = async {
        for executed in [gtid(1).to_string(), String::new(), String::new()] {
            let mut look = wired.connection().await;
            look.executed = executed;
            look.accept_look().await;
        }
    };
    tokio::select! {
        () = looks => {}
        () = beat(&mut dump) => {}
    }
    // The link has ended: this connection is for a dump, which the source must not get.
    let mut source = wired.connection().await;
    let error = wired.status.view().last_error.expect("a reason");
    assert!(error.contains("no longer has") && error.contains(&gtid(1).to_string()), "{error}");
    source.accept_login().await;
    source.accept_questions().await;
    source.assert_nothing_more().await;
    wired.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_waits_is_not_lost() {
    let mut wired = Wired::start();
    let mut dump = wired.dump().await;
    let looks = async {
        for _ in 0..3 {
            let mut look = wired.connection().await;
            look.owned = format!("{}#31", gtid(1));
            look.accept_look().await;
        }
    };
    tokio::select! {
        () = looks => {}
        () = beat(&mut dump) => {}
    }
    let view = wired.status.view();
    assert_eq!((view.connected, view.connects_total), (true, 1));
    wired.stop().await;
}

/// Its address leads to several servers: one lacks something, or is ahead for a moment.
#[tokio::test(start_paused = true)]
async fn a_look_at_another_server_judges_nothing() {
    let mut wired = Wired::start();
    let mut dump = wired.dump().await;
    let level = gtid(1).to_string();
    let (two, three) = (format!("{level}-2"), format!("{level}:3"));
    let (level, two, three) = (level.as_str(), two.as_str(), three.as_str());
    let looks = async {
        for (uuid, executed) in [
            (OTHER, ""),
            (OTHER, ""),
            (OTHER, level),
            (OTHER, two),
            (OTHER, three),
            (SERVER_UUID, level),
            (OTHER, three),
            (SERVER_UUID, level),
            (SERVER_UUID, level),
        ] {
            wired.look(uuid, executed).await;
        }
    };
    tokio::select! {
        () = looks => {}
        () = beat(&mut dump) => {}
    }
    let view = wired.status.view();
    assert_eq!((view.connected, view.connects_total), (true, 1));
    assert!(view.clock.estimate().abs() < HOUR / 2, "{:?}", view.clock);
    wired.stop().await;
}

/// The address has moved, and the old server still serves its dump. It is reached again twice, and left later each time.
#[tokio::test(start_paused = true)]
async fn a_source_whose_address_leads_to_a_server_with_more_is_left() {
    let mut wired = Wired::start();
    let mut dump = wired.dump().await;
    let more = format!("{}-2", gtid(1));
    for count in [2, 4, 8] {
        let looks = async {
            // One that came for a dump would ask for more than a look does.
            for _ in 0..count {
                wired.look(OTHER, &more).await;
            }
        };
        tokio::select! {
            () = looks => {}
            () = beat(&mut dump) => {}
        }
        dump = wired.connection().await;
        let error = wired.status.view().last_error.expect("a reason");
        assert!(error.contains(OTHER) && error.contains(&gtid(2).to_string()), "{error}");
        dump.executed = gtid(1).to_string();
        dump.accept_login().await;
        dump.accept_dump("CRC32").await;
        dump.event(format_description().raw()).await;
    }
    wired.stop().await;
}

/// A node of a Galera cluster that is cut off from the others continues its dumps.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_is_left() {
    let mut wired = Wired::start();
    let mut dump = wired.dump().await;
    let looks = async {
        for _ in 0..2 {
            let mut look = wired.connection().await;
            look.accept_login().await;
            look.command().await;
            look.error(1047, "WSREP has not yet prepared node for application use").await;
        }
    };
    tokio::select! {
        () = looks => {}
        () = beat(&mut dump) => {}
    }
    let again = wired.connection().await;
    let view = wired.status.view();
    let error = view.last_error.expect("a reason");
    assert!(!view.connected && error.contains("WSREP"), "{error}");
    drop(again);
    wired.stop().await;
}

/// The connection of the look is never answered.
#[tokio::test(start_paused = true)]
async fn events_are_taken_while_a_look_waits() {
    let mut wired = Wired::start();
    let mut dump = wired.dump().await;
    let look = tokio::select! {
        look = wired.connection() => look,
        () = beat(&mut dump) => panic!("it beats for ever"),
    };
    let begun = Instant::now();
    send_transaction(&mut dump, 2).await;
    while wired.status.view().transactions_total < 2 {
        assert!(begun.elapsed() < options().connect_timeout / 2, "it waits for the look");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(look);
    wired.stop().await;
}

/// The account has another password or another plugin: the dump continues, and each look is a login that fails.
#[tokio::test(start_paused = true)]
async fn a_source_where_logins_fail_is_looked_at_slowly() {
    let by_password = packets::error(1045, "refused");
    let by_plugin = b"\xfesha256_password\0twenty bytes of nonce\0".to_vec();
    for answer in [by_password, by_plugin] {
        let mut wired = Wired::start();
        let mut dump = wired.dump().await;
        let mut refused = 0;
        let looks = async {
            loop {
                let mut look = wired.connection().await;
                look.greet("caching_sha2_password", 0).await;
                look.login_packet().await;
                look.send(&answer).await;
                refused += 1;
            }
        };
        tokio::select! {
            () = looks => {}
            () = beat(&mut dump) => {}
            () = tokio::time::sleep(Duration::from_secs(60)) => {}
        }
        assert!((2..=3).contains(&refused), "{refused} in a minute");
        // The account is as it was.
        tokio::select! {
            () = async { wired.connection().await.accept_look().await } => {}
            () = beat(&mut dump) => {}
        }
        let view = wired.status.view();
        assert_eq!((view.connected, view.connects_total), (true, 1));
        wired.stop().await;
    }
}
