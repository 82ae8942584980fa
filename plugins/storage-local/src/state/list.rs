//! Lists the volumes on the node by the folders of all pods and the mount table. No volume that may hang is accessed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use mounts::answer::failed;
use mounts::remove;
use mounts::table::MountTable;
use proto::storage::{Found, State};
use tonic::Status;

use crate::kind::LocalVolumeKind;
use crate::state::marker::{Mark, Marker};
use crate::state::place::{self, DEVICES, Place, VOLUMES};
use crate::writer;

/// Lists the volumes of this plugin's kinds, by path.
pub(crate) fn list(root: &Path) -> Result<Vec<Found>, Status> {
    let pods = root.join("pods");
    let what = |error| failed(format!("cannot list {}", pods.display()), error);
    let real = match fs::canonicalize(&pods) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        real => real.map_err(what)?,
    };
    let mut search = VolumeSearch {
        root,
        mounted: mounted(&real).map_err(what)?,
        found: BTreeMap::new(),
    };
    for uid in fs::read_dir(&pods).map_err(what)? {
        let uid = uid.map_err(what)?;
        search.pod(&uid.path());
    }
    search.not_seen(&pods);
    Ok(search.found.into_values().collect())
}

/// What is mounted, by its path below the folder of all pods.
fn mounted(pods: &Path) -> io::Result<Vec<PathBuf>> {
    let table = MountTable::read()?;
    let below = table.below(pods).into_iter();
    let paths = below.filter_map(|entry| entry.mount_point.strip_prefix(pods).ok());
    Ok(paths.map(Path::to_owned).collect())
}

struct VolumeSearch<'a> {
    root: &'a Path,
    mounted: Vec<PathBuf>,
    found: BTreeMap<PathBuf, Found>,
}

impl VolumeSearch<'_> {
    fn pod(&mut self, pod: &Path) {
        for (kind, folder) in kinds(&pod.join(VOLUMES)) {
            for (path, entry) in entries(&folder) {
                let name = path.file_name().and_then(|name| name.to_str());
                // What is being removed is no volume any more.
                if entry.is_dir() && !name.is_some_and(remove::is_remains) {
                    self.volume(kind, &path);
                }
            }
        }
        for (kind, folder) in kinds(&pod.join(DEVICES)) {
            for (path, entry) in entries(&folder) {
                if kind == LocalVolumeKind::Local && entry.is_symlink() {
                    self.add(kind, DEVICES, &path, |_| State::Mapped);
                }
            }
        }
    }

    /// What is mounted where a folder could not be read.
    fn not_seen(&mut self, pods: &Path) {
        for path in self.mounted.clone() {
            let parts: Option<Vec<&str>> = path.iter().map(|part| part.to_str()).collect();
            let Some([_, VOLUMES, folder, _]) = parts.as_deref() else {
                continue;
            };
            let word = folder.strip_prefix("kubernetes.io~").unwrap_or_default();
            if let Some(kind) = LocalVolumeKind::from_word(word) {
                self.volume(kind, &pods.join(path));
            }
        }
    }

    fn volume(&mut self, kind: LocalVolumeKind, path: &Path) {
        let below = path.strip_prefix(self.root.join("pods")).unwrap_or(path);
        let is_mount = self.mounted.iter().any(|mounted| mounted == below);
        self.add(kind, VOLUMES, path, |place| state(kind, place, is_mount));
    }

    fn add(
        &mut self,
        kind: LocalVolumeKind,
        base: &str,
        path: &Path,
        state: impl FnOnce(&Place) -> State,
    ) {
        let Some(text) = path.to_str() else {
            tracing::warn!(path = %path.display(), "a volume's name is not UTF-8");
            return;
        };
        let Ok(place) = Place::new(self.root, base, kind.name(), text) else {
            return;
        };
        let found = Found {
            state: state(&place).into(),
            kind: kind.name().to_owned(),
            pod_uid: place.uid,
            name: place.name,
            path: text.to_owned(),
            ..Found::default()
        };
        self.found.insert(path.to_owned(), found);
    }
}

