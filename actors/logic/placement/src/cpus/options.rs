//! The options of the static policy: `cpuManagerPolicyOptions`.
//!
//! Mirrors upstream's cpumanager/policy_options.go at v1.36.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::machine::CpuMachine;
use crate::topology::TopologyPolicy;

/// An option of the static policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpuPolicyOption {
    /// CPUs are given as whole cores, or not at all.
    FullPhysicalCpusOnly,
    /// What does not fit on one NUMA node is spread evenly.
    DistributeAcrossNuma,
    /// The nodes of one socket are as good as one node.
    AlignBySocket,
    /// Each CPU comes from a core of its own where that can be.
    DistributeAcrossCores,
    /// Nobody runs on reserved CPUs but the system.
    StrictReservation,
    /// CPUs share a last-level cache where that can be.
    PreferAlignByUncoreCache,
}

/// Whether options of one maturity may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionGate {
    Open,
    Closed,
}

/// The feature gates of options: stable ones have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionGates {
    /// `CPUManagerPolicyAlphaOptions`
    pub alpha: OptionGate,
    /// `CPUManagerPolicyBetaOptions`
    pub beta: OptionGate,
}

/// The options that are on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuPolicyOptions(BTreeSet<CpuPolicyOption>);

/// Options that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CpuPolicyOptionError {
    #[error("unknown CPU Manager Policy option: {0:?}")]
    Unknown(String),
    #[error(
        "CPU Manager Policy {maturity}-level Options not enabled, but option {option:?} provided"
    )]
    Gated {
        maturity: &'static str,
        option: &'static str,
    },
    #[error(
        "bad value for option {option:?}: strconv.ParseBool: parsing {value:?}: invalid syntax"
    )]
    NotABool { option: &'static str, value: String },
    #[error("static policy options {0} and {1} can not be used at the same time")]
    Exclude(&'static str, &'static str),
    #[error(
        "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket \
         policy option"
    )]
    SocketsAgainstSingleNode,
    #[error(
        "Align by socket is not compatible with hardware where number of sockets are more than \
         number of NUMA"
    )]
    SocketsInNodes,
}

impl Default for OptionGates {
    fn default() -> Self {
        Self {
            alpha: OptionGate::Closed,
            beta: OptionGate::Open,
        }
    }
}

impl CpuPolicyOption {
    const ALL: [Self; 6] = [
        Self::FullPhysicalCpusOnly,
        Self::DistributeAcrossNuma,
        Self::AlignBySocket,
        Self::DistributeAcrossCores,
        Self::StrictReservation,
        Self::PreferAlignByUncoreCache,
    ];

    /// What cannot be on together.
    const EXCLUDE: [(Self, Self); 4] = [
        (Self::FullPhysicalCpusOnly, Self::DistributeAcrossCores),
        (Self::DistributeAcrossNuma, Self::DistributeAcrossCores),
        (Self::PreferAlignByUncoreCache, Self::DistributeAcrossCores),
        (Self::PreferAlignByUncoreCache, Self::DistributeAcrossNuma),
    ];

    /// Its name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FullPhysicalCpusOnly => "full-pcpus-only",
            Self::DistributeAcrossNuma => "distribute-cpus-across-numa",
            Self::AlignBySocket => "align-by-socket",
            Self::DistributeAcrossCores => "distribute-cpus-across-cores",
            Self::StrictReservation => "strict-cpu-reservation",
            Self::PreferAlignByUncoreCache => "prefer-align-cpus-by-uncorecache",
        }
    }

    /// The option of this name, if it may be used.
    ///
    /// # Errors
    ///
    /// There is none, or its gate is closed.
    fn available(name: &str, gates: OptionGates) -> Result<Self, CpuPolicyOptionError> {
        let option = Self::ALL.into_iter().find(|option| option.as_str() == name);
        let option = option.ok_or_else(|| CpuPolicyOptionError::Unknown(name.to_owned()))?;
        let (gate, maturity) = match option {
            Self::AlignBySocket | Self::DistributeAcrossCores => (gates.alpha, "Alpha"),
            Self::DistributeAcrossNuma => (gates.beta, "Beta"),
            Self::FullPhysicalCpusOnly
            | Self::StrictReservation
            | Self::PreferAlignByUncoreCache => (OptionGate::Open, "GA"),
        };
        match gate {
            OptionGate::Open => Ok(option),
            OptionGate::Closed => Err(CpuPolicyOptionError::Gated {
                maturity,
                option: option.as_str(),
            }),
        }
    }

    /// A boolean by the words of Go's `strconv.ParseBool`.
    fn is_on(self, value: &str) -> Result<bool, CpuPolicyOptionError> {
        match value {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
            other => Err(CpuPolicyOptionError::NotABool {
                option: self.as_str(),
                value: other.to_owned(),
            }),
        }
    }
}

impl CpuPolicyOptions {
    /// Reads the configuration's options.
    ///
    /// # Errors
    ///
    /// An option is unknown, its gate is closed, its value is none of its values, or two do not go together.
    pub fn read(
        options: &BTreeMap<String, String>,
        gates: OptionGates,
    ) -> Result<Self, CpuPolicyOptionError> {
        let mut on = BTreeSet::new();
        for (name, value) in options {
            let option = CpuPolicyOption::available(name, gates)?;
            if option.is_on(value)? {
                on.insert(option);
            }
        }
        let mut pairs = CpuPolicyOption::EXCLUDE.iter();
        match pairs.find(|(one, other)| on.contains(one) && on.contains(other)) {
            Some((one, other)) => Err(CpuPolicyOptionError::Exclude(one.as_str(), other.as_str())),
            None => Ok(Self(on)),
        }
    }

    /// Whether an option is on.
    pub fn has(&self, option: CpuPolicyOption) -> bool {
        self.0.contains(&option)
    }

    /// Whether the options work on this machine and with that topology policy.
    ///
    /// # Errors
    ///
    /// `align-by-socket` does not.
    pub fn check(
        &self,
        machine: &CpuMachine,
        topology: TopologyPolicy,
    ) -> Result<(), CpuPolicyOptionError> {
        if !self.has(CpuPolicyOption::AlignBySocket) {
            return Ok(());
        }
        if topology == TopologyPolicy::SingleNumaNode {
            return Err(CpuPolicyOptionError::SocketsAgainstSingleNode);
        }
        match machine.sockets().len() > machine.nodes().len() {
            true => Err(CpuPolicyOptionError::SocketsInNodes),
            false => Ok(()),
        }
    }
}
