//! Failures of steps: errors as a CNI plugin would print them.

use std::fmt::Display;

use network_cni::CniError;

/// What the plugins' library gives to every error that has no code of its own.
const INTERNAL: u32 = 999;

/// Returns an error in a plugin's words.
pub(crate) fn fail(msg: impl Into<String>) -> CniError {
    CniError {
        code: INTERNAL,
        msg: msg.into(),
        details: String::new(),
    }
}

/// Makes failures of other errors.
pub(crate) trait OrFail<T> {
    /// Says what failed.
    fn or_fail(self, what: impl Display) -> Result<T, CniError>;
}

impl<T, E: Display> OrFail<T> for Result<T, E> {
    fn or_fail(self, what: impl Display) -> Result<T, CniError> {
        self.map_err(|error| fail(format!("{what}: {error}")))
    }
}
