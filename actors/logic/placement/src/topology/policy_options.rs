//! The options of the topology manager's policy: `topologyManagerPolicyOptions`.
//!
//! Mirrors upstream's topologymanager/policy_options.go at v1.36. Both options are stable there: the gates
//! `TopologyManagerPolicyAlphaOptions` and `TopologyManagerPolicyBetaOptions` stand before none.

use std::collections::BTreeMap;

use thiserror::Error;

const PREFER_CLOSEST: &str = "prefer-closest-numa-nodes";
const MAX_ALLOWABLE: &str = "max-allowable-numa-nodes";

/// The most NUMA nodes that a machine may have unless the option allows more, and the least that it may allow.
const DEFAULT_MAX_ALLOWABLE: usize = 8;

/// How a policy chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyOptions {
    /// Which of two sets of as many nodes is taken.
    pub order: NumaOrder,
    /// NUMA nodes; a policy works on no machine with more.
    pub max_allowable_nodes: usize,
}

/// Which of two sets of as many NUMA nodes is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NumaOrder {
    /// The one of lower nodes.
    #[default]
    Lowest,
    /// The one whose nodes are closer to each other (`prefer-closest-numa-nodes`).
    Closest,
}

/// An option that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyOptionError {
    #[error("unknown Topology Manager Policy option: {0:?}")]
    Unknown(String),
    #[error("bad value for option {option:?}: {value:?} is neither true nor false")]
    NotABool { option: &'static str, value: String },
    #[error("unable to convert policy option to integer {option:?}: {value:?}")]
    NotAnInteger { option: &'static str, value: String },
    #[error("the minimum value of {option:?} should not be less than {DEFAULT_MAX_ALLOWABLE}")]
    TooFewNodes { option: &'static str },
}

impl Default for PolicyOptions {
    fn default() -> Self {
        Self {
            order: NumaOrder::Lowest,
            max_allowable_nodes: DEFAULT_MAX_ALLOWABLE,
        }
    }
}

impl PolicyOptions {
    /// Reads the configuration's options.
    ///
    /// # Errors
    ///
    /// An option is unknown, or its value is none of its values.
    pub fn read(options: &BTreeMap<String, String>) -> Result<Self, PolicyOptionError> {
        let mut read = Self::default();
        for (name, value) in options {
            match name.as_str() {
                PREFER_CLOSEST => read.order = order(value)?,
                MAX_ALLOWABLE => read.max_allowable_nodes = max_allowable(value)?,
                unknown => return Err(PolicyOptionError::Unknown(unknown.to_owned())),
            }
        }
        Ok(read)
    }
}

/// A boolean by the words of Go's `strconv.ParseBool`.
fn order(value: &str) -> Result<NumaOrder, PolicyOptionError> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(NumaOrder::Closest),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(NumaOrder::Lowest),
        other => Err(PolicyOptionError::NotABool {
            option: PREFER_CLOSEST,
            value: other.to_owned(),
        }),
    }
}

fn max_allowable(value: &str) -> Result<usize, PolicyOptionError> {
    let option = MAX_ALLOWABLE;
    let nodes: i64 = value.parse().map_err(|_| PolicyOptionError::NotAnInteger {
        option,
        value: value.to_owned(),
    })?;
    let nodes = usize::try_from(nodes).ok();
    nodes
        .filter(|nodes| *nodes >= DEFAULT_MAX_ALLOWABLE)
        .ok_or(PolicyOptionError::TooFewNodes { option })
}
