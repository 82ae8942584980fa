//! The cgroups of the node's pods, and what the runtime has to add to them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use host::group_stats::{EarlierGroups, GroupQuery};
use logic_api::types::{ContainerState, PodUid, RuntimePod};
use logic_resources::group_stats::{GroupDetail, GroupIndex, GroupStats};
use logic_resources::summary::SummaryScope;
use logic_resources::summary::pods::RuntimeMeasurements;

use super::{CACHE_PERIOD, StatsSource, SummaryError, SummaryProvider};

/// How long it is not counted again what the processes of a group have open, nor read what the group and they may have.
/// cAdvisor counts it every 10 to 20 s (`housekeepingInterval` with its jitter), whoever asks.
const DESCRIPTORS_PERIOD: Duration = Duration::from_secs(20);

/// The last reading of groups, which requests of all kinds share.
#[derive(Debug, Default)]
pub(super) struct GroupCache {
    last: RefCell<Option<Rc<GroupReading>>>,
    /// When descriptors were counted last, and the groups.
    descriptors: RefCell<Option<(Instant, Arc<[GroupStats]>)>>,
}

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
        let last = self.last.borrow();
        let is_fresh =
            |last: &&Rc<GroupReading>| now.saturating_duration_since(last.at) < CACHE_PERIOD;
        last.as_ref().filter(is_fresh).cloned()
    }

    /// Has the next request read anew.
    pub(super) fn expire(&self) {
        self.last.take();
    }

    /// The groups with their descriptors, as long as those are not counted again.
    fn descriptors(&self, now: Instant) -> Option<Arc<[GroupStats]>> {
        let last = self.descriptors.borrow();
        let is_fresh =
            |(at, _): &&(Instant, _)| now.saturating_duration_since(*at) < DESCRIPTORS_PERIOD;
        last.as_ref()
            .filter(is_fresh)
            .map(|(_, groups)| groups.clone())
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
            containers: listed
                .values()
                .flat_map(|pod| &pod.containers)
                .map(|one| (one.id.to_string(), one.sandbox.to_string()))
                .collect(),
        };
        let now = kernel::now();
        let last = self.0.groups.last(now);
        if let Some(last) = last.as_ref().filter(|last| last.query.includes(&query)) {
            return Ok(last.groups.clone());
        }
        let shows_descriptors = detail == GroupDetail::Everything;
        let counted = self.0.groups.descriptors(now).filter(|_| shows_descriptors);
        let counts = shows_descriptors && counted.is_none();
        let earlier = EarlierGroups {
            usage: last
                .as_ref()
                .map(|last| last.groups.clone())
                .unwrap_or_default(),
            descriptors: counted.unwrap_or_default(),
        };
        let (wall, asked) = (kernel::wall(), query.clone());
        let read = self
            .0
            .machine_io
            .run(move || reader.read_all(&asked, &earlier, wall));
        let groups: Arc<[GroupStats]> = read.await.map_err(SummaryError::Machine)?.into();
        if counts {
            let counted = (now, groups.clone());
            self.0.groups.descriptors.replace(Some(counted));
        }
        let reading = GroupReading {
            at: last.map_or(now, |last| last.at),
            query,
            groups: groups.clone(),
        };
        self.0.groups.last.replace(Some(Rc::new(reading)));
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