fn state(kind: LocalVolumeKind, place: &Place, is_mount: bool) -> State {
    let complete = match kind {
        LocalVolumeKind::EmptyDir => ready(&Marker::own(place), is_mount),
        LocalVolumeKind::ConfigMap
        | LocalVolumeKind::Secret
        | LocalVolumeKind::Projected
        | LocalVolumeKind::DownwardApi => {
            ready(&Marker::wrapped(place), is_mount) && writer::written(&place.target)
        }
        LocalVolumeKind::HostPath => false,
        LocalVolumeKind::Local | LocalVolumeKind::Nfs => is_mount,
    };
    match complete {
        true => State::Mounted,
        false => State::LeftOver,
    }
}

fn ready(marker: &Marker, is_mount: bool) -> bool {
    match marker.read() {
        Mark::Missing => false,
        // A kubelet does not say which medium it was.
        Mark::Set => true,
        Mark::Memory => is_mount,
    }
}

/// The folders of this plugin's kinds.
fn kinds(base: &Path) -> Vec<(LocalVolumeKind, PathBuf)> {
    let folders = entries(base)
        .into_iter()
        .filter(|(_, entry)| entry.is_dir());
    folders
        .filter_map(|(path, _)| {
            let name = path.file_name()?.to_str()?;
            let word = name.strip_prefix(place::folder("").as_str())?;
            let kind = LocalVolumeKind::from_word(word)
                .filter(|kind| *kind != LocalVolumeKind::HostPath)?;
            Some((kind, path))
        })
        .collect()
}

