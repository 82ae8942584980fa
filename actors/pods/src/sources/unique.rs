//! Names and UIDs are unique within a source: the first pod in lexical order keeps them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;

use super::manifest::SourceError;

/// The pods that may run, and the duplicates that may not.
#[derive(Debug, Default)]
pub(super) struct Unique {
    pub(super) pods: Vec<Arc<Pod>>,
    /// The path of each duplicate's manifest, with the error.
    pub(super) duplicates: Vec<(String, SourceError)>,
}

/// Takes the manifests in lexical order of their paths.
pub(super) fn unique<'a>(manifests: impl IntoIterator<Item = (&'a str, &'a [Arc<Pod>])>) -> Unique {
    let mut names = BTreeMap::new();
    let mut uids = BTreeMap::new();
    let mut unique = Unique::default();
    for (place, pods) in manifests {
        for pod in pods {
            let (uid, name) = (pod.uid(), format!("{}/{}", pod.namespace(), pod.name()));
            let refused = if let Some(holder) = names.get(&name) {
                let holder = String::clone(holder);
                SourceError::DuplicateName { name, holder }
            } else if let Some(holder) = uids.get(&uid) {
                let holder = String::clone(holder);
                SourceError::DuplicateUid {
                    uid: uid.to_string(),
                    holder,
                }
            } else {
                names.insert(name, place.to_owned());
                uids.insert(uid, place.to_owned());
                unique.pods.push(pod.clone());
                continue;
            };
            unique.duplicates.push((place.to_owned(), refused));
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, uid: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.into());
        pod.metadata.uid = Some(uid.into());
        Arc::new(pod)
    }

    #[test]
    fn the_first_in_lexical_order_has_name_and_uid_and_the_error_names_both_files() {
        let (a, b, c) = (
            vec![pod("web", "1")],
            vec![pod("web", "2")],
            vec![pod("other", "1"), pod("third", "3")],
        );
        let unique = unique([("/m/a", &a[..]), ("/m/b", &b[..]), ("/m/c", &c[..])]);
        let names: Vec<&str> = unique.pods.iter().map(|pod| pod.name()).collect();
        assert_eq!(names, ["web", "third"]);
        let said: Vec<String> = unique
            .duplicates
            .iter()
            .map(|(place, why)| format!("{place}: {why}"))
            .collect();
        assert_eq!(
            said,
            [
                "/m/b: metadata.name: pod default/web stands in /m/a already, expected a name of its own",
                "/m/c: metadata.uid: 1 is the uid of a pod in /m/a already, expected a uid of its own",
            ]
        );
    }
}
