//! Settings that no log may show.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// A setting whose `Debug` form says only whether it is set.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret<T>(pub T);

impl<T> Deref for Secret<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Default + PartialEq> fmt::Debug for Secret<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self.0 == T::default() {
            true => "unset",
            false => "<masked>",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_written_and_read_but_not_shown() {
        let secret = Secret("token".to_owned());
        assert_eq!(format!("{secret:?}"), "<masked>");
        assert_eq!(format!("{:?}", Secret(String::new())), "unset");
        let text = serde_json::to_string(&secret).unwrap();
        assert_eq!(text, "\"token\"");
        assert_eq!(
            serde_json::from_str::<Secret<String>>(&text).unwrap(),
            secret
        );
    }
}
