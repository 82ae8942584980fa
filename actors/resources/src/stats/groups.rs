//! The cgroups of the node's pods, and what the runtime has to add to them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use host::group_stats::GroupQuery;
use logic_api::types::{ContainerState, PodUid, RuntimePod};
use logic_resources::group_stats::{GroupDetail, GroupIndex, GroupStats};
use logic_resources::summary::SummaryScope;
use logic_resources::summary::pods::RuntimeMeasurements;

use super::{CACHE_PERIOD, StatsSource, SummaryError, SummaryProvider};

/// The last reading of groups, which requests of all kinds share.
#[derive(Debug, Default)]
pub(super) struct GroupCache(RefCell<Option<Rc<GroupReading>>>);

#[derive(Debug)]
struct GroupReading {
    /// When the oldest of its figures were read.
    at: Instant,
    query: GroupQuery,
    groups: Arc<[GroupStats]>,
}

impl GroupCache {
    /// What was read within the time that a summary is kept.
    fn last(&self, now: Instant) -> Option<Rc<GroupReading>> {
        let last = self.0.borrow();
        let is_fresh =
            |last: &&Rc<GroupReading>| now.saturating_duration_since(last.at) < CACHE_PERIOD;
        last.as_ref().filter(is_fresh).cloned()
    }

    /// Has the next request read anew.
    pub(super) fn expire(&self) {
        self.0.take();
    }
}

impl SummaryProvider {
    /// The groups of the pods, of the system containers and of the machine, in one pass.
    pub(super) async fn groups(
        &self,
        listed: &BTreeMap<PodUid, RuntimePod>,
        detail: GroupDetail,
        prefixes: Vec<String>,
    ) -> Result<Arc<[GroupStats]>, SummaryError> {
        let Some(reader) = self.0.machine.groups.clone() else {
            return Ok(Arc::default());
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
        let now = kernel::now();
        let last = self.0.groups.last(now);
        if let Some(last) = last.as_ref().filter(|last| last.query.includes(&query)) {
            return Ok(last.groups.clone());
        }
        let known = last.as_ref().map(|last| last.groups.clone());
        let (wall, asked) = (kernel::wall(), query.clone());
        let read = self
            .0
            .machine_io
            .run(move || reader.read_all(&asked, &known.unwrap_or_default(), wall));
        let groups: Arc<[GroupStats]> = read.await.map_err(SummaryError::Machine)?.into();
        let reading = GroupReading {
            at: last.map_or(now, |last| last.at),
            query,
            groups: groups.clone(),
        };
        self.0.groups.0.replace(Some(Rc::new(reading)));
        Ok(groups)
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
