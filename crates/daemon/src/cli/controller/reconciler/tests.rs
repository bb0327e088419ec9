//! The test plays the API server and the daemon.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;

use super::*;
use crate::config::Config;
use crate::observe::view::PendingView;

const MAIN: &str = "[daemon]\nallow_no_channels = true\n";
const RESOURCES: &str = "/apis/csa-daemon.internal/v1alpha1/namespaces/default/replicationchannels";
const SECRET: &str = "GET /api/v1/namespaces/default/secrets/mysql";

/// The status and body by the method and path of a request; all others are answered with 404.
type Answers = Arc<Mutex<BTreeMap<String, (u16, Value)>>>;
/// The requests in their order, with their bodies.
type Asked = Arc<Mutex<Vec<String>>>;

struct World {
    directory: TempDir,
    answers: Answers,
    asked: Asked,
    controller: Controller,
}

impl World {
    fn new(main: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (answers, asked) = (Answers::default(), Asked::default());
        let address = serve(Arc::clone(&answers), Arc::clone(&asked));
        let token = directory.path().join("token");
        std::fs::write(&token, "token").expect("written");
        let cluster = Cluster::of_test(&address, token);
        let folder = Folder::new(&directory.path().join("files")).expect("made");
        let admin = Admin { admin: Some(address), admin_ca: None, token_file: None, channel: None };
        let controller = Controller {
            cluster,
            folder,
            main: directory.path().join("main.toml"),
            admin,
            holder: "pod-0".to_owned(),
            interval: 1,
            is_stale: true,
            logged: String::new(),
        };
        let world = Self { directory, answers, asked, controller };
        world.main(main);
        world.secret("7", "b25l");
        world
    }

    /// The operator's main file from now on.
    fn main(&self, text: &str) {
        std::fs::write(self.directory.path().join("main.toml"), text).expect("written");
    }

    fn answer(&self, request: &str, status: u16, body: Value) {
        self.answers.lock().insert(request.to_owned(), (status, body));
    }

    fn resources(&self, items: &[Value]) {
        let list = json!({ "metadata": { "resourceVersion": "1" }, "items": items });
        self.answer(&format!("GET {RESOURCES}"), 200, list);
    }

    fn secret(&self, version: &str, value: &str) {
        let data = json!({ "repl": value, "csa": value });
        let secret = json!({ "metadata": { "resourceVersion": version }, "data": data });
        self.answer(SECRET, 200, secret);
    }

    fn reload(&self, answer: &ReloadView) {
        self.answer("POST /api/v1/reload", 200, json!(answer));
        let daemon = json!({
            "version": "1", "pid": 1, "uptime_seconds": 1, "log_filter": "info", "shows_values": false,
        });
        self.answer("GET /api/v1/status", 200, json!({ "daemon": daemon, "channels": [] }));
    }

    /// Returns the names of the files with secrets.
    fn secrets(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.controller.folder.secrets()).expect("readable");
        let name =
            |file: std::fs::DirEntry| file.file_name().into_string().expect("a name of letters");
        let names: BTreeSet<String> = files.map(|file| name(file.expect("readable"))).collect();
        names.into_iter().collect()
    }

    /// Returns the bodies of such requests since the last look.
    fn asked(&self, request: &str) -> Vec<String> {
        let body = |asked: String| asked.strip_prefix(request).map(str::to_owned);
        self.asked.lock().drain(..).filter_map(body).collect()
    }

    /// Returns the names of the channels with which the daemon would start.
    fn channels(&self) -> Vec<String> {
        let config = Config::load(&self.controller.folder.main()).expect("the daemon would start");
        config.channels.into_iter().map(|channel| channel.name).collect()
    }
}

fn serve(answers: Answers, asked: Asked) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
            let mut lines = reader.by_ref().lines().map_while(Result::ok);
            let request = lines.next().unwrap_or_default();
            let length = |line: String| {
                let line = line.to_ascii_lowercase();
                line.strip_prefix("content-length:")?.trim().parse::<u64>().ok()
            };
            let length = lines.take_while(|line| !line.is_empty()).filter_map(length).last();
            let mut body = String::new();
            let sent = reader.take(length.unwrap_or(0)).read_to_string(&mut body);
            sent.expect("a body");
            let mut words = request.split([' ', '?']);
            let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            let request = format!("{method} {path}");
            let answer = answers.lock().get(&request).cloned();
            asked.lock().push(format!("{request} {body}"));
            let (status, answer) = answer.unwrap_or((404, json!({ "message": "none" })));
            let (answer, end) = (answer.to_string(), "connection: close\r\n\r\n");
            let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n", answer.len());
            let _ = stream.write_all(format!("{head}{end}{answer}").as_bytes());
        }
    });
    address
}

fn resource(name: &str, applier: Value) -> Value {
    let secret = |key: &str| json!({ "name": "mysql", "key": key });
    let source = json!({
        "host": "source", "user": "repl", "server_id": name.len(), "password_secret": secret("repl"),
    });
    let target = json!({ "host": "target", "user": "csa", "password_secret": secret("csa") });
    let spec = json!({ "source": source, "target": target, "applier": applier });
    json!({ "metadata": { "name": name, "generation": 1 }, "spec": spec })
}

