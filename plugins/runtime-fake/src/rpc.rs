//! The names of CRI's calls, as faults and delays name them.

use serde::{Deserialize, Deserializer, de};
use strum::{EnumCount, EnumString, IntoStaticStr, VariantNames};

/// One call of CRI v1.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    EnumCount,
    EnumString,
    IntoStaticStr,
    VariantNames,
)]
#[allow(missing_docs, reason = "the names are CRI's own")]
pub enum Rpc {
    Version,
    RunPodSandbox,
    StopPodSandbox,
    RemovePodSandbox,
    PodSandboxStatus,
    ListPodSandbox,
    StreamPodSandboxes,
    CreateContainer,
    StartContainer,
    StopContainer,
    RemoveContainer,
    ListContainers,
    StreamContainers,
    ContainerStatus,
    UpdateContainerResources,
    ReopenContainerLog,
    ExecSync,
    Exec,
    Attach,
    PortForward,
    ContainerStats,
    ListContainerStats,
    StreamContainerStats,
    PodSandboxStats,
    ListPodSandboxStats,
    StreamPodSandboxStats,
    UpdateRuntimeConfig,
    Status,
    CheckpointContainer,
    CheckpointPod,
    RestorePod,
    GetContainerEvents,
    ListMetricDescriptors,
    ListPodSandboxMetrics,
    StreamPodSandboxMetrics,
    RuntimeConfig,
    UpdatePodSandboxResources,
    ListImages,
    StreamImages,
    ImageStatus,
    PullImage,
    RemoveImage,
    ImageFsInfo,
}

impl Rpc {
    /// How many calls CRI has.
    pub(crate) const COUNT: usize = <Self as EnumCount>::COUNT;

    /// Returns the call's name in CRI.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Which calls a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Every call, written `*`.
    All,
    /// Calls of this name.
    Only(Rpc),
}

impl Calls {
    /// Tells whether `rpc` is one of them.
    pub fn include(self, rpc: Rpc) -> bool {
        match self {
            Calls::All => true,
            Calls::Only(one) => one == rpc,
        }
    }
}

fn unknown<E: de::Error>(name: &str) -> E {
    let shown: String = name.chars().take(64).collect();
    E::custom(format!(
        "{shown:?} is not a call of CRI: expected one of {}",
        Rpc::VARIANTS.join(", ")
    ))
}

impl<'de> Deserialize<'de> for Rpc {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        name.parse().map_err(|_| unknown(&name))
    }
}

impl<'de> Deserialize<'de> for Calls {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        if name == "*" {
            return Ok(Calls::All);
        }
        name.parse().map(Calls::Only).map_err(|_| unknown(&name))
    }
}
