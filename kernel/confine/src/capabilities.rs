//! Sets of capabilities, by the kernel's names.

use std::fmt;

use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

/// A set of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Whatever the machine has.
    pub const ALL: Self = Self(u64::MAX);
    /// None at all.
    pub const NONE: Self = Self(0);

    /// The set of these names, without `CAP_`; or the name that is no capability's.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, &'a str> {
        names.into_iter().try_fold(Self::NONE, |set, name| {
            let one = CapabilitySet::from_name(name).ok_or(name)?;
            Ok(Self(set.0 | one.bits()))
        })
    }

    /// The set of a mask of `/proc/PID/status`.
    pub fn from_mask(mask: u64) -> Self {
        Self(mask)
    }

    /// Whether every capability of the other set is in this one.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names, without `CAP_`, in the kernel's order.
    pub fn names(self) -> Vec<String> {
        let known = CapabilitySet::from_bits_truncate(self.0);
        known
            .iter_names()
            .map(|(name, _)| name.to_owned())
            .collect()
    }

    pub(crate) fn bits(self) -> CapabilitySet {
        CapabilitySet::from_bits_retain(self.0)
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ALL => f.write_str("all"),
            Self::NONE => f.write_str("none"),
            set => f.write_str(&set.names().join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_kernels_and_others_are_refused() {
        let set = Capabilities::named(["SYS_ADMIN", "CHOWN"]).unwrap();
        assert_eq!(set, Capabilities::from_mask(1 << 21 | 1));
        assert_eq!(set.names(), ["CHOWN", "SYS_ADMIN"]);
        assert_eq!(set.to_string(), "CHOWN SYS_ADMIN");
        assert_eq!(Capabilities::named(["CHOWN", "FLY"]), Err("FLY"));
        assert_eq!(Capabilities::named([]), Ok(Capabilities::NONE));
        assert!(Capabilities::ALL.contains(set) && !set.contains(Capabilities::ALL));
    }
}
