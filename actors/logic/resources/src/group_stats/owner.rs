//! Whose group a cgroup is, by its name. Mirrors `extractIDFromCgroupPath` of pkg/kubelet/stats and `IsPodCgroup` of
//! pkg/kubelet/cm (1.36).

use logic_api::types::PodUid;

/// The runtime's id of the container or sandbox that a group's name ends with: the name itself, of a scope of systemd
/// what follows its last `-`. None for mounts and CRI-O's monitors, whose names hold an id too.
pub fn container_id(group: &str) -> Option<&str> {
    let name = last(group);
    if name.ends_with(".mount") || name.contains("conmon") {
        return None;
    }
    match name.strip_suffix(".scope") {
        Some(scope) => Some(scope.rsplit('-').next().unwrap_or(scope)),
        // CRI-O without systemd.
        None => Some(name.strip_prefix("crio-").unwrap_or(name)),
    }
}

/// The UID of the pod whose own group this is; none for any other group.
pub fn pod_uid(group: &str) -> Option<PodUid> {
    let name = last(group);
    let uid = match name.strip_suffix(".slice") {
        Some(slice) => slice.rsplit('-').next()?.strip_prefix("pod")?,
        None => name.strip_prefix("pod")?,
    };
    (!uid.is_empty()).then(|| uid.replace('_', "-").into())
}

fn last(group: &str) -> &str {
    group.trim_end_matches('/').rsplit('/').next().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestExtractIDFromCgroupPath.
    #[test]
    fn the_id_of_a_container_is_the_end_of_its_groups_name() {
        let id = "9be25294016e2dc0340dd605ce1f57b492039b267a6a618a7ad2a7a58a740f32";
        let slices = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2fc932ce_fdcc_454b_97bd_aadfdeb4c340.slice";
        let groups = [
            format!("/kubepods/burstable/pod2fc932ce-fdcc-454b-97bd-aadfdeb4c340/{id}"),
            format!("{slices}/cri-containerd-{id}.scope"),
            format!("{slices}/crio-{id}.scope"),
            format!("{slices}/{id}.scope"),
            format!("/kubepods/pod1/crio-{id}"),
        ];
        for group in &groups {
            assert_eq!(container_id(group), Some(id), "{group}");
        }
        for group in [
            format!("{slices}/crio-conmon-{id}.scope"),
            format!("/a/var-lib-{id}.mount"),
        ] {
            assert_eq!(container_id(&group), None, "{group}");
        }
    }

    #[test]
    fn a_pods_group_tells_its_uid_by_either_driver_and_no_other_group_does() {
        let uid = "2fc932ce-fdcc-454b-97bd-aadfdeb4c340";
        for group in [
            "/kubepods/burstable/pod2fc932ce-fdcc-454b-97bd-aadfdeb4c340",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2fc932ce_fdcc_454b_97bd_aadfdeb4c340.slice",
        ] {
            assert_eq!(pod_uid(group), Some(uid.into()), "{group}");
        }
        for group in [
            "/",
            "",
            "/kubepods",
            "/kubepods.slice",
            "/kubepods/burstable",
            "/a/pod",
        ] {
            assert_eq!(pod_uid(group), None, "{group}");
        }
        // A prefix of `kubepods` is no UID of a pod.
        assert_eq!(pod_uid("/kubepods.slice/kubepods-besteffort.slice"), None);
    }
}
