//! A state read from the file, written to it, and judged by machine and settings.

use std::collections::BTreeMap;

use logic_api::types::PodUid;

use super::checkpoint::{ByPod, Checkpoint, Entries, Newest};
use super::{CpuState, CpuStateError, CpuStateFileError};
use crate::cpus::cpu_set::CpuSet;
use crate::cpus::manager::CpuManager;
use crate::cpus::options::CpuPolicyOption;
use crate::topology::PodLevelManagers;

impl CpuManager {
    /// Reads the file's bytes: of every version that upstream reads. Version 1 names containers by the runtime's id,
    /// for which `owner` knows the pod and the container's name.
    ///
    /// # Errors
    ///
    /// The file is damaged, or of another policy. Upstream begins the message with "could not restore state from
    /// checkpoint: " and asks to drain the node and delete the file.
    pub fn read_state(
        &self,
        bytes: &[u8],
        owner: impl Fn(&str) -> Option<(PodUid, String)>,
    ) -> Result<CpuState, CpuStateFileError> {
        let file = Checkpoint::read(bytes, self.newest())?;
        let (containers, pods) = match file.entries {
            Entries::V1(by_id) => {
                let mut containers = ByPod::new();
                for (id, cpus) in by_id {
                    let (pod, name) = owner(&id).ok_or(CpuStateFileError::UnknownContainer(id))?;
                    let of_pod = containers.entry(pod.to_string()).or_default();
                    of_pod.insert(name, cpus);
                }
                (containers, BTreeMap::new())
            }
            Entries::V2(containers) => (containers, BTreeMap::new()),
            Entries::V3(containers, pods) => (containers, pods),
        };
        let configured = self.policy().as_str();
        if file.policy != configured {
            return Err(CpuStateFileError::OtherPolicy {
                configured,
                found: file.policy,
            });
        }
        let pods = pods.into_iter();
        Ok(CpuState {
            default: default_set(file.default)?,
            containers: sets(containers)?,
            pods: pods
                .map(|(uid, cpus)| (uid.as_str().into(), cpus))
                .collect(),
        })
    }

    /// The bytes of the file.
    pub fn write_state(&self, state: &CpuState) -> Vec<u8> {
        let containers = state.containers.iter().map(|(uid, own)| {
            let own = own.iter();
            let own = own.map(|(name, cpus)| (name.clone(), cpus.to_string()));
            (uid.to_string(), own.collect())
        });
        let containers: ByPod = containers.collect();
        let pods = state.pods.iter();
        let entries = match self.newest() {
            Newest::V2 => Entries::V2(containers),
            Newest::V3 => {
                let pods = pods.map(|(uid, cpus)| (uid.to_string(), cpus.clone()));
                Entries::V3(containers, pods.collect())
            }
        };
        let file = Checkpoint {
            policy: self.policy().as_str().to_owned(),
            default: state.default.to_string(),
            entries,
        };
        file.write()
    }

    /// Whether a state that was read can be that of this machine (upstream's validateState). An empty one can: nothing
    /// has been given yet.
    ///
    /// # Errors
    ///
    /// CPUs are missing or new, what is reserved has changed, or CPUs belong to a container and to everybody.
    pub fn check_state(&self, state: &CpuState) -> Result<(), CpuStateError> {
        let Some(policy) = &self.policy else {
            return Ok(());
        };
        let default = state.default.clone();
        let is_strict = policy.has(CpuPolicyOption::StrictReservation);
        let (machine, known) = (policy.shared(&CpuSet::default()), self.known(state));
        if default.is_empty() {
            // Strict reservation leaves nothing where pods have all the rest; upstream does not start then.
            let is_given_away = is_strict && machine == known;
            return match state.containers.is_empty() || is_given_away {
                true => Ok(()),
                false => Err(CpuStateError::NoDefault),
            };
        }
        let reserved = policy.reserved.intersection(&default);
        if is_strict {
            if !reserved.is_empty() {
                return Err(CpuStateError::Reserved { reserved, default });
            }
        } else if reserved != policy.reserved {
            let reserved = policy.reserved.clone();
            return Err(CpuStateError::NotReserved { reserved, default });
        }
        let containers = state.containers.iter();
        let mut containers =
            containers.flat_map(|(uid, own)| own.iter().map(move |(name, own)| (uid, name, own)));
        if let Some((pod, name, own)) = containers.find(|(_, _, own)| own.common(&default) > 0) {
            return Err(CpuStateError::Overlap {
                pod: pod.clone(),
                container: name.clone(),
                own: own.clone(),
                default,
            });
        }
        match machine == known {
            true => Ok(()),
            false => Err(CpuStateError::OtherMachine { machine, known }),
        }
    }

    /// All CPUs that a state names.
    fn known(&self, state: &CpuState) -> CpuSet {
        let containers = state.containers.values().flat_map(BTreeMap::values);
        let pods = state.pods.values();
        let pods = pods.filter(|_| self.newest() == Newest::V3);
        let own = containers.chain(pods);
        own.fold(state.default.clone(), |all, cpus| all.union(cpus))
    }

    fn newest(&self) -> Newest {
        match self.demand.pod_level {
            PodLevelManagers::Off => Newest::V2,
            PodLevelManagers::On => Newest::V3,
        }
    }
}

fn default_set(text: String) -> Result<CpuSet, CpuStateFileError> {
    let read = text.parse();
    read.map_err(|error| CpuStateFileError::DefaultSet { text, error })
}

fn sets(pods: ByPod) -> Result<BTreeMap<PodUid, BTreeMap<String, CpuSet>>, CpuStateFileError> {
    let mut sets: BTreeMap<PodUid, BTreeMap<String, CpuSet>> = BTreeMap::new();
    for (uid, containers) in pods {
        let pod = PodUid::from(uid.as_str());
        for (container, text) in containers {
            let read = text.parse();
            let cpus = read.map_err(|error| CpuStateFileError::ContainerSet {
                text,
                container: container.clone(),
                pod: pod.clone(),
                error,
            })?;
            sets.entry(pod.clone()).or_default().insert(container, cpus);
        }
    }
    Ok(sets)
}
