//! How many bytes of each size of huge pages a container may use.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use logic_api::pod::PodView;
use logic_api::pod::requests::HUGE_PAGES;
use logic_api::quantity::bytes;

use super::limits as limits_of;

/// Zero for every size of the node that neither the container nor its pod has a limit for.
pub(super) fn limits(pod: &Pod, container: &Container, sizes: &[String]) -> BTreeMap<String, u64> {
    let pod_level = pod
        .spec()
        .and_then(|spec| spec.resources.as_ref()?.limits.as_ref());
    let mut wanted = BTreeMap::new();
    for list in [pod_level, limits_of(container)].into_iter().flatten() {
        wanted.extend(list.iter().filter_map(wanted_limit));
    }
    let limit = |size: &String| (size.clone(), wanted.get(size).copied().unwrap_or(0));
    sizes.iter().map(limit).collect()
}

fn wanted_limit((name, amount): (&String, &Quantity)) -> Option<(String, u64)> {
    let size = Quantity(name.strip_prefix(HUGE_PAGES)?.to_owned());
    let size = huge_page_name(u64::try_from(bytes(Some(&size))?).ok()?)?;
    let amount = u64::try_from(bytes(Some(amount))?).ok()?;
    Some((size, amount))
}

/// A page size as cgroups name it (`2MB`): in the largest unit, which it must be a whole multiple of.
pub fn huge_page_name(size: u64) -> Option<String> {
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    let (mut size, mut unit) = (size, 0);
    while size % 1024 == 0 && unit < UNITS.len() - 1 {
        (size, unit) = (size / 1024, unit + 1);
    }
    let whole = size <= 1024 || unit == UNITS.len() - 1;
    whole.then(|| format!("{size}{}", UNITS[unit]))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;
    use logic_api::testing::*;

    use super::*;

    type HugePageList = &'static [(&'static str, &'static str)];

    fn limited(list: HugePageList) -> Option<ResourceRequirements> {
        Some(ResourceRequirements {
            limits: Some(quantities(list)),
            ..ResourceRequirements::default()
        })
    }

    /// Upstream's TestGetHugepageLimitsFromResources.
    #[test]
    fn every_size_of_the_node_has_a_limit_and_the_container_goes_before_its_pod() {
        const MIB: u64 = 1 << 20;
        const GIB: u64 = 1 << 30;
        let cases: [(HugePageList, HugePageList, u64, u64); 10] = [
            (&[], &[], 0, 0),
            (&[], &[("hugepages-2Mi", "2Mi")], 2 * MIB, 0),
            (&[], &[("hugepages-1Gi", "2Gi")], 0, 2 * GIB),
            (&[], &[("hugepages-2MB", "2Mi")], 0, 0),
            (&[], &[("hugepages-1GB", "2Gi")], 0, 0),
            (
                &[],
                &[
                    ("cpu", "0"),
                    ("hugepages-2Mi", "2Mi"),
                    ("hugepages-1Gi", "2Gi"),
                ],
                2 * MIB,
                2 * GIB,
            ),
            (&[], &[("hugepages-32Mi", "32Mi")], 0, 0),
            (&[("hugepages-2Mi", "4Mi")], &[], 4 * MIB, 0),
            (
                &[("hugepages-2Mi", "4Mi")],
                &[("hugepages-1Gi", "1Gi")],
                4 * MIB,
                GIB,
            ),
            (
                &[("hugepages-2Mi", "4Mi")],
                &[("hugepages-2Mi", "2Mi")],
                2 * MIB,
                0,
            ),
        ];
        let sizes = ["2MB".to_owned(), "1GB".to_owned()];
        for (shared, own, two, one) in cases {
            let pod = pod("p")
                .spec_with(|spec| spec.resources = limited(shared))
                .app_with("c", |c| c.resources = limited(own));
            let made = limits(&pod, &pod.app_containers()[0], &sizes);
            let expected = [("1GB".to_owned(), one), ("2MB".to_owned(), two)];
            assert_eq!(made, BTreeMap::from(expected), "{shared:?} {own:?}");
        }
    }

    /// Upstream's TestHugePageUnitSizeFromByteSize.
    #[test]
    fn a_page_size_is_named_in_its_largest_unit() {
        let cases = [
            (1024, Some("1KB")),
            (33_554_432, Some("32MB")),
            (3_221_225_472, Some("3GB")),
            (1024 * 1024 * 1023 * 3, None),
            (1023, Some("1023B")),
            (1025, None),
        ];
        for (size, expected) in cases {
            assert_eq!(huge_page_name(size).as_deref(), expected, "{size}");
        }
    }
}
