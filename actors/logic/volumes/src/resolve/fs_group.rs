//! The group of a volume's files.
//!
//! Upstream: `supportsFSGroup` and `getFSGroupPolicy` of pkg/volume/csi/csi_mounter.go, pkg/volume/volume_linux.go
//! (1.36).

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::CSIDriver;
use logic_api::pod::PodView;

use crate::{FsGroupChangePolicy, Ownership, VolumeAccess};

/// The word of a driver that sets the group itself.
const MOUNT_GROUP_CAPABILITY: &str = "VOLUME_MOUNT_GROUP";

/// The pod's group; a number that is no group counts for none.
fn group(pod: &Pod) -> Option<u32> {
    u32::try_from(pod.security()?.fs_group?).ok()
}

/// For volumes that are made anew for the pod: their files have no group yet.
pub(super) fn always(pod: &Pod) -> Option<Ownership> {
    group(pod).map(|fs_group| Ownership {
        fs_group,
        policy: FsGroupChangePolicy::Always,
    })
}

/// For volumes that outlive pods: by the pod's `fsGroupChangePolicy`, unless it may only read.
pub(super) fn as_asked(pod: &Pod, access: VolumeAccess) -> Option<Ownership> {
    let word = pod.security()?.fs_group_change_policy.as_deref();
    let policy = match word {
        Some("OnRootMismatch") => FsGroupChangePolicy::OnRootMismatch,
        Some(_) | None => FsGroupChangePolicy::Always,
    };
    let fs_group = group(pod).filter(|_| access == VolumeAccess::ReadWrite)?;
    Some(Ownership { fs_group, policy })
}

/// What decides whether a CSI volume's group is changed (`fsGroupPolicy`).
#[derive(Clone, Copy, Debug)]
pub(super) struct CsiFsGroup<'a> {
    pub(super) driver: Option<&'a CSIDriver>,
    pub(super) backend: &'a crate::RegisteredDriver,
    pub(super) fs_type: &'a str,
    pub(super) access: VolumeAccess,
    /// The persistent volume's; an inline volume is for one node.
    pub(super) access_modes: &'a [String],
}

impl CsiFsGroup<'_> {
    /// A driver that sets groups itself gets the group in any case, as upstream.
    pub(super) fn ownership(&self, pod: &Pod) -> Option<Ownership> {
        if self.backend.abilities.contains(MOUNT_GROUP_CAPABILITY) {
            return as_asked(pod, VolumeAccess::ReadWrite);
        }
        as_asked(pod, self.access).filter(|_| self.takes_groups())
    }

    fn takes_groups(&self) -> bool {
        let policy = self.driver.and_then(|d| d.spec.fs_group_policy.as_deref());
        match policy {
            Some("None") => false,
            Some("File") => true,
            // The API's default among them: `ReadWriteOnceWithFSType`.
            Some(_) | None => !self.fs_type.is_empty() && self.is_for_one_node(),
        }
    }

    fn is_for_one_node(&self) -> bool {
        let mut modes = self.access_modes.iter();
        modes.any(|mode| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod")
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSecurityContext;
    use logic_api::testing::*;

    use super::*;
    use crate::RegisteredDriver;

    fn grouped(group: i64, policy: Option<&str>) -> Pod {
        pod("p").spec_with(|spec| {
            spec.security_context = Some(PodSecurityContext {
                fs_group: Some(group),
                fs_group_change_policy: policy.map(str::to_owned),
                ..PodSecurityContext::default()
            });
        })
    }

    /// Upstream's TestMounterSetUpWithFSGroup, Test_csiMountMgr_supportsFSGroup and TestMounterGetFSGroupPolicy.
    #[test]
    fn a_driver_says_which_volumes_get_the_pods_group() {
        const ONE: &[&str] = &["ReadWriteOnce"];
        const POD: &[&str] = &["ReadWriteOncePod"];
        const MANY: &[&str] = &["ReadWriteMany", "ReadOnlyMany"];
        const BOTH: &[&str] = &["ReadOnlyMany", "ReadWriteOnce"];
        use VolumeAccess::{ReadOnly, ReadWrite};
        type Case = (
            Option<&'static str>,
            &'static str,
            &'static [&'static str],
            VolumeAccess,
            bool,
        );
        let cases: [Case; 15] = [
            (None, "ext4", ONE, ReadWrite, true),
            (None, "ext4", POD, ReadWrite, true),
            (None, "ext4", BOTH, ReadWrite, true),
            (None, "", ONE, ReadWrite, false),
            (None, "ext4", ONE, ReadOnly, false),
            (None, "ext4", MANY, ReadWrite, false),
            (None, "ext4", &[], ReadWrite, false),
            (
                Some("ReadWriteOnceWithFSType"),
                "ext4",
                ONE,
                ReadWrite,
                true,
            ),
            (Some("ReadWriteOnceWithFSType"), "", ONE, ReadWrite, false),
            (
                Some("ReadWriteOnceWithFSType"),
                "ext4",
                MANY,
                ReadWrite,
                false,
            ),
            (Some("None"), "ext4", ONE, ReadWrite, false),
            (Some("File"), "ext4", MANY, ReadWrite, true),
            (Some("File"), "", MANY, ReadWrite, true),
            (Some("File"), "", ONE, ReadOnly, false),
            (Some(""), "ext4", ONE, ReadWrite, true),
        ];
        for (policy, fs_type, modes, access, given) in cases {
            let mut driver = CSIDriver::default();
            driver.spec.fs_group_policy = policy.map(str::to_owned);
            let modes: Vec<String> = modes.iter().map(|mode| (*mode).into()).collect();
            let backend = RegisteredDriver::default();
            let asked = CsiFsGroup {
                driver: policy.is_some().then_some(&driver),
                backend: &backend,
                fs_type,
                access,
                access_modes: &modes,
            };
            let found = asked.ownership(&grouped(3000, None));
            assert_eq!(found.is_some(), given, "{policy:?} {fs_type} {modes:?}");
            assert_eq!(asked.ownership(&pod("p")), None);
            let able = RegisteredDriver {
                abilities: [MOUNT_GROUP_CAPABILITY.to_owned()].into(),
                ..RegisteredDriver::default()
            };
            let told = CsiFsGroup {
                backend: &able,
                ..asked
            };
            assert!(told.ownership(&grouped(3000, None)).is_some());
        }
    }

    /// Upstream's TestSkipPermissionChange, as far as the pod says it.
    #[test]
    fn the_pod_says_when_its_group_is_enforced() {
        let policy = |word| {
            as_asked(&grouped(1, word), VolumeAccess::ReadWrite)
                .unwrap()
                .policy
        };
        assert_eq!(policy(None), FsGroupChangePolicy::Always);
        assert_eq!(policy(Some("Always")), FsGroupChangePolicy::Always);
        assert_eq!(
            policy(Some("OnRootMismatch")),
            FsGroupChangePolicy::OnRootMismatch
        );
        let made = always(&grouped(7, Some("OnRootMismatch"))).unwrap();
        assert_eq!(
            (made.fs_group, made.policy),
            (7, FsGroupChangePolicy::Always)
        );
        assert_eq!(as_asked(&grouped(1, None), VolumeAccess::ReadOnly), None);
    }

    #[test]
    fn a_group_that_is_none_is_not_given() {
        for group in [-1, i64::from(u32::MAX) + 1] {
            assert_eq!(always(&grouped(group, None)), None);
        }
    }
}
