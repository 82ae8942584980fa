//! Resource quantities (`100m`, `64Mi`, `1e3`): read, compared, added and printed as upstream does.
//!
//! A number is kept in one of upstream's two forms, because the form shows in a static pod's UID: a small one (an
//! int64 and a decimal exponent) or a big one (upstream's arbitrary decimal, here 128 bits). Numbers are never floats.
//! Unlike upstream an exponent outside ±999 and a number beyond 128 bits are refused. Mirrors
//! `apimachinery/pkg/api/resource/quantity.go` (v1.36).

use std::cmp::Ordering;

/// Decimal digits that surely fit an int64: upstream's `maxInt64Factors`.
const SMALL_DIGITS: i64 = 18;
/// The finest scale: a billionth.
const NANO: i32 = -9;
const MILLI: i32 = -3;
const MAX_EXPONENT: i32 = 999;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be a quantity such as 100m, 1.5, 64Mi or 1e3: {reason}")]
pub struct QuantityError {
    reason: &'static str,
}

/// How a quantity was written, and so how it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
pub enum QuantityFormat {
    DecimalExponent,
    BinarySI,
    DecimalSI,
}

/// The number itself: `value * 10^scale`, or `unscaled * 10^-scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityValue {
    Small { value: i64, scale: i32 },
    Big { unscaled: i128, scale: i32 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity {
    pub amount: QuantityValue,
    pub format: QuantityFormat,
    /// The text that was read, when it is canonical enough for upstream to keep it.
    pub text: Option<String>,
}

impl Quantity {
    pub const fn zero() -> Self {
        Self {
            amount: QuantityValue::Small { value: 0, scale: 0 },
            format: QuantityFormat::DecimalSI,
            text: None,
        }
    }

    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let text = text.trim();
        if text == "0" {
            return Ok(Self {
                text: Some(text.to_owned()),
                ..Self::zero()
            });
        }
        let parts = split(text)?;
        let suffix = interpret(parts.suffix)?;
        if let Some(small) = parse_small(text, &parts, suffix)? {
            return Ok(small);
        }
        parse_big(&parts, suffix)
    }

    /// The whole number, rounded away from zero and held inside 64 bits.
    pub fn value(&self) -> i64 {
        self.at_scale(0)
    }

    /// The number in thousandths, rounded away from zero and held inside 64 bits.
    pub fn milli_value(&self) -> i64 {
        self.at_scale(MILLI)
    }

    pub fn is_zero(&self) -> bool {
        self.number().0 == 0
    }

    pub fn is_negative(&self) -> bool {
        self.number().0 < 0
    }

    /// Whether the number has no part below one.
    pub fn is_whole(&self) -> bool {
        let (mantissa, exponent) = self.number();
        divide_up(mantissa, exponent.saturating_neg()).1
    }

    /// Rounds away from zero to thousandths, as the API stores resource lists.
    #[must_use]
    pub fn rounded_to_milli(mut self) -> Self {
        match self.amount {
            QuantityValue::Small { scale, .. } if scale >= MILLI => return self,
            QuantityValue::Small { value, scale } => {
                let value = saturate(divide_up(value.into(), MILLI - scale).0);
                self.amount = QuantityValue::Small {
                    value,
                    scale: MILLI,
                };
            }
            QuantityValue::Big { unscaled, scale } => {
                let unscaled = divide_up(unscaled, scale + MILLI).0;
                self.amount = QuantityValue::Big {
                    unscaled,
                    scale: -MILLI,
                };
            }
        }
        self.text = None;
        self
    }

    /// The sum; the format of the first number that is not zero stays. None beyond 128 bits.
    pub fn plus(&self, other: &Self) -> Option<Self> {
        let format = if self.is_zero() {
            other.format
        } else {
            self.format
        };
        let amount = match (self.amount, other.amount) {
            (left, QuantityValue::Small { value: 0, .. }) => left,
            (QuantityValue::Small { value: 0, .. }, right) => right,
            _ => self.sum(other)?,
        };
        Some(Self {
            amount,
            format,
            text: None,
        })
    }

    fn sum(&self, other: &Self) -> Option<QuantityValue> {
        let ((left, left_exponent), (right, right_exponent)) = (self.number(), other.number());
        let exponent = left_exponent.min(right_exponent);
        let left = multiply(left, left_exponent - exponent)?;
        let right = multiply(right, right_exponent - exponent)?;
        let sum = left.checked_add(right)?;
        let both_small = matches!(
            (self.amount, other.amount),
            (QuantityValue::Small { .. }, QuantityValue::Small { .. })
        );
        Some(match i64::try_from(sum) {
            Ok(value) if both_small => QuantityValue::Small {
                value,
                scale: exponent,
            },
            _ => QuantityValue::Big {
                unscaled: sum,
                scale: -exponent,
            },
        })
    }

    /// Mantissa and decimal exponent.
    fn number(&self) -> (i128, i32) {
        match self.amount {
            QuantityValue::Small { value, scale } => (value.into(), scale),
            QuantityValue::Big { unscaled, scale } => (unscaled, -scale),
        }
    }

    fn at_scale(&self, scale: i32) -> i64 {
        let (mantissa, exponent) = self.number();
        if exponent < scale {
            return saturate(divide_up(mantissa, scale - exponent).0);
        }
        let bound = if mantissa < 0 { i128::MIN } else { i128::MAX };
        saturate(multiply(mantissa, exponent - scale).unwrap_or(bound))
    }

    fn canonical(&self) -> String {
        let (mantissa, exponent) = self.number();
        if mantissa == 0 {
            return "0".to_owned();
        }
        if self.format == QuantityFormat::BinarySI
            && self.is_whole()
            && let Some(whole) = whole(mantissa, exponent)
            && whole.unsigned_abs() >= 1024
        {
            return binary(whole);
        }
        decimal(mantissa, exponent, self.format)
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.text {
            Some(text) => out.write_str(text),
            None => out.write_str(&self.canonical()),
        }
    }
}

