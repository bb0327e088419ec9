use std::fmt;
use std::sync::Arc;

/// A GTID's tag: up to 32 characters `[a-z_][a-z0-9_]*`; empty for an untagged GTID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tag(Option<Arc<str>>);

/// Not a tag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a GTID tag")]
pub struct InvalidTag(pub String);

impl Tag {
    /// Returns the tag of untagged GTIDs.
    #[must_use]
    pub const fn untagged() -> Self {
        Self(None)
    }

    /// Makes a tag in lower case, as the server does.
    ///
    /// # Errors
    /// The text is too long, or holds a character that is not allowed in a tag.
    pub fn new(text: &str) -> Result<Self, InvalidTag> {
        if text.is_empty() {
            return Ok(Self::untagged());
        }
        let lower = text.to_ascii_lowercase();
        let starts = lower.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        let valid = lower.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if !starts || !valid || lower.len() > 32 {
            return Err(InvalidTag(text.to_owned()));
        }
        Ok(Self(Some(lower.into())))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
