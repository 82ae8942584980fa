//! The downward API: facts of the pod as files.
//!
//! Mirrors `CollectData` of upstream's pkg/volume/downwardapi and pkg/fieldpath. Fewer fields than in variables: no
//! address, and no limit of the pod as a whole stands in for that of a container.

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, Pod, ResourceFieldSelector};
use logic_api::pod::PodView;
use logic_api::text::field_path::{lines, subscript};
use logic_resources::node::policy::NodePolicy;
use logic_resources::resources::{self, ResourceFieldError};

use super::super::FileProjection;
use super::problem::FilesProblem;
use super::{FilesBuilder, bits};

pub(super) fn collect(builder: &mut FilesBuilder<'_>, items: &[DownwardAPIVolumeFile], mode: u32) {
    for item in items {
        if builder.is_full() {
            return;
        }
        match content(builder.pod, item, builder.context.node) {
            Ok(text) => {
                let file = FileProjection {
                    data: text.into_bytes(),
                    mode: item.mode.map_or(mode, |mode| bits(Some(mode))),
                    owner: None,
                };
                builder.put(&item.path, file);
            }
            Err(problem) => builder.problems.push(problem),
        }
    }
}

fn content(
    pod: &Pod,
    item: &DownwardAPIVolumeFile,
    node: &NodePolicy,
) -> Result<String, FilesProblem> {
    match (&item.field_ref, &item.resource_field_ref) {
        (Some(selector), _) => field(pod, &selector.field_path),
        (None, Some(selector)) => Ok(resource(pod, selector, node)?.to_string()),
        (None, None) => Ok(String::new()),
    }
}

fn field(pod: &Pod, path: &str) -> Result<String, FilesProblem> {
    if let Some((field, key)) = subscript(path) {
        let words = match field {
            "metadata.labels" => pod.labels(),
            "metadata.annotations" => pod.annotations(),
            _ => return Err(FilesProblem::Subscript(path.to_owned())),
        };
        return Ok(words.get(key).cloned().unwrap_or_default());
    }
    match path {
        "metadata.labels" => Ok(lines(pod.labels())),
        "metadata.annotations" => Ok(lines(pod.annotations())),
        "metadata.name" => Ok(pod.name().to_owned()),
        "metadata.namespace" => Ok(pod.namespace().to_owned()),
        "metadata.uid" => Ok(pod.uid().to_string()),
        _ => Err(FilesProblem::Field(path.to_owned())),
    }
}

/// What the node gives to pods stands in for a limit of any container, init containers too.
fn resource(
    pod: &Pod,
    selector: &ResourceFieldSelector,
    node: &NodePolicy,
) -> Result<i64, ResourceFieldError> {
    let name = selector.container_name.as_deref().unwrap_or_default();
    let mut all = pod.app_containers().iter().chain(pod.init_containers());
    let found = all.find(|container| container.name == name);
    let container = found.ok_or_else(|| ResourceFieldError::Container {
        container: name.to_owned(),
    })?;
    let of_it = ResourceFieldSelector {
        container_name: None,
        ..selector.clone()
    };
    resources::field(&Pod::default(), container, &of_it, node)
}