/// Compares the numbers; how they were written does not matter.
pub fn compare(left: &Quantity, right: &Quantity) -> Ordering {
    let ((left, left_exponent), (right, right_exponent)) = (left.number(), right.number());
    if left.signum() != right.signum() || left == 0 {
        return left.signum().cmp(&right.signum());
    }
    let exponent = left_exponent.min(right_exponent);
    let scaled = (
        multiply(left, left_exponent - exponent),
        multiply(right, right_exponent - exponent),
    );
    match scaled {
        (Some(left), Some(right)) => left.cmp(&right),
        // Only the number with the larger exponent is multiplied, so the one that overflows is the greater in size.
        (None, _) => left.cmp(&0),
        (_, None) => 0.cmp(&right),
    }
}

struct QuantityParts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Result<QuantityParts<'_>, QuantityError> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, rest) = digits(unsigned);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(QuantityError {
            reason: "it has no digits",
        });
    }
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    Ok(QuantityParts {
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

fn interpret(suffix: &str) -> Result<Suffix, QuantityError> {
    if let Some(position) = BINARY.iter().position(|known| *known == suffix) {
        let exponent = i32::try_from(position * 10 + 10).unwrap_or(0);
        return Ok(Suffix {
            format: QuantityFormat::BinarySI,
            exponent,
        });
    }
    if let Some((_, exponent)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Ok(Suffix {
            format: QuantityFormat::DecimalSI,
            exponent: *exponent,
        });
    }
    let Some(exponent) = suffix.strip_prefix(['e', 'E']) else {
        return Err(QuantityError {
            reason: "its suffix is none of n u m k M G T P E Ki Mi Gi Ti Pi Ei",
        });
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if exponent.abs() <= MAX_EXPONENT => Ok(Suffix {
            format: QuantityFormat::DecimalExponent,
            exponent,
        }),
        _ => Err(QuantityError {
            reason: "its exponent is no whole number from -999 to 999",
        }),
    }
}

const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX / 2)
}

/// Upstream's fast path; which numbers take it decides what a static pod's UID is made of.
fn parse_small(
    text: &str,
    parts: &QuantityParts<'_>,
    suffix: Suffix,
) -> Result<Option<Quantity>, QuantityError> {
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
        QuantityFormat::BinarySI => return Ok(None),
    };
    if precision < 0 {
        return Ok(None);
    }
    let scale = scale - i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
    if scale < NANO {
        return Ok(None);
    }
    let shifted = [parts.whole, parts.fraction].concat();
    let number: i64 = shifted.parse().map_err(|_| QuantityError {
        reason: "its number does not fit 64 bits",
    })?;
    let Some(value) = number.checked_mul(factor) else {
        return Ok(None);
    };
    let value = if parts.negative { -value } else { value };
    let kept = match suffix.format {
        QuantityFormat::BinarySI => number & 7 != 0,
        QuantityFormat::DecimalExponent | QuantityFormat::DecimalSI => {
            scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0')
        }
    };
    let text = kept.then(|| text.to_owned());
    Ok(Some(Quantity {
        amount: QuantityValue::Small { value, scale },
        format: suffix.format,
        text,
    }))
}

