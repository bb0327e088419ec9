//! Programs that tests run alongside the servers, found or fetched by `tests/sandbox/debian-tool`.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Returns `prometheus`, `promtool` or `chromium`, ready for arguments.
///
/// # Panics
/// With the script's message when it is not available: a test without it proves nothing.
#[track_caller]
#[must_use]
pub fn tool(name: &str) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("sandbox/debian-tool");
    let found = Command::new(script).arg(name).output().expect("running debian-tool");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(found.status.success(), "{}", text(&found.stderr));
    Command::new(text(&found.stdout))
}

/// The page at `url` as a headless browser shows it: its document after `milliseconds`, without
/// scripts and styles, and the browser's console output.
///
/// # Panics
/// When there is no browser, or it does not load the page.
#[track_caller]
#[must_use]
pub fn browse(url: &str, milliseconds: u32) -> (String, String) {
    let profile = TempDir::with_prefix("csa-chromium-").expect("a temporary directory");
    let shown = tool("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--no-first-run", "--no-proxy-server", "--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--virtual-time-budget={milliseconds}"))
        .arg(url)
        .output()
        .expect("running the browser");
    let (document, log) = (shown.stdout, String::from_utf8_lossy(&shown.stderr).into_owned());
    let mut document = String::from_utf8_lossy(&document).into_owned();
    for (begin, end) in [("<script", "</script>"), ("<style", "</style>")] {
        while let Some((from, len)) = part(&document, begin, end) {
            document.replace_range(from..from + len, "");
        }
    }
    assert!(document.contains("<html"), "{url}: no document\n{log}");
    let console = log.lines().filter(|line| line.contains("CONSOLE"));
    (document, console.collect::<Vec<_>>().join("\n"))
}

/// Says on stderr that something was not run. The output of a test that passes is not shown, that of `eprintln` neither.
pub fn not_run(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "\nNOT RUN: {what}: {why}\n");
}

/// Returns the most memory that a process ever had, in bytes; `None` once it has ended.
#[must_use]
pub fn peak_memory(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

/// Returns the offset and length of a part.
fn part(document: &str, begin: &str, end: &str) -> Option<(usize, usize)> {
    let from = document.find(begin)?;
    Some((from, document[from..].find(end)? + end.len()))
}
