//! Servers that a test gives back for tests that come later: a start takes more processor time than many a test does.
//!
//! Only where `CSA_REUSE_SERVERS` names a file (`make test` does that): what happens to each server is a line in it,
//! and whoever set it removes the servers that are left (`mysql-sandbox sweep`). A server whose process or files a
//! test has touched is not used again; [`crate::reset`] compares what it can see of the others. A start with the same
//! options touches nothing, nor does what comes before it: InnoDB recovers what was committed, and a reset drops that.

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use crate::reset::{self, Fingerprint};
use crate::{Server, scratch};

/// Servers that wait for a test: on two cores, as many as all tests that run together have. Fewer of them, and tests
/// would start again what others had to discard while tests of other servers ran.
const MOST_IDLE: usize = 12;
/// Servers that wait where more would take memory from the tests that run.
const FEW_IDLE: usize = 6;
/// Servers of one test that wait for its end: it may start pairs in a loop.
const MOST_GIVEN_BACK: usize = 3;

static IDLE: Mutex<Vec<(Server, Lent)>> = Mutex::new(Vec::new());

fn idle() -> MutexGuard<'static, Vec<(Server, Lent)>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static GIVEN_BACK: RefCell<GivenBack> = const { RefCell::new(GivenBack(Vec::new())) };
}

/// The rest of a server that can be used again.
#[derive(Debug)]
pub(crate) struct Lent {
    options: Vec<String>,
    /// The state before the first test.
    fresh: Fingerprint,
    /// The thread of the test: once it has ended, nothing of the test can reach the server.
    borrower: ThreadId,
    touched: AtomicBool,
}

impl Lent {
    /// Says that the server is not what a start would make it, whatever the comparison shows.
    pub(crate) fn touch(&self) {
        self.touched.store(true, Ordering::Relaxed);
    }

    /// Makes the thread that calls this the borrower.
    pub(crate) fn borrow(&mut self) {
        self.borrower = std::thread::current().id();
    }

    fn is_intact(&self) -> bool {
        !self.touched.load(Ordering::Relaxed)
            && self.borrower == std::thread::current().id()
            && !std::thread::panicking()
    }
}

/// Returns a server with these options that another test has given back, or one that `start` starts.
#[track_caller]
pub(crate) fn take_or(options: &[&str], start: impl FnOnce() -> Server) -> Server {
    if std::env::var_os("CSA_REUSE_SERVERS").is_none() {
        return start();
    }
    let fits = |(_, lent): &(Server, Lent)| lent.options == options;
    let found = {
        let mut idle = idle();
        idle.iter().position(fits).map(|index| idle.remove(index))
    };
    let borrower = std::thread::current().id();
    if let Some((mut server, lent)) = found {
        note("used again");
        server.lent = Some(Lent { borrower, ..lent });
        return server;
    }
    let mut server = start();
    match reset::fingerprint(&server) {
        Ok(fresh) => {
            note("started");
            let options = options.iter().map(ToString::to_string).collect();
            server.lent = Some(Lent { options, fresh, borrower, touched: AtomicBool::new(false) });
        }
        Err(reason) => note(&format!("started, and can't be compared: {reason}")),
    }
    server
}

/// Keeps the server until the test has ended, for another one. Where that can't be, it is dropped, and so destroyed.
pub(crate) fn give_back(server: Server, lent: Lent) {
    if !lent.is_intact() {
        return note("touched");
    }
    // An error means that the thread is already past its end.
    let _ = GIVEN_BACK.try_with(|given| {
        let given = &mut given.borrow_mut().0;
        if given.len() < MOST_GIVEN_BACK {
            given.push((server, lent));
        } else {
            note("more than a test may keep");
        }
    });
}

/// Servers of a test that has not ended.
struct GivenBack(Vec<(Server, Lent)>);

impl Drop for GivenBack {
    /// The thread of the test ends here, and with it went the runtime, whose tasks could still have used the servers.
    fn drop(&mut self) {
        let servers = std::mem::take(&mut self.0);
        if !servers.is_empty() {
            std::thread::spawn(|| servers.into_iter().for_each(make_idle));
        }
    }
}

fn make_idle((server, lent): (Server, Lent)) {
    if let Err(reason) = reset::reset(&server, &lent.fresh) {
        return note(&format!("not used again: {reason}"));
    }
    let most = if scratch::is_plentiful() { MOST_IDLE } else { FEW_IDLE };
    let mut idle = idle();
    idle.push((server, lent));
    let number = idle.len().saturating_sub(most);
    let superfluous: Vec<_> = idle.drain(..number).collect();
    drop(idle);
    superfluous.iter().for_each(|_| note("superfluous"));
}

fn note(line: &str) {
    let Some(path) = std::env::var_os("CSA_REUSE_SERVERS") else { return };
    let file = OpenOptions::new().append(true).create(true).open(path);
    let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
}
