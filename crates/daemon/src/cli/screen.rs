//! The progress of a command: lines that change on a terminal, and elsewhere a line now and then.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use csa_provider::server::visible::one_line;

/// Width of the bar, and of its line, in cells.
const BAR: usize = 24;
const WIDTH: usize = 79;
/// Time between two lines where there is no terminal.
const LINE: Duration = Duration::from_secs(10);

/// The last lines of `out`. What can't be written there is lost.
pub(super) struct Screen<W> {
    out: W,
    pub(super) is_terminal: bool,
    /// Lines on the terminal.
    drawn: usize,
    shown: Option<Instant>,
}

impl<W: IsTerminal + Write> Screen<W> {
    pub(super) fn new(out: W) -> Self {
        Self { is_terminal: out.is_terminal(), out, drawn: 0, shown: None }
    }

    /// Shows lines on a terminal, in the place of those before.
    pub(super) fn draw(&mut self, lines: &[String]) {
        self.clear();
        for line in lines {
            let _ = writeln!(self.out, "{}", fitted(line));
        }
        let _ = self.out.flush();
        self.drawn = lines.len();
        self.shown = Some(Instant::now());
    }

    /// Takes the lines from the terminal.
    pub(super) fn clear(&mut self) {
        if self.drawn > 0 {
            let _ = write!(self.out, "\x1b[{}A\x1b[J", self.drawn);
            let _ = self.out.flush();
            (self.drawn, self.shown) = (0, None);
        }
    }

    /// Prints a line, where there is no terminal: one with news at once, others only now and then.
    pub(super) fn line(&mut self, text: &str, is_news: bool) {
        if is_news || self.rested(LINE) {
            let _ = writeln!(self.out, "{}", one_line(text));
            self.shown = Some(Instant::now());
        }
    }

    /// Returns true if nothing was shown for so long.
    pub(super) fn rested(&self, time: Duration) -> bool {
        self.shown.is_none_or(|shown| shown.elapsed() >= time)
    }
}

/// Returns as much of the text as a line of a terminal holds.
pub(super) fn fitted(text: &str) -> String {
    format!("{:.WIDTH$}", one_line(text))
}

pub(super) fn bar(share: f64) -> String {
    let full = ((share * BAR as f64) as usize).min(BAR);
    format!("[{}{}]", "#".repeat(full), "-".repeat(BAR - full))
}
