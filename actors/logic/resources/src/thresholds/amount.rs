//! An amount of the configuration or of a pod's request, printed as it was written.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use logic_api::quantity::{Quantity, QuantityFormat, QuantityValue};
use serde::{Deserialize, Serialize};

/// So many bytes, inodes or processes. Amounts are equal however they were written.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WrittenAmount {
    pub value: u64,
    /// By which the amount is printed: 1G and 1Gi stay so.
    pub format: QuantityFormat,
}

impl WrittenAmount {
    /// The whole number of a quantity; none of a negative one.
    pub fn of(quantity: &Quantity) -> Option<WrittenAmount> {
        Some(WrittenAmount {
            value: u64::try_from(quantity.value()).ok()?,
            format: quantity.format,
        })
    }

    /// Printed by 1024.
    pub const fn binary(value: u64) -> WrittenAmount {
        WrittenAmount {
            value,
            format: QuantityFormat::BinarySI,
        }
    }
}

impl Default for WrittenAmount {
    fn default() -> Self {
        WrittenAmount::binary(0)
    }
}

impl PartialEq for WrittenAmount {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for WrittenAmount {}

impl PartialOrd for WrittenAmount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for WrittenAmount {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.cmp(&other.value)
    }
}

impl Hash for WrittenAmount {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}

impl fmt::Display for WrittenAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = i64::try_from(self.value).unwrap_or(i64::MAX);
        let amount = QuantityValue::Small { value, scale: 0 };
        let quantity = Quantity {
            amount,
            format: self.format,
            text: None,
        };
        write!(f, "{quantity}")
    }
}
