//! Resource quantities (`100m`, `64Mi`, `1e3`): read, compared, added and printed as upstream does.
//!
//! A number is kept in one of upstream's two forms, because the form shows in a static pod's UID: a small one (an
//! int64 and a decimal exponent) or a big one (upstream's arbitrary decimal, here 128 bits). Numbers are never floats.
//! Unlike upstream a number beyond 128 bits is the greatest one that they hold, and a text without digits is refused.
//! Mirrors `apimachinery/pkg/api/resource/quantity.go` (v1.36).

mod document;
mod read;

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// The finest scale: a billionth.
const NANO: i32 = -9;
const MILLI: i32 = -3;

/// What a field must hold that holds no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be a quantity such as 100m, 1.5, 64Mi or 1e3")]
pub struct NoQuantity;

/// Which text of the configuration is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a quantity; expected a number with an optional suffix, as in \"100Mi\", \"500m\" or \"2\""
)]
pub struct QuantityError(String);

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

/// How a quantity was written, and so how it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, Serialize, Deserialize)]
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
    /// Exact: no rounding before it is asked for as a number.
    pub amount: QuantityValue,
    /// With which it is written again.
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

    /// Reads a field of the API, as upstream's `UnmarshalJSON` does: spaces around it do not matter. In a flag and
    /// in a text of the configuration they do: those are read by [`str::parse`].
    pub fn parse(text: &str) -> Result<Self, NoQuantity> {
        read::read(text.trim()).ok_or(NoQuantity)
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
                let unscaled = if scale > -MILLI {
                    Some(divide_up(unscaled, scale + MILLI).0)
                } else {
                    multiply(unscaled, -MILLI - scale)
                };
                // A number that is too large to be told in thousandths has none to round.
                if let Some(unscaled) = unscaled {
                    self.amount = QuantityValue::Big {
                        unscaled,
                        scale: -MILLI,
                    };
                }
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

/// As `0` is read.
impl Default for Quantity {
    fn default() -> Self {
        Self {
            text: Some("0".to_owned()),
            ..Self::zero()
        }
    }
}

impl std::str::FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        read::read(text).ok_or_else(|| QuantityError(text.to_owned()))
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
mod tests;
