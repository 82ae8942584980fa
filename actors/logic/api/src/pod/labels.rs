//! The labels, annotations and log paths by which the kubelet's kind knows its own containers.
//!
//! Upstream's keys and formats to the letter (kuberuntime/labels.go, helpers.go, legacy.go at
//! v1.36): they are what lets this agent take over a node, and hand it back, without a restart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Lifecycle, Pod, ResourceRequirements};

use crate::pod::PodView;
use crate::pod::hash::container_hash;
use crate::types::{ContainerId, PodUid, RuntimeContainer};

pub const POD_NAME: &str = "io.kubernetes.pod.name";
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub const POD_UID: &str = "io.kubernetes.pod.uid";
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";

pub const POD_DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";
pub const POD_TERMINATION_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
pub const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
pub const CONTAINER_PORTS: &str = "io.kubernetes.container.ports";
/// The one annotation of a container that is not upstream's: the CPU and memory that it is made with, as JSON of the
/// API. An agent that was killed in the middle of a start has no other record of them.
pub const CONTAINER_RESOURCES: &str = "oxlet.dev/resources";

/// Where upstream keeps pod logs, unless configured.
pub const POD_LOGS_DIR: &str = "/var/log/pods";
/// Where cluster log collectors look for containers' logs.
pub const CONTAINER_LOGS_DIR: &str = "/var/log/containers";

type StringMap = BTreeMap<String, String>;

pub fn sandbox_labels(pod: &Pod) -> StringMap {
    let mut labels = pod.labels().clone();
    labels.extend(identity(pod));
    labels
}

pub fn sandbox_annotations(pod: &Pod) -> StringMap {
    pod.annotations().clone()
}

pub fn container_labels(pod: &Pod, container: &Container) -> StringMap {
    let mut labels = StringMap::from(identity(pod));
    labels.insert(CONTAINER_NAME.into(), container.name.clone());
    labels
}

pub fn container_annotations(pod: &Pod, container: &Container, restart_count: u32) -> StringMap {
    let path = container.termination_message_path.as_ref();
    let policy = container.termination_message_policy.as_ref();
    let mut words = StringMap::from([
        (
            CONTAINER_HASH.into(),
            format!("{:x}", container_hash(container)),
        ),
        (RESTART_COUNT.into(), restart_count.to_string()),
        (
            TERMINATION_MESSAGE_PATH.into(),
            path.cloned().unwrap_or_default(),
        ),
        (
            TERMINATION_MESSAGE_POLICY.into(),
            policy.cloned().unwrap_or_default(),
        ),
    ]);

    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            words.insert(key.into(), value);
        }
    };
    let deletion = pod.metadata.deletion_grace_period_seconds;
    let termination = pod.spec().and_then(|s| s.termination_grace_period_seconds);
    let pre_stop = container
        .lifecycle
        .as_ref()
        .and_then(|l| l.pre_stop.as_ref());
    let ports = container.ports.as_ref().filter(|ports| !ports.is_empty());
    put(POD_DELETION_GRACE, deletion.map(|s| s.to_string()));
    put(POD_TERMINATION_GRACE, termination.map(|s| s.to_string()));
    put(
        PRE_STOP_HANDLER,
        pre_stop.and_then(|h| serde_json::to_string(h).ok()),
    );
    put(
        CONTAINER_PORTS,
        ports.and_then(|p| serde_json::to_string(p).ok()),
    );
    put(CONTAINER_RESOURCES, resources(container));
    words
}

/// What is default is not told.
fn resources(container: &Container) -> Option<String> {
    let resources = ResourceRequirements {
        claims: None,
        ..container.resources.clone()?
    };
    (resources != ResourceRequirements::default())
        .then(|| serde_json::to_string(&resources).ok())
        .flatten()
}

fn identity(pod: &Pod) -> [(String, String); 3] {
    [
        (POD_NAME.into(), pod.name().into()),
        (POD_NAMESPACE.into(), pod.namespace().into()),
        (POD_UID.into(), pod.uid().to_string()),
    ]
}

/// Which pod a sandbox or container belongs to, by its labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodOwner {
    pub uid: PodUid,
    pub name: String,
    pub namespace: String,
}

/// Reads the owner from labels; none if the sandbox or container was not made by a kubelet.
pub fn owner(labels: &StringMap) -> Option<PodOwner> {
    Some(PodOwner {
        uid: labels
            .get(POD_UID)
            .filter(|uid| !uid.is_empty())?
            .as_str()
            .into(),
        name: labels.get(POD_NAME)?.clone(),
        namespace: labels.get(POD_NAMESPACE)?.clone(),
    })
}

