//! emptyDir: its medium and its size limit.
//!
//! Upstream: pkg/volume/emptydir/empty_dir.go (`calculateEmptyDirMemorySize`, `getPageSizeMountOption`; 1.36).

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use logic_api::pod::PodView;
use logic_api::pod::requests::{HUGE_PAGES, MEMORY};
use logic_api::quantity::{Quantity, bytes};
use logic_resources::cgroups::pod_limits;
use logic_resources::node::policy::NodePolicy;

use crate::{EmptyDir, Medium};

const HUGE: &str = "HugePages";

/// What is mounted; the error is the cause as upstream words it.
pub(super) fn empty_dir(
    source: &EmptyDirVolumeSource,
    pod: &Pod,
    node: &NodePolicy,
) -> Result<EmptyDir, String> {
    let limit = positive(source.size_limit.as_ref());
    match source.medium.as_deref().unwrap_or_default() {
        "" => Ok(EmptyDir {
            medium: Medium::Disk,
            size_limit: limit,
        }),
        "Memory" => Ok(EmptyDir {
            medium: Medium::Memory,
            size_limit: memory_size(limit, pod, node),
        }),
        medium if medium == HUGE || medium.starts_with("HugePages-") => Ok(EmptyDir {
            medium: Medium::HugePages(Some(page_size(medium, pod)?)),
            size_limit: limit,
        }),
        unknown => Err(format!("unknown storage medium {unknown:?}")),
    }
}

/// The least of the volume's limit, the pod's and the node's allocatable, in bytes; zero counts as none.
fn memory_size(limit: Option<u64>, pod: &Pod, node: &NodePolicy) -> Option<u64> {
    let of_pod = pod_limits(pod, node).memory.and_then(above_nought);
    let of_node = positive(node.allocatable.get(MEMORY));
    [limit, of_pod, of_node].into_iter().flatten().min()
}

fn positive(amount: Option<&ApiQuantity>) -> Option<u64> {
    bytes(amount).and_then(above_nought)
}

fn above_nought(amount: i64) -> Option<u64> {
    u64::try_from(amount).ok().filter(|amount| *amount > 0)
}

/// The pages that the pod's containers ask for: all of one size, or among them those of the medium's size.
fn page_size(medium: &str, pod: &Pod) -> Result<u64, String> {
    let wanted = match medium.strip_prefix("HugePages-") {
        None => None,
        Some(size) => Some(parse(size)?),
    };
    let mut found = None;
    let containers = pod.app_containers().iter().chain(pod.init_containers());
    for name in containers.flat_map(requested) {
        let size = parse(name)?;
        match wanted {
            Some(wanted) if wanted == size => found = Some(size),
            Some(_) => {}
            None if found.is_some_and(|other| other != size) => {
                return Err(format!(
                    "medium: {medium} can't be used if container requests multiple huge page sizes"
                ));
            }
            None => found = Some(size),
        }
    }
    found.ok_or_else(|| {
        format!(
            "medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
        )
    })
}

/// The sizes of huge pages that a container asks for, as they are written.
fn requested(container: &Container) -> impl Iterator<Item = &str> {
    let requests = container
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    let names = requests.into_iter().flat_map(|list| list.keys());
    names.filter_map(|name| name.strip_prefix(HUGE_PAGES))
}

