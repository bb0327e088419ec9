use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::server::link::LinkError;
use crate::source::connection::fake_source::{COM_QUERY, FakeSource, SERVER_UUID, options};
use crate::source::group::GroupDiscovery;

fn server(code: u16, message: &str) -> ConnectionError {
    LinkError::Server { code, message: message.to_owned() }.into()
}

#[test]
fn causes_come_from_the_error_and_not_from_what_it_is_about() {
    for (error, cause) in [
        (server(1045, "Access denied for user"), SourceCause::Account),
        (server(3159, "insecure transport"), SourceCause::Protection),
        (LinkError::Tls("no".to_owned()).into(), SourceCause::Protection),
        (LinkError::Closed.into(), SourceCause::Unreachable),
        // Numbers and words of other causes in a message mean nothing.
        (server(1040, "Too many connections, 1236 of them"), SourceCause::Unreachable),
        (ConnectionError::Protocol("purged 1045".to_owned()), SourceCause::Unreachable),
        (server(1236, "the source purged required binary logs"), SourceCause::Purged),
        (server(1236, "Replica has more GTIDs than the source has"), SourceCause::OtherHistory),
        (ConnectionError::Lacks(GtidSet::new()), SourceCause::OtherHistory),
        (server(1236, "log event 1:purged:5 exceeds the limit"), SourceCause::Stream),
    ] {
        assert_eq!(error.cause(), cause, "{error}");
    }
    let refused = PreflightError::Refused("error 1045: purged".to_owned());
    assert_eq!(refused.cause(), SourceCause::Setting);
    assert_eq!(refused.code(), None);
}

#[test]
fn a_refused_login_keeps_its_number() {
    let refused = |code| {
        let error = login_error(&options(), "s:1", &server(code, "the server's words"));
        (error.code(), error.cause())
    };
    assert_eq!(refused(1045), (Some(1045), SourceCause::Account));
    assert_eq!(refused(1040), (None, SourceCause::Unreachable), "it may let us in later");
}

const PRIMARY: &str = "PRIMARY";
const SECONDARY: &str = "SECONDARY";

/// A server as it answers at a start.
#[derive(Clone, Copy)]
struct Answers {
    /// The error for each login.
    refusal: Option<u16>,
    gtid_mode: &'static str,
    purged: &'static str,
    /// It leaves out of its log what it applies, and answers so when asked for the servers that it follows.
    unlogged: Option<Following>,
    /// The role in a group of two, whose other member has the other one.
    role: Option<&'static str>,
}

/// The answer to the question for the servers that it follows.
#[derive(Clone, Copy)]
enum Following {
    Nobody,
    Shown,
    /// Its status is denied, and a table has it.
    Listed,
    Denied,
}

const FINE: Answers =
    Answers { refusal: None, gtid_mode: "ON", purged: "", unlogged: None, role: None };
const DENIED: Answers = Answers { refusal: Some(1045), ..FINE };
const UNFIT: Answers = Answers { gtid_mode: "OFF", ..FINE };
const PURGED: Answers = Answers { purged: "05050505-0505-0505-0505-050505050505:1-9", ..FINE };
/// It ends each connection at once.
const AWAY: Answers = Answers { refusal: Some(0), ..FINE };

impl Answers {
    async fn answer(self, stream: TcpStream, ports: [u16; 2], own: u16) {
        let mut source = FakeSource::new(stream);
        match self.refusal {
            Some(0) => return,
            Some(code) => return source.refuse_login(code).await,
            None => source.accept_login().await,
        }
        loop {
            let command = source.command().await;
            let Some((&COM_QUERY, text)) = command.split_first() else { return };
            let text = String::from_utf8_lossy(text).into_owned();
            match text.as_str() {
                text if text.starts_with("SELECT @@version") => {
                    source.rows(2, &[vec!["9.7.4".to_owned(), "MySQL Server".to_owned()]]).await;
                }
                text if text.starts_with("SET ") => source.ok().await,
                text if text.starts_with("SHOW GLOBAL VARIABLES") => {
                    source.rows(2, &self.variables()).await;
                }
                "SELECT CURRENT_USER()" => source.value("repl@%").await,
                "SHOW GRANTS" => {
                    source.value("GRANT REPLICATION SLAVE ON *.* TO `repl`@`%`").await;
                }
                text if text.contains("gtid_executed") => source.value(PURGED.purged).await,
                text if text.contains("gtid_purged") => source.value(self.purged).await,
                text if text.contains("group_members") => {
                    source.rows(5, &self.members(ports, own)).await;
                }
                text => self.follows(text, &mut source).await,
            }
        }
    }

    async fn follows(self, question: &str, source: &mut FakeSource) {
        let is_table = match question {
            "SHOW REPLICA STATUS" => false,
            text if text.contains("replication_connection_configuration") => true,
            other => panic!("{other}"),
        };
        let channel = [vec![String::new()]];
        match (self.unlogged.expect("it logs what it applies"), is_table) {
            (Following::Nobody, _) => source.rows(1, &[]).await,
            (Following::Shown, _) | (Following::Listed, true) => source.rows(1, &channel).await,
            (Following::Listed, false) => source.error(1227, "REPLICATION CLIENT").await,
            (Following::Denied, _) => source.error(1142, "denied").await,
        }
    }

