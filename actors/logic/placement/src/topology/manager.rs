//! The topology manager: asks the hint providers, container by container or for a whole pod.
//!
//! Mirrors upstream's topologymanager/topology_manager.go and scope_*.go at v1.36.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::{PodView, requests};
use thiserror::Error;

use super::assignment::{Assignment, AssignmentError, HeldAssignments};
use super::hint::{ProviderHints, ResourceHints, TopologyHint, described};
use super::numa_topology::{DistancesUnknown, NumaTopology};
use super::policy::TopologyPolicy;
use super::policy_options::{NumaOrder, PolicyOptionError, PolicyOptions};
use super::provider::{AssignmentRequest, HintProvider};
use crate::devices::{DeviceInventory, DevicePreferences};

/// `topologyManagerScope`: what has to lie together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopologyScope {
    /// Each container by itself.
    #[default]
    Container,
    /// All containers of a pod.
    Pod,
}

/// Whether pod-level resources are assigned to the pod as a whole (feature gate `PodLevelResourceManagers`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodLevelManagers {
    On,
    #[default]
    Off,
}

/// The configuration's section of the topology manager, by its own words.
#[derive(Clone, Copy, Debug)]
pub struct TopologySettings<'a> {
    pub policy: &'a str,
    pub scope: &'a str,
    pub options: &'a BTreeMap<String, String>,
    pub pod_level: PodLevelManagers,
}

/// Why there can be no such topology manager on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopologyManagerError {
    #[error(transparent)]
    Option(#[from] PolicyOptionError),
    #[error("cannot discover NUMA topology: {0}")]
    Topology(#[from] DistancesUnknown),
    #[error("unsupported on machines with more than {0} NUMA Nodes")]
    TooManyNodes(usize),
    #[error("unknown policy: {0:?}")]
    UnknownPolicy(String),
    #[error("unknown scope: {0:?}")]
    UnknownScope(String),
}

/// The topology manager. The default one has no policy and asks nobody.
#[derive(Debug, Default)]
pub struct TopologyManager {
    policy: TopologyPolicy,
    scope: TopologyScope,
    options: PolicyOptions,
    pod_level: PodLevelManagers,
    numa: NumaTopology,
    providers: Vec<Box<dyn HintProvider>>,
}

impl TopologyScope {
    /// The scope of this name in the configuration.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Container, Self::Pod]
            .into_iter()
            .find(|scope| scope.as_str() == name)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Pod => "pod",
        }
    }
}

impl TopologyManager {
    /// A manager without providers yet.
    ///
    /// # Errors
    ///
    /// A setting is unknown, or no policy works on this machine.
    pub fn new(
        settings: &TopologySettings<'_>,
        numa: NumaTopology,
    ) -> Result<Self, TopologyManagerError> {
        if settings.policy == TopologyPolicy::None.as_str() {
            return Ok(Self::default());
        }
        let options = PolicyOptions::read(settings.options)?;
        if options.order == NumaOrder::Closest {
            numa.known_distances()?;
        }
        if numa.distances.len() > options.max_allowable_nodes {
            let most = options.max_allowable_nodes;
            return Err(TopologyManagerError::TooManyNodes(most));
        }
        let unknown = || TopologyManagerError::UnknownPolicy(settings.policy.to_owned());
        let policy = TopologyPolicy::from_name(settings.policy).ok_or_else(unknown)?;
        let unknown = || TopologyManagerError::UnknownScope(settings.scope.to_owned());
        Ok(Self {
            policy,
            scope: TopologyScope::from_name(settings.scope).ok_or_else(unknown)?,
            options,
            pod_level: settings.pod_level,
            numa,
            providers: Vec::new(),
        })
    }

    /// Has a provider asked as well, after those that are there.
    pub fn add_hint_provider(&mut self, provider: Box<dyn HintProvider>) {
        self.providers.push(provider);
    }

    pub fn policy(&self) -> TopologyPolicy {
        self.policy
    }

    pub fn scope(&self) -> TopologyScope {
        self.scope
    }

    /// Assigns all that the pod's containers are to have to themselves: nothing where there are no providers.
    ///
    /// # Errors
    ///
    /// The policy finds no place for it, or a provider refuses.
    pub fn admit(&self, pod: &Pod, held: &HeldAssignments) -> Result<Assignment, AssignmentError> {
        self.admit_with_devices(pod, held, &DeviceInventory::EMPTY, &DevicePreferences::NONE)
    }

    /// The same on a node with devices. Where it is undecided, the plugins are to be asked, and this again with
    /// their answers added to those from before: at most once for each container and resource.
    ///
    /// A pod that holds all that it asks for keeps it. Upstream refuses one whose hints, made of what it holds, do not
    /// meet: CPUs that `align-by-socket` took from another NUMA node of the socket than its devices'.
    ///
    /// # Errors
    ///
    /// The policy finds no place for it, a provider refuses, or a plugin has to be asked first.
    pub fn admit_with_devices(
        &self,
        pod: &Pod,
        held: &HeldAssignments,
        devices: &DeviceInventory,
        preferences: &DevicePreferences,
    ) -> Result<Assignment, AssignmentError> {
        let none = Assignment::default();
        let whole = AssignmentRequest {
            pod,
            held,
            assigned: &none,
            devices,
            preferences,
        };
        match self.place(&whole) {
            Err(refusal) if refusal.hints().is_some() => self.kept(&whole).ok_or(refusal),
            decided => decided,
        }
    }

