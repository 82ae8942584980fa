//! What makes a pod of a manifest a static pod of this node: UID, name, annotations, toleration.
//!
//! The UID is upstream's to the letter, so that a node taken over from a kubelet keeps its pods: the hash (FNV-1a, 128 bits; MD5
//! before v1.35) of the debug dump of the defaulted pod, then of the node and the path. The path must therefore be the one upstream
//! sees: the manifest folder without trailing slashes, a slash, the file's name.
//! Mirrors `applyDefaults` of `pkg/kubelet/config/common.go` and `recordFirstSeenTime` of `config.go` (v1.36).

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec, Toleration};

use super::{ManifestError, Problem, ProblemKind, defaults, dump, references, validate};
use crate::hash::Fnv128a;

const CONFIG_HASH: &str = "kubernetes.io/config.hash";
const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
const CONFIG_SOURCE: &str = "kubernetes.io/config.source";

/// Where a manifest came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    File(String),
    Url(String),
}

impl Source {
    /// The word that upstream writes into the pod's `kubernetes.io/config.source`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Url(_) => "http",
        }
    }
}

/// Where a manifest's pod is to run, and what it may refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ground {
    pub node_name: Arc<str>,
    pub references: References,
}

/// Whether a static pod may refer to objects of the API (feature gate `PreventStaticPodAPIReferences`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum References {
    #[default]
    Refused,
    Allowed,
}

impl<T: Into<Arc<str>>> From<T> for Ground {
    fn from(node_name: T) -> Self {
        Ground {
            node_name: node_name.into(),
            references: References::default(),
        }
    }
}

/// Returns the pod that runs for a manifest's pod, or why it must not run.
pub fn static_pod(
    mut pod: Pod,
    source: &Source,
    ground: &Ground,
    seen: Timestamp,
) -> Result<Pod, ManifestError> {
    let node_name = &*ground.node_name;
    let Some(name) = pod.metadata.name.clone().filter(|name| !name.is_empty()) else {
        let kind = ProblemKind::Required {
            detail: "name is needed for the pod",
        };
        return Err(ManifestError::Invalid {
            problems: vec![Problem {
                field: "metadata.name".to_owned(),
                kind,
            }],
        });
    };
    defaults::apply(&mut pod);
    let uid = pod.metadata.uid.clone().filter(|uid| !uid.is_empty());
    let uid = uid.unwrap_or_else(|| uid_of(&pod, source, node_name));
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
    if matches!(source, Source::File(_)) {
        tolerate_no_execute(spec);
    }
    pod.status.get_or_insert_default().phase = Some("Pending".to_owned());
    let problems = validate::pod(&pod);
    if !problems.is_empty() {
        return Err(ManifestError::Invalid { problems });
    }
    if ground.references == References::Refused {
        references::refuse(&pod)?;
    }
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(CONFIG_SOURCE.to_owned(), source.word().to_owned());
    annotations.insert(CONFIG_SEEN.to_owned(), seen.to_string());
    Ok(pod)
}

fn uid_of(pod: &Pod, source: &Source, node_name: &str) -> String {
    let mut hash = Fnv128a::new();
    hash.write(dump::pod(pod).as_bytes());
    let place = match source {
        Source::File(path) => format!("host:{node_name}file:{path}"),
        Source::Url(url) => format!("url:{url}"),
    };
    hash.write(place.as_bytes());
    hash.hex()
}

/// A static pod of a file stays when its node is in trouble.
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
