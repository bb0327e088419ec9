//! Starts that the servers refuse, not the file.

use std::time::Duration;

use super::Daemon;
use crate::eventually;

impl Daemon {
    /// Starts it, expecting its first channel to be refused; returns the reason and stops it.
    ///
    /// # Panics
    /// If the channel does not refuse.
    pub async fn start_refused(&self) -> String {
        let before = self.log().len();
        if self.start_or_exit().is_err() {
            return self.log().split_off(before);
        }
        eventually("the channel refuses", Duration::from_secs(60), async || {
            self.status()["channels"][0]["state"] == "failed"
        })
        .await;
        let why = self.status()["channels"][0]["last_error"]["message"].as_str().map(str::to_owned);
        self.terminate();
        why.expect("a message")
    }
}
