//! `status --watch` on a terminal, and commands whose reader leaves.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use csa_tests::Daemon;

use crate::fleet::Site;

fn command(daemon: &Daemon, arguments: &[&str]) -> Child {
    Command::new(Daemon::executable())
        .arg("--config")
        .arg(daemon.config_path())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("running csa-daemon")
}

/// Its exit code and error output, within half a minute.
fn end(mut child: Child) -> (Option<i32>, String) {
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until {
        if let Some(status) = child.try_wait().expect("a child") {
            let mut said = String::new();
            child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
            return (status.code(), said);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().expect("killed");
    panic!("it does not end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_fits_the_terminal_and_commands_end_with_their_readers() {
    let site = Site::new(&["test", "shard_1", "shard_2"]).await;
    let daemon = site.with_files(&["shard_1", "shard_2"]).await;
    daemon.commanded(&["--channel", "shard_2", "pause"]);

    // As with `| head`.
    let mut watch = command(&daemon, &["status", "--watch"]);
    let mut first = String::new();
    let mut out = BufReader::new(watch.stdout.take().expect("piped"));
    out.read_line(&mut first).expect("a line");
    assert!(first.starts_with("CHANNEL"), "{first}");
    drop(out);
    assert_eq!(end(watch), (Some(0), String::new()));
    for arguments in
        [&["check"][..], &["relay", "ls", "--channel", "test"], &["resume", "--channel", "test"]]
    {
        let mut child = command(&daemon, arguments);
        drop(child.stdout.take());
        assert_eq!(end(child), (Some(0), String::new()), "{arguments:?}");
    }

    // A terminal of five lines and 60 columns: the channel that needs somebody, and a count of the rest.
    let watch = format!(
        "stty rows 5 cols 60; exec {} --config {} status --watch",
        Daemon::executable().display(),
        daemon.config_path().display()
    );
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--command", &watch, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("running script");
    tokio::time::sleep(Duration::from_secs(4)).await;
    terminal.stdin.as_mut().expect("piped").write_all(b"\x03").expect("Ctrl-C");
    let mut out = terminal.stdout.take().expect("piped");
    let (code, said) = end(terminal);
    assert_eq!((code, said.as_str()), (Some(130), ""), "ended by the signal, and says nothing");
    let mut text = String::new();
    out.read_to_string(&mut text).expect("text");
    let screens: Vec<&str> = text.split("\x1b[H").skip(1).collect();
    assert!(screens.len() >= 3, "{text:?}");
    for screen in screens {
        let (lines, rest) = screen.split_once("\x1b[J").expect("the rest of the screen is cleared");
        assert!(rest.is_empty() || rest.starts_with("^C"), "{rest:?}");
        let lines: Vec<&str> = lines.split("\x1b[K\r\n").collect();
        assert_eq!((lines.len(), lines[4]), (5, ""), "the cursor is on the last line: {lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 60), "{lines:?}");
        assert!(lines[0].contains("1 paused, 2 running"), "{lines:?}");
        assert!(lines[1].starts_with("CHANNEL"), "{lines:?}");
        assert!(lines[2].starts_with("shard_2  paused"), "{lines:?}");
        assert!(lines[3].starts_with("2 more channels do not fit: 2 running"), "{lines:?}");
    }
}
