//! The topology manager: asks the hint providers, container by container or for a whole pod.
//!
//! Mirrors upstream's topologymanager/topology_manager.go and scope_*.go at v1.36.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::{PodView, requests};
use thiserror::Error;

use super::assignment::{Assignment, AssignmentError, HeldAssignments};
use super::counts::AlignmentBoundary::NumaNode;
use super::counts::PlacementCount::{Aligned, Requested};
use super::counts::PlacementCounts;
use super::hint::{ProviderHints, ResourceHints, TopologyHint, described};
use super::numa_topology::{DistancesUnknown, NumaTopology};
use super::policy::TopologyPolicy;
use super::policy_options::{NumaOrder, PolicyOptionError, PolicyOptions};
use super::provider::{AssignmentRequest, HintProvider};
use crate::devices::{DeviceInventory, DevicePreferences};

/// `topologyManagerScope`: what has to lie together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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
    pub(super) policy: TopologyPolicy,
    pub(super) scope: TopologyScope,
    options: PolicyOptions,
    pod_level: PodLevelManagers,
    numa: NumaTopology,
    pub(super) providers: Vec<Box<dyn HintProvider>>,
}

/// What the topology manager has decided about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyAdmission {
    pub outcome: Result<Assignment, AssignmentError>,
    /// What is counted of it; nothing where it is undecided, as it is asked again.
    pub counts: PlacementCounts,
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
        let (devices, preferences) = (&DeviceInventory::EMPTY, &DevicePreferences::NONE);
        self.admit_with_devices(pod, held, devices, preferences)
            .outcome
    }

    /// The same on a node with devices. Where it is undecided, the plugins are to be asked, and this again with
    /// their answers added to those from before: at most once for each container and resource.
    ///
    /// A pod that holds all that it asks for keeps it. Upstream refuses one whose hints, made of what it holds, do not
    /// meet: CPUs that `align-by-socket` took from another NUMA node of the socket than its devices'.
    ///
    /// The outcome is an error where the policy finds no place for it, a provider refuses, or a plugin has to be asked
    /// first.
    pub fn admit_with_devices(
        &self,
        pod: &Pod,
        held: &HeldAssignments,
        devices: &DeviceInventory,
        preferences: &DevicePreferences,
    ) -> TopologyAdmission {
        let none = Assignment::default();
        let whole = AssignmentRequest {
            pod,
            held,
            assigned: &none,
            devices,
            preferences,
        };
        let mut counts = vec![Requested];
        let outcome = match self.place(&whole, &mut counts) {
            Err(refusal) if refusal.hints().is_some() => {
                let mut of_kept = vec![Requested];
                match self.kept(&whole, &mut of_kept) {
                    Some(kept) => {
                        counts = of_kept;
                        Ok(kept)
                    }
                    None => Err(refusal),
                }
            }
            decided => decided,
        };
        match &outcome {
            Ok(_) => {}
            Err(AssignmentError::Undecided(_)) => counts.clear(),
            Err(refusal) => counts.extend(self.refusal_counts(refusal)),
        }
        TopologyAdmission { outcome, counts }
    }

    /// Where the policy has the pod's resources come from; adds what is counted.
    fn place(
        &self,
        whole: &AssignmentRequest<'_>,
        counts: &mut PlacementCounts,
    ) -> Result<Assignment, AssignmentError> {
        let pod = whole.pod;
        let assigned = match (self.policy, self.scope) {
            (TopologyPolicy::None, _) => {
                self.containers(whole, counts, |_, _| Ok(TopologyHint::NOWHERE))
            }
            (_, TopologyScope::Container) => {
                self.containers(whole, counts, |request, container| {
                    self.container_affinity(request, container)
                        .map_err(|hints| {
                            let hints = format!("container {}: {hints}", container.name);
                            match self.is_pod_level(pod) {
                                true => AssignmentError::PodLevelTopologyAffinity {
                                    what: "with a container-level topology manager",
                                    hints,
                                },
                                false => AssignmentError::TopologyAffinity { hints },
                            }
                        })
                })
            }
            (_, TopologyScope::Pod) if self.is_whole(pod) => {
                let hint = self.pod_affinity(whole).map_err(|hints| {
                    AssignmentError::PodLevelTopologyAffinity {
                        what: "under pod-scope topology manager",
                        hints,
                    }
                })?;
                self.as_a_whole(whole, counts, hint)
            }
            (_, TopologyScope::Pod) => {
                let refused = |hints| AssignmentError::TopologyAffinity { hints };
                let hint = self.pod_affinity(whole).map_err(refused)?;
                self.containers(whole, counts, |_, _| Ok(hint))
            }
        }?;
        if self.counts_alignment(TopologyScope::Pod) {
            counts.push(Aligned(TopologyScope::Pod, NumaNode));
        }
        Ok(assigned)
    }

    /// What the pod holds, if that is all that it asks for; adds what is counted.
    fn kept(
        &self,
        whole: &AssignmentRequest<'_>,
        counts: &mut PlacementCounts,
    ) -> Option<Assignment> {
        let own = whole.held.get(&whole.pod.uid())?;
        let (hints, anywhere) = if self.is_whole(whole.pod) {
            let hints = self.provider_hints(|provider| provider.pod_hints(whole));
            (hints, self.as_a_whole(whole, counts, TopologyHint::NOWHERE))
        } else {
            let containers = whole.pod.all_containers();
            let hints = containers.flat_map(|(_, container)| {
                self.provider_hints(|provider| provider.hints(whole, container))
            });
            let anywhere = self.containers(whole, counts, |_, _| Ok(TopologyHint::NOWHERE));
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
        counts: &mut PlacementCounts,
        affinity: impl Fn(&AssignmentRequest<'_>, &Container) -> Result<TopologyHint, AssignmentError>,
    ) -> Result<Assignment, AssignmentError> {
        let mut assigned = Assignment::default();
        for (_, container) in whole.pod.all_containers() {
            let request = AssignmentRequest {
                assigned: &assigned,
                ..*whole
            };
            let hint = affinity(&request, container)?;
            let mut answers = Vec::with_capacity(self.providers.len());
            for provider in &self.providers {
                let answer = provider.assign(&request, container, hint);
                counts.extend(provider.counts(&request, container, answer.as_ref()));
                answers.push(answer?);
            }
            for resources in answers {
                assigned.assign(&container.name, resources);
            }
            for provider in &self.providers {
                provider.take_over(whole, container, &mut assigned);
            }
            // One that keeps what it has against the hints is not aligned.
            if self.counts_alignment(TopologyScope::Container) && self.policy.admits(hint) {
                counts.push(Aligned(TopologyScope::Container, NumaNode));
            }
        }
        Ok(assigned)
    }

    fn as_a_whole(
        &self,
        whole: &AssignmentRequest<'_>,
        counts: &mut PlacementCounts,
        hint: TopologyHint,
    ) -> Result<Assignment, AssignmentError> {
        let mut assigned = Assignment::default();
        for provider in &self.providers {
            let answer = provider.assign_pod(whole, hint);
            counts.extend(provider.pod_counts(whole, answer.as_ref()));
            assigned.extend(answer?);
        }
        Ok(assigned)
    }

    pub(super) fn container_affinity(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
    ) -> Result<TopologyHint, String> {
        self.affinity(|provider| provider.hints(request, container))
    }

    pub(super) fn pod_affinity(
        &self,
        whole: &AssignmentRequest<'_>,
    ) -> Result<TopologyHint, String> {
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

    /// Whether the pod is assigned its resources as a whole.
    pub(super) fn is_whole(&self, pod: &Pod) -> bool {
        self.scope == TopologyScope::Pod && self.is_pod_level(pod)
    }

    fn is_pod_level(&self, pod: &Pod) -> bool {
        self.pod_level == PodLevelManagers::On && requests::has_pod_level(pod)
    }
}
