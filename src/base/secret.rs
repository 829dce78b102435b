//! Text that never shows itself in a log, an error or a debug print.

use std::fmt;

use subtle::ConstantTimeEq;

/// A password, token or key in text form.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself; call it only where it leaves on purpose.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Comparison whose time does not depend on where the texts differ.
    pub fn equals(&self, other: &str) -> bool {
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.equals(&other.0)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() {
            "Secret(empty)"
        } else {
            "Secret(…)"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_print_hides_the_text() {
        let secret = Secret::new("tok-1");
        assert!(!format!("{secret:?}").contains("tok"));
        assert!(secret.equals("tok-1"));
        assert!(!secret.equals("tok-2"));
    }
}
