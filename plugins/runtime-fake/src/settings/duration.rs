//! Durations as Go writes them: `250ms`, `1.5s`, `1h2m`. Whole configuration files and annotations
//! use them, so one parser serves both. Written here: jiff's durations refuse Go's `1.5h30m` and read what Go refuses.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// A duration written in Go's notation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurationSetting(pub Duration);

/// What was written is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration such as \"250ms\" or \"1m30s\"")]
pub struct DurationSettingError(String);

const UNITS: [(&str, f64); 7] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

impl FromStr for DurationSetting {
    type Err = DurationSettingError;

    fn from_str(text: &str) -> Result<Self, DurationSettingError> {
        parse(text)
            .map(DurationSetting)
            .ok_or_else(|| DurationSettingError(text.chars().take(64).collect()))
    }
}

fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let number_ends = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(number_ends);
        let unit_ends = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_ends);
        let scale = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * scale).ok()?;
        total = total.checked_add(part)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

impl<'de> Deserialize<'de> for DurationSetting {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?
            .parse()
            .map_err(de::Error::custom)
    }
}

impl fmt::Display for DurationSetting {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:?}", self.0)
    }
}

/// Returns the nanoseconds of a duration, at most what a CRI timestamp can hold.
pub(crate) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_reads_as_go_reads_it() {
        let read = |text: &str| text.parse::<DurationSetting>().map(|d| d.0);
        assert_eq!(read("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(read("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(read("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(read("0"), Ok(Duration::ZERO));
        for bad in [
            "",
            "5",
            "s",
            "5x",
            "-1s",
            "1s2",
            "..s",
            "99999999999999999999999h",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
