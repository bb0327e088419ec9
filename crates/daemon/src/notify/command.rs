//! A command that takes events: one process for each.

use std::process::Stdio;
use std::time::Duration;

use csa_provider::server::visible::one_line;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::event::Event;

/// Variables of the daemon that the command gets, too. Others may hold passwords.
const INHERITED: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];
/// Letters of the text in the environment.
const TEXT_MAX: usize = 1000;
/// Bytes of the standard error output that the log may show.
const SAID_MAX: usize = 300;
/// The time in which the last words of a command arrive after its end.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// A process and those that it has started, unless they have left its group.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // It may have ended on its own.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Runs the command until its end; if this is dropped, the command is killed.
pub(super) async fn run(arguments: &[String], event: &Event) -> Result<(), String> {
    let (program, arguments) = arguments.split_first().ok_or("there is no command")?;
    let inherited = INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(inherited)
        .envs(variables(event))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{program} can't be started: {error}"))?;
    let leader = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let mut group = Group(leader);
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A command may end without reading.
            let _ = stdin.write_all(event.json().to_string().as_bytes()).await;
        }
    };
    let mut said = Vec::new();
    let listen = async {
        if let Some(stderr) = stderr {
            listen(stderr, &mut said).await;
        }
        std::future::pending::<()>().await;
    };
    let ended = async {
        let (status, ()) = tokio::join!(child.wait(), write);
        // A process that it leaves behind may keep the pipe open.
        tokio::time::sleep(LAST_WORDS).await;
        status
    };
    let status = tokio::select! {
        status = ended => status,
        () = listen => return Ok(()),
    };
    let status = status.map_err(|error| format!("{program}: {error}"))?;
    // What it has left behind on purpose may live on.
    group.0 = None;
    match status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&said);
            let said = one_line(said.trim());
            let colon = if said.is_empty() { "" } else { ": " };
            Err(format!("{program} ended with {status}{colon}{said}"))
        }
    }
}

/// Reads to the end, and keeps the beginning: a command that writes without end is not held up.
async fn listen(mut from: impl AsyncRead + Unpin, said: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let room = SAID_MAX.saturating_sub(said.len());
        said.extend(buffer.iter().take(read.min(room)));
    }
}

/// Returns the event for commands that read no JSON.
fn variables(event: &Event) -> [(&'static str, String); 6] {
    // No zero byte, which would end a variable, and no newline.
    let plain = |text: &str| -> String { one_line(text).chars().take(TEXT_MAX).collect() };
    [
        ("CSA_EVENT", event.event.clone()),
        ("CSA_EVENT_ID", event.id.clone()),
        ("CSA_CHANNEL", event.channel.clone()),
        ("CSA_STATE", event.state.clone()),
        ("CSA_TIME", event.time.clone()),
        ("CSA_TEXT", plain(&event.text)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::event::Origin;
    use super::*;

    fn event() -> Event {
        let origin = Origin { id: "7".to_owned(), at: 0, host: "h".to_owned() };
        Event { text: "two\nlines\0".to_owned(), ..Event::test("orders", origin) }
    }

    async fn sh(script: &str) -> Result<(), String> {
        run(&["/bin/sh", "-c", script].map(str::to_owned), &event()).await
    }

    #[tokio::test]
    async fn a_command_gets_the_event_and_its_failure_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("event").display().to_string();
        let script = format!(
            "cat > {path}; [ \"$CSA_EVENT $CSA_CHANNEL $CSA_EVENT_ID\" = 'test orders 7' ] && [ -z \"$CARGO\" ]"
        );
        assert_eq!(sh(&script).await, Ok(()));
        let read = std::fs::read_to_string(&path).expect("written");
        let read: serde_json::Value = serde_json::from_str(&read).expect("JSON");
        assert_eq!(read["channel"], "orders");
        let failed = sh("echo 'no route' >&2; exit 3").await.expect_err("failed");
        assert!(failed.contains("exit status: 3: no route"), "{failed}");
        // Output without end, and a child that keeps the pipe.
        let flooded = sh("sleep 1 >&2 & yes | head -c 3000000 >&2; exit 1").await;
        assert!(flooded.is_err_and(|why| why.len() < 1000));
        let missing = run(&["/not/there".to_owned()], &event()).await.expect_err("missing");
        assert!(missing.contains("can't be started"), "{missing}");
    }

    #[tokio::test]
    async fn a_command_that_does_not_end_is_killed_with_its_children() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pid").display().to_string();
        let script = format!("sleep 1000 & echo $! > {path}; wait");
        let limit = Duration::from_millis(500);
        assert!(tokio::time::timeout(limit, sh(&script)).await.is_err());
        let pid = std::fs::read_to_string(&path).expect("written");
        let ended = async {
            while std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
                .is_ok_and(|stat| !stat.contains(") Z "))
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), ended).await.expect("its child is gone");
    }
}
