//! Parses the bytes of one manifest into pods and problems.

use std::panic::catch_unwind;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use logic_api::manifest::{
    ManifestError, ManifestSource, ParsedManifest, StaticPodContext, parse, static_pod,
};
use logic_api::pod::PodView;
use state::events::InvolvedObject;
use state::folder::FileReadError;

/// The annotation with the time of reading; it differs each time the same manifest is read.
const SEEN_ANNOTATION: &str = "kubernetes.io/config.seen";
/// A UID names folders: the longest name that every file system accepts, less room for a suffix.
const MAX_UID_LENGTH: usize = 253;

/// Why a manifest or one of its pods does not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error(transparent)]
    Unread(#[from] FileReadError),
    #[error("the file's name is not utf-8, expected a name that a log can show")]
    Unspeakable,
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("items[{index}]: {source}")]
    Item { index: usize, source: ManifestError },
    #[error(
        "metadata.uid: found {uid:?}, expected a name for a folder of at most {MAX_UID_LENGTH} characters"
    )]
    UnsafeUid { uid: String },
    #[error("metadata.name: pod {name} stands in {holder} already, expected a name of its own")]
    DuplicateName { name: String, holder: String },
    #[error(
        "metadata.uid: {uid} is the uid of a pod in {holder} already, expected a uid of its own"
    )]
    DuplicateUid { uid: String, holder: String },
    #[error("the manifest broke its reader, which is a mistake of the agent")]
    Broke,
}

/// The contents of one manifest.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    pub(super) pods: Vec<Pod>,
    pub(super) problems: Vec<SourceError>,
    pub(super) warnings: Vec<ManifestWarning>,
}

/// Something that is not as it was written.
#[derive(Debug, Clone)]
pub(super) struct ManifestWarning {
    pub(super) text: String,
    /// The pod that runs without it; none where it is about the whole manifest.
    pub(super) pod: Option<InvolvedObject>,
}

impl From<SourceError> for Manifest {
    fn from(refused: SourceError) -> Self {
        Manifest {
            problems: vec![refused],
            ..Manifest::default()
        }
    }
}

impl Manifest {
    /// Parses a manifest. A panic in the parser is caught, and affects this manifest alone.
    pub(super) fn read(
        data: &[u8],
        source: &ManifestSource,
        ground: &StaticPodContext,
        seen: Timestamp,
    ) -> Manifest {
        let read = || match parse(data, ground.unknown_fields) {
            Ok(parsed) => Manifest::judge(parsed, source, ground, seen),
            Err(error) => SourceError::Manifest(error).into(),
        };
        catch_unwind(read).unwrap_or_else(|_| SourceError::Broke.into())
    }

    fn judge(
        parsed: ParsedManifest,
        source: &ManifestSource,
        ground: &StaticPodContext,
        seen: Timestamp,
    ) -> Manifest {
        let of_manifest = |text| ManifestWarning { text, pod: None };
        let mut manifest = Manifest {
            warnings: parsed.warnings.into_iter().map(of_manifest).collect(),
            ..Manifest::default()
        };
        let many = parsed.pods.len() > 1;
        for (index, item) in parsed.pods.into_iter().enumerate() {
            let mut unknown = Vec::new();
            let pod = item.map_err(SourceError::Manifest).and_then(|item| {
                unknown = item.warnings;
                static_pod(item.pod, source, ground, seen).map_err(|error| match many {
                    true => SourceError::Item {
                        index,
                        source: error,
                    },
                    false => SourceError::Manifest(error),
                })
            });
            let pod = pod.and_then(with_safe_uid);
            let object = pod.as_ref().ok().map(|pod| InvolvedObject::pod(pod, None));
            let warnings = unknown.into_iter().map(|text| ManifestWarning {
                text,
                pod: object.clone(),
            });
            manifest.warnings.extend(warnings);
            match pod {
                Ok(pod) => manifest.pods.push(pod),
                Err(refused) => manifest.problems.push(refused),
            }
        }
        manifest
    }

    /// Replaces the last version and returns its pods. Unchanged pods keep their `Arc`, and
    /// while the manifest has a problem, so do old pods that the mistake may hide.
    pub(super) fn replace(&mut self, old: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let adopt = |mut pod: Pod| {
            let namesake = old.iter().find(|old| is_namesake(old, &pod));
            let uid = pod.uid();
            match namesake.filter(|old| old.uid() == uid) {
                Some(old) => {
                    keep_seen_time(&mut pod, old);
                    if **old == pod {
                        old.clone()
                    } else {
                        Arc::new(pod)
                    }
                }
                None => Arc::new(pod),
            }
        };
        let mut pods: Vec<Arc<Pod>> = std::mem::take(&mut self.pods)
            .into_iter()
            .map(adopt)
            .collect();
        if !self.problems.is_empty() {
            let hidden = old
                .iter()
                .filter(|old| !pods.iter().any(|pod| is_namesake(old, pod)));
            let hidden: Vec<Arc<Pod>> = hidden.cloned().collect();
            pods.extend(hidden);
        }
        pods
    }
}

