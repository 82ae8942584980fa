//! The `annotations` section: what OCI runtimes of several kinds (kata, runsc) know pods by, and what the configuration
//! has passed on to them.

use std::collections::{BTreeMap, HashMap};

use super::SpecInput;
use super::pattern::Pattern;

/// Which annotations a handler is given: those whose names one of the patterns stands for.
#[derive(Clone, Debug, Default)]
pub(crate) struct PassedOn {
    pub(crate) pod: Vec<Pattern>,
    pub(crate) container: Vec<Pattern>,
}

impl PassedOn {
    /// Returns the annotations that are passed on; the container's replace the pod's.
    pub(crate) fn of<'a>(
        &self,
        pod: &'a HashMap<String, String>,
        container: &'a HashMap<String, String>,
    ) -> BTreeMap<&'a str, String> {
        let mut passed = BTreeMap::new();
        for (annotations, patterns) in [(pod, &self.pod), (container, &self.container)] {
            let named = annotations
                .iter()
                .filter(|(key, _)| patterns.iter().any(|pattern| pattern.matches(key)));
            passed.extend(named.map(|(key, value)| (key.as_str(), value.clone())));
        }
        passed
    }
}

/// Nobody's annotation stands in the place of those that say who a container is.
pub(super) fn section(input: SpecInput<'_>) -> BTreeMap<&str, String> {
    let (pod, own) = (&input.sandbox.annotations, &input.config.annotations);
    let mut all = input.passed_on.of(pod, own);
    all.extend(identity(input));
    all
}

/// The names are containerd's.
fn identity(input: SpecInput<'_>) -> BTreeMap<&'static str, String> {
    let pod = input.sandbox.metadata.clone().unwrap_or_default();
    let container = input.config.metadata.clone().unwrap_or_default();
    let image = input.config.image.clone().unwrap_or_default();
    BTreeMap::from([
        ("io.kubernetes.cri.container-type", "container".to_owned()),
        ("io.kubernetes.cri.container-name", container.name),
        ("io.kubernetes.cri.image-name", image.user_specified_image),
        ("io.kubernetes.cri.sandbox-id", input.sandbox_id.to_owned()),
        ("io.kubernetes.cri.sandbox-name", pod.name),
        ("io.kubernetes.cri.sandbox-namespace", pod.namespace),
        ("io.kubernetes.cri.sandbox-uid", pod.uid),
    ])
}
