//! Versions of the CNI specification that are spoken here.

use std::fmt;

/// A version of the specification, older ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 0.3.0, of which the format of results is that of 0.3.1.
    V030,
    /// 0.3.1
    V031,
    /// 0.4.0: CHECK, and results handed to DEL.
    V040,
    /// 1.0.0: addresses without a version.
    V100,
    /// 1.1.0: GC and STATUS.
    V110,
}

const ALL: [Version; 5] = [
    Version::V030,
    Version::V031,
    Version::V040,
    Version::V100,
    Version::V110,
];

impl Version {
    /// The newest one.
    pub const NEWEST: Self = Self::V110;

    /// Reads a version; none if it is not spoken here.
    pub fn parse(text: &str) -> Option<Self> {
        ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// Returns the version as the specification writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V030 => "0.3.0",
            Self::V031 => "0.3.1",
            Self::V040 => "0.4.0",
            Self::V100 => "1.0.0",
            Self::V110 => "1.1.0",
        }
    }

    /// Tells whether there is CHECK, and DEL gets the result of ADD.
    pub(crate) fn has_check(self) -> bool {
        self >= Self::V040
    }

    /// Tells whether there are GC and STATUS.
    pub(crate) fn has_gc_and_status(self) -> bool {
        self >= Self::V110
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
