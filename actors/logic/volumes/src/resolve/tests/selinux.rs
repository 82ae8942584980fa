//! SELinux labels of mounts: which one a pod's volume gets, and which pods may have the volume side by side.

use super::*;
use crate::reconciler::tests::Rig;

/// A process's label, and as a file has it.
const FULL: &str = "{user: system_u, role: object_r, type: container_t, level: 's0:c1,c2'}";
const LABEL: &str = "system_u:object_r:container_file_t:s0:c1,c2";
const OTHER: &str = "{user: system_u, role: object_r, type: container_t, level: 's0:c98,c99'}";
const LEVEL: &str = "{level: 's0:c1,c2'}";

const ONE: &str = "ReadWriteOncePod";
const MANY: &str = "ReadWriteMany";
const RECURSIVE: &str = "seLinuxChangePolicy: Recursive";
const MOUNT: &str = "seLinuxChangePolicy: MountOption";

/// A node whose driver mounts with a label if it is able to.
fn node(selinux: SeLinuxMountPolicy, mode: &str, able: bool) -> ResolveRig {
    let driver = "csi: {driver: csi.example.com, volumeHandle: vol-1}";
    let manifests = format!(
        "{}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {{name: csi.example.com}}
spec: {{attachRequired: false, seLinuxMount: {able}}}
",
        bound(&format!("accessModes: [{mode}]\n{driver}\n"))
    );
    ResolveRig {
        selinux,
        ..ResolveRig::of(&manifests).driver("csi.example.com", &["STAGE_UNSTAGE_VOLUME"])
    }
}

/// Options in the pod's own security context.
fn labelled(options: &str, policy: &str) -> Pod {
    let options = match options {
        "" => String::new(),
        given => format!("seLinuxOptions: {given}, "),
    };
    pod_of(&format!(
        "
securityContext: {{{options}{policy}}}
containers: [{{name: c, volumeMounts: [{{name: data, mountPath: /d}}]}}]
volumes: [{{name: data, {CLAIMING}}}]
"
    ))
}

/// Options in the container's security context.
fn labelled_container(options: &str) -> Pod {
    pod_of(&format!(
        "
containers: [{{name: c, securityContext: {{seLinuxOptions: {options}}}, volumeMounts: [{{name: data, mountPath: /d}}]}}]
volumes: [{{name: data, {CLAIMING}}}]
"
    ))
}

/// Upstream's Test_AddPodToVolume_SELinuxSinglePod, and TestCheckVolumeSELinux with one pod.
#[test]
fn gate_access_mode_driver_and_policy_say_whether_a_mount_has_its_label() {
    use SeLinuxMountPolicy::{On, OnForAll};
    for (selinux, mode, able, options, policy, expected) in [
        (On, ONE, true, FULL, "", LABEL),
        (On, ONE, true, LEVEL, "", LABEL),
        (On, ONE, true, "", "", ""),
        (On, ONE, false, FULL, "", ""),
        (On, MANY, true, FULL, "", ""),
        (On, MANY, true, FULL, RECURSIVE, ""),
        (On, MANY, true, FULL, MOUNT, ""),
        (On, ONE, true, FULL, RECURSIVE, ""),
        (On, ONE, true, FULL, MOUNT, LABEL),
        (OnForAll, MANY, true, FULL, "", LABEL),
        (OnForAll, MANY, true, FULL, RECURSIVE, ""),
        (OnForAll, MANY, true, FULL, MOUNT, LABEL),
        (OnForAll, ONE, true, FULL, RECURSIVE, ""),
        (OnForAll, ONE, true, FULL, MOUNT, LABEL),
    ] {
        let node = node(selinux, mode, able);
        let case = format!("{selinux:?} {mode} {able} {options} {policy}");
        let volume = node.volume(&labelled(options, policy));
        assert_eq!(volume.selinux_label, expected, "{case}");
        if policy.is_empty() && !options.is_empty() {
            let volume = node.volume(&labelled_container(options));
            assert_eq!(volume.selinux_label, expected, "{case}");
        }
    }
}

/// Upstream's Test_AddPodToVolume_SELinux_MultiplePods, and TestCheckVolumeSELinux with an existing pod.
#[test]
fn pods_share_a_volume_only_under_one_label() {
    use SeLinuxMountPolicy::{On, OnForAll};
    let cases = [
        (On, ONE, (FULL, ""), (FULL, ""), Ok(LABEL)),
        (On, ONE, (FULL, ""), (OTHER, ""), Err(LABEL)),
        (On, MANY, (FULL, ""), (FULL, ""), Ok("")),
        (On, MANY, (FULL, ""), (OTHER, ""), Ok("")),
        (On, ONE, (FULL, RECURSIVE), (FULL, RECURSIVE), Ok("")),
        (On, ONE, (FULL, RECURSIVE), (FULL, ""), Err("")),
        (On, MANY, (FULL, RECURSIVE), (FULL, RECURSIVE), Ok("")),
        (On, MANY, (FULL, MOUNT), (FULL, MOUNT), Ok("")),
        (On, MANY, (FULL, MOUNT), (FULL, RECURSIVE), Ok("")),
        (On, MANY, (FULL, RECURSIVE), (OTHER, RECURSIVE), Ok("")),
        (On, MANY, (FULL, MOUNT), (OTHER, MOUNT), Ok("")),
        (OnForAll, ONE, (FULL, ""), (FULL, ""), Ok(LABEL)),
        (OnForAll, ONE, (FULL, RECURSIVE), (FULL, RECURSIVE), Ok("")),
        (OnForAll, ONE, (FULL, RECURSIVE), (FULL, ""), Err("")),
        (OnForAll, MANY, (FULL, ""), (OTHER, ""), Err(LABEL)),
        (OnForAll, MANY, (FULL, RECURSIVE), (FULL, RECURSIVE), Ok("")),
        (OnForAll, MANY, (FULL, MOUNT), (FULL, MOUNT), Ok(LABEL)),
        (OnForAll, MANY, (FULL, ""), (FULL, MOUNT), Ok(LABEL)),
        (OnForAll, MANY, (FULL, MOUNT), (FULL, RECURSIVE), Err(LABEL)),
        (
            OnForAll,
            MANY,
            (FULL, RECURSIVE),
            (OTHER, RECURSIVE),
            Ok(""),
        ),
        (OnForAll, MANY, (FULL, MOUNT), (OTHER, MOUNT), Err(LABEL)),
    ];
    for (selinux, mode, first, second, expected) in cases {
        let node = node(selinux, mode, true);
        let volume = |(options, policy)| node.volume(&labelled(options, policy));
        let case = format!("{selinux:?} {mode} {first:?} {second:?}");
        let (first, second) = (volume(first), volume(second));
        let (Ok(label) | Err(label)) = expected;
        assert_eq!(first.selinux_label, label, "{case}");
        let mut rig = Rig::clean();
        rig.wish("a", std::slice::from_ref(&first));
        rig.settle();
        rig.wish("b", std::slice::from_ref(&second));
        rig.settle();
        let conflict = format!(
            "conflicting SELinux labels of volume pv: {:?} and {:?}",
            first.selinux_label, second.selinux_label
        );
        let is_refused = rig.news().iter().any(|news| news.ends_with(&conflict));
        assert_eq!(is_refused, expected.is_err(), "{case}");
        assert!(rig.mounted("a").is_some(), "{case}");
        // A volume for one pod is mounted for the first one alone.
        let is_shared = expected.is_ok() && mode == MANY;
        assert_eq!(rig.mounted("b").is_some(), is_shared, "{case}");
    }
}
