//! Platforms of images: operating system, architecture, variant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What an image runs on, in the words of Go (`GOOS`, `GOARCH`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    variant: String,
}

impl Platform {
    /// Makes a platform; names of uname are translated into Go's.
    pub fn new(os: &str, architecture: &str, variant: &str) -> Self {
        let architecture = match architecture {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" | "i386" | "i686" => "386",
            "powerpc64le" => "ppc64le",
            other => other,
        };
        Self {
            os: os.to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.to_owned(),
        }
    }

    /// Returns that of this program.
    pub fn host() -> Self {
        let variant = match std::env::consts::ARCH {
            "arm" => "v7",
            _ => "",
        };
        Self::new("linux", std::env::consts::ARCH, variant)
    }

    /// Returns how well an image for `offered` runs here: 0 is best, none is not at all.
    pub(crate) fn rank(&self, offered: &Self) -> Option<u32> {
        let offered = Self::new(&offered.os, &offered.architecture, &offered.variant);
        if !self.is_same_architecture(&offered) {
            return None;
        }
        let (have, want) = (self.level()?, offered.level()?);
        // A variant runs what was built for those before it.
        have.checked_sub(want)
    }

    /// Whether system and architecture are the same, whatever the variants.
    pub(super) fn is_same_architecture(&self, other: &Self) -> bool {
        self.os == other.os && self.architecture == other.architecture
    }

    /// Tells whether it says for what it is.
    pub(super) fn is_named(&self) -> bool {
        !self.os.is_empty() || !self.architecture.is_empty()
    }

    /// Returns the variant as a number, where it is one that this store knows.
    fn level(&self) -> Option<u32> {
        match (self.architecture.as_str(), self.variant.as_str()) {
            ("amd64", "") => Some(1),
            ("arm64", "") => Some(8),
            ("arm", "") => Some(7),
            ("amd64" | "arm64" | "arm", variant) => variant.strip_prefix('v')?.parse().ok(),
            (_, "") => Some(0),
            _ => None,
        }
    }
}

/// A text that is no platform.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no platform: expected OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, such as linux/arm64"
)]
pub struct InvalidPlatform(String);

impl FromStr for Platform {
    type Err = InvalidPlatform;

    fn from_str(text: &str) -> Result<Self, InvalidPlatform> {
        let parts: Vec<&str> = text.split('/').collect();
        let wrong = |part: &&str| {
            part.is_empty()
                || !part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        match parts.as_slice() {
            _ if parts.iter().any(wrong) => {}
            [os, architecture] => return Ok(Self::new(os, architecture, "")),
            [os, architecture, variant] => return Ok(Self::new(os, architecture, variant)),
            _ => {}
        }
        Err(InvalidPlatform(text.chars().take(100).collect()))
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match self.variant.as_str() {
            "" => Ok(()),
            variant => write!(f, "/{variant}"),
        }
    }
}
