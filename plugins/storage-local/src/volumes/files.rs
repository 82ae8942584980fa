//! configMap, secret, projected and downwardAPI: files in an emptyDir of their own (upstream's pkg/volume/secret,
//! configmap, projected and downwardapi, 1.36).

use std::path::{Path, PathBuf};

use mounts::requests;
use mounts::safe::Root;
use proto::storage::{EmptyDir, Medium};
use rustix::fs::Mode;
use tonic::Status;

use crate::payload::Payload;
use crate::request::MountParameters;
use crate::state::marker::Marker;
use crate::state::place::Place;
use crate::volumes::empty_dir;
use crate::writer;

/// Upstream makes the folders under other volumes so.
const MOUNT_POINT_MODE: u32 = 0o755;
/// What a volume's group adds to them; they have the group from their folder.
const SET_GROUP: u32 = 0o2000;

/// The desired content of a volume of files.
#[derive(Debug)]
pub(crate) struct PayloadFiles {
    pub(crate) payload: Payload,
    pub(crate) medium: Medium,
    /// Where other volumes are mounted within it.
    pub(crate) mount_points: Vec<PathBuf>,
}

impl PayloadFiles {
    pub(crate) fn read(set: proto::storage::FileSet) -> Result<Self, Status> {
        let medium = set.medium();
        let points = set.mount_points.iter();
        Ok(Self {
            medium,
            mount_points: points
                .map(|path| requests::relative("mount_points", path))
                .collect::<Result<_, _>>()?,
            payload: Payload::new(set.files)?,
        })
    }
}

/// Makes the volume hold exactly these files, now or, if it held others, from one moment to the next.
pub(crate) fn set_up(
    place: &Place,
    files: &PayloadFiles,
    parameters: &MountParameters,
) -> Result<(), Status> {
    let volume = EmptyDir {
        medium: files.medium.into(),
        ..EmptyDir::default()
    };
    let group = parameters.group_always();
    let marker = Marker::wrapped(place);
    empty_dir::set_up(place, &marker, &volume, group.as_ref(), &parameters.label)?;
    let mode = match group {
        Some(_) => MOUNT_POINT_MODE | SET_GROUP,
        None => MOUNT_POINT_MODE,
    };
    make_mount_points(&place.target, &files.mount_points, mode)?;
    writer::write(&place.target, &files.payload, group.as_ref()).map(drop)
}

/// Removes the volume.
pub(crate) fn tear_down(place: &Place) -> Result<(), Status> {
    empty_dir::tear_down(place, &Marker::wrapped(place))
}

fn make_mount_points(target: &Path, points: &[PathBuf], mode: u32) -> Result<(), Status> {
    if points.is_empty() {
        return Ok(());
    }
    let root = Root::open(target)?;
    for point in points {
        root.make_dirs(point, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proto::storage::{File, FileSet, Ownership};
    use tonic::Code;

    use super::*;
    use crate::testing::{Node, facts, mounted};

    fn file(path: &str, data: &str) -> File {
        File {
            path: path.to_owned(),
            data: data.as_bytes().to_vec(),
            mode: 0o400,
            owner: None,
        }
    }

    fn set(medium: Medium, files: Vec<File>, points: &[&str]) -> PayloadFiles {
        PayloadFiles::read(FileSet {
            files,
            medium: medium.into(),
            mount_points: points.iter().map(|&point| point.to_owned()).collect(),
        })
        .unwrap()
    }

    /// Upstream's TestPlugin, TestPluginReboot and TestPluginIdempotent of secrets and config maps.
    #[test]
    fn files_lie_on_the_medium_of_their_kind_and_go_with_the_volume() {
        let node = Node::new();
        for (kind, medium, mounts) in [
            ("configmap", Medium::Default, 0),
            ("secret", Medium::Memory, 1),
        ] {
            let place = node.place("u", kind, "v");
            let marker = node.path("pods/u/plugins/kubernetes.io~empty-dir/wrapped_v/ready");
            for data in ["one", "one", "two"] {
                let files = set(medium, vec![file("a/b", data), file("c", data)], &[]);
                set_up(&place, &files, &MountParameters::default()).unwrap();
                assert_eq!(fs::read_to_string(place.target.join("a/b")).unwrap(), data);
                assert_eq!(mounted(&place.target).len(), mounts);
                assert!(marker.is_file());
            }
            if mounts == 1 {
                // A reboot: the memory is gone, the marker is not.
                mounts::mount::unmount(&place.target).unwrap();
                let files = set(medium, vec![file("c", "three")], &[]);
                set_up(&place, &files, &MountParameters::default()).unwrap();
                assert_eq!(mounted(&place.target).len(), 1);
            }
            tear_down(&place).unwrap();
            tear_down(&place).unwrap();
            assert!(!place.target.exists() && !marker.exists());
        }
    }

    #[test]
    fn the_group_may_read_and_the_root_may_be_listed() {
        let node = Node::new();
        let place = node.place("u", "secret", "v");
        let parameters = MountParameters {
            ownership: Some(Ownership {
                fs_group: 5555,
                policy: proto::storage::ChangePolicy::ChangeOnRootMismatch.into(),
            }),
            ..MountParameters::default()
        };
        for data in ["one", "two"] {
            let files = set(Medium::Memory, vec![file("a/b", data)], &["deep/er"]);
            set_up(&place, &files, &parameters).unwrap();
            assert_eq!(facts(&place.target), (0o3777, 0, 5555));
            assert_eq!(facts(&place.target.join("a/b")), (0o440, 0, 5555));
            assert_eq!(facts(&place.target.join("a")), (0o2755, 0, 5555));
            assert_eq!(facts(&place.target.join("deep")), (0o2755, 0, 5555));
        }
    }

    /// Upstream's TestGetNestedMountpoints, as far as folders are made.
    #[test]
    fn folders_for_other_mounts_are_made_and_kept() {
        let node = Node::new();
        let place = node.place("u", "configmap", "v");
        for data in ["one", "two"] {
            let files = set(
                Medium::Default,
                vec![file("f", data)],
                &["cache", "deep/er", "f.d"],
            );
            set_up(&place, &files, &MountParameters::default()).unwrap();
            for point in ["cache", "deep/er", "f.d"] {
                assert_eq!(facts(&place.target.join(point)).0, 0o755);
            }
            assert_eq!(fs::read_to_string(place.target.join("f")).unwrap(), data);
        }
        tear_down(&place).unwrap();
        assert!(!place.target.exists());
        for point in ["../out", "/etc"] {
            let refused = PayloadFiles::read(FileSet {
                mount_points: vec![point.to_owned()],
                ..FileSet::default()
            })
            .unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
        }
    }

    #[test]
    fn a_bad_file_is_refused_before_anything_is_made() {
        let refused = PayloadFiles::read(FileSet {
            files: vec![file("fine", ""), file("../etc/passwd", "")],
            ..FileSet::default()
        })
        .unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (
                Code::InvalidArgument,
                "invalid path: must not contain '..': ../etc/passwd"
            )
        );
    }
}