/// A container's annotations, decoded; a missing or malformed one is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerNotes {
    /// Of the definition that the container was made from; none if another agent made it.
    pub hash: Option<u64>,
    /// How often the container had been made before.
    pub restart_count: u32,
    /// Seconds, of a pod that was being deleted.
    pub deletion_grace: Option<u64>,
    /// Seconds, of the pod's definition.
    pub termination_grace: Option<u64>,
    /// Where the container writes it, inside.
    pub termination_message_path: String,
    /// `File` or `FallbackToLogsOnError`.
    pub termination_message_policy: String,
    /// As JSON; empty where the container has no preStop hook.
    pub pre_stop: String,
    /// As JSON; empty where the container names none.
    pub ports: String,
    /// As JSON; empty where they are the default ones, or another agent made the container.
    pub resources: String,
}

pub fn container_notes(annotations: &StringMap) -> ContainerNotes {
    let text = |key: &str| annotations.get(key).cloned().unwrap_or_default();
    let seconds = |key: &str| annotations.get(key)?.parse::<i64>().ok()?.try_into().ok();
    ContainerNotes {
        hash: u64::from_str_radix(&text(CONTAINER_HASH), 16).ok(),
        restart_count: text(RESTART_COUNT).parse().unwrap_or(0),
        deletion_grace: seconds(POD_DELETION_GRACE),
        termination_grace: seconds(POD_TERMINATION_GRACE),
        termination_message_path: text(TERMINATION_MESSAGE_PATH),
        termination_message_policy: text(TERMINATION_MESSAGE_POLICY),
        pre_stop: text(PRE_STOP_HANDLER),
        ports: text(CONTAINER_PORTS),
        resources: text(CONTAINER_RESOURCES),
    }
}

/// What a container's annotations tell of its definition: enough to end it, hook and all, where the pod's object is
/// gone (upstream's `restoreSpecsFromContainerLabels`). What does not read is absent.
pub fn restored_container(container: &RuntimeContainer) -> Container {
    let pre_stop = serde_json::from_str(&container.pre_stop).ok();
    Container {
        name: container.name.clone(),
        ports: serde_json::from_str(&container.ports).ok(),
        lifecycle: pre_stop.map(|handler| Lifecycle {
            pre_stop: Some(handler),
            ..Lifecycle::default()
        }),
        ..Container::default()
    }
}

/// `ROOT/NAMESPACE_NAME_UID`: the directory of a pod's logs.
pub fn pod_log_directory(root: &Path, namespace: &str, name: &str, uid: &PodUid) -> PathBuf {
    root.join(format!("{namespace}_{name}_{uid}"))
}

/// The pod whose logs a directory of [`POD_LOGS_DIR`] holds: the end of its name, as upstream's
/// `parsePodUIDFromLogsDirectory` has it, which knows directories of older kubelets by that.
pub fn pod_uid_of_log_directory(name: &str) -> PodUid {
    let uid = name.rsplit_once('_').map_or(name, |(_, uid)| uid);
    uid.into()
}

/// The folder of all pods' logs and the path below it: `NAMESPACE_NAME_UID/NAME/ATTEMPT.log`.
///
/// A pod may be given the folder or one above it as a hostPath volume, so what is below is the pods' to change.
pub fn split_log_path(path: &Path) -> Option<(&Path, &Path)> {
    let root = path.ancestors().nth(3)?;
    Some((root, path.strip_prefix(root).ok()?))
}

/// `NAME/ATTEMPT.log`, within the pod's log directory.
pub fn container_log_path(name: &str, attempt: u32) -> PathBuf {
    Path::new(name).join(format!("{attempt}.log"))
}

/// The link in `folder` ([`CONTAINER_LOGS_DIR`]) by which log collectors find a container's log.
pub fn legacy_log_link(folder: &Path, pod: &Pod, container: &str, id: &ContainerId) -> PathBuf {
    /// Bytes of the link's name: the kernel takes no longer name of a file.
    const LONGEST: usize = 255;
    const SUFFIX: &str = ".log";
    let mut name = format!("{}_{}_{container}-{id}", pod.name(), pod.namespace());
    truncate(&mut name, LONGEST - SUFFIX.len());
    folder.join(name + SUFFIX)
}

