//! CPUs allocated out of those that nobody holds, by a hint.
//!
//! Mirrors upstream's allocateCPUs, getAlignedCPUs and enforceSMTAlignment of cpumanager/policy_static.go at v1.36.

use super::assigned::{all_held, all_of};
use super::cpu_set::CpuSet;
use super::options::CpuPolicyOption;
use super::policy::StaticPolicy;
use crate::topology::{AssignmentError, AssignmentRequest, NumaMask, TopologyHint};

impl StaticPolicy {
    /// The CPUs that nobody has been assigned and that may be.
    pub(super) fn available(&self, request: &AssignmentRequest<'_>) -> CpuSet {
        let taken = all_held(request.held).union(&all_of(request.assigned));
        self.allocatable().difference(&taken)
    }

    /// Allocates by the hint: from its nodes first, the rest from anywhere.
    pub(super) fn allocate(
        &self,
        available: &CpuSet,
        count: u32,
        hint: TopologyHint,
    ) -> Result<CpuSet, AssignmentError> {
        let near = hint.nodes.map(|nodes| self.near(nodes));
        let near = near.unwrap_or_default().intersection(available);
        let aligned = count.min(near.len());
        let first = self.take(&near, aligned).map_err(unexpected)?;
        let rest = available.difference(&first);
        let rest = self.take(&rest, count - aligned).map_err(unexpected)?;
        Ok(first.union(&rest))
    }

    /// Whole cores are available for so many CPUs, if they have to be whole.
    pub(super) fn check_cores(
        &self,
        available: &CpuSet,
        count: u32,
    ) -> Result<(), AssignmentError> {
        let per_core = self.machine.cpus_per_core();
        let whole = available.difference(&self.reserved_cores).len();
        let message = match self.has(CpuPolicyOption::FullPhysicalCpusOnly) {
            true if !count.is_multiple_of(per_core) => smt_multiple(count, per_core),
            true if count > whole => smt_available(whole, count, per_core),
            true | false => return Ok(()),
        };
        Err(AssignmentError::Refused {
            reason: "SMTAlignmentError",
            message,
        })
    }

    /// The CPUs of a hint's nodes; of their whole sockets with `align-by-socket`.
    fn near(&self, nodes: NumaMask) -> CpuSet {
        let machine = &self.machine;
        match self.has(CpuPolicyOption::AlignBySocket) {
            false => machine.cpus_in_nodes(nodes),
            true => {
                let sockets = machine.sockets_in_nodes(nodes);
                let cpus = sockets.iter().filter_map(|id| machine.sockets().get(id));
                cpus.fold(CpuSet::default(), |all, cpus| all.union(cpus))
            }
        }
    }
}

pub(super) fn unexpected(error: impl std::fmt::Display) -> AssignmentError {
    AssignmentError::Unexpected(error.to_string())
}

fn smt_multiple(requested: u32, per_core: u32) -> String {
    format!(
        "SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}"
    )
}

fn smt_available(available: u32, requested: u32, per_core: u32) -> String {
    format!(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, \
         requested CPUs = {requested}, CPUs per core = {per_core}"
    )
}