fn is_namesake(one: &Pod, other: &Pod) -> bool {
    one.name() == other.name() && one.namespace() == other.namespace()
}

/// As upstream: a changed pod keeps the time at which it was first seen.
fn keep_seen_time(pod: &mut Pod, old: &Pod) {
    let new = pod
        .metadata
        .annotations
        .as_mut()
        .and_then(|all| all.get_mut(SEEN_ANNOTATION));
    if let (Some(new), Some(old)) = (new, old.annotations().get(SEEN_ANNOTATION)) {
        new.clone_from(old);
    }
}

fn with_safe_uid(pod: Pod) -> Result<Pod, SourceError> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let safe = |c: char| c != '/' && !c.is_control();
    if uid.is_empty()
        || uid == "."
        || uid == ".."
        || uid.len() > MAX_UID_LENGTH
        || !uid.chars().all(safe)
    {
        let uid = uid.chars().take(MAX_UID_LENGTH).collect();
        return Err(SourceError::UnsafeUid { uid });
    }
    Ok(pod)
}

#[cfg(test)]
mod tests {
    use kernel::error_chain;

    use super::*;

    fn read(text: &str) -> Manifest {
        let source = ManifestSource::File("/m/a.yaml".into());
        Manifest::read(
            text.as_bytes(),
            &source,
            &"node".into(),
            Timestamp::UNIX_EPOCH,
        )
    }

    fn pod(name: &str, image: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, uid: u-{name}}}, spec: {{containers: [{{name: c, image: {image}}}]}}}}"
        )
    }

    fn list(pods: &[String]) -> String {
        format!(
            "{{apiVersion: v1, kind: List, items: [{}]}}",
            pods.join(",")
        )
    }

    #[test]
    fn uid_that_is_no_name_for_a_folder_is_refused_with_field_and_expectation() {
        for bad in ["..", ".", "a/b", "../../etc", "\"a\\tb\"", &"x".repeat(254)] {
            let text = format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: a, uid: {bad}}}, spec: {{containers: [{{name: c, image: i}}]}}}}"
            );
            let manifest = read(&text);
            assert!(manifest.pods.is_empty(), "{bad}");
            let said = error_chain(&manifest.problems[0]);
            assert!(
                said.contains("metadata.uid") && said.contains("expected"),
                "{bad}: {said}"
            );
        }
    }

    #[test]
    fn unchanged_pods_stay_the_very_same_object() {
        let old = read(&list(&[pod("a", "one"), pod("b", "one")])).replace(&[]);
        let new = read(&list(&[pod("a", "two"), pod("b", "one")])).replace(&old);
        assert!(!Arc::ptr_eq(&old[0], &new[0]));
        assert!(Arc::ptr_eq(&old[1], &new[1]));
    }

    #[test]
    fn a_mistake_keeps_the_pods_that_it_may_hide() {
        let old = read(&list(&[pod("a", "one"), pod("b", "one")])).replace(&[]);
        let mut broken = read(&list(&[
            pod("a", "two"),
            "{apiVersion: v1, kind: Pod, metadata: {nome: b}}".into(),
        ]));
        assert_eq!(broken.problems.len(), 1, "{:?}", broken.problems);
        let new = broken.replace(&old);
        assert_eq!(new.len(), 2);
        assert!(Arc::ptr_eq(&old[1], &new[1]));
        let gone = read(&list(&[pod("a", "two")])).replace(&new);
        assert_eq!(gone.len(), 1);
    }

    #[test]
    fn a_pod_changed_in_place_keeps_when_it_was_first_seen() {
        let old = read(&pod("a", "one")).replace(&[]);
        let source = ManifestSource::File("/m/a.yaml".into());
        let later = Timestamp::from_second(77).unwrap();
        let new = Manifest::read(pod("a", "two").as_bytes(), &source, &"node".into(), later)
            .replace(&old);
        assert_eq!(
            new[0].annotations()[SEEN_ANNOTATION],
            old[0].annotations()[SEEN_ANNOTATION]
        );
    }
}