    /// Where the policy has the pod's resources come from.
    fn place(&self, whole: &AssignmentRequest<'_>) -> Result<Assignment, AssignmentError> {
        let pod = whole.pod;
        match (self.policy, self.scope) {
            (TopologyPolicy::None, _) => self.containers(whole, |_, _| Ok(TopologyHint::NOWHERE)),
            (_, TopologyScope::Container) => self.containers(whole, |request, container| {
                let of = |provider: &dyn HintProvider| provider.hints(request, container);
                self.affinity(of).map_err(|hints| {
                    let hints = format!("container {}: {hints}", container.name);
                    match self.is_pod_level(pod) {
                        true => AssignmentError::PodLevelTopologyAffinity {
                            what: "with a container-level topology manager",
                            hints,
                        },
                        false => AssignmentError::TopologyAffinity { hints },
                    }
                })
            }),
            (_, TopologyScope::Pod) if self.is_pod_level(pod) => {
                let hint = self.pod_affinity(whole).map_err(|hints| {
                    AssignmentError::PodLevelTopologyAffinity {
                        what: "under pod-scope topology manager",
                        hints,
                    }
                })?;
                self.as_a_whole(whole, hint)
            }
            (_, TopologyScope::Pod) => {
                let refused = |hints| AssignmentError::TopologyAffinity { hints };
                let hint = self.pod_affinity(whole).map_err(refused)?;
                self.containers(whole, |_, _| Ok(hint))
            }
        }
    }

    /// What the pod holds, if that is all that it asks for.
    fn kept(&self, whole: &AssignmentRequest<'_>) -> Option<Assignment> {
        let own = whole.held.get(&whole.pod.uid())?;
        let is_whole = self.scope == TopologyScope::Pod && self.is_pod_level(whole.pod);
        let (hints, anywhere) = if is_whole {
            let hints = self.provider_hints(|provider| provider.pod_hints(whole));
            (hints, self.as_a_whole(whole, TopologyHint::NOWHERE))
        } else {
            let containers = whole.pod.all_containers();
            let hints = containers.flat_map(|(_, container)| {
                self.provider_hints(|provider| provider.hints(whole, container))
            });
            let anywhere = self.containers(whole, |_, _| Ok(TopologyHint::NOWHERE));
            (hints.collect(), anywhere)
        };
        // There is no place for a number that is not the one that it holds.
        let mut resources = hints.iter().flat_map(BTreeMap::values);
        if resources.any(ResourceHints::is_nowhere) {
            return None;
        }
        anywhere.ok().filter(|all| *all == **own)
    }

    /// Assigns to one container after the other, init containers first, each with what those before it got.
    fn containers(
        &self,
        whole: &AssignmentRequest<'_>,
        affinity: impl Fn(&AssignmentRequest<'_>, &Container) -> Result<TopologyHint, AssignmentError>,
    ) -> Result<Assignment, AssignmentError> {
        let mut assigned = Assignment::default();
        for (_, container) in whole.pod.all_containers() {
            let request = AssignmentRequest {
                assigned: &assigned,
                ..*whole
            };
            let hint = affinity(&request, container)?;
            let answers = self.providers.iter();
            let answers = answers.map(|provider| provider.assign(&request, container, hint));
            let answers: Vec<_> = answers.collect::<Result<_, _>>()?;
            for resources in answers {
                assigned.assign(&container.name, resources);
            }
            for provider in &self.providers {
                provider.take_over(whole, container, &mut assigned);
            }
        }
        Ok(assigned)
    }

    fn as_a_whole(
        &self,
        whole: &AssignmentRequest<'_>,
        hint: TopologyHint,
    ) -> Result<Assignment, AssignmentError> {
        let mut assigned = Assignment::default();
        for provider in &self.providers {
            assigned.extend(provider.assign_pod(whole, hint)?);
        }
        Ok(assigned)
    }

    fn pod_affinity(&self, whole: &AssignmentRequest<'_>) -> Result<TopologyHint, String> {
        self.affinity(|provider| provider.pod_hints(whole))
    }

    /// The hint that all providers come to; the hints in words if the policy does not admit it.
    fn affinity(
        &self,
        hints: impl Fn(&dyn HintProvider) -> ProviderHints,
    ) -> Result<TopologyHint, String> {
        let hints = self.provider_hints(hints);
        let best = self.policy.merge(&hints, &self.numa, self.options);
        match self.policy.admits(best) {
            true => Ok(best),
            false => Err(format!(
                "{} admits no place for NUMA nodes {}",
                self.policy.as_str(),
                described(&hints)
            )),
        }
    }

    /// What each provider says, in the order in which they were added.
    pub(super) fn provider_hints(
        &self,
        hints: impl Fn(&dyn HintProvider) -> ProviderHints,
    ) -> Vec<ProviderHints> {
        self.providers.iter().map(|own| hints(&**own)).collect()
    }

    fn is_pod_level(&self, pod: &Pod) -> bool {
        self.pod_level == PodLevelManagers::On && requests::has_pod_level(pod)
    }
}
