//! Settings that change while their holder runs: one declaration for the reload, the admin port and the command line.

/// A setting whose value in use a holder has: a channel's controls, or the daemon. A reload adopts it at once.
pub(crate) trait Setting {
    type Holder;
    /// The part of the configuration that has the key.
    type Configured;
    type Value;
    /// The name in reports of a reload.
    const KEY: &'static str;

    /// Returns the value that the configuration asks for.
    fn configured(settings: &Self::Configured) -> Self::Value;

    /// Returns the value in use.
    fn get(holder: &Self::Holder) -> Self::Value;

    /// Changes the value in use.
    fn set(holder: &Self::Holder, value: Self::Value);

    /// Returns a value in words.
    fn show(value: &Self::Value) -> String;
}

/// A setting that a command changes, too.
pub(crate) trait Commanded: Setting {
    /// The key without its section: in paths and on the command line.
    const NAME: &'static str;
    /// Tells what to give, where a text could not be read.
    const FORM: &'static str;
    /// Explains the value in the help; empty where the name does.
    const MEANING: &'static str = "";

    /// Reads the value of a command.
    ///
    /// # Errors
    /// Names the setting and the text.
    fn parse(text: &str) -> Result<Self::Value, String>;
}

/// An entry in a list of settings of one holder.
#[derive(Debug)]
pub(crate) struct LiveSetting<H: 'static, C: 'static> {
    pub(crate) key: &'static str,
    compare: fn(&H, &C) -> [String; 2],
    adopt: fn(&H, &C),
    command: Option<SetCommand<H>>,
}

/// The command that changes a setting.
#[derive(Debug)]
pub(crate) struct SetCommand<H: 'static> {
    pub(crate) name: &'static str,
    pub(crate) form: &'static str,
    pub(crate) meaning: &'static str,
    change: fn(&H, &str) -> Result<[String; 2], String>,
}

impl<H, C> LiveSetting<H, C> {
    /// Returns the entry of a setting that only a reload changes.
    pub(crate) const fn reloaded<S: Setting<Holder = H, Configured = C>>() -> Self {
        Self {
            key: S::KEY,
            compare: |holder, settings| {
                [S::get(holder), S::configured(settings)].map(|value| S::show(&value))
            },
            adopt: |holder, settings| S::set(holder, S::configured(settings)),
            command: None,
        }
    }

    /// Returns the entry of a setting that a reload and a command change.
    pub(crate) const fn commanded<S: Commanded<Holder = H, Configured = C>>() -> Self {
        let change = |holder: &H, text: &str| {
            let value = S::parse(text)?;
            let [before, after] = [&S::get(holder), &value].map(S::show);
            S::set(holder, value);
            Ok([before, after])
        };
        let Self { key, compare, adopt, .. } = Self::reloaded::<S>();
        let command =
            Some(SetCommand { name: S::NAME, form: S::FORM, meaning: S::MEANING, change });
        Self { key, compare, adopt, command }
    }

    /// Returns the value in use and that of the configuration, in words.
    pub(crate) fn compare(&self, holder: &H, settings: &C) -> [String; 2] {
        (self.compare)(holder, settings)
    }

    /// Takes the value of the configuration into use.
    pub(crate) fn adopt(&self, holder: &H, settings: &C) {
        (self.adopt)(holder, settings);
    }

    pub(crate) fn command(&self) -> Option<&SetCommand<H>> {
        self.command.as_ref()
    }
}

impl<H> SetCommand<H> {
    /// Changes the value in use; returns the one before and the new one, in words.
    ///
    /// # Errors
    /// The text is no value of the setting.
    pub(crate) fn change(&self, holder: &H, text: &str) -> Result<[String; 2], String> {
        (self.change)(holder, text)
    }
}
