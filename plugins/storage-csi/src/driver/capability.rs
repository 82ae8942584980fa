//! CSI's VolumeCapability of a volume, from the fields of the agent's request.

use proto::csi;
use proto::csi::volume_capability::access_mode::Mode as Access;
use proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use proto::storage::{self, AccessMode as CallKind, Ownership};

use super::{Ability, Driver};

/// How a volume with files is to be had.
#[derive(Clone, Debug)]
pub(crate) struct FileCapability<'a> {
    pub(crate) options: &'a [String],
    pub(crate) ownership: Option<&'a Ownership>,
    /// The label that the mount is to carry.
    pub(crate) label: Option<&'a str>,
}

/// For a volume with files.
pub(crate) fn files(
    driver: &Driver,
    volume: &storage::Csi,
    files: &FileCapability<'_>,
) -> csi::VolumeCapability {
    let label = files.label.map(|label| format!("context={label:?}"));
    let group = files
        .ownership
        .filter(|_| driver.can(Ability::VolumeMountGroup));
    let mount = MountVolume {
        fs_type: volume.fs_type.clone(),
        mount_flags: files.options.iter().cloned().chain(label).collect(),
        volume_mount_group: group
            .map(|group| group.fs_group.to_string())
            .unwrap_or_default(),
    };
    capability(driver, volume, AccessType::Mount(mount))
}

/// For a raw block volume.
pub(crate) fn block(driver: &Driver, volume: &storage::Csi) -> csi::VolumeCapability {
    capability(driver, volume, AccessType::Block(BlockVolume {}))
}

fn capability(
    driver: &Driver,
    volume: &storage::Csi,
    access_type: AccessType,
) -> csi::VolumeCapability {
    let mode = access(driver, volume.access_mode());
    csi::VolumeCapability {
        access_type: Some(access_type),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

/// Upstream's two tables: the words for a single node are finer where the driver knows them. A volume without an
/// access mode counts as ReadWriteOnce.
fn access(driver: &Driver, asked: CallKind) -> Access {
    match (asked, driver.can(Ability::SingleNodeMultiWriter)) {
        (CallKind::Unspecified | CallKind::ReadWriteOnce, true) => Access::SingleNodeMultiWriter,
        (CallKind::ReadWriteOncePod, true) => Access::SingleNodeSingleWriter,
        (CallKind::Unspecified | CallKind::ReadWriteOnce | CallKind::ReadWriteOncePod, false) => {
            Access::SingleNodeWriter
        }
        (CallKind::ReadOnlyMany, _) => Access::MultiNodeReaderOnly,
        (CallKind::ReadWriteMany, _) => Access::MultiNodeMultiWriter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(abilities: &[Ability]) -> Driver {
        Driver {
            name: "d".to_owned(),
            endpoint: "/d.sock".into(),
            abilities: abilities.iter().copied().collect(),
        }
    }

    /// Upstream's TestAccessModeMapping and TestSingleNodeMultiWriterAccessModeMapping... of csi_client_test.go.
    #[test]
    fn a_single_node_has_finer_words_where_the_driver_knows_them() {
        let plain = driver(&[]);
        let finer = driver(&[Ability::SingleNodeMultiWriter]);
        for (asked, without, with) in [
            (
                CallKind::Unspecified,
                Access::SingleNodeWriter,
                Access::SingleNodeMultiWriter,
            ),
            (
                CallKind::ReadWriteOnce,
                Access::SingleNodeWriter,
                Access::SingleNodeMultiWriter,
            ),
            (
                CallKind::ReadWriteOncePod,
                Access::SingleNodeWriter,
                Access::SingleNodeSingleWriter,
            ),
            (
                CallKind::ReadOnlyMany,
                Access::MultiNodeReaderOnly,
                Access::MultiNodeReaderOnly,
            ),
            (
                CallKind::ReadWriteMany,
                Access::MultiNodeMultiWriter,
                Access::MultiNodeMultiWriter,
            ),
        ] {
            assert_eq!(access(&plain, asked), without, "{asked:?}");
            assert_eq!(access(&finer, asked), with, "{asked:?}");
        }
    }

    fn mount(capability: csi::VolumeCapability) -> MountVolume {
        match capability.access_type {
            Some(AccessType::Mount(mount)) => mount,
            other => panic!("{other:?}"),
        }
    }

    /// Upstream's AddSELinuxMountOption.
    #[test]
    fn a_label_is_one_more_option_in_quotes() {
        let asked = FileCapability {
            options: &["noatime".to_owned()],
            ownership: None,
            label: Some("system_u:object_r:container_file_t:s0:c1,c2"),
        };
        let mount = mount(files(&driver(&[]), &storage::Csi::default(), &asked));
        assert_eq!(
            mount.mount_flags,
            [
                "noatime",
                "context=\"system_u:object_r:container_file_t:s0:c1,c2\""
            ]
        );
    }

    #[test]
    fn a_driver_hears_of_the_group_only_if_it_can_set_it() {
        let ownership = Ownership {
            fs_group: 3000,
            policy: 0,
        };
        let asked = FileCapability {
            options: &[],
            ownership: Some(&ownership),
            label: None,
        };
        let volume = storage::Csi::default();
        let without = mount(files(&driver(&[]), &volume, &asked));
        assert_eq!(without.volume_mount_group, "");
        let with = mount(files(
            &driver(&[Ability::VolumeMountGroup]),
            &volume,
            &asked,
        ));
        assert_eq!(with.volume_mount_group, "3000");
    }
}
