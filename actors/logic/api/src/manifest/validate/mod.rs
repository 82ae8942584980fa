//! Refuses what upstream refuses in a static pod, with upstream's field paths and words.
//!
//! Mirrors `ValidatePodCreate` of `pkg/apis/core/validation` (v1.36), asked as the kubelet asks it: with the options
//! of a new pod. Left out: what only an object of the API can be (owner references, managed fields), and rules behind
//! a gate that is off. A rule left out means that a pod is accepted that upstream would refuse, never the reverse.

mod annotations;
mod containers;
mod metadata;
mod os;
mod resources;
mod scheduling;
mod security;
mod selectors;
mod spec;
mod volumes;
mod windows;

use std::ops::RangeInclusive;

use k8s_openapi::api::core::v1::Pod;

pub use self::resources::is_extended_resource;
use crate::text::names;

/// One field that is wrong, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {kind}")]
pub struct FieldError {
    /// The path in the manifest, such as `spec.containers[0].name`.
    pub field: String,
    pub kind: FieldErrorKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldErrorKind {
    Required {
        detail: &'static str,
    },
    Invalid {
        value: String,
        detail: String,
    },
    Unsupported {
        value: String,
        supported: &'static [&'static str],
    },
    Duplicate {
        value: String,
    },
    Forbidden {
        detail: &'static str,
    },
    NotFound {
        value: String,
        detail: String,
    },
    TooLong {
        limit: usize,
    },
    TooMany {
        found: usize,
        limit: usize,
    },
}

impl std::fmt::Display for FieldErrorKind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Required { detail: "" } => out.write_str("Required value"),
            Self::Required { detail } => write!(out, "Required value: {detail}"),
            Self::Invalid { value, detail } => write!(out, "Invalid value: {value}: {detail}"),
            Self::Unsupported { value, supported } => {
                let supported: Vec<String> =
                    supported.iter().map(|value| format!("{value:?}")).collect();
                write!(
                    out,
                    "Unsupported value: {value}: supported values: {}",
                    supported.join(", ")
                )
            }
            Self::Duplicate { value } => write!(out, "Duplicate value: {value}"),
            Self::Forbidden { detail } => write!(out, "Forbidden: {detail}"),
            Self::NotFound { value, detail } if detail.is_empty() => {
                write!(out, "Not found: {value}")
            }
            Self::NotFound { value, detail } => write!(out, "Not found: {value}: {detail}"),
            Self::TooLong { limit } => write!(out, "Too long: may not be more than {limit} bytes"),
            Self::TooMany { found, limit } => {
                write!(out, "Too many: {found}: must have at most {limit} items")
            }
        }
    }
}

/// Returns every problem of a defaulted pod, in the order of upstream's checks.
pub(super) fn pod(pod: &Pod) -> Vec<FieldError> {
    let mut report = FieldErrors::default();
    metadata::check(&pod.metadata, &mut report);
    if let Some(spec) = &pod.spec {
        annotations::check(&pod.metadata, spec, &mut report);
        spec::check(pod, spec, &mut report);
    }
    report.problems
}

/// Problems as they are found.
#[derive(Default)]
struct FieldErrors {
    problems: Vec<FieldError>,
}

impl FieldErrors {
    fn add(&mut self, field: impl Into<String>, kind: FieldErrorKind) {
        self.problems.push(FieldError {
            field: field.into(),
            kind,
        });
    }

    fn required(&mut self, field: impl Into<String>) {
        self.missing(field, "");
    }

    fn missing(&mut self, field: impl Into<String>, detail: &'static str) {
        self.add(field, FieldErrorKind::Required { detail });
    }

    /// The text must be there.
    fn some(&mut self, field: impl Into<String>, value: &str) {
        if value.is_empty() {
            self.required(field);
        }
    }

    fn invalid(
        &mut self,
        field: impl Into<String>,
        value: impl std::fmt::Debug,
        detail: impl Into<String>,
    ) {
        self.add(
            field,
            FieldErrorKind::Invalid {
                value: format!("{value:?}"),
                detail: detail.into(),
            },
        );
    }

    fn duplicate(&mut self, field: impl Into<String>, value: &str) {
        self.add(
            field,
            FieldErrorKind::Duplicate {
                value: format!("{value:?}"),
            },
        );
    }

    fn forbidden(&mut self, field: impl Into<String>, detail: &'static str) {
        self.add(field, FieldErrorKind::Forbidden { detail });
    }

    fn not_found(&mut self, field: impl Into<String>, value: &str) {
        self.add(
            field,
            FieldErrorKind::NotFound {
                value: format!("{value:?}"),
                detail: String::new(),
            },
        );
    }

    /// The value must be one of the known words; the empty one is a missing one.
    fn one_of(
        &mut self,
        field: impl Into<String>,
        value: Option<&str>,
        supported: &'static [&'static str],
    ) {
        match value.unwrap_or_default() {
            "" => self.required(field),
            value => self.known(field, value, supported),
        }
    }

    /// The value must be one of the known words; the empty one is as unknown as any other.
    fn known(&mut self, field: impl Into<String>, value: &str, supported: &'static [&'static str]) {
        if !supported.contains(&value) {
            let value = format!("{value:?}");
            self.add(field, FieldErrorKind::Unsupported { value, supported });
        }
    }

    fn too_long(&mut self, field: impl Into<String>, length: usize, limit: usize) {
        if length > limit {
            self.add(field, FieldErrorKind::TooLong { limit });
        }
    }

    fn too_many(&mut self, field: impl Into<String>, found: usize, limit: usize) {
        if found > limit {
            self.add(field, FieldErrorKind::TooMany { found, limit });
        }
    }

    fn between(&mut self, field: impl Into<String>, value: i64, range: RangeInclusive<i64>) {
        if !range.contains(&value) {
            let detail = format!(
                "must be between {} and {}, inclusive",
                range.start(),
                range.end()
            );
            self.invalid(field, value, detail);
        }
    }

    fn positive(&mut self, field: impl Into<String>, value: i64) {
        if value <= 0 {
            self.invalid(field, value, "must be greater than zero");
        }
    }

    fn not_negative(&mut self, field: impl Into<String>, value: Option<i64>) {
        if let Some(value) = value.filter(|value| *value < 0) {
            self.invalid(field, value, "must be greater than or equal to 0");
        }
    }

    /// Checks a name by one of the rules of [`names`].
    fn name(&mut self, field: impl Into<String>, value: &str, rule: fn(&str) -> Vec<String>) {
        let field = field.into();
        for detail in rule(value) {
            self.invalid(field.clone(), value, detail);
        }
    }
}

/// What an absent text is to Go: the empty one.
fn text(field: Option<&String>) -> &str {
    field.map_or("", String::as_str)
}
