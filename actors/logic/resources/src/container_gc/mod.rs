//! Which dead containers and sandboxes of the node are removed.
//!
//! A worker removes what is in excess of its running pod at once (`crate::gc`). What concerns several pods, a time, or a pod
//! that has ended is decided here, for the whole node. Mirrors pkg/kubelet/kuberuntime/kuberuntime_gc.go (1.36).

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use logic_api::types::{
    ContainerId, ContainerState, PodUid, RuntimeContainer, RuntimePod, SandboxId,
};

/// The flags of container garbage collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerGcPolicy {
    /// `--minimum-container-ttl-duration`: a container that was created later than this ago stays.
    pub min_age: Duration,
    /// `--maximum-dead-containers-per-container`: instances kept of each container; none for no limit.
    pub max_per_container: Option<usize>,
    /// `--maximum-dead-containers`: instances kept on the node; none for no limit.
    pub max_containers: Option<usize>,
}

impl Default for ContainerGcPolicy {
    fn default() -> Self {
        ContainerGcPolicy {
            min_age: Duration::ZERO,
            max_per_container: Some(1),
            max_containers: None,
        }
    }
}

impl ContainerGcPolicy {
    /// Reads the flags; a negative number is no limit.
    pub fn new(min_age: Duration, max_per_container: i32, max_containers: i32) -> Self {
        let limit = |number: i32| usize::try_from(number).ok();
        ContainerGcPolicy {
            min_age,
            max_per_container: limit(max_per_container),
            max_containers: limit(max_containers),
        }
    }

    /// The dead instances that a worker keeps of each container; none where their time or number alone does not tell.
    pub fn kept_by_worker(&self) -> Option<usize> {
        self.max_per_container.filter(|_| self.min_age.is_zero())
    }
}

/// How far a pod is that the runtime has something of. One that is not known is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodStanding {
    /// It is run or ended by its worker.
    Active,
    /// Nothing of it runs, and its object is still there.
    Ended,
    /// It is gone, and the pod manager keeps its dead containers for a while.
    Kept,
}

/// The pods that are known; none before every source has told its pods.
pub type Standings = BTreeMap<PodUid, PodStanding>;

/// What is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcScope {
    /// What is in excess of the limits.
    Excess,
    /// What pods that have ended have left, too: the disk is short.
    AllUnused,
}

/// A container to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadContainer<'a> {
    pub pod: &'a RuntimePod,
    pub container: &'a RuntimeContainer,
}

impl DeadContainer<'_> {
    /// Whether it may still run, and is stopped before it is removed.
    pub fn is_unknown(&self) -> bool {
        self.container.state == ContainerState::Unknown
    }
}

/// The dead instances of one container of one pod, the newest first.
struct EvictUnit<'a> {
    pod: &'a RuntimePod,
    standing: Option<PodStanding>,
    dead: Vec<&'a RuntimeContainer>,
    /// The newest instance of a pod that goes on: its end is what the next start goes by.
    needed: Option<&'a ContainerId>,
}

/// The containers to remove, at `now`.
pub fn containers<'a>(
    now: Timestamp,
    policy: &ContainerGcPolicy,
    pods: &'a BTreeMap<PodUid, RuntimePod>,
    standings: Option<&Standings>,
    scope: GcScope,
) -> Vec<DeadContainer<'a>> {
    let mut units = units(now, policy, pods, standings, scope);
    let mut removed = Vec::new();
    if standings.is_some() {
        units.retain(|unit| {
            let is_unused = is_unused(unit.standing, scope);
            if is_unused {
                removed.extend(unit.dead.iter().map(|container| unit.of(container)));
            }
            !is_unused
        });
    }
    if let Some(max) = policy.max_per_container {
        removed.extend(units.iter_mut().flat_map(|unit| unit.keep(max)));
    }
    let count = |units: &[EvictUnit<'_>]| units.iter().map(|unit| unit.dead.len()).sum::<usize>();
    if let Some(max) = policy.max_containers
        && count(&units) > max
    {
        let each = (max / units.len()).max(1);
        removed.extend(units.iter_mut().flat_map(|unit| unit.keep(each)));
        let excess = count(&units).saturating_sub(max);
        let left = units.iter().flat_map(|unit| {
            let may_go = unit.dead.iter().filter(|dead| unit.may_go(dead));
            may_go.map(|container| unit.of(container))
        });
        let mut left: Vec<DeadContainer<'a>> = left.collect();
        left.sort_by_key(|dead| age_key(dead.container));
        removed.extend(left.into_iter().take(excess));
    }
    removed
}

