//! The order in which pods would go, and why.
//!
//! Mirrors upstream's `rankMemoryPressure`, `rankDiskPressureFunc` and `rankPIDPressure` (eviction/helpers.go) at v1.36.

use std::cmp::Reverse;

use logic_api::types::PodUid;
use serde::{Deserialize, Serialize};

use super::usage::PodUsage;
use super::{EvictionClass, FsLayout};
use crate::thresholds::{Signal, StarvedResource};

/// All pods, the first to evict first, and those that are never evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRanking {
    /// In the order in which they would go.
    pub victims: Vec<RankedPod>,
    /// Pods that are never evicted.
    pub spared: Vec<RankedPod>,
}

/// A pod and the reason for its rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankedPod {
    pub uid: PodUid,
    /// The rank's reason, for the log.
    pub why: String,
}

/// Orders the pods, the first to evict first.
///
/// Short of memory or disk: unmeasured pods, then pods above their request; among equals the lower priority, then the
/// larger excess. Short of process ids: the lower priority, then the larger count.
pub fn rank(signal: Signal, layout: FsLayout, pods: &[PodUsage]) -> PodRanking {
    let shortage = Shortage { signal, layout };
    let mut ordered: Vec<_> = pods.iter().collect();
    ordered.sort_by_cached_key(|pod| (shortage.place(pod), pod.uid.clone()));
    let (spared, victims): (Vec<_>, Vec<_>) = ordered
        .into_iter()
        .partition(|pod| pod.standing == EvictionClass::Critical);
    let ranked = |list: Vec<&PodUsage>| {
        let ranked = |pod: &PodUsage| RankedPod {
            uid: pod.uid.clone(),
            why: shortage.why(pod),
        };
        list.into_iter().map(ranked).collect()
    };
    PodRanking {
        victims: ranked(victims),
        spared: ranked(spared),
    }
}

/// The sort key, smaller is evicted earlier: measured or not, within its request or above, priority, how far above.
type Place = (bool, bool, i32, bool, Reverse<i128>);

/// What is short, and where.
#[derive(Clone, Copy)]
struct Shortage {
    signal: Signal,
    layout: FsLayout,
}

impl Shortage {
    fn place(self, pod: &PodUsage) -> Place {
        let measured = pod.used.is_some();
        let within = self.used(pod) <= self.request(pod);
        let excess = Reverse(self.used(pod) - self.subtrahend(pod));
        match self.signal.starved() {
            StarvedResource::Pids => (false, false, pod.priority, measured, excess),
            StarvedResource::Memory
            | StarvedResource::EphemeralStorage
            | StarvedResource::Inodes => (measured, within, pod.priority, measured, excess),
        }
    }

    /// How much the pod takes of what is short.
    fn used(self, pod: &PodUsage) -> i128 {
        let Some(used) = &pod.used else { return 0 };
        let amount = match self.signal.starved() {
            StarvedResource::Memory => used.memory,
            StarvedResource::EphemeralStorage => self.layout.amount(self.signal, used).bytes,
            StarvedResource::Inodes => self.layout.amount(self.signal, used).inodes,
            StarvedResource::Pids => used.pids,
        };
        amount.into()
    }

    /// How much the pod asked for; nobody asks for inodes or process ids.
    fn request(self, pod: &PodUsage) -> i128 {
        match self.signal.starved() {
            StarvedResource::Memory => pod.requests.memory.into(),
            StarvedResource::EphemeralStorage => pod.requests.ephemeral_storage.into(),
            StarvedResource::Inodes | StarvedResource::Pids => 0,
        }
    }

    /// What the excess is measured from: upstream takes the bytes asked for off the inodes too.
    fn subtrahend(self, pod: &PodUsage) -> i128 {
        match (&pod.used, self.signal.starved()) {
            (None, _) | (_, StarvedResource::Pids) => 0,
            (_, StarvedResource::Memory) => pod.requests.memory.into(),
            (_, StarvedResource::EphemeralStorage | StarvedResource::Inodes) => {
                pod.requests.ephemeral_storage.into()
            }
        }
    }

    fn why(self, pod: &PodUsage) -> String {
        let priority = pod.priority;
        if pod.standing == EvictionClass::Critical {
            return "critical pods are never evicted".to_owned();
        }
        if pod.used.is_none() {
            return format!("nothing is known of its usage, priority {priority}");
        }
        let (used, request) = (self.used(pod), self.request(pod));
        let amount = |value: i128| self.signal.amount(u64::try_from(value).unwrap_or(0));
        let resource = self.signal.resource();
        match self.signal.starved() {
            StarvedResource::Memory | StarvedResource::EphemeralStorage => {
                let relation = if used > request {
                    "exceeds"
                } else {
                    "is within"
                };
                let (used, request) = (amount(used), amount(request));
                format!("{resource} {used} {relation} its request {request}, priority {priority}")
            }
            StarvedResource::Inodes => format!("{used} inodes, priority {priority}"),
            StarvedResource::Pids => format!("{used} processes, priority {priority}"),
        }
    }
}
