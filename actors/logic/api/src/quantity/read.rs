//! Reads the text of a quantity as upstream's `ParseQuantity` does.

use super::{BINARY, DECIMAL, NANO, Quantity, QuantityFormat, QuantityValue};

/// Decimal digits that surely fit an int64: upstream's `maxInt64Factors`.
const SMALL_DIGITS: i64 = 18;
/// No more decimal digits fit 128 bits.
const BIG_DIGITS: usize = 38;
/// Further exponents say the same: more than 128 bits hold, or less than a billionth.
const MAX_EXPONENT: i64 = 1_000_000;
const BILLION: i128 = 1_000_000_000;

/// None where the text is no quantity.
pub(super) fn read(text: &str) -> Option<Quantity> {
    if text == "0" {
        return Some(Quantity::default());
    }
    let parts = split(text)?;
    let suffix = interpret(parts.suffix)?;
    Some(small(text, &parts, suffix).unwrap_or_else(|| big(&parts, suffix)))
}

struct QuantityParts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

/// Refuses a text without digits, which upstream reads as zero.
fn split(text: &str) -> Option<QuantityParts<'_>> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, rest) = digits(unsigned);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(QuantityParts {
        negative: text.starts_with('-'),
        whole,
        fraction,
        suffix,
    })
}

fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

#[derive(Clone, Copy)]
struct Suffix {
    format: QuantityFormat,
    /// Of ten, or of two for the binary suffixes.
    exponent: i32,
}

fn interpret(suffix: &str) -> Option<Suffix> {
    if let Some(position) = BINARY.iter().position(|known| *known == suffix) {
        return Some(Suffix {
            format: QuantityFormat::BinarySI,
            exponent: i32::try_from(position * 10 + 10).ok()?,
        });
    }
    if let Some((_, exponent)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Some(Suffix {
            format: QuantityFormat::DecimalSI,
            exponent: *exponent,
        });
    }
    let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some(Suffix {
        format: QuantityFormat::DecimalExponent,
        exponent: i32::try_from(exponent.clamp(-MAX_EXPONENT, MAX_EXPONENT)).ok()?,
    })
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX / 2)
}

/// Upstream's fast path; which numbers take it decides what a static pod's UID is made of.
fn small(text: &str, parts: &QuantityParts<'_>, suffix: Suffix) -> Option<Quantity> {
    let (precision, scale, factor) = match suffix.format {
        QuantityFormat::DecimalExponent | QuantityFormat::DecimalSI => (
            SMALL_DIGITS - length(parts.whole) - length(parts.fraction),
            suffix.exponent,
            1,
        ),
        QuantityFormat::BinarySI if parts.fraction.is_empty() => (
            15 - length(parts.whole) - i64::from(suffix.exponent * 3 / 10) - 1,
            0,
            1_i64 << suffix.exponent,
        ),
        QuantityFormat::BinarySI => return None,
    };
    if precision < 0 {
        return None;
    }
    let scale = scale - i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
    if scale < NANO {
        return None;
    }
    let shifted = [parts.whole, parts.fraction].concat();
    let number: i64 = shifted.parse().ok()?;
    let value = number.checked_mul(factor)?;
    let value = if parts.negative { -value } else { value };
    let kept = match suffix.format {
        QuantityFormat::BinarySI => number & 7 != 0,
        QuantityFormat::DecimalExponent | QuantityFormat::DecimalSI => {
            scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0')
        }
    };
    let text = kept.then(|| text.to_owned());
    Some(Quantity {
        amount: QuantityValue::Small { value, scale },
        format: suffix.format,
        text,
    })
}

/// Upstream's arbitrary decimal, to the billionth above.
fn big(parts: &QuantityParts<'_>, suffix: Suffix) -> Quantity {
    let binary = suffix.format == QuantityFormat::BinarySI;
    let digits = [parts.whole, parts.fraction].concat();
    let places = i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
    if digits.bytes().all(|digit| digit == b'0') {
        let shift = if binary { 0 } else { suffix.exponent };
        return in_form(0, places - shift, suffix.format);
    }
    let sign = if parts.negative { -1 } else { 1 };
    let nanos = if binary {
        binary_nanos(parts, suffix.exponent)
    } else {
        let point = i64::try_from(parts.whole.len()).unwrap_or(i64::MAX / 2);
        decimal_nanos(
            &digits,
            point + i64::from(suffix.exponent) - i64::from(NANO),
        )
    };
    if binary && nanos > i128::from(i64::MAX) * BILLION {
        return in_form(sign * i128::from(i64::MAX), 0, suffix.format);
    }
    let format = if binary && nanos < BILLION {
        QuantityFormat::DecimalSI
    } else {
        suffix.format
    };
    in_form(sign * nanos, -NANO, format)
}

fn in_form(unscaled: i128, scale: i32, format: QuantityFormat) -> Quantity {
    Quantity {
        amount: QuantityValue::Big { unscaled, scale },
        format,
        text: None,
    }
}

/// `0.DIGITS * 10^point`, rounded up; the greatest number where it is greater.
fn decimal_nanos(digits: &str, point: i64) -> i128 {
    let significant = digits.trim_start_matches('0');
    let zeros = i64::try_from(digits.len() - significant.len()).unwrap_or(i64::MAX / 2);
    let Ok(point) = usize::try_from(point.saturating_sub(zeros)) else {
        return 1;
    };
    if point > BIG_DIGITS {
        return i128::MAX;
    }
    let (whole, rest) = significant.split_at(point.min(significant.len()));
    let more = rest.bytes().any(|digit| digit != b'0');
    let number: i128 = format!("0{whole:0<point$}").parse().unwrap_or(i128::MAX);
    number.saturating_add(i128::from(more))
}

/// The number times `2^exponent`, rounded up; the greatest number where it is greater.
fn binary_nanos(parts: &QuantityParts<'_>, exponent: i32) -> i128 {
    let one = BILLION << exponent;
    let whole = parts.whole.parse::<i128>().ok();
    let whole = whole.and_then(|whole| whole.checked_mul(one));
    // From the last digit: rounding up in every step is rounding up once.
    let fraction = parts.fraction.bytes().rev().fold(0, |below, digit| {
        let tenths = below + i128::from(digit - b'0') * one;
        tenths / 10 + i128::from(tenths % 10 > 0)
    });
    whole.map_or(i128::MAX, |whole| whole.saturating_add(fraction))
}
