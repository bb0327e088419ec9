//! Settings that change while their holder runs: one declaration for the reload, the admin port and the command line.

/// An entry in a list of settings of one holder (a channel's controls, or the daemon). A reload adopts it at once.
#[derive(Debug)]
pub(crate) struct LiveSetting<H: 'static, C: 'static> {
    /// The names in reports of a reload. Several keys are one value in use.
    pub(crate) keys: &'static [&'static str],
    /// Returns what is in use, in words: a text for each key.
    pub(crate) in_use: fn(&H) -> Vec<String>,
    /// Returns what the configuration asks for, in words.
    pub(crate) configured: fn(&C) -> Vec<String>,
    /// Takes the value of the configuration into use.
    pub(crate) adopt: fn(&H, &C),
    pub(crate) command: Option<SetCommand<H>>,
}

/// The command that changes a setting.
#[derive(Debug)]
pub(crate) struct SetCommand<H: 'static> {
    /// The key without its section: in paths and on the command line.
    pub(crate) name: &'static str,
    /// Tells what to give, where a text could not be read.
    pub(crate) form: &'static str,
    /// Explains the value in the help; empty where the name does.
    pub(crate) meaning: &'static str,
    /// Changes the value in use; returns the one before and the new one, in words. Without a change it names the
    /// setting and the text that is no value of it.
    pub(crate) change: fn(&H, &str) -> Result<[String; 2], String>,
}

impl<H, C> LiveSetting<H, C> {
    /// Returns each key with its value in use and that of the configuration, in words.
    pub(crate) fn compare(
        &self,
        holder: &H,
        settings: &C,
    ) -> impl Iterator<Item = (&'static str, String, String)> {
        let values = (self.in_use)(holder).into_iter().zip((self.configured)(settings));
        self.keys.iter().zip(values).map(|(key, (from, to))| (*key, from, to))
    }
}