    fn variables(self) -> Vec<Vec<String>> {
        let group = if self.role.is_some() { "07070707-0707-0707-0707-070707070707" } else { "" };
        let logs = if self.unlogged.is_some() { "OFF" } else { "ON" };
        let variables = [
            ("binlog_format", "ROW"),
            ("binlog_row_image", "FULL"),
            ("enforce_gtid_consistency", "ON"),
            ("group_replication_group_name", group),
            ("gtid_mode", self.gtid_mode),
            ("log_bin", "ON"),
            ("log_replica_updates", logs),
            ("server_id", "7"),
            ("server_uuid", SERVER_UUID),
            ("version", "9.7.4"),
        ];
        variables.map(|(name, value)| vec![name.to_owned(), value.to_owned()]).to_vec()
    }

    fn members(self, ports: [u16; 2], own: u16) -> Vec<Vec<String>> {
        let member = |port: u16| {
            let is_asked = port == own;
            let is_primary = is_asked == (self.role == Some(PRIMARY));
            let role = if is_primary { PRIMARY } else { SECONDARY };
            let is_asked = u8::from(is_asked).to_string();
            let address = ("127.0.0.1".to_owned(), port.to_string());
            vec![is_asked, address.0, address.1, "ONLINE".to_owned(), role.to_owned()]
        };
        ports.map(member).to_vec()
    }
}

/// Looks at a source with two addresses, which are returned as well.
async fn found(answers: [Answers; 2]) -> (Result<SourceFacts>, [String; 2]) {
    let bind = async || TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let listeners = [bind().await, bind().await];
    let ports = [0, 1].map(|at: usize| listeners[at].local_addr().unwrap().port());
    for ((listener, answers), own) in listeners.into_iter().zip(answers).zip(ports) {
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answers.answer(stream, ports, own));
            }
        });
    }
    let is_group = answers[0].role.is_some();
    let group = GroupDiscovery { prefers_secondary: true, ..GroupDiscovery::default() };
    let options = SourceOptions {
        port: ports[0],
        failover: vec![("127.0.0.1".to_owned(), ports[1])],
        group: is_group.then_some(group),
        ..options()
    };
    let known = Known::default();
    (preflight(&options, Some(&known)).await, ports.map(|port| format!("127.0.0.1:{port}")))
}

#[tokio::test]
async fn an_address_that_has_to_be_changed_is_a_warning_where_another_serves() {
    for (unfit, word) in [(DENIED, "error 1045"), (UNFIT, "gtid_mode"), (PURGED, "purged")] {
        let (facts, [first, second]) = found([unfit, FINE]).await;
        let warnings = facts.expect("the second serves").warnings;
        let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
        for words in [word, &first, &second] {
            assert!(warning.contains(words), "{words:?} is missing in {warning}");
        }
    }
    // Nothing has to be changed there.
    let (facts, _) = found([AWAY, FINE]).await;
    assert_eq!(facts.expect("the second serves").warnings, [""; 0]);
}

#[tokio::test]
async fn a_replica_that_does_not_log_what_it_applies_is_no_source() {
    for following in [Following::Shown, Following::Listed] {
        let replica = Answers { unlogged: Some(following), ..FINE };
        let (facts, _) = found([replica, replica]).await;
        let error = facts.expect_err("what it applies never arrives");
        assert_eq!(error.cause(), SourceCause::Setting);
        assert!(error.to_string().contains("start it with --log-replica-updates"), "{error}");
    }
    // All that it has executed is its own.
    for following in [Following::Nobody, Following::Denied] {
        let server = Answers { unlogged: Some(following), ..FINE };
        let (facts, _) = found([server, AWAY]).await;
        assert_eq!(facts.expect("it serves").warnings, [""; 0]);
    }
}

#[tokio::test]
async fn where_no_address_serves_all_are_named() {
    for (answers, cause) in [
        ([PURGED, DENIED], SourceCause::Purged),
        ([DENIED, PURGED], SourceCause::Account),
        ([UNFIT, UNFIT], SourceCause::Setting),
        // It may come back, and until then the relay store is applied.
        ([PURGED, AWAY], SourceCause::Unreachable),
        ([AWAY, DENIED], SourceCause::Unreachable),
    ] {
        let (facts, addresses) = found(answers).await;
        let error = facts.expect_err("none serves");
        assert_eq!(error.cause(), cause, "{error}");
        for address in addresses {
            assert!(error.to_string().contains(&address), "{address} is missing in {error}");
        }
        let is_afresh = error.to_string().ends_with(AFRESH);
        assert_eq!(is_afresh, cause == SourceCause::Purged, "{error}");
    }
}

#[tokio::test]
async fn a_primary_serves_where_the_secondary_has_purged_what_is_needed() {
    let secondary = Answers { role: Some(SECONDARY), ..PURGED };
    let primary = Answers { role: Some(PRIMARY), ..FINE };
    for members in [[secondary, primary], [primary, secondary]] {
        let (facts, _) = found(members).await;
        let warnings = facts.expect("the primary serves").warnings;
        assert!(warnings.len() == 1 && warnings[0].contains("purged"), "{warnings:?}");
    }
}
