//! What makes a pod of a manifest a static pod of this node: UID, name, annotations, toleration.
//!
//! The UID is upstream's to the letter, so that a node taken over from a kubelet keeps its pods: the hash (FNV-1a, 128
//! bits; MD5 before v1.35) of the debug dump of the defaulted pod, then of the node and the path. The path must
//! therefore be the one upstream sees: the manifest directory without trailing slashes, a slash, the file's name. A
//! kubelet of another release gives another UID to the same manifest: the one that has a pod directory on this node is
//! kept. Mirrors `applyDefaults` of `pkg/kubelet/config/common.go` and `recordFirstSeenTime` of `config.go` (v1.36).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec, Toleration};

use super::{
    FieldError, FieldErrorKind, ManifestError, UnknownFields, defaults, dump, references, validate,
};
use crate::pod::hash::{Fnv128a, md5_hex};
use crate::types::PodUid;

const CONFIG_HASH: &str = "kubernetes.io/config.hash";
const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
const CONFIG_SOURCE: &str = "kubernetes.io/config.source";

/// Where a manifest came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestSource {
    File(String),
    Url(String),
}

impl ManifestSource {
    /// The word that upstream writes into the pod's `kubernetes.io/config.source`.
    pub fn annotation_value(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Url(_) => "http",
        }
    }
}

/// Where a manifest's pod is to run, and what it may refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticPodContext {
    /// The end of every static pod's name.
    pub node_name: Arc<str>,
    /// Whether static pods may refer to objects of the API.
    pub references: ApiReferences,
    pub unknown_fields: UnknownFields,
    /// The pods that were at home on this node when the agent started.
    pub residents: Arc<BTreeSet<PodUid>>,
}

/// The kubelet release with whose algorithm a static pod's UID was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KubeletRelease {
    V1_34,
    V1_35,
    V1_36,
}

impl KubeletRelease {
    /// The number after the dot.
    pub const fn minor(self) -> u32 {
        match self {
            Self::V1_34 => 34,
            Self::V1_35 => 35,
            Self::V1_36 => 36,
        }
    }

    fn hex(self, text: &[u8]) -> String {
        match self {
            Self::V1_34 => md5_hex(text),
            Self::V1_35 | Self::V1_36 => {
                let mut hash = Fnv128a::new();
                hash.write(text);
                hash.hex()
            }
        }
    }
}

/// Whether a static pod may refer to objects of the API (feature gate `PreventStaticPodAPIReferences`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApiReferences {
    #[default]
    Refused,
    Allowed,
}

impl<T: Into<Arc<str>>> From<T> for StaticPodContext {
    fn from(node_name: T) -> Self {
        StaticPodContext {
            node_name: node_name.into(),
            unknown_fields: UnknownFields::default(),
            references: ApiReferences::default(),
            residents: Arc::default(),
        }
    }
}

/// Returns the pod that runs for a manifest's pod, or why it must not run.
pub fn static_pod(
    mut pod: Pod,
    source: &ManifestSource,
    ground: &StaticPodContext,
    seen: Timestamp,
) -> Result<Pod, ManifestError> {
    let node_name = &*ground.node_name;
    let Some(name) = pod.metadata.name.clone().filter(|name| !name.is_empty()) else {
        let kind = FieldErrorKind::Required {
            detail: "name is needed for the pod",
        };
        return Err(ManifestError::Invalid {
            problems: vec![FieldError {
                field: "metadata.name".to_owned(),
                kind,
            }],
        });
    };
    defaults::apply(&mut pod);
    let uid = pod.metadata.uid.clone().filter(|uid| !uid.is_empty());
    let uid = uid.unwrap_or_else(|| uid_at_home(&pod, source, ground));
    pod.metadata.name = Some(format!("{name}-{}", node_name.to_lowercase()));
    if pod
        .metadata
        .namespace
        .as_deref()
        .unwrap_or_default()
        .is_empty()
    {
        pod.metadata.namespace = Some("default".to_owned());
    }
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(CONFIG_HASH.to_owned(), uid.clone());
    pod.metadata.uid = Some(uid);
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node_name.to_owned());
    if matches!(source, ManifestSource::File(_)) {
        tolerate_no_execute(spec);
    }
    pod.status.get_or_insert_default().phase = Some("Pending".to_owned());
    let problems = validate::pod(&pod);
    if !problems.is_empty() {
        return Err(ManifestError::Invalid { problems });
    }
    if ground.references == ApiReferences::Refused {
        references::refuse(&pod)?;
    }
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(
        CONFIG_SOURCE.to_owned(),
        source.annotation_value().to_owned(),
    );
    annotations.insert(CONFIG_SEEN.to_owned(), seen.to_string());
    Ok(pod)
}

/// The UID of the current release, unless the pod has a directory here under that of an earlier one.
fn uid_at_home(pod: &Pod, source: &ManifestSource, ground: &StaticPodContext) -> String {
    let uid = |release| uid_of(pod, source, &ground.node_name, release);
    let is_at_home = |uid: &String| ground.residents.contains(&PodUid::from(uid.as_str()));
    let newest = uid(KubeletRelease::V1_36);
    if ground.residents.is_empty() || is_at_home(&newest) {
        return newest;
    }
    let mut earlier = [KubeletRelease::V1_35, KubeletRelease::V1_34]
        .into_iter()
        .map(uid);
    earlier.find(is_at_home).unwrap_or(newest)
}

/// The UID that the kubelet of this release gives to the pod of a manifest that names none.
pub fn static_pod_uid(
    mut pod: Pod,
    source: &ManifestSource,
    node_name: &str,
    release: KubeletRelease,
) -> String {
    defaults::apply(&mut pod);
    uid_of(&pod, source, node_name, release)
}

/// The same of the defaulted pod.
fn uid_of(pod: &Pod, source: &ManifestSource, node_name: &str, release: KubeletRelease) -> String {
    let place = match source {
        ManifestSource::File(path) => format!("host:{node_name}file:{path}"),
        ManifestSource::Url(url) => format!("url:{url}"),
    };
    let text = dump::pod(pod, release) + &place;
    release.hex(text.as_bytes())
}

/// A static pod of a file tolerates all NoExecute taints.
fn tolerate_no_execute(spec: &mut PodSpec) {
    let ours = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    let matches = |held: &Toleration| {
        let empty = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
        empty(&held.key)
            && empty(&held.value)
            && held.operator == ours.operator
            && held.effect == ours.effect
    };
    let tolerations = spec.tolerations.get_or_insert_default();
    match tolerations.iter_mut().find(|held| matches(held)) {
        Some(held) => held.toleration_seconds = None,
        None => tolerations.push(ours),
    }
}