/// What lies in a folder. One that cannot be read hides no other.
fn entries(folder: &Path) -> Vec<(PathBuf, fs::FileType)> {
    let listed = fs::read_dir(folder).and_then(|entries| {
        entries
            .map(|entry| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))))
            .collect::<io::Result<Vec<_>>>()
    });
    listed.unwrap_or_else(|error| {
        let absent = matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        );
        if !absent {
            tracing::warn!(%error, folder = %folder.display(), "cannot list a folder");
        }
        Vec::new()
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use mounts::mount::{self, TmpfsOptions};
    use proto::storage::{EmptyDir, FileSet, Local, Medium};

    use super::*;
    use crate::request::MountParameters;
    use crate::testing::Node;
    use crate::volumes::empty_dir;
    use crate::volumes::files::{self, PayloadFiles};
    use crate::volumes::local;

    /// State, kind, pod and name of everything that is found.
    fn seen(node: &Node) -> Vec<(State, String, String, String)> {
        let found = list(node.root()).unwrap().into_iter();
        found
            .map(|found| {
                assert!(found.path.starts_with(node.root().to_str().unwrap()));
                (found.state(), found.kind, found.pod_uid, found.name)
            })
            .collect()
    }

    fn row(state: State, kind: &str, pod: &str, name: &str) -> (State, String, String, String) {
        (state, kind.to_owned(), pod.to_owned(), name.to_owned())
    }

    fn files(medium: Medium) -> PayloadFiles {
        PayloadFiles::read(FileSet {
            medium: medium.into(),
            ..FileSet::default()
        })
        .unwrap()
    }

    #[test]
    fn what_was_set_up_is_found_and_what_was_only_begun_is_left_over() {
        let node = Node::new();
        let parameters = MountParameters::default();
        let place = |kind: &str, name: &str| node.place("u", kind, name);
        for (name, medium) in [
            ("disk", Medium::Default),
            ("memory", Medium::Memory),
            ("lost", Medium::Memory),
        ] {
            let place = place("empty-dir", name);
            let volume = EmptyDir {
                medium: medium.into(),
                ..EmptyDir::default()
            };
            empty_dir::set_up(&place, &Marker::own(&place), &volume, None, "").unwrap();
        }
        mount::unmount(&place("empty-dir", "lost").target).unwrap();
        fs::create_dir_all(place("empty-dir", "begun").target).unwrap();
        fs::create_dir_all(place("empty-dir", "deleted~old").target).unwrap();
        files::set_up(
            &place("configmap", "c"),
            &files(Medium::Default),
            &parameters,
        )
        .unwrap();
        files::set_up(&place("secret", "s"), &files(Medium::Memory), &parameters).unwrap();
        files::set_up(
            &place("secret", "lost"),
            &files(Medium::Memory),
            &parameters,
        )
        .unwrap();
        mount::unmount(&place("secret", "lost").target).unwrap();
        let begun = place("projected", "begun");
        let volume = EmptyDir::default();
        empty_dir::set_up(&begun, &Marker::wrapped(&begun), &volume, None, "").unwrap();
        let source = Local {
            path: node.folder("disk").to_str().unwrap().to_owned(),
            ..Local::default()
        };
        local::set_up(
            node.root(),
            &place("local-volume", "pv"),
            &source,
            &parameters,
        )
        .unwrap();
        fs::create_dir_all(place("nfs", "share").target).unwrap();
        let device = node.place_in(DEVICES, "u", "local-volume", "raw").target;
        fs::create_dir_all(device.parent().unwrap()).unwrap();
        symlink("/dev/loop0", &device).unwrap();
        use State::{LeftOver, Mapped, Mounted};
        assert_eq!(
            seen(&node),
            [
                row(Mapped, "local-volume", "u", "raw"),
                row(Mounted, "configmap", "u", "c"),
                row(LeftOver, "empty-dir", "u", "begun"),
                row(Mounted, "empty-dir", "u", "disk"),
                row(LeftOver, "empty-dir", "u", "lost"),
                row(Mounted, "empty-dir", "u", "memory"),
                row(Mounted, "local-volume", "u", "pv"),
                row(LeftOver, "nfs", "u", "share"),
                row(LeftOver, "projected", "u", "begun"),
                row(LeftOver, "secret", "u", "lost"),
                row(Mounted, "secret", "u", "s"),
            ]
        );
    }

    #[test]
    fn the_folders_of_a_kubelet_are_understood() {
        let node = Node::new();
        let place = node.place("u", "empty-dir", "cache");
        fs::create_dir_all(&place.target).unwrap();
        let marker = node.path("pods/u/plugins/kubernetes.io~empty-dir/cache");
        fs::create_dir_all(&marker).unwrap();
        fs::write(marker.join("ready"), "").unwrap();
        assert_eq!(
            seen(&node),
            [row(State::Mounted, "empty-dir", "u", "cache")]
        );
    }

    #[test]
    fn one_broken_folder_hides_no_other() {
        let node = Node::new();
        let good = node.place("good", "empty-dir", "v");
        empty_dir::set_up(&good, &Marker::own(&good), &EmptyDir::default(), None, "").unwrap();
        fs::write(node.path("pods/file"), "").unwrap();
        fs::create_dir_all(node.path("pods/odd/volumes")).unwrap();
        fs::write(node.path("pods/odd/volumes/kubernetes.io~secret"), "").unwrap();
        fs::create_dir_all(node.path("pods/odd/volumes/example.com~flex/v")).unwrap();
        fs::create_dir_all(node.path("pods/odd/volumes/kubernetes.io~csi/v")).unwrap();
        fs::create_dir_all(node.path("pods/odd/volumes/kubernetes.io~host-path/v")).unwrap();
        symlink("/", node.path("pods/link")).unwrap();
        symlink("..", node.path("pods/odd/volumes/kubernetes.io~nfs")).unwrap();
        fs::create_dir_all(node.path("pods/\u{e4}/volumes/kubernetes.io~nfs/n")).unwrap();
        // A mount hides the folder of this pod; what is mounted below is found by the table.
        let hidden = node.place("hidden", "secret", "s");
        files::set_up(&hidden, &files(Medium::Memory), &MountParameters::default()).unwrap();
        mount::tmpfs(&node.path("pods/hidden/volumes"), &TmpfsOptions::default()).unwrap();
        assert_eq!(
            seen(&node),
            [
                row(State::Mounted, "empty-dir", "good", "v"),
                row(State::LeftOver, "secret", "hidden", "s"),
                row(State::LeftOver, "nfs", "\u{e4}", "n"),
            ]
        );
    }

    #[test]
    fn a_node_without_pods_has_no_volumes() {
        let node = Node::new();
        fs::remove_dir(node.path("pods")).unwrap();
        assert!(seen(&node).is_empty());
    }

    #[test]
    fn a_root_that_is_a_link_is_the_same_root() {
        let node = Node::new();
        let link = node.path("link");
        symlink(node.root(), &link).unwrap();
        let target = link.join("pods/u/volumes/kubernetes.io~secret/s");
        let place = Place::new(&link, VOLUMES, "secret", target.to_str().unwrap()).unwrap();
        files::set_up(&place, &files(Medium::Memory), &MountParameters::default()).unwrap();
        let found = list(&link).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].state(), Path::new(&found[0].path)),
            (State::Mounted, target.as_path())
        );
    }
}