/// The restart count to go on with, from the names in a container's log directory.
///
/// A runtime may forget its containers over a reboot; the logs stay. Upstream's `calcRestartCountByLogDir`: the
/// highest `N.log` (rotated or not) plus one, or zero.
pub fn restart_count_from_logs<'a>(names: impl IntoIterator<Item = &'a str>) -> u32 {
    let numbers = names.into_iter().filter_map(log_number);
    numbers.max().map_or(0, |highest| highest.saturating_add(1))
}

fn log_number(name: &str) -> Option<u32> {
    let (number, rest) = name.split_once('.')?;
    let is_log = rest.starts_with("log") && number.bytes().all(|b| b.is_ascii_digit());
    is_log.then(|| number.parse().ok()).flatten()
}

/// Cuts at a character's border, so that an odd name never panics.
pub fn truncate(text: &mut String, longest: usize) {
    let mut end = longest.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ContainerPort, ExecAction, LifecycleHandler};

    use super::*;
    use crate::testing::*;
    use crate::types::ContainerState;

    #[test]
    fn sandboxes_and_containers_carry_upstreams_labels() {
        let mut pod = pod("web").app("main");
        pod.metadata.labels = Some(string_map(&[("app", "web")]));
        let identity = [
            (POD_NAME, "web"),
            (POD_NAMESPACE, "default"),
            (POD_UID, "web-uid"),
        ];
        let mut expected = string_map(&identity);
        let container = container_labels(&pod, &pod.app_containers()[0]);
        let owner = owner(&container).unwrap();
        assert_eq!(
            (owner.uid.as_str(), owner.name.as_str()),
            ("web-uid", "web")
        );
        expected.insert(CONTAINER_NAME.into(), "main".into());
        assert_eq!(container, expected);
        expected.remove(CONTAINER_NAME);
        expected.insert("app".into(), "web".into());
        assert_eq!(sandbox_labels(&pod), expected);
        let annotations = string_map(&[("foo", "bar")]);
        pod.metadata.annotations = Some(annotations.clone());
        assert_eq!(sandbox_annotations(&pod), annotations);
    }

    #[test]
    fn container_annotations_are_upstreams_and_read_back() {
        let mut pod = pod("web").app_with("main", |c| {
            c.termination_message_path = Some("/dev/termination-log".into());
            c.termination_message_policy = Some("File".into());
            c.ports = Some(vec![ContainerPort {
                container_port: 80,
                protocol: Some("TCP".into()),
                ..ContainerPort::default()
            }]);
            let exec = ExecAction {
                command: Some(vec!["sync".into()]),
            };
            let pre_stop = LifecycleHandler {
                exec: Some(exec),
                ..LifecycleHandler::default()
            };
            c.lifecycle = Some(Lifecycle {
                pre_stop: Some(pre_stop),
                ..Lifecycle::default()
            });
        });
        pod.metadata.deletion_grace_period_seconds = Some(5);
        pod.spec.as_mut().unwrap().termination_grace_period_seconds = Some(30);
        let container = &pod.app_containers()[0];
        let annotations = container_annotations(&pod, container, 3);
        let hash = format!("{:x}", container_hash(container));
        let expected = string_map(&[
            ("io.kubernetes.container.hash", &hash),
            (
                "io.kubernetes.container.ports",
                r#"[{"containerPort":80,"protocol":"TCP"}]"#,
            ),
            (
                "io.kubernetes.container.preStopHandler",
                r#"{"exec":{"command":["sync"]}}"#,
            ),
            ("io.kubernetes.container.restartCount", "3"),
            (
                "io.kubernetes.container.terminationMessagePath",
                "/dev/termination-log",
            ),
            ("io.kubernetes.container.terminationMessagePolicy", "File"),
            ("io.kubernetes.pod.deletionGracePeriod", "5"),
            ("io.kubernetes.pod.terminationGracePeriod", "30"),
        ]);
        assert_eq!(annotations, expected);
        let notes = container_notes(&annotations);
        assert_eq!(notes.hash, Some(container_hash(container)));
        assert_eq!(
            (
                notes.restart_count,
                notes.deletion_grace,
                notes.termination_grace
            ),
            (3, Some(5), Some(30))
        );
        let seen = RuntimeContainer {
            pre_stop: notes.pre_stop,
            ports: notes.ports,
            ..bare("main-3", "s0", "main", ContainerState::Running)
        };
        let restored = restored_container(&seen);
        assert_eq!(
            (restored.lifecycle, restored.ports),
            (container.lifecycle.clone(), container.ports.clone())
        );
    }

    #[test]
    fn a_container_says_what_it_is_made_with() {
        let resources: ResourceRequirements = serde_json::from_value(serde_json::json!(
            {"limits": {"cpu": "1"}, "claims": [{"name": "gpu"}]}
        ))
        .unwrap();
        let pod = pod("web").app_with("main", |c| c.resources = Some(resources));
        let annotations = container_annotations(&pod, &pod.app_containers()[0], 0);
        let told = r#"{"limits":{"cpu":"1"}}"#;
        assert_eq!(annotations[CONTAINER_RESOURCES], told);
        assert_eq!(container_notes(&annotations).resources, told);
    }

    #[test]
    fn what_a_definition_does_not_say_is_not_in_the_annotations() {
        let pod = pod("web").app("main");
        let notes = container_notes(&container_annotations(&pod, &pod.app_containers()[0], 5));
        assert_eq!(
            (notes.deletion_grace, notes.termination_grace),
            (None, None)
        );
        assert_eq!((notes.pre_stop.as_str(), notes.restart_count), ("", 5));
        let odd = RuntimeContainer {
            pre_stop: "{".into(),
            ..bare("main-3", "s0", "main", ContainerState::Running)
        };
        let restored = restored_container(&odd);
        assert_eq!((restored.name.as_str(), restored.lifecycle), ("main", None));
    }

    #[test]
    fn malformed_annotations_read_as_absent() {
        let notes = container_notes(&string_map(&[
            (CONTAINER_HASH, "xyz"),
            (RESTART_COUNT, "-1"),
            (POD_TERMINATION_GRACE, "-3"),
        ]));
        assert_eq!(notes, ContainerNotes::default());
        assert_eq!(owner(&string_map(&[(POD_UID, "u")])), None);
    }

    #[test]
    fn paths_are_upstreams() {
        let pod = pod("web");
        let folder = pod_log_directory(Path::new(POD_LOGS_DIR), "default", "web", &"u".into());
        assert_eq!(folder, Path::new("/var/log/pods/default_web_u"));
        for name in ["default_web_u", "u"] {
            assert_eq!(pod_uid_of_log_directory(name).as_str(), "u");
        }
        assert_eq!(container_log_path("main", 2), Path::new("main/2.log"));
        let link = legacy_log_link(Path::new(CONTAINER_LOGS_DIR), &pod, "main", &"abc".into());
        assert_eq!(
            link,
            Path::new("/var/log/containers/web_default_main-abc.log")
        );
        let long = legacy_log_link(
            Path::new(CONTAINER_LOGS_DIR),
            &pod,
            "main",
            &"x".repeat(300).as_str().into(),
        );
        let name = format!("web_default_main-{}", "x".repeat(300));
        let cut = format!("{}.log", &name[..251]);
        assert_eq!(long.file_name().unwrap(), cut.as_str());
    }

    /// Upstream's TestRestartCountByLogDir.
    #[test]
    fn restart_count_is_one_above_the_highest_log() {
        let cases: [(&[&str], u32); 18] = [
            (&["0.log.rotated-log"], 1),
            (&["0.log"], 1),
            (&["0.log", "1.log", "2.log"], 3),
            (&["0.log.rotated", "1.log", "2.log"], 3),
            (&["5.log.rotated", "6.log.rotated"], 7),
            (&["5.log.rotated", "6.log", "7.log"], 8),
            (&[], 0),
            (&["a.log.rotated", "b.log.rotated", "12log.rotated"], 0),
            (&["145.log.log.rotated"], 146),
            (&["92233720368547758089223372036854775808.log.rotated"], 0),
            (
                &[
                    "9223372036854775808.log.rotated",
                    "23.log",
                    "23a.log",
                    "1aaa.log.rotated",
                    "2.log",
                    "3.log.rotated",
                ],
                24,
            ),
            (&["rotated.23.log"], 0),
            (&["mylog42.log"], 0),
            (&["-42.log"], 0),
            (&["6.log", "6.log.rotated", "6.log.rotated.rotated"], 7),
            (&["0.log", "1.log.20060102-150405", "1.log.gz"], 2),
            (&["5.log.rotated", "a.log", "+7.log", "99999999999.log"], 6),
            (&["log", ".log", "7.txt"], 0),
        ];
        for (names, count) in cases {
            assert_eq!(
                restart_count_from_logs(names.iter().copied()),
                count,
                "{names:?}"
            );
        }
    }
}