fn parse_big(parts: &QuantityParts<'_>, suffix: Suffix) -> Result<Quantity, QuantityError> {
    let too_big = QuantityError {
        reason: "its number does not fit 128 bits",
    };
    // Digits far below a billionth only matter as "not zero": one of them is kept.
    let (fraction, rest) = parts.fraction.split_at(parts.fraction.len().min(30));
    let sticky = if rest.bytes().any(|digit| digit != b'0') {
        "1"
    } else {
        "0"
    };
    let digits = [parts.whole, fraction, sticky].concat();
    let mut unscaled: i128 = digits.parse().map_err(|_| too_big.clone())?;
    let mut scale = i32::try_from(fraction.len() + 1).unwrap_or(i32::MAX);
    if suffix.format == QuantityFormat::BinarySI {
        unscaled = unscaled
            .checked_mul(1_i128 << suffix.exponent)
            .ok_or(too_big.clone())?;
    } else {
        scale -= suffix.exponent;
    }
    if unscaled == 0 {
        return Ok(Quantity {
            amount: QuantityValue::Big {
                unscaled,
                scale: scale - 1,
            },
            format: suffix.format,
            text: None,
        });
    }
    unscaled = match scale + NANO {
        more @ 0.. => divide_up(unscaled, more).0,
        less => multiply(unscaled, -less).ok_or(too_big)?,
    };
    let one = 10_i128.pow(NANO.unsigned_abs());
    let mut format = suffix.format;
    if format == QuantityFormat::BinarySI {
        unscaled = unscaled.min(i128::from(i64::MAX) * one);
        if unscaled < one {
            format = QuantityFormat::DecimalSI;
        }
    }
    let unscaled = if parts.negative { -unscaled } else { unscaled };
    Ok(Quantity {
        amount: QuantityValue::Big {
            unscaled,
            scale: -NANO,
        },
        format,
        text: None,
    })
}

/// `mantissa / 10^places` away from zero, and whether nothing was lost. Negative places change nothing.
fn divide_up(mantissa: i128, places: i32) -> (i128, bool) {
    let Some(divisor) = u32::try_from(places.max(0))
        .ok()
        .and_then(|places| 10_i128.checked_pow(places))
    else {
        return (mantissa.signum(), mantissa == 0);
    };
    let remainder = mantissa % divisor;
    (mantissa / divisor + remainder.signum(), remainder == 0)
}

fn multiply(mantissa: i128, places: i32) -> Option<i128> {
    if mantissa == 0 {
        return Some(0);
    }
    let factor = 10_i128.checked_pow(u32::try_from(places).ok()?)?;
    mantissa.checked_mul(factor)
}

fn whole(mantissa: i128, exponent: i32) -> Option<i128> {
    if exponent < 0 {
        Some(divide_up(mantissa, -exponent).0)
    } else {
        multiply(mantissa, exponent)
    }
}

fn saturate(number: i128) -> i64 {
    let bound = if number < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(number).unwrap_or(bound)
}

fn binary(mut number: i128) -> String {
    let mut suffix = "";
    for larger in BINARY {
        if number % 1024 != 0 {
            break;
        }
        number /= 1024;
        suffix = larger;
    }
    format!("{number}{suffix}")
}

fn decimal(mut mantissa: i128, mut exponent: i32, format: QuantityFormat) -> String {
    while mantissa % 10 == 0 {
        mantissa /= 10;
        exponent += 1;
    }
    let zeros = exponent.rem_euclid(3);
    exponent -= zeros;
    let zeros = "0".repeat(usize::try_from(zeros).unwrap_or(0));
    let known = DECIMAL.iter().find(|(_, known)| *known == exponent);
    match (known, format) {
        (_, QuantityFormat::DecimalExponent) if exponent == 0 => format!("{mantissa}{zeros}"),
        (Some((suffix, _)), QuantityFormat::BinarySI | QuantityFormat::DecimalSI) => {
            format!("{mantissa}{zeros}{suffix}")
        }
        // Upstream drops the exponent of a number too large for its suffixes; the number is kept here.
        _ => format!("{mantissa}{zeros}e{exponent}"),
    }
}

/// Thousandths; none where the quantity is absent or is none.
pub fn milli(
    quantity: Option<&k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
) -> Option<i64> {
    Some(Quantity::parse(&quantity?.0).ok()?.milli_value())
}

/// Whole units; none where the quantity is absent or is none.
pub fn bytes(
    quantity: Option<&k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
) -> Option<i64> {
    Some(Quantity::parse(&quantity?.0).ok()?.value())
}

