//! A program of the operator's, with a process group and an environment of its own.

use std::process::Stdio;
use std::time::Duration;

use csa_provider::server::visible::one_line;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::descriptors;

/// Variables of this process that the program gets, too. Others may hold passwords.
const INHERITED: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];
/// Bytes of an output that are kept.
const SAID_MAX: usize = 300;
/// The time in which the last words of a program arrive after its end.
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

/// The reader of a program's standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// Nobody: what the program leaves behind may write there for ever.
    Ignored,
    Kept,
}

/// Runs a program until its end, and returns the beginning of its output. If this is dropped, the program is killed.
///
/// # Errors
/// One line with the program, how it ended, and what it wrote to standard error.
pub(crate) async fn run_program(
    arguments: &[String],
    variables: impl IntoIterator<Item = (&'static str, String)>,
    input: &[u8],
    output: Output,
) -> Result<String, String> {
    let (program, arguments) = arguments.split_first().ok_or("there is no command")?;
    let inherited = INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(inherited)
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(match output {
            Output::Ignored => Stdio::null(),
            Output::Kept => Stdio::piped(),
        })
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        // The first word: somebody may have written a secret argument into the same text.
        .map_err(|error| {
            let name = program.split(' ').next().unwrap_or_default();
            format!("{name} can't be started: {error}")
        })?;
    let leader = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let mut group = Group(leader);
    leader.into_iter().for_each(descriptors::restore_limit);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A program may end without reading.
            let _ = stdin.write_all(input).await;
        }
    };
    let (mut answered, mut said) = (Vec::new(), Vec::new());
    let listen = async {
        tokio::join!(listen(stdout, &mut answered), listen(stderr, &mut said));
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
        () = listen => return Ok(String::new()),
    };
    let status = status.map_err(|error| format!("{program}: {error}"))?;
    // What it has left behind on purpose may live on.
    group.0 = None;
    match status.success() {
        true => Ok(String::from_utf8_lossy(&answered).trim().to_owned()),
        false => {
            let said = String::from_utf8_lossy(&said);
            let said = one_line(said.trim());
            let colon = if said.is_empty() { "" } else { ": " };
            Err(format!("{program} ended with {status}{colon}{said}"))
        }
    }
}

/// Reads to the end, and keeps the beginning: a program that writes without end is not held up.
async fn listen(from: Option<impl AsyncRead + Unpin>, said: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let room = SAID_MAX.saturating_sub(said.len());
        said.extend(buffer.iter().take(read.min(room)));
    }
}
