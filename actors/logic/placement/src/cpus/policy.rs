//! The CPU manager's policies, and which CPUs are reserved.
//!
//! Mirrors upstream's NewManager of cpumanager/cpu_manager.go, and NewNonePolicy and NewStaticPolicy, at v1.36.

use std::collections::BTreeMap;

use thiserror::Error;

use super::accumulator::{CachePreference, CpuOrder, NotEnoughCpus, take_distributed, take_packed};
use super::cpu_set::CpuSet;
use super::machine::CpuMachine;
use super::options::{CpuPolicyOption, CpuPolicyOptionError, CpuPolicyOptions, OptionGates};
use crate::topology::{PodLevelManagers, TopologyPolicy};

/// `cpuManagerPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuPolicy {
    /// Containers run wherever the kernel lets them.
    #[default]
    None,
    /// Containers of guaranteed pods that ask for whole CPUs have these to themselves.
    Static,
}

/// Whether the CFS quota of what has CPUs to itself stays (feature gate `DisableCPUQuotaWithExclusiveCPUs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExclusiveQuota {
    #[default]
    Off,
    On,
}

/// The configuration's section of the CPU manager, by its own words.
#[derive(Clone, Copy, Debug)]
pub struct CpuSettings<'a> {
    pub policy: &'a str,
    pub options: &'a BTreeMap<String, String>,
    pub gates: OptionGates,
    /// Thousandths of CPU that are kept for the system and Kubernetes; none where the configuration does not say.
    pub reserved_milli: Option<i64>,
    /// `reservedSystemCPUs`; where there are none, the lowest cores are reserved.
    pub reserved: &'a CpuSet,
    pub topology: TopologyPolicy,
    pub pod_level: PodLevelManagers,
    pub quota: ExclusiveQuota,
}

/// Why there can be no such CPU manager on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CpuManagerError {
    #[error("unknown policy: {0:?}")]
    UnknownPolicy(String),
    #[error("new none policy error: None policy: received unsupported options=map[{0}]")]
    OptionsWithoutPolicy(String),
    #[error("could not detect number of cpus")]
    NoCpus,
    #[error("[cpumanager] unable to determine reserved CPU resources for static policy")]
    ReservationUnknown,
    #[error(
        "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be \
         greater than zero"
    )]
    NothingReserved,
    #[error("new static policy error: {0}")]
    Option(#[from] CpuPolicyOptionError),
    #[error(
        "new static policy error: [cpumanager] unable to reserve the required amount of CPUs (size \
         of {found} did not equal {wanted})"
    )]
    Reservation { found: CpuSet, wanted: u32 },
    #[error(
        "new static policy error: [cpumanager] unable to build the reserved physical CPUs from the \
         reserved set: unknown CPU ID: {0}"
    )]
    UnknownReserved(u32),
}

impl CpuPolicy {
    /// The policy of this name in the configuration.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::None, Self::Static];
        all.into_iter().find(|policy| policy.as_str() == name)
    }

    /// Its name in the configuration, and in the state's file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Static => "static",
        }
    }
}

/// The static policy on a machine.
#[derive(Clone, Debug)]
pub(super) struct StaticPolicy {
    pub(super) machine: CpuMachine,
    pub(super) options: CpuPolicyOptions,
    /// Nobody has these to itself.
    pub(super) reserved: CpuSet,
    /// The same, and whatever shares a core with them.
    pub(super) reserved_cores: CpuSet,
}

impl StaticPolicy {
    /// # Errors
    ///
    /// The settings do not suit the machine.
    pub(super) fn new(
        settings: &CpuSettings<'_>,
        machine: CpuMachine,
    ) -> Result<Self, CpuManagerError> {
        if machine.cpus().is_empty() {
            return Err(CpuManagerError::NoCpus);
        }
        let milli = settings.reserved_milli;
        let wanted = match milli.ok_or(CpuManagerError::ReservationUnknown)? {
            0 => return Err(CpuManagerError::NothingReserved),
            milli => u32::try_from(milli.div_euclid(1000) + i64::from(milli % 1000 != 0)),
        };
        let wanted = wanted.map_err(|_| CpuManagerError::ReservationUnknown)?;
        Self::with_reserved(settings, machine, wanted)
    }

    /// # Errors
    ///
    /// The options do not suit the machine, or there are not so many CPUs to reserve.
    pub(super) fn with_reserved(
        settings: &CpuSettings<'_>,
        machine: CpuMachine,
        wanted: u32,
    ) -> Result<Self, CpuManagerError> {
        let options = CpuPolicyOptions::read(settings.options, settings.gates)?;
        options.check(&machine, settings.topology)?;
        let mut policy = Self {
            machine,
            options,
            reserved: settings.reserved.clone(),
            reserved_cores: CpuSet::default(),
        };
        if policy.reserved.is_empty() {
            let lowest = policy.take(policy.machine.cpus(), wanted);
            policy.reserved = lowest.unwrap_or_default();
        }
        let found = policy.reserved.clone();
        if found.len() != wanted {
            return Err(CpuManagerError::Reservation { found, wanted });
        }
        if let Some(unknown) = found.difference(policy.machine.cpus()).iter().next() {
            return Err(CpuManagerError::UnknownReserved(unknown));
        }
        policy.reserved_cores = policy.machine.with_siblings(&found);
        Ok(policy)
    }

    pub(super) fn has(&self, option: CpuPolicyOption) -> bool {
        self.options.has(option)
    }

    /// So many of the available CPUs, by the options.
    pub(super) fn take(&self, available: &CpuSet, count: u32) -> Result<CpuSet, NotEnoughCpus> {
        let order = match self.has(CpuPolicyOption::DistributeAcrossCores) {
            true => CpuOrder::Spread,
            false => CpuOrder::Packed,
        };
        if self.has(CpuPolicyOption::DistributeAcrossNuma) {
            let group = match self.has(CpuPolicyOption::FullPhysicalCpusOnly) {
                true => self.machine.cpus_per_core().max(1),
                false => 1,
            };
            return take_distributed(&self.machine, available, count, group, order);
        }
        let caches = match self.has(CpuPolicyOption::PreferAlignByUncoreCache) {
            true => CachePreference::Shared,
            false => CachePreference::Any,
        };
        take_packed(&self.machine, available, count, order, caches)
    }

    /// The CPUs that somebody may have to itself.
    pub(super) fn allocatable(&self) -> CpuSet {
        self.machine.cpus().difference(&self.reserved)
    }

    /// What everybody else runs on when these are taken.
    pub(super) fn shared(&self, taken: &CpuSet) -> CpuSet {
        let rest = self.machine.cpus().difference(taken);
        match self.has(CpuPolicyOption::StrictReservation) {
            true => rest.difference(&self.reserved),
            false => rest,
        }
    }
}
