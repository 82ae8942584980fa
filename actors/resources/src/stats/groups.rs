//! The cgroups of the node's pods, and what the runtime has to add to them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use host::group_stats::GroupQuery;
use logic_api::types::{ContainerState, PodUid, RuntimePod};
use logic_resources::group_stats::{GroupDetail, GroupIndex, GroupStats};
use logic_resources::summary::SummaryScope;
use logic_resources::summary::pods::RuntimeMeasurements;

use super::{StatsSource, SummaryError, SummaryProvider};

impl SummaryProvider {
    /// The groups of the pods, of the system containers and of the machine, in one pass.
    pub(super) async fn groups(
        &self,
        listed: &BTreeMap<PodUid, RuntimePod>,
        detail: GroupDetail,
        prefixes: Vec<String>,
    ) -> Result<Vec<GroupStats>, SummaryError> {
        let Some(reader) = self.0.machine.groups.clone() else {
            return Ok(Vec::new());
        };
        let ids = |of: fn(&RuntimePod) -> Vec<String>| listed.values().flat_map(of).collect();
        let query = GroupQuery {
            detail,
            prefixes,
            sandboxes: ids(|pod| pod.sandboxes.iter().map(|one| one.id.to_string()).collect()),
            containers: ids(|pod| {
                pod.containers
                    .iter()
                    .map(|one| one.id.to_string())
                    .collect()
            }),
        };
        let at = kernel::wall();
        let read = self.0.machine_io.run(move || reader.read_all(&query, at));
        read.await.map_err(SummaryError::Machine)
    }

    /// Where the pods' groups lie.
    pub(super) fn pod_prefixes(&self) -> Vec<String> {
        let driver = self.cgroup_driver();
        let pods = self.0.machine.pods.as_ref();
        // A runtime that manages the groups itself may have them anywhere.
        let pods = pods.map_or_else(|| "/".to_owned(), |pods| pods.path(driver));
        vec![pods]
    }

    /// What the runtime has measured, as far as the groups do not say it.
    pub(super) async fn measured(
        &self,
        listed: &BTreeMap<PodUid, RuntimePod>,
        groups: &GroupIndex<'_>,
        scope: SummaryScope,
    ) -> Result<RuntimeMeasurements, SummaryError> {
        let runtime = &self.0.peers.runtime;
        let containers = listed.values().flat_map(|pod| &pod.containers);
        let running = containers.filter(|one| one.state == ContainerState::Running);
        let running: BTreeSet<&str> = running.map(|one| one.id.as_str()).collect();
        let by_runtime = self.0.peers.source == StatsSource::Runtime;
        if by_runtime || (groups.is_empty() && !running.is_empty()) {
            return runtime.measured().await.map_err(SummaryError::Runtime);
        }
        let lacks = running.iter().any(|id| groups.container(id).is_none());
        let figures = match lacks || (scope == SummaryScope::Everything && !running.is_empty()) {
            true => self.0.layers.get(runtime).await,
            false => Rc::default(),
        };
        Ok(RuntimeMeasurements::Containers(figures.to_vec()))
    }
}
