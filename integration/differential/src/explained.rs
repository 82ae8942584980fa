//! Differences that are known, as data: `explained.json` beside this file's crate, each with its reason.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::campaign::Difference;

const FILE: &str = include_str!("../explained.json");

/// One kind of difference that is known.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Explanation {
    /// A pattern of the paths that it is about: `*` is any text.
    pub path: String,
    /// Of the native runtime's value; any where there is none. What is absent is `absent`.
    #[serde(default = "anything")]
    pub native: String,
    /// Of the measure's value.
    #[serde(default = "anything")]
    pub expected: String,
    /// The handler that it is about; both where there is none.
    pub handler: Option<String>,
    /// Words that the case's text must have: `"privileged": true`.
    #[serde(default)]
    pub when: Vec<String>,
    /// A sentence of `docs/conformance/runtime-native.md`.
    pub reason: String,
}

fn anything() -> String {
    "*".to_owned()
}

/// Returns all of them.
pub fn all() -> Result<Vec<Explanation>> {
    serde_json::from_str(FILE).context("explained.json")
}

impl Explanation {
    /// Whether it is about this difference of a case, whose text is given.
    pub fn explains(&self, difference: &Difference, case: &str) -> bool {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
        self.handler
            .as_ref()
            .is_none_or(|handler| *handler == difference.handler)
            && matches(&self.path, &difference.path)
            && matches(&self.native, &value(&difference.native))
            && matches(&self.expected, &value(&difference.expected))
            && self.when.iter().all(|words| case.contains(words.as_str()))
    }
}

/// Whether a text matches a pattern in which `*` is any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in between {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_texts() {
        for (pattern, text, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "a.bc", false),
            ("a.*", "a.b.c", true),
            ("*.type", "mounts./proc.type", true),
            ("*.type", "mounts./proc.types", false),
            ("m*p*t", "mounts./proc.root.t", true),
            ("m*x*t", "mounts./proc.t", false),
            ("*", "", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn every_reason_stands_in_the_document() {
        let document = include_str!("../../../docs/conformance/runtime-native.md");
        for explanation in all().expect("explained.json is JSON") {
            assert!(
                document.contains(&explanation.reason),
                "{}",
                explanation.reason
            );
        }
    }
}
