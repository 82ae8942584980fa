//! Versions of the CSI interface that a driver offers, read as upstream reads them
//! (apimachinery/pkg/util/version, 1.36): anything of the first major version will do.

use std::cmp::Ordering;
use std::fmt;

/// A version: numbers, of which zeros at the end count for nothing.
#[derive(Clone, Debug)]
pub(crate) struct DriverVersion(Vec<u64>);

impl DriverVersion {
    /// Reads `v1.2.3` and the like; what follows the numbers is not looked at.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let start = text.trim_start();
        let start = start.strip_prefix('v').unwrap_or(start);
        let numbers = numbers(start);
        if numbers.is_empty() {
            return Err(format!("could not parse {text:?} as version"));
        }
        let parts: Vec<&str> = numbers.split('.').collect();
        if parts.len() < 2 {
            return Err(format!("illegal version string {text:?}"));
        }
        if parts[0].len() > 1 && parts[0].starts_with('0') {
            let first = parts[0];
            return Err(format!(
                "illegal zero-prefixed version component {first:?} in {text:?}"
            ));
        }
        let parts = parts.into_iter().map(|part| {
            part.parse().map_err(|error| {
                format!("illegal non-numeric version component {part:?} in {text:?}: {error}")
            })
        });
        Ok(Self(parts.collect::<Result<_, _>>()?))
    }

    fn major(&self) -> u64 {
        self.0.first().copied().unwrap_or_default()
    }

    fn significant(&self) -> &[u64] {
        let end = self.0.iter().rposition(|&part| part != 0);
        &self.0[..end.map_or(0, |last| last + 1)]
    }
}

/// Returns the highest version that this node can speak.
pub(crate) fn highest(offered: &[String]) -> Result<DriverVersion, String> {
    let mut highest: Option<DriverVersion> = None;
    let mut trouble = "<nil>".to_owned();
    for text in offered.iter().rev() {
        match DriverVersion::read(text) {
            Err(why) => trouble = why,
            Ok(version) if version.major() > 1 => {}
            Ok(version) => {
                if highest.as_ref().is_none_or(|before| *before < version) {
                    highest = Some(version);
                }
            }
        }
    }
    match highest {
        None => Err(format!(
            "could not find a highest supported version from versions ([{}]) reported: {trouble}",
            offered.join(" ")
        )),
        Some(version) if version.major() != 1 => Err(format!(
            "highest supported version reported is {version}, must be v1.x"
        )),
        Some(version) => Ok(version),
    }
}

/// The longest start of the form `1.2.3`.
fn numbers(text: &str) -> &str {
    let mut end = 0;
    loop {
        let digits = text[end..].bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            // A dot without a number after it belongs to the rest.
            return text[..end].trim_end_matches('.');
        }
        end += digits;
        if !text[end..].starts_with('.') {
            return &text[..end];
        }
        end += 1;
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(u64::to_string).collect();
        out.write_str(&parts.join("."))
    }
}

impl PartialEq for DriverVersion {
    fn eq(&self, other: &Self) -> bool {
        self.significant() == other.significant()
    }
}

impl Eq for DriverVersion {}

impl PartialOrd for DriverVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DriverVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        self.significant().cmp(other.significant())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(versions: &[&str]) -> Result<String, String> {
        let versions: Vec<String> = versions.iter().map(|&text| text.to_owned()).collect();
        highest(&versions).map(|version| version.to_string())
    }

    /// Upstream's TestValidatePlugin and TestHighestSupportedVersion.
    #[test]
    fn the_highest_of_the_first_major_version_is_taken() {
        for (versions, expected) in [
            (&["v1.0.0"][..], Ok("1.0.0")),
            (&["v0.3.0", "v1.0.0"], Ok("1.0.0")),
            (&["0.0.1", "1.0.1"], Ok("1.0.1")),
            (&["0.0.1", "1.0.1", "2.0.1"], Ok("1.0.1")),
            (&["0.0.1", "1.0.1", "2.0.1", "3.0.1"], Ok("1.0.1")),
            (&["1.0.1", "1.2.0-alpha"], Ok("1.2.0")),
            (&["1.10", "1.9.9"], Ok("1.10")),
            (&["v1.2.3 and more", "nonsense"], Ok("1.2.3")),
            (&["0.3.0"], Err("must be v1.x")),
            (&["0.2.0"], Err("must be v1.x")),
            (
                &["2.0.0"],
                Err("could not find a highest supported version"),
            ),
            (
                &["2.0.0", "3.0.0"],
                Err("could not find a highest supported version"),
            ),
            (&[], Err("could not find a highest supported version")),
            (&["foo"], Err("could not parse \"foo\" as version")),
            (&["1"], Err("illegal version string \"1\"")),
            (&["1."], Err("illegal version string \"1.\"")),
            (
                &["01.2"],
                Err("illegal zero-prefixed version component \"01\""),
            ),
            (
                &["1.99999999999999999999"],
                Err("illegal non-numeric version component"),
            ),
        ] {
            match (offered(versions), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
                (found, _) => panic!("{versions:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn zeros_at_the_end_make_no_difference() {
        let read = |text| DriverVersion::read(text).unwrap();
        assert_eq!(read("1.0"), read("v1.0.0.0"));
        assert!(read("1.0") < read("1.0.0.1"));
        assert!(read("1.0.1") > read("1.0"));
        assert!(read("1.0.0") < read("1.1"));
    }
}
