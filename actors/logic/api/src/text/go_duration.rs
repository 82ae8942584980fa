//! A length of time as Go writes it: `1m30s`, `100ms`, `-2h`. It may be negative, which is why it is
//! not a [`std::time::Duration`]: validation must see the sign before anybody waits that long.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

const SECOND: i64 = 1_000_000_000;
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3600 * SECOND),
];

/// Nanoseconds, signed, in Go's text form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(i64);

impl GoDuration {
    pub const ZERO: GoDuration = GoDuration(0);

    pub const fn from_nanos(nanos: i64) -> Self {
        GoDuration(nanos)
    }

    pub const fn from_secs(seconds: i64) -> Self {
        GoDuration(seconds.saturating_mul(SECOND))
    }

    pub const fn from_millis(millis: i64) -> Self {
        GoDuration(millis.saturating_mul(1_000_000))
    }

    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Returns the time to wait; a negative one is no time.
    pub fn as_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
}

/// The longest that Go has, where it is longer.
impl From<Duration> for GoDuration {
    fn from(duration: Duration) -> Self {
        GoDuration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl From<GoDuration> for Duration {
    fn from(duration: GoDuration) -> Self {
        duration.as_std()
    }
}

/// Why a text is no duration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{0:?} is not a duration; expected a number with a unit, as in \"90s\", \"1m30s\" or \"100ms\""
)]
pub struct DurationError(String);

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        parse(text)
            .map(GoDuration)
            .ok_or_else(|| DurationError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (nanos, tail) = parse_term(rest)?;
        total = total.checked_add(nanos)?;
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Reads one number with its unit and returns what follows it.
fn parse_term(text: &str) -> Option<(i128, &str)> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (whole, rest) = text.split_at(digits);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(
            rest.find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len()),
        ),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let whole: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    Some((
        whole
            .checked_mul(i128::from(*scale))?
            .checked_add(fraction_of(fraction, *scale))?,
        rest,
    ))
}

/// The part after the point, in nanoseconds; digits below one are cut off, with a float as Go does.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the rounding is Go's, and the result is below the unit"
)]
fn fraction_of(digits: &str, unit: i64) -> i128 {
    let (mut number, mut scale) = (0_i64, 1.0);
    for digit in digits.bytes() {
        let longer = number.checked_mul(10);
        let Some(longer) = longer.and_then(|longer| longer.checked_add((digit - b'0').into()))
        else {
            break;
        };
        number = longer;
        scale *= 10.0;
    }
    i128::from((number as f64 * (unit as f64 / scale)) as i64)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write_decimal(f, nanos, 1_000, "\u{b5}s"),
            1_000_000..1_000_000_000 => write_decimal(f, nanos, 1_000_000, "ms"),
            _ => write_clock(f, nanos),
        }
    }
}

fn write_clock(f: &mut fmt::Formatter<'_>, nanos: u64) -> fmt::Result {
    const MINUTE: u64 = 60 * SECOND.unsigned_abs();
    let (hours, minutes) = (nanos / (60 * MINUTE), nanos / MINUTE % 60);
    if hours > 0 {
        write!(f, "{hours}h")?;
    }
    if nanos >= MINUTE {
        write!(f, "{minutes}m")?;
    }
    write_decimal(f, nanos % MINUTE, SECOND.unsigned_abs(), "s")
}

fn write_decimal(f: &mut fmt::Formatter<'_>, value: u64, unit: u64, name: &str) -> fmt::Result {
    let width = unit.ilog10() as usize;
    let fraction = format!("{:0width$}", value % unit);
    match fraction.trim_end_matches('0') {
        "" => write!(f, "{}{name}", value / unit),
        fraction => write!(f, "{}.{fraction}{name}", value / unit),
    }
}

