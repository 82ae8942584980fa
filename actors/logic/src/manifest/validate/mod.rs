//! Refuses what upstream refuses in a static pod, with upstream's field paths and words.
//!
//! Mirrors `ValidatePodCreate` of `pkg/apis/core/validation` (v1.36). Left out: rules about fields that only a scheduler
//! or the API server acts on (affinity, topology spread, scheduling gates' names), about volume sources that a static pod may not
//! have anyway, and Windows' own. A rule left out means that a pod is accepted that upstream would refuse, never the reverse.

mod containers;
mod handlers;
mod metadata;
mod names;
mod resources;
mod spec;
mod volumes;

use k8s_openapi::api::core::v1::Pod;

/// One field that is wrong, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {kind}")]
pub struct Problem {
    /// The path in the manifest, such as `spec.containers[0].name`.
    pub field: String,
    pub kind: ProblemKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProblemKind {
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
    },
    TooLong {
        limit: usize,
    },
}

impl std::fmt::Display for ProblemKind {
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
            Self::NotFound { value } => write!(out, "Not found: {value}"),
            Self::TooLong { limit } => write!(out, "Too long: may not be more than {limit} bytes"),
        }
    }
}

/// Returns every problem of a defaulted pod, in the order of upstream's checks.
pub(super) fn pod(pod: &Pod) -> Vec<Problem> {
    let mut report = Report::default();
    metadata::check(&pod.metadata, &mut report);
    if let Some(spec) = &pod.spec {
        spec::check(spec, &mut report);
    }
    report.problems
}

/// Problems as they are found.
#[derive(Default)]
struct Report {
    problems: Vec<Problem>,
}

impl Report {
    fn add(&mut self, field: impl Into<String>, kind: ProblemKind) {
        self.problems.push(Problem {
            field: field.into(),
            kind,
        });
    }

    fn required(&mut self, field: impl Into<String>) {
        self.add(field, ProblemKind::Required { detail: "" });
    }

    fn invalid(
        &mut self,
        field: impl Into<String>,
        value: impl std::fmt::Debug,
        detail: impl Into<String>,
    ) {
        self.add(
            field,
            ProblemKind::Invalid {
                value: format!("{value:?}"),
                detail: detail.into(),
            },
        );
    }

    fn duplicate(&mut self, field: impl Into<String>, value: &str) {
        self.add(
            field,
            ProblemKind::Duplicate {
                value: format!("{value:?}"),
            },
        );
    }

    fn forbidden(&mut self, field: impl Into<String>, detail: &'static str) {
        self.add(field, ProblemKind::Forbidden { detail });
    }

    fn not_found(&mut self, field: impl Into<String>, value: &str) {
        self.add(
            field,
            ProblemKind::NotFound {
                value: format!("{value:?}"),
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
        let value = value.unwrap_or_default();
        if supported.contains(&value) {
            return;
        }
        if value.is_empty() {
            return self.required(field);
        }
        self.add(
            field,
            ProblemKind::Unsupported {
                value: format!("{value:?}"),
                supported,
            },
        );
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
