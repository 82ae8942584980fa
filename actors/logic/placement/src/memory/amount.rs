//! Amounts of memory by resource.

use std::collections::BTreeMap;

use logic_api::pod::requests::{HUGE_PAGES, MEMORY};
use logic_api::quantity::{Quantity, QuantityValue};

/// Bytes by resource: `memory`, or `hugepages-` with a size.
pub(super) type MemoryAmounts = BTreeMap<String, u64>;

pub(super) fn is_memory(resource: &str) -> bool {
    resource == MEMORY || resource.starts_with(HUGE_PAGES)
}

/// The quantity as a whole number, if it is kept as one: upstream's `AsInt64` refuses `1024000m` as well. None is
/// negative either.
pub(super) fn whole_units(quantity: &Quantity) -> Option<u64> {
    let QuantityValue::Small { value, scale } = quantity.amount else {
        return None;
    };
    let factor = 10_i64.checked_pow(u32::try_from(scale).ok()?)?;
    u64::try_from(value.checked_mul(factor)?).ok()
}

/// Adds every amount of `more`.
pub(super) fn add(total: &mut MemoryAmounts, more: &MemoryAmounts) {
    for (resource, bytes) in more {
        let own = total.entry(resource.clone()).or_default();
        *own = own.saturating_add(*bytes);
    }
}

/// What is left of each amount.
pub(super) fn less(amounts: &MemoryAmounts, taken: &MemoryAmounts) -> MemoryAmounts {
    let left = |(resource, bytes): (&String, &u64)| {
        let taken = taken.get(resource).copied().unwrap_or(0);
        (resource.clone(), bytes.saturating_sub(taken))
    };
    amounts.iter().map(left).collect()
}
