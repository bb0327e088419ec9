//! Metrics of copies.

use super::{Result, Scrape};
use crate::observe::view::ChannelView;

impl Scrape {
    pub(super) fn copies(&self, channels: &[ChannelView]) -> Result<()> {
        let copied = self.gauge(
            "csa_copy_rows",
            "Rows that a copy has copied; absent while none is made.",
            &["channel"],
        )?;
        let estimated = self.gauge(
            "csa_copy_estimated_rows",
            "Rows that a copy has to copy, as the source guesses; absent while none is made.",
            &["channel"],
        )?;
        let step = self.gauge(
            "csa_copy_step",
            "1 for the step that a copy is at; absent while none is made.",
            &["channel", "step"],
        )?;
        let differing = self.gauge(
            "csa_copy_differs",
            "1 if the comparison at the end of a copy found differences, 0 if it found none; absent without one.",
            &["channel"],
        )?;
        let unchecked = self.gauge(
            "csa_copy_unchecked",
            "1 if the comparison at the end of a copy was interrupted or left something out, 0 if it did not; absent \
             without one.",
            &["channel"],
        )?;
        for view in channels {
            let channel = view.channel_name.as_str();
            if let Some(copy) = &view.copy {
                copied.with_label_values(&[channel]).set(copy.rows as i64);
                estimated.with_label_values(&[channel]).set(copy.rows_estimated as i64);
                step.with_label_values(&[channel, copy.step.as_str()]).set(1);
            }
            let Some(check) = &view.copy_check else { continue };
            if check.is_finished() || check.is_different() {
                differing.with_label_values(&[channel]).set(check.is_different().into());
            }
            if !check.is_under_way() {
                unchecked.with_label_values(&[channel]).set((!check.is_finished()).into());
            }
        }
        Ok(())
    }
}