/// The sandboxes to remove, once these containers are gone.
pub fn sandboxes<'a>(
    pods: &'a BTreeMap<PodUid, RuntimePod>,
    standings: Option<&Standings>,
    gone: &BTreeSet<&ContainerId>,
    scope: GcScope,
) -> Vec<&'a SandboxId> {
    let mut removed = Vec::new();
    for (uid, pod) in pods {
        let standing = standings.and_then(|standings| standings.get(uid)).copied();
        if standing == Some(PodStanding::Kept) && scope == GcScope::Excess {
            continue;
        }
        let keeps_newest = standings.is_none() || !is_unused(standing, scope);
        let newest = pod.newest_sandbox().map(|newest| &newest.id);
        let left = pod.containers.iter().filter(|one| !gone.contains(&one.id));
        let in_use: BTreeSet<&SandboxId> = left.map(|container| &container.sandbox).collect();
        let dead = pod.sandboxes.iter().filter(|sandbox| {
            let is_kept = keeps_newest && newest == Some(&sandbox.id);
            !sandbox.is_ready() && !in_use.contains(&sandbox.id) && !is_kept
        });
        removed.extend(dead.map(|sandbox| &sandbox.id));
    }
    removed
}

/// Whether everything dead of a pod may go.
fn is_unused(standing: Option<PodStanding>, scope: GcScope) -> bool {
    match standing {
        Some(PodStanding::Active) => false,
        Some(PodStanding::Ended | PodStanding::Kept) => scope == GcScope::AllUnused,
        None => true,
    }
}

fn units<'a>(
    now: Timestamp,
    policy: &ContainerGcPolicy,
    pods: &'a BTreeMap<PodUid, RuntimePod>,
    standings: Option<&Standings>,
    scope: GcScope,
) -> Vec<EvictUnit<'a>> {
    let min_age = SignedDuration::try_from(policy.min_age).unwrap_or(SignedDuration::MAX);
    let is_old = |container: &RuntimeContainer| {
        let created = container.created_at.unwrap_or(Timestamp::UNIX_EPOCH);
        min_age.is_zero() || now.duration_since(created) >= min_age
    };
    let mut units = Vec::new();
    for (uid, pod) in pods {
        let standing = match standings {
            Some(standings) => standings.get(uid).copied(),
            None => Some(PodStanding::Active),
        };
        if standing == Some(PodStanding::Kept) && scope == GcScope::Excess {
            continue;
        }
        let goes_on = standing == Some(PodStanding::Active);
        let mut by_name: BTreeMap<&str, Vec<&RuntimeContainer>> = BTreeMap::new();
        let dead = pod
            .containers
            .iter()
            .filter(|container| match container.state {
                ContainerState::Running => false,
                ContainerState::Exited => true,
                ContainerState::Created | ContainerState::Unknown => !goes_on,
            });
        for container in dead.filter(|container| is_old(container)) {
            by_name.entry(&container.name).or_default().push(container);
        }
        for (name, mut dead) in by_name {
            dead.sort_by_key(|container| Reverse(age_key(container)));
            let needed = pod.newest(name).filter(|_| goes_on);
            units.push(EvictUnit {
                pod,
                standing,
                dead,
                needed: needed.map(|newest| &newest.id),
            });
        }
    }
    units
}

impl<'a> EvictUnit<'a> {
    fn of(&self, container: &'a RuntimeContainer) -> DeadContainer<'a> {
        DeadContainer {
            pod: self.pod,
            container,
        }
    }

    fn may_go(&self, container: &RuntimeContainer) -> bool {
        self.needed != Some(&container.id)
    }

    /// Keeps so many of the newest, and returns the others.
    fn keep(&mut self, most: usize) -> Vec<DeadContainer<'a>> {
        let (kept, excess) = self.dead.split_at(most.min(self.dead.len()));
        let mut kept = kept.to_vec();
        let mut removed = Vec::new();
        for container in excess {
            match self.may_go(container) {
                true => removed.push(self.of(container)),
                false => kept.push(container),
            }
        }
        self.dead = kept;
        removed
    }
}

/// Older first. Creations are compared with each other, by the runtime's clock.
fn age_key(container: &RuntimeContainer) -> (Option<Timestamp>, u32, Reverse<&str>) {
    let id = Reverse(container.id.as_str());
    (container.created_at, container.attempt, id)
}
