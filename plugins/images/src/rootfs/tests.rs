//! Images of one layer and of many, mounted in both ways.

use std::fs;

use super::*;
use crate::Platform;
use crate::testing::{ImageBuilder, Tar, docker_archive, file_layer, store};

pub(super) struct Mounted {
    home: tempfile::TempDir,
    pub(super) store: Store,
    pub(super) image: Image,
}

impl Mounted {
    pub(super) async fn import(layers: Vec<Vec<u8>>) -> Self {
        Self::import_at(tempfile::tempdir_in("/dev/shm").unwrap(), layers).await
    }

    async fn import_at(home: tempfile::TempDir, layers: Vec<Vec<u8>>) -> Self {
        Self::try_import_at(home, layers).await.unwrap()
    }

    pub(super) async fn try_import_at(
        home: tempfile::TempDir,
        layers: Vec<Vec<u8>>,
    ) -> Result<Self, crate::ArchiveError> {
        let archive = home.path().join("archive.tar");
        fs::write(
            &archive,
            docker_archive(&ImageBuilder::plain(layers), "x:1"),
        )
        .unwrap();
        let store = store(&home.path().join("store"));
        let image = store
            .import(&archive, None, &Platform::host())
            .await?
            .remove(0);
        for folder in ["upper", "work", "target"] {
            fs::create_dir(home.path().join(folder)).unwrap();
        }
        Ok(Self { home, store, image })
    }

    fn writable(&self) -> Writable {
        Writable {
            upper: self.home.path().join("upper"),
            work: self.home.path().join("work"),
        }
    }

    pub(super) fn target(&self) -> PathBuf {
        self.home.path().join("target")
    }

    /// Mounts by `method`, lets `look` look, and unmounts.
    async fn by(&self, method: MountMethod, look: impl FnOnce(&Path)) {
        let layers = self.store.rootfs(&self.image).unwrap();
        let (target, writable) = (self.target(), self.writable());
        let mounting = Mounting {
            layers: &layers,
            target: &target,
            writable: Some(&writable),
        };
        mounting.mount_by(method, self.store.inner()).unwrap();
        look(&target);
        self.store.unmount_rootfs(&target).await.unwrap();
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Where a test failed before it unmounted.
        unmount(self.target(), UnmountFlags::DETACH).unwrap_or_default();
    }
}

fn layers(count: usize) -> Vec<Vec<u8>> {
    let layer = |number: usize| {
        let number = number.to_string();
        Tar::default()
            .file(&format!("f{number}"), number.as_bytes())
            .file("last", number.as_bytes())
            .end()
    };
    (0..count).map(layer).collect()
}

#[tokio::test]
async fn images_of_1_to_500_layers_are_mounted_in_both_ways() {
    for count in [1, 2, 120, 500] {
        let mounted = Mounted::import(layers(count)).await;
        for method in [MountMethod::Append, MountMethod::ShortNames] {
            mounted
                .by(method, |target| {
                    let last = count - 1;
                    assert_eq!(
                        fs::read_to_string(target.join("last")).unwrap(),
                        last.to_string()
                    );
                    for number in [0, last / 2, last] {
                        let content = fs::read_to_string(target.join(format!("f{number}")));
                        assert_eq!(
                            content.unwrap(),
                            number.to_string(),
                            "{count} layers by {method:?}"
                        );
                    }
                    fs::write(target.join("f0"), "written").unwrap();
                })
                .await;
            assert_eq!(
                fs::read(mounted.home.path().join("upper/f0")).unwrap(),
                b"written"
            );
            fs::remove_file(mounted.home.path().join("upper/f0")).unwrap();
        }
    }
}

#[tokio::test]
async fn a_mount_without_a_writable_layer_takes_no_writes() {
    let mounted = Mounted::import(vec![file_layer("a", b"1")]).await;
    let target = mounted.target();
    mounted
        .store
        .mount_rootfs(&mounted.image, &target, None)
        .await
        .unwrap();
    assert_eq!(fs::read(target.join("a")).unwrap(), b"1");
    let refused = fs::write(target.join("b"), "").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    mounted.store.unmount_rootfs(&target).await.unwrap();
    mounted.store.unmount_rootfs(&target).await.unwrap();
}

#[tokio::test]
async fn whiteouts_and_opaque_folders_and_roots_hide_what_is_below() {
    let bottom = Tar::default()
        .file("a", b"")
        .file("d/x", b"")
        .file("e/x", b"")
        .end();
    let top = Tar::default()
        .file(".wh.a", b"")
        .file("d/.wh..wh..opq", b"")
        .file("d/y", b"")
        .end();
    let mounted = Mounted::import(vec![bottom.clone(), top]).await;
    mounted
        .by(MountMethod::Append, |target| {
            assert!(!target.join("a").exists());
            assert!(!target.join("d/x").exists() && target.join("d/y").exists());
            assert!(target.join("e/x").exists());
        })
        .await;
    let opaque = Tar::default()
        .file(".wh..wh..opq", b"")
        .file("only", b"")
        .end();
    let mounted = Mounted::import(vec![bottom, opaque]).await;
    mounted
        .by(MountMethod::Append, |target| {
            let names: Vec<_> = fs::read_dir(target)
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            assert_eq!(names, ["only"]);
        })
        .await;
}

/// A file system of its own, without extended attributes.
struct WithoutAttributes(PathBuf);

impl WithoutAttributes {
    fn new(folder: &Path) -> Self {
        mount("ramfs", folder, "ramfs", MountFlags::empty(), None).unwrap();
        Self(folder.to_owned())
    }
}

impl Drop for WithoutAttributes {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

#[tokio::test]
async fn an_image_is_imported_and_shown_right_where_files_have_no_attributes() {
    let capability = [
        1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let bottom = Tar::default()
        .file("d/x", b"")
        .file("d/sub/x", b"")
        .file("d/sub/deep/x", b"")
        .file("e/x", b"")
        .end();
    let middle = Tar::default()
        .file("d/middle", b"")
        .file("d/.wh.x", b"")
        .end();
    let top = Tar::default()
        .file("d/.wh..wh..opq", b"")
        .file("d/sub/deep/y", b"")
        .file("d/middle", b"again")
        .pax(&[("SCHILY.xattr.user.note", b"1")])
        .file("note", b"1")
        .pax(&[("SCHILY.xattr.security.capability", &capability)])
        .file("ping", b"2")
        .end();
    let place = tempfile::tempdir().unwrap();
    let disk = WithoutAttributes::new(place.path());
    let home = tempfile::tempdir_in(place.path()).unwrap();
    let mounted = Mounted::import_at(home, vec![bottom, middle, top]).await;
    let target = mounted.target();
    for method in [MountMethod::Append, MountMethod::ShortNames] {
        let layers = mounted.store.rootfs(&mounted.image).unwrap();
        let mounting = Mounting {
            layers: &layers,
            target: &target,
            writable: None,
        };
        mounting.mount_by(method, mounted.store.inner()).unwrap();
        let names = |folder: &str| {
            let mut names: Vec<_> = fs::read_dir(target.join(folder))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names("d"), ["middle", "sub"]);
        assert_eq!(names("d/sub"), ["deep"]);
        assert_eq!(names("d/sub/deep"), ["y"]);
        assert_eq!(names("e"), ["x"]);
        assert_eq!(fs::read(target.join("ping")).unwrap(), b"2");
        mounted.store.unmount_rootfs(&target).await.unwrap();
    }
    drop(mounted);
    drop(disk);
}
