//! Eviction thresholds: known signals, amounts that parse, a grace period for each soft one.

use std::collections::BTreeMap;

use super::FieldErrors;
use crate::kubelet_configuration::{GoDuration, KubeletConfiguration, Quantity};

const SIGNALS: [&str; 9] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "allocatableMemory.available",
    "pid.available",
];

pub(super) fn check(c: &KubeletConfiguration, checks: &mut FieldErrors) {
    if let Some(hard) = &c.eviction_hard {
        thresholds("evictionHard", hard, checks);
    }
    thresholds("evictionSoft", &c.eviction_soft, checks);
    for (signal, period) in signals(
        "evictionSoftGracePeriod",
        &c.eviction_soft_grace_period,
        checks,
    ) {
        match period.parse::<GoDuration>() {
            Ok(period) if period < GoDuration::ZERO => checks.refuse(
                "evictionSoftGracePeriod",
                format!("has {period} for {signal}; it must not be negative"),
            ),
            Ok(_) => {}
            Err(error) => {
                checks.refuse("evictionSoftGracePeriod", format!("for {signal}: {error}"))
            }
        }
    }
    for signal in c.eviction_soft.keys() {
        if !c.eviction_soft_grace_period.contains_key(signal) {
            checks.refuse(
                "evictionSoftGracePeriod",
                format!("must have a time for {signal}"),
            );
        }
    }
    for (signal, amount) in signals(
        "evictionMinimumReclaim",
        &c.eviction_minimum_reclaim,
        checks,
    ) {
        if let Err(why) = check_amount(amount, false) {
            checks.refuse("evictionMinimumReclaim", format!("for {signal}: {why}"));
        }
    }
}

fn thresholds(field: &'static str, map: &BTreeMap<String, String>, checks: &mut FieldErrors) {
    for (signal, amount) in signals(field, map, checks) {
        // Both switch a signal off.
        if amount == "0%" || amount == "100%" {
            continue;
        }
        if let Err(why) = check_amount(amount, true) {
            checks.refuse(field, format!("for {signal}: {why}"));
        }
    }
}

/// Returns the entries whose signal exists.
fn signals<'a>(
    field: &'static str,
    map: &'a BTreeMap<String, String>,
    checks: &mut FieldErrors,
) -> Vec<(&'a str, &'a str)> {
    let (known, unknown): (Vec<_>, Vec<_>) = map
        .iter()
        .map(|(signal, value)| (signal.as_str(), value.as_str()))
        .partition(|(signal, _)| SIGNALS.contains(signal));
    for (signal, _) in unknown {
        checks.refuse(
            field,
            format!("has the unsupported eviction signal {signal:?}"),
        );
    }
    known
}

/// A quantity, or a percentage. A threshold may not exceed the whole; a reclaim may be nothing.
fn check_amount(amount: &str, threshold: bool) -> Result<(), String> {
    if let Some(percent) = amount.strip_suffix('%') {
        let percent: f32 = percent
            .parse()
            .map_err(|_| format!("{amount:?} is not a percentage"))?;
        let allowed = if threshold {
            (0.0..=100.0).contains(&percent)
        } else {
            percent > 0.0
        };
        return if allowed {
            Ok(())
        } else {
            Err(format!("{amount:?} is out of range"))
        };
    }
    let quantity: Quantity = amount.parse().map_err(|error| format!("{error}"))?;
    if quantity.is_negative() || (threshold && quantity.is_zero()) {
        return Err(format!("{amount:?} must be positive"));
    }
    Ok(())
}
