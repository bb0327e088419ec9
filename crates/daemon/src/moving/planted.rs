//! The end that a test gives a process in the middle of a move.

use rustix::process::{Signal, getpid, getppid, kill_process};

use super::journal::Step;

/// Ends the process and its guard if a test wants that: `CSA_MOVE_KILL` is like `open:before` or `open:after`, which
/// is before or after the effect of the step. `open:before:alone` leaves the guard alive.
pub(super) fn end_at(step: Step, is_after: bool) {
    let side = if is_after { "after" } else { "before" };
    end_in(&format!("{}:{side}", step.name().replace(' ', "_")));
}

/// Ends them at another place; `undone` is after the note that the move was undone.
pub(super) fn end_in(place: &str) {
    if !cfg!(debug_assertions) {
        return;
    }
    let wanted = std::env::var("CSA_MOVE_KILL").unwrap_or_default();
    let kill = |process| {
        let _ = kill_process(process, Signal::KILL);
    };
    let guard = std::env::var("CSA_MOVE_WORKER").ok().and_then(|id| id.parse().ok());
    if wanted == place
        && let Some(guard) = getppid().filter(|parent| Some(parent.as_raw_nonzero().get()) == guard)
    {
        kill(guard);
    }
    if wanted.strip_suffix(":alone").unwrap_or(&wanted) == place {
        kill(getpid());
    }
}
