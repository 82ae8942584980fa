//! The kinds of volumes that this plugin serves.

use proto::storage::KindCapability;
use tonic::Status;

/// A kind of volume that this plugin serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalVolumeKind {
    EmptyDir,
    HostPath,
    ConfigMap,
    Secret,
    Projected,
    DownwardApi,
    Local,
    Nfs,
}

const ALL: [LocalVolumeKind; 8] = [
    LocalVolumeKind::EmptyDir,
    LocalVolumeKind::HostPath,
    LocalVolumeKind::ConfigMap,
    LocalVolumeKind::Secret,
    LocalVolumeKind::Projected,
    LocalVolumeKind::DownwardApi,
    LocalVolumeKind::Local,
    LocalVolumeKind::Nfs,
];

/// Whether a path can hang: the node's own disk, or anything that a pod or a volume names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    Own,
    Foreign,
}

impl LocalVolumeKind {
    /// Upstream's plugin name without "kubernetes.io/".
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::EmptyDir => "empty-dir",
            Self::HostPath => "host-path",
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
            Self::Projected => "projected",
            Self::DownwardApi => "downward-api",
            Self::Local => "local-volume",
            Self::Nfs => "nfs",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        ALL.into_iter().find(|kind| kind.name() == word)
    }

    /// As [`Kind::from_word`]; another word is refused.
    pub(crate) fn read(word: &str) -> Result<Self, Status> {
        let refused = || mounts::requests::unknown_kind(super::NAME, word);
        Self::from_word(word).ok_or_else(refused)
    }

    pub(crate) fn backing(self) -> Backing {
        match self {
            Self::EmptyDir
            | Self::ConfigMap
            | Self::Secret
            | Self::Projected
            | Self::DownwardApi => Backing::Own,
            Self::HostPath | Self::Local | Self::Nfs => Backing::Foreign,
        }
    }

    /// Whether it consists of files that the agent gives.
    pub(crate) fn is_files(self) -> bool {
        match self {
            Self::ConfigMap | Self::Secret | Self::Projected | Self::DownwardApi => true,
            Self::EmptyDir | Self::HostPath | Self::Local | Self::Nfs => false,
        }
    }
}

/// Returns the plugin's answer to Capabilities.
pub(crate) fn capabilities() -> Vec<KindCapability> {
    let capability = |kind: LocalVolumeKind| KindCapability {
        kind: kind.name().to_owned(),
        block: kind == LocalVolumeKind::Local,
        updates: kind.is_files(),
        ..KindCapability::default()
    };
    ALL.into_iter().map(capability).collect()
}