/// A duration as Go prints it (`10s`, `1m20s`, `5m0s`), because messages are matched on it.
pub fn go_duration(duration: Duration) -> String {
    GoDuration::from(duration).to_string()
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A duration that a file may also give as a whole number of nanoseconds. Only
/// `logging.flushFrequency` is one, for compatibility.
pub fn text_or_nanos<'de, D: Deserializer<'de>>(deserializer: D) -> Result<GoDuration, D::Error> {
    struct TextOrNanos;

    impl Visitor<'_> for TextOrNanos {
        type Value = GoDuration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration such as \"5s\", or a number of nanoseconds")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<GoDuration, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_i64<E: de::Error>(self, nanos: i64) -> Result<GoDuration, E> {
            Ok(GoDuration(nanos))
        }

        fn visit_u64<E: de::Error>(self, nanos: u64) -> Result<GoDuration, E> {
            i64::try_from(nanos).map(GoDuration).map_err(E::custom)
        }
    }

    deserializer.deserialize_any(TextOrNanos)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_and_written_as_go_does() {
        for (text, nanos, canonical) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("5s", 5 * SECOND, "5s"),
            ("1m", 60 * SECOND, "1m0s"),
            ("1m30s", 90 * SECOND, "1m30s"),
            ("4h", 4 * 3600 * SECOND, "4h0m0s"),
            ("1h15m30.918s", 4_530_918_000_000, "1h15m30.918s"),
            ("100ms", 100_000_000, "100ms"),
            ("1.5s", 1_500_000_000, "1.5s"),
            (".5s", 500_000_000, "500ms"),
            ("5.s", 5 * SECOND, "5s"),
            ("-2m", -120 * SECOND, "-2m0s"),
            ("+5s", 5 * SECOND, "5s"),
            ("10us", 10_000, "10\u{b5}s"),
            ("10\u{b5}s", 10_000, "10\u{b5}s"),
            ("7ns", 7, "7ns"),
            ("0.1ns", 0, "0s"),
            // From the tests of Go's package `time`.
            ("-5.6s", -5_600_000_000, "-5.6s"),
            ("10.5s4m", 250_500_000_000, "4m10.5s"),
            ("39h9m14.425s", 140_954_425_000_000, "39h9m14.425s"),
            ("52763797000ns", 52_763_797_000, "52.763797s"),
            ("0.3333333333333333333h", 1200 * SECOND, "20m0s"),
            ("0.100000000000000000000h", 360 * SECOND, "6m0s"),
            (
                "0.830103483285477580700h",
                2_988_372_539_827,
                "49m48.372539827s",
            ),
            (
                "9007199254740993ns",
                9_007_199_254_740_993,
                "2501h59m59.254740993s",
            ),
            (
                "9223372036854775.807us",
                i64::MAX,
                "2562047h47m16.854775807s",
            ),
            (
                "9223372036s854ms775us807ns",
                i64::MAX,
                "2562047h47m16.854775807s",
            ),
            (
                "-9223372036854775808ns",
                i64::MIN,
                "-2562047h47m16.854775808s",
            ),
            (
                "-2562047h47m16.854775808s",
                i64::MIN,
                "-2562047h47m16.854775808s",
            ),
        ] {
            let parsed: GoDuration = text.parse().unwrap();
            assert_eq!(parsed.nanos(), nanos, "{text}");
            assert_eq!(parsed.to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "-",
            "3",
            "s",
            ".s",
            "1d",
            "1 s",
            "abc",
            "1h-2m",
            "1..5s",
            "9999999999h",
            "--5s",
            ".",
            "-.",
            "+.s",
            "1e3s",
            "9223372036854775808ns",
            "3000000h",
            "-9223372036854775809ns",
            "9223372036854ms775us808ns1s1h9999999h",
        ] {
            assert!(text.parse::<GoDuration>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_print_as_go_prints_them() {
        let cases = [
            (Duration::from_secs(0), "0s"),
            (Duration::from_secs(10), "10s"),
            (Duration::from_secs(80), "1m20s"),
            (Duration::from_secs(300), "5m0s"),
            (Duration::from_secs(3600), "1h0m0s"),
            (Duration::from_millis(1500), "1.5s"),
            (Duration::from_millis(250), "250ms"),
            (Duration::from_micros(1234), "1.234ms"),
            (Duration::from_nanos(1500), "1.5µs"),
            (Duration::from_nanos(7), "7ns"),
        ];
        for (duration, text) in cases {
            assert_eq!(go_duration(duration), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(nanos: i64) {
            let duration = GoDuration(nanos);
            prop_assert_eq!(duration.to_string().parse::<GoDuration>(), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}", near in "[-+0-9.hmsnu\u{b5}]{0,24}") {
            let _ignored = text.parse::<GoDuration>().is_ok() | near.parse::<GoDuration>().is_ok();
        }
    }
}