/// Whether a quantity is zero, or none at all.
pub fn is_zero(quantity: &k8s_openapi::apimachinery::pkg::api::resource::Quantity) -> bool {
    Quantity::parse(&quantity.0).map_or(true, |quantity| quantity.is_zero())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn q(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[test]
    fn quantities_read_and_print_as_upstream() {
        let rows = [
            ("0", 0, 0, "0"),
            ("-0", 0, 0, "0"),
            ("0Mi", 0, 0, "0"),
            ("100m", 1, 100, "100m"),
            ("0.1", 1, 100, "100m"),
            (".5", 1, 500, "500m"),
            ("5.", 5, 5000, "5."),
            ("1.50", 2, 1500, "1500m"),
            ("+5", 5, 5000, "+5"),
            ("1000", 1000, 1_000_000, "1k"),
            ("5000m", 5, 5000, "5"),
            ("1e3", 1000, 1_000_000, "1e3"),
            ("100e1", 1000, 1_000_000, "1e3"),
            ("2Ki", 2048, 2_048_000, "2Ki"),
            ("1024Mi", 1 << 30, (1 << 30) * 1000, "1Gi"),
            ("1.5Gi", 3 << 29, (3 << 29) * 1000, "1536Mi"),
            ("0.5Ki", 512, 512_000, "512"),
            ("1500u", 1, 2, "1500u"),
            ("-100m", -1, -100, "-100m"),
            ("12E", i64::MAX, i64::MAX, "12E"),
            ("1Ei", 1 << 60, i64::MAX, "1Ei"),
            (
                "9223372036854775807",
                i64::MAX,
                i64::MAX,
                "9223372036854775807",
            ),
            ("0.0000000001", 1, 1, "1n"),
        ];
        for (text, value, milli, printed) in rows {
            let quantity = q(text);
            assert_eq!(quantity.value(), value, "{text}");
            assert_eq!(quantity.milli_value(), milli, "{text}");
            assert_eq!(quantity.to_string(), printed, "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in [
            "", " ", "m", "1x", "1 Gi", "--1", "1Zi", "1e", "1e+", "e3", ".", "1e1000", "１",
            "1.2.3", "0x10",
        ] {
            assert!(Quantity::parse(text).is_err(), "{text:?}");
        }
        assert!(Quantity::parse(&"9".repeat(60)).is_err());
    }

    #[test]
    fn rounding_to_milli_forgets_the_text_only_when_it_rounds() {
        assert_eq!(q("100m").rounded_to_milli().text.as_deref(), Some("100m"));
        let rounded = q("1500u").rounded_to_milli();
        assert_eq!(
            (rounded.amount, rounded.text),
            (
                QuantityValue::Small {
                    value: 2,
                    scale: -3
                },
                None
            )
        );
        let big = q("1.5Gi").rounded_to_milli();
        assert_eq!(
            big.amount,
            QuantityValue::Big {
                unscaled: 1_610_612_736_000,
                scale: 3
            }
        );
    }

    #[test]
    fn sums_keep_the_first_format() {
        assert_eq!(q("1Gi").plus(&q("1Gi")).unwrap().to_string(), "2Gi");
        assert_eq!(q("0").plus(&q("1Gi")).unwrap().to_string(), "1Gi");
        assert_eq!(q("100m").plus(&q("1")).unwrap().to_string(), "1100m");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_panic(text in any::<String>(), other in "[-+]?[0-9.]{0,40}([eE]-?[0-9]{1,4}|[numkMGTPE]i?)?") {
            for text in [text, other] {
                if let Ok(quantity) = Quantity::parse(&text) {
                    let (_, _, rounded) = (quantity.value(), quantity.milli_value(), quantity.clone().rounded_to_milli());
                    prop_assert_ne!(compare(&rounded, &quantity), if quantity.is_negative() { Ordering::Greater } else { Ordering::Less });
                }
            }
        }

        #[test]
        fn what_is_printed_reads_back_as_the_same_number(number in any::<i32>(), suffix in "[numkMGTPE]?|[KMGTPE]i|e-?[0-9]") {
            let quantity = q(&format!("{number}{suffix}"));
            let printed = Quantity { text: None, ..quantity.clone() }.to_string();
            let again = q(&printed);
            prop_assert_eq!(compare(&again, &quantity), Ordering::Equal, "{}", printed);
            let canonical = Quantity { text: None, ..again }.to_string();
            prop_assert_eq!(canonical, printed);
        }

        #[test]
        fn order_is_the_order_of_the_numbers(left in any::<i32>(), right in any::<i32>()) {
            let order = compare(&q(&format!("{left}m")), &q(&format!("{right}m")));
            prop_assert_eq!(order, left.cmp(&right));
            prop_assert_eq!(compare(&q(&format!("{left}e900")), &q(&format!("{right}"))), i64::from(left).saturating_mul(1 << 32).cmp(&right.into()));
        }
    }
}
