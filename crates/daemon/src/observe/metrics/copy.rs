//! Metrics of copies.

use super::{Result, Row, Scrape};
use crate::observe::view::ChannelView;

const ROWS: [Row; 4] = [
    ("csa_copy_rows", "Rows that a copy has copied; absent while none is made.", |view| {
        Some(view.copy.as_ref()?.rows as f64)
    }),
    (
        "csa_copy_estimated_rows",
        "Rows that a copy has to copy, as the source guesses; absent while none is made.",
        |view| Some(view.copy.as_ref()?.rows_estimated as f64),
    ),
    (
        "csa_copy_differs",
        "1 if the comparison at the end of a copy found differences, 0 if it found none; absent without one.",
        |view| {
            let check = view.copy_check.as_ref()?;
            let is_known = check.is_finished() || check.is_different();
            is_known.then(|| f64::from(check.is_different()))
        },
    ),
    (
        "csa_copy_unchecked",
        "1 if the comparison at the end of a copy was interrupted or left something out, 0 if it did not; absent \
         without one.",
        |view| {
            let check = view.copy_check.as_ref()?;
            (!check.is_under_way()).then(|| f64::from(!check.is_finished()))
        },
    ),
];

impl Scrape {
    pub(super) fn copies(&self, channels: &[ChannelView]) -> Result<()> {
        self.rows(&ROWS, channels)?;
        let help = "1 for the step that a copy is at; absent while none is made.";
        self.labelled(["csa_copy_step", help, "step"], channels, |view| {
            view.copy.as_ref().map(|copy| (copy.step.as_str(), 1.0))
        })
    }
}
