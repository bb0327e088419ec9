//! `status --watch` on a terminal, and commands whose reader leaves.

use std::io::{BufRead as _, BufReader, Read, Write as _};
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

/// Clears what is left of the screen before it: the end of each screen.
const SCREEN_END: &str = "\x1b[J";

/// Reads until so many screens are complete, or the writer has ended.
fn read_screens(out: &mut impl Read, wanted: usize) -> String {
    let mut text = Vec::new();
    let mut part = [0; 1024];
    while String::from_utf8_lossy(&text).matches(SCREEN_END).count() < wanted {
        let count = out.read(&mut part).expect("output");
        if count == 0 {
            break;
        }
        text.extend_from_slice(&part[..count]);
    }
    String::from_utf8(text).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_fits_the_terminal_and_commands_end_with_their_readers() {
    let site = Site::new(&["test", "shard_1", "shard_2"]).await;
    let daemon = site.with_files(&["shard_1", "shard_2"]).await;
    daemon.commanded(&["--channel", "shard_2", "pause"]);

    // The reader closes the pipe, like `| head`.
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
    // Ended after a minute, so that reading its screens ends too.
    let mut terminal = Command::new("timeout")
        .args(["--kill-after=5", "60", "script"])
        .args(["--quiet", "--return", "--command", &watch, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("running script");
    let mut out = terminal.stdout.take().expect("piped");
    // Ctrl-C only after these, and only these are judged: a terminal that is still being set up
    // loses the signal, and the signal discards output that has not been read.
    let text = read_screens(&mut out, 4);
    terminal.stdin.as_mut().expect("piped").write_all(b"\x03").expect("Ctrl-C");
    let (code, said) = end(terminal);
    assert_eq!((code, said.as_str()), (Some(130), ""), "ended by the signal, and says nothing");
    let screens: Vec<&str> = text.split("\x1b[H").skip(1).collect();
    assert!(screens.len() >= 4, "{text:?}");
    for screen in &screens[..4] {
        let (lines, rest) = screen.split_once(SCREEN_END).expect("a complete screen");
        assert_eq!(rest, "", "{screen:?}");
        let lines: Vec<&str> = lines.split("\x1b[K\r\n").collect();
        assert_eq!((lines.len(), lines[4]), (5, ""), "the cursor is on the last line: {lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 60), "{lines:?}");
        assert!(lines[0].contains("1 paused, 2 running"), "{lines:?}");
        assert!(lines[1].starts_with("CHANNEL"), "{lines:?}");
        assert!(lines[2].starts_with("shard_2  paused"), "{lines:?}");
        assert!(lines[3].starts_with("2 more channels do not fit: 2 running"), "{lines:?}");
    }
}
