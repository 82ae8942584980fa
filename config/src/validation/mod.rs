//! Upstream's validation (`ValidateKubeletConfiguration`, 1.36), and those of its start-up checks
//! that need nothing but the configuration. All violations are collected and reported together.

mod eviction;
mod images;
mod limits;
mod logs;
mod node;
mod reservations;
mod serving;
mod shutdown;

use std::fmt;
use std::ops::RangeInclusive;

use crate::feature_gates::FeatureGates;
use crate::flags;
use crate::kubelet_configuration::KubeletConfiguration;

/// Which cgroup hierarchy the host has: the one fact about it that validation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    V1,
    V2,
}

/// One field whose value is not allowed, and what is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field, by its path in the file.
    pub field: &'static str,
    /// What was expected of it.
    pub why: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match flags::table::by_path(self.field) {
            Some(flag) => write!(f, "{} (--{}) {}", self.field, flag.name, self.why),
            None => write!(f, "{} {}", self.field, self.why),
        }
    }
}

/// Everything that is wrong with one configuration; never empty when it is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Violations(pub Vec<Violation>);

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid configuration: ")?;
        for (index, violation) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{violation}")?;
        }
        Ok(())
    }
}

/// Checks a complete configuration.
///
/// # Errors
/// [`Violations`], all of them, in upstream's texts.
pub fn validate(
    configuration: &KubeletConfiguration,
    gates: &FeatureGates,
    cgroup: CgroupVersion,
) -> Result<(), Violations> {
    let mut checks = FieldErrors::default();
    limits::check(configuration, gates, &mut checks);
    node::check(configuration, gates, cgroup, &mut checks);
    shutdown::check(configuration, gates, &mut checks);
    reservations::check(configuration, &mut checks);
    images::check(configuration, gates, &mut checks);
    eviction::check(configuration, &mut checks);
    serving::check(configuration, gates, &mut checks);
    logs::check(configuration, gates, &mut checks);
    if checks.0.0.is_empty() {
        Ok(())
    } else {
        Err(checks.0)
    }
}

/// Collects violations.
#[derive(Default)]
struct FieldErrors(Violations);

impl FieldErrors {
    fn refuse(&mut self, field: &'static str, why: impl Into<String>) {
        self.0.0.push(Violation {
            field,
            why: why.into(),
        });
    }

    fn require(&mut self, sound: bool, field: &'static str, why: &str) {
        if !sound {
            self.refuse(field, why);
        }
    }

    fn within(&mut self, field: &'static str, value: i64, range: RangeInclusive<i64>) {
        if !range.contains(&value) {
            let (low, high) = range.into_inner();
            self.refuse(
                field,
                format!("is {value}; it must be between {low} and {high}, inclusive"),
            );
        }
    }

    fn not_negative(&mut self, field: &'static str, value: i64) {
        if value < 0 {
            self.refuse(field, format!("is {value}; it must not be negative"));
        }
    }

    fn one_of(&mut self, field: &'static str, value: &str, allowed: &[&str]) {
        if !allowed.contains(&value) {
            let allowed = allowed
                .iter()
                .map(|word| format!("{word:?}"))
                .collect::<Vec<_>>();
            self.refuse(
                field,
                format!("is {value:?}; it must be one of {}", allowed.join(", ")),
            );
        }
    }
}

#[cfg(test)]
mod tests;