#[test]
fn a_main_file_that_one_channel_does_not_fit_stops_no_channel() {
    let mut world = World::new(MAIN);
    let fits = |retries: u32| {
        resource("fits", json!({ "commit": "one-to-one", "transaction_retries": retries }))
    };
    let plain = resource("plain", json!({}));
    world.resources(&[fits(3), plain.clone()]);
    let seen = world.controller.adopt().expect("adopted");
    assert_eq!((seen.main, seen.problems), (Ok(()), BTreeMap::new()));
    assert_eq!(world.channels(), ["fits", "plain"]);

    world.main(&format!("{MAIN}[defaults.applier]\ntarget_gtids = \"source\"\n"));
    world.resources(&[fits(7), plain]);
    let seen = world.controller.adopt().expect("the rest is adopted");
    let why = seen.main.expect_err("not adopted");
    assert!(why.contains("target_gtids"), "{why}");
    assert!(seen.problems["plain"].why.contains("target_gtids"), "{:?}", seen.problems);
    assert_eq!(world.channels(), ["fits", "plain"]);
    let file = std::fs::read_to_string(world.controller.folder.channel("fits")).expect("a file");
    assert!(file.contains("transaction_retries = 7"), "{file}");

    world.resources(&[fits(7)]);
    let seen = world.controller.adopt().expect("adopted");
    assert_eq!((seen.main, seen.problems), (Ok(()), BTreeMap::new()));
    assert_eq!(world.channels(), ["fits"]);
}

#[test]
fn resources_are_adopted_beside_a_wrong_main_file() {
    let mut world = World::new(MAIN);
    world.resources(&[resource("one", json!({})), resource("two", json!({}))]);
    assert!(world.controller.adopt().expect("adopted").main.is_ok());
    world.resources(&[resource("two", json!({}))]);
    for wrong in ["[daemon", "[daemon]\nallow_no_channels = true\nlog_filter = \"csa=loud\"\n"] {
        world.main(wrong);
        let seen = world.controller.adopt().expect("adopted");
        assert!(seen.main.is_err() && seen.problems.is_empty(), "{:?}", seen.problems);
        assert_eq!(world.channels(), ["two"]);
    }
    let mut starting = World::new("[daemon");
    starting.resources(&[]);
    assert!(starting.controller.adopt().is_err(), "there is no file before it");
}

#[test]
fn the_file_of_a_secret_stays_until_no_channel_uses_it() {
    let mut world = World::new(MAIN);
    world.resources(&[resource("shop", json!({}))]);
    world.controller.adopt().expect("adopted");
    assert_eq!(world.secrets(), ["mysql.csa.7", "mysql.repl.7"]);
    world.secret("8", "dHdv");
    world.controller.step().expect_err("the daemon does not reload");
    let all = ["mysql.csa.7", "mysql.csa.8", "mysql.repl.7", "mysql.repl.8"];
    assert_eq!(world.secrets(), all);
    // An operator has stopped its channel, which still receives with the files of its start.
    let pending = PendingView { channel_name: Some("shop".to_owned()), ..PendingView::default() };
    world.reload(&ReloadView { pending: vec![pending], ..ReloadView::default() });
    world.controller.step().expect("reported");
    assert_eq!(world.secrets(), all);
    world.reload(&ReloadView::default());
    world.controller.is_stale = true;
    world.controller.step().expect("reported");
    assert_eq!(world.secrets(), ["mysql.csa.8", "mysql.repl.8"]);
}

#[test]
fn a_status_that_is_refused_does_not_hold_up_the_others() {
    let mut world = World::new(MAIN);
    let names = ["one", "two", "three"];
    world.resources(&names.map(|name| resource(name, json!({}))));
    world.reload(&ReloadView::default());
    world.answer(&format!("PATCH {RESOURCES}/one/status"), 422, json!({ "message": "no" }));
    let refused = world.controller.step().expect_err("refused");
    assert!(refused.contains("HTTP 422") && refused.ends_with(": no"), "{refused}");
    assert_eq!(world.asked(&format!("PATCH {RESOURCES}/")).len(), names.len());
}

#[test]
fn a_secret_that_cannot_be_read_is_no_mistake_of_its_resources() {
    let mut world = World::new(MAIN);
    world.resources(&[resource("one", json!({})), resource("two", json!({}))]);
    world.reload(&ReloadView::default());
    world.controller.step().expect("reported");
    let status = format!("PATCH {RESOURCES}/one/status ");
    for (code, state, why) in
        [(500, "pending", "HTTP 500"), (403, "invalid", "HTTP 403"), (404, "invalid", "no secret")]
    {
        world.answer(SECRET, code, json!({ "message": "no" }));
        world.asked("");
        assert_eq!(world.controller.step().is_err(), state == "pending");
        let asked = world.asked("");
        assert_eq!(asked.iter().filter(|asked| asked.starts_with(SECRET)).count(), 1, "{asked:?}");
        let said = asked.iter().find(|asked| asked.starts_with(&status)).expect("a report");
        assert!(said.contains(&format!("\"state\":\"{state}\"")) && said.contains(why), "{said}");
        assert_eq!(world.channels(), ["one", "two"], "as before");
    }
}