fn parse(size: &str) -> Result<u64, String> {
    let size = Quantity::parse(size).map_err(|error| error.to_string())?;
    above_nought(size.value()).ok_or_else(|| "a page has more than 0 bytes".to_owned())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;
    use logic_api::testing::*;

    use super::*;

    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;

    fn source(medium: &str, limit: Option<&str>) -> EmptyDirVolumeSource {
        EmptyDirVolumeSource {
            medium: Some(medium.into()),
            size_limit: limit.map(|limit| ApiQuantity(limit.into())),
        }
    }

    fn limited(limits: &[(&str, &str)]) -> Pod {
        let limits = quantities(limits);
        pod("p").app_with("c", |c| {
            c.resources = Some(ResourceRequirements {
                requests: Some(limits.clone()),
                limits: Some(limits),
                ..ResourceRequirements::default()
            });
        })
    }

    /// Upstream's TestCalculateEmptyDirMemorySize.
    #[test]
    fn memory_is_the_least_of_volume_pod_and_node() {
        let cases: [(Pod, &str, Option<&str>, Option<u64>); 8] = [
            (limited(&[]), "16Gi", None, Some(16 * GIB)),
            (limited(&[]), "16Gi", Some("1Gi"), Some(GIB)),
            (limited(&[("memory", "10Gi")]), "16Gi", None, Some(10 * GIB)),
            (
                limited(&[("memory", "10Gi")]),
                "16Gi",
                Some("1Gi"),
                Some(GIB),
            ),
            (limited(&[]), "16Gi", Some("20Gi"), Some(16 * GIB)),
            (
                limited(&[("memory", "20Gi")]),
                "16Gi",
                Some("30Gi"),
                Some(16 * GIB),
            ),
            (limited(&[]), "16Gi", Some("0"), Some(16 * GIB)),
            (limited(&[]), "0", None, None),
        ];
        for (pod, allocatable, limit, expected) in cases {
            let node = NodePolicy {
                allocatable: quantities(&[("memory", allocatable)]),
                ..NodePolicy::default()
            };
            let made = empty_dir(&source("Memory", limit), &pod, &node).unwrap();
            assert_eq!(made.medium, Medium::Memory);
            assert_eq!(made.size_limit, expected, "{allocatable} {limit:?}");
        }
    }

    /// Upstream's TestGetHugePagesMountOptions and TestSetupHugepages.
    #[test]
    fn huge_pages_are_of_the_one_size_that_containers_ask_for() {
        const NONE: &str =
            "hugePages storage requested, but there is no resource request for huge pages";
        let two = ("hugepages-2Mi", "100Mi");
        let one = ("hugepages-1Gi", "2Gi");
        type Case = (
            &'static str,
            Vec<(&'static str, &'static str)>,
            Result<u64, String>,
        );
        let cases: [Case; 9] = [
            ("HugePages", vec![two], Ok(2 * MIB)),
            ("HugePages", vec![], Err(format!("medium HugePages: {NONE}"))),
            ("HugePages", vec![one], Ok(GIB)),
            (
                "HugePages",
                vec![two, one],
                Err(
                    "medium: HugePages can't be used if container requests multiple huge page sizes"
                        .into(),
                ),
            ),
            ("HugePages-2Mi", vec![two, one], Ok(2 * MIB)),
            ("HugePages-1Gi", vec![two, one], Ok(GIB)),
            (
                "HugePages-2Mi",
                vec![one],
                Err(format!("medium HugePages-2Mi: {NONE}")),
            ),
            ("HugePages-1024Mi", vec![one], Ok(GIB)),
            (
                "HugePages-0",
                vec![one],
                Err("a page has more than 0 bytes".into()),
            ),
        ];
        for (medium, asked, expected) in cases {
            let made = empty_dir(
                &source(medium, None),
                &limited(&asked),
                &NodePolicy::default(),
            );
            let size = made.map(|made| {
                let Medium::HugePages(Some(size)) = made.medium else {
                    panic!("{made:?}");
                };
                size
            });
            assert_eq!(size, expected, "{medium} {asked:?}");
        }
    }

    #[test]
    fn a_medium_that_nobody_knows_is_refused() {
        let node = NodePolicy::default();
        let refused = |medium| empty_dir(&source(medium, None), &pod("p"), &node).unwrap_err();
        assert_eq!(refused("Paper"), "unknown storage medium \"Paper\"");
        assert!(refused("HugePages-").contains("must be a quantity"));
        let disk = empty_dir(&source("", Some("1Mi")), &pod("p"), &node).unwrap();
        assert_eq!(disk.size_limit, Some(MIB));
        assert_eq!(disk.medium, Medium::Disk);
    }
}
