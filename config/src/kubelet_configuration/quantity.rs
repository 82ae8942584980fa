//! A Kubernetes resource quantity: `100Mi`, `0.5`, `250m`, `1e3`. Keeps the text as written, and the amount for
//! comparisons and checks.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

const NANO: i128 = 1_000_000_000;

/// An amount in billionths of a unit, with the text it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    text: String,
    nanos: i128,
}

impl Quantity {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the amount in whole units, rounded up, as upstream's `Value()` does.
    pub fn value(&self) -> i64 {
        let whole = self.nanos.div_euclid(NANO) + i128::from(self.nanos.rem_euclid(NANO) > 0);
        i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
    }

    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Quantity {
            text: "0".to_owned(),
            nanos: 0,
        }
    }
}

/// Why a text is no quantity.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{0:?} is not a quantity; expected a number with an optional suffix, as in \"100Mi\", \"500m\" or \"2\""
)]
pub struct QuantityError(String);

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match parse(text) {
            Some(nanos) => Ok(Quantity {
                text: text.to_owned(),
                nanos,
            }),
            None => Err(QuantityError(text.to_owned())),
        }
    }
}

fn parse(text: &str) -> Option<i128> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (whole, rest) = rest.split_at(digits);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(
            rest.find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len()),
        ),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let amount = scale(
        &format!("{whole}{fraction}"),
        fraction.len(),
        multiplier(suffix)?,
    );
    Some(if negative { -amount } else { amount })
}

/// A suffix's multiplier: a power of two times a power of ten.
struct Multiplier {
    binary: u32,
    decimal: i32,
}

fn multiplier(suffix: &str) -> Option<Multiplier> {
    let (binary, decimal) = match suffix {
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "" => (0, 0),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => (0, exponent(suffix)?),
    };
    Some(Multiplier { binary, decimal })
}

fn exponent(suffix: &str) -> Option<i32> {
    let digits = suffix.strip_prefix(['e', 'E'])?;
    let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(if digits.starts_with('-') {
        -1_000
    } else {
        1_000
    }))
}

/// Saturates far above and rounds up far below what a quantity can hold: both are upstream's rules.
fn scale(digits: &str, fraction: usize, by: Multiplier) -> i128 {
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let fraction = i32::try_from(fraction).unwrap_or(i32::MAX);
    let power = by.decimal.saturating_add(9).saturating_sub(fraction);
    let ceiling = i128::from(i64::MAX) * NANO;
    let Some(number) = digits
        .parse::<i128>()
        .ok()
        .and_then(|n| n.checked_mul(1 << by.binary))
    else {
        return if power < -30 { 1 } else { ceiling };
    };
    let tens = power.unsigned_abs();
    let scaled = if power >= 0 {
        10_i128
            .checked_pow(tens)
            .and_then(|tens| number.checked_mul(tens))
            .unwrap_or(ceiling)
    } else {
        match 10_i128.checked_pow(tens) {
            Some(tens) => number / tens + i128::from(number % tens > 0),
            None => 1,
        }
    };
    scaled.min(ceiling)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrNumber;

        impl Visitor<'_> for TextOrNumber {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as \"100Mi\", or a number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                number.to_string().parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                number.to_string().parse().map_err(E::custom)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                number.to_string().parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(TextOrNumber)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_have_upstreams_amounts() {
        for (text, value) in [
            ("0", 0),
            ("100Mi", 100 << 20),
            ("1Gi", 1 << 30),
            ("1.5Gi", 3 << 29),
            ("1k", 1_000),
            ("250m", 1),
            ("1e3", 1_000),
            ("2E", 2_000_000_000_000_000_000),
            ("+5", 5),
            (".5", 1),
            ("5.", 5),
            ("-1", -1),
            ("1e99", i64::MAX),
            ("99999999999999999999999999999999999999999999", i64::MAX),
            ("1e-99", 1),
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap().value(), value, "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in [
            "", "-", ".", "Mi", "10%", "1 Gi", "1KI", "1e", "e3", "1.2.3", "0x10", "1ki",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}", near in "[-+0-9.eEinumkMGTP]{0,60}") {
            for text in [text, near] {
                if let Ok(quantity) = text.parse::<Quantity>() {
                    let _value: i64 = quantity.value();
                }
            }
        }
    }
}
