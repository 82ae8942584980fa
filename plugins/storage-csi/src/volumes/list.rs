//! The CSI volumes on the node, a kubelet's too: by their folders, `vol_data.json` and what is mounted
//! (upstream's ConstructVolumeSpec and reconstruction, 1.36). Nothing is changed, and nothing below a volume looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use mounts::table::MountTable;
use mounts::{answer, requests};
use proto::storage::{Found, ListRequest, ListResponse, State};
use tonic::Status;

use super::Volumes;
use crate::KIND;
use crate::data::VolumeData;
use crate::layout::{DATA_FILE, ESCAPED_PLUGIN, GLOBAL_MOUNT, Layout, MOUNT};

impl Volumes {
    /// Lists the volumes that are found on the node.
    pub(crate) async fn list(&self, request: ListRequest) -> Result<ListResponse, Status> {
        let layout = self.layout.clone();
        let within = requests::within(request.within_ms);
        let found = self
            .pool
            .run("listing the CSI volumes", within, move || found(&layout));
        Ok(ListResponse {
            found: found.await?,
        })
    }
}

fn found(layout: &Layout) -> Result<Vec<Found>, Status> {
    let listing = Listing::begin(layout)
        .map_err(|error| answer::failed("cannot tell what is mounted", error))?;
    let mut found = Vec::new();
    let all = listing
        .pods(&mut found)
        .and_then(|()| listing.staged(&mut found))
        .and_then(|()| listing.block(&mut found));
    match all {
        Ok(()) => Ok(found),
        Err((path, error)) => {
            let path = path.display();
            Err(answer::failed(format!("cannot read {path}"), error))
        }
    }
}

type Read<T> = Result<T, (PathBuf, io::Error)>;

struct Listing<'a> {
    layout: &'a Layout,
    mounted: BTreeSet<PathBuf>,
    /// The root as the table of mounts has it.
    real_root: PathBuf,
}

impl<'a> Listing<'a> {
    fn begin(layout: &'a Layout) -> io::Result<Self> {
        let table = MountTable::read()?;
        let real_root =
            fs::canonicalize(layout.root()).unwrap_or_else(|_| layout.root().to_owned());
        let entries = table.entries().iter();
        Ok(Self {
            layout,
            mounted: entries.map(|entry| entry.mount_point.clone()).collect(),
            real_root,
        })
    }

    fn is_mounted(&self, path: &Path) -> bool {
        match path.strip_prefix(self.layout.root()) {
            Ok(relative) => self.mounted.contains(&self.real_root.join(relative)),
            Err(_) => self.mounted.contains(path),
        }
    }

    /// Volumes with files of pods.
    fn pods(&self, found: &mut Vec<Found>) -> Read<()> {
        for pod in names(&self.layout.pods())? {
            let volumes = self
                .layout
                .pods()
                .join(&pod)
                .join("volumes")
                .join(ESCAPED_PLUGIN);
            for name in names(&volumes)? {
                let folder = volumes.join(&name);
                let target = folder.join(MOUNT);
                let state = match self.is_mounted(&target) {
                    true => State::Mounted,
                    false => State::LeftOver,
                };
                let data = VolumeData::load(&folder).ok();
                found.push(Found {
                    name,
                    pod_uid: pod.clone(),
                    ..entry(state, &target, data.as_ref(), Some(&pod))
                });
            }
        }
        Ok(())
    }

    /// Volumes with files that are staged: below their driver's name, or, as older kubelets had it, below "pv".
    fn staged(&self, found: &mut Vec<Found>) -> Read<()> {
        for driver in names(&self.layout.plugin())? {
            let drivers = self.layout.plugin().join(&driver);
            if drivers == self.layout.volume_devices() {
                continue;
            }
            for volume in names(&drivers)? {
                let folder = drivers.join(volume);
                let staging = folder.join(GLOBAL_MOUNT);
                let mounted = self.is_mounted(&staging);
                let traces = || exists(&staging) || exists(&folder.join(DATA_FILE));
                // A driver may keep things of its own here.
                if !mounted && !traces() {
                    continue;
                }
                let data = VolumeData::load(&folder).ok();
                // A driver need not mount anything where it stages.
                let state = match mounted || data.is_some() {
                    true => State::Staged,
                    false => State::LeftOver,
                };
                let mut entry = entry(state, &staging, data.as_ref(), None);
                if data.is_none() && driver != "pv" {
                    entry.driver.clone_from(&driver);
                }
                found.push(entry);
            }
        }
        Ok(())
    }

    /// Raw block volumes, staged and mapped. One that is published for a pod counts as mapped, link or not.
    fn block(&self, found: &mut Vec<Found>) -> Read<()> {
        let devices = self.layout.volume_devices();
        let mut volumes: BTreeSet<String> = names(&devices)?.into_iter().collect();
        volumes.retain(|name| Layout::is_block_volume(name));
        for folder in ["staging", "publish"] {
            volumes.extend(names(&devices.join(folder))?);
        }
        let mut mapped = self.links()?;
        for name in volumes {
            let block = self.layout.block(&name);
            let data = VolumeData::load(&block.data).ok();
            let mut pods = mapped.remove(&name).unwrap_or_default();
            pods.extend(names(&block.publish)?);
            pods.extend(names(&block.map)?);
            found.extend(
                pods.into_iter()
                    .map(|pod| self.mapped(&name, pod, data.as_ref())),
            );
            let state = match data.is_some() || self.is_mounted(&block.staging) {
                true => State::StagedBlock,
                false => State::LeftOver,
            };
            found.push(Found {
                name,
                ..entry(state, &block.staging, data.as_ref(), None)
            });
        }
        for (name, pods) in mapped {
            let left = pods.into_iter().map(|pod| Found {
                state: State::LeftOver.into(),
                ..self.mapped(&name, pod, None)
            });
            found.extend(left);
        }
        Ok(())
    }

    fn mapped(&self, name: &str, pod: String, data: Option<&VolumeData>) -> Found {
        let link = self.layout.device_link(&pod, name);
        Found {
            name: name.to_owned(),
            pod_uid: pod,
            ..entry(State::Mapped, &link, data, None)
        }
    }

    /// The pods that have a link, by the volume's name.
    fn links(&self) -> Read<BTreeMap<String, BTreeSet<String>>> {
        let mut links: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for pod in names(&self.layout.pods())? {
            let folder = self.layout.device_link(&pod, "");
            for name in names(&folder)? {
                links.entry(name).or_default().insert(pod.clone());
            }
        }
        Ok(links)
    }
}

/// What is found of a volume, but for its name. `pod` is whose an ephemeral volume is: its id is the pod's.
fn entry(state: State, path: &Path, data: Option<&VolumeData>, pod: Option<&str>) -> Found {
    let text = |value: fn(&VolumeData) -> &str| data.map(value).unwrap_or_default().to_owned();
    let id = data.map(|data| match pod.filter(|_| data.ephemeral()) {
        Some(pod) => format!("kubernetes.io/csi/{pod}-{}", data.name()),
        None => format!("kubernetes.io/csi/{}^{}", data.driver(), data.handle()),
    });
    Found {
        state: state.into(),
        volume_id: id.unwrap_or_default(),
        kind: KIND.to_owned(),
        path: path.display().to_string(),
        driver: text(VolumeData::driver),
        volume_handle: text(VolumeData::handle),
        ..Found::default()
    }
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// The names in a folder, those that are texts; a folder that is missing, or none, has none.
fn names(folder: &Path) -> Read<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if is_missing(&error) => return Ok(Vec::new()),
        Err(error) => return Err((folder.to_owned(), error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| (folder.to_owned(), error))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.kind() == io::ErrorKind::NotADirectory
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Subject;

    const SUBJECT: Subject<'static> = Subject {
        driver: "d.example.com",
        handle: "vol-1",
        name: "pv-1",
        node: "n",
    };

    fn put(folder: &Path, data: &VolumeData) {
        fs::create_dir_all(folder).unwrap();
        data.save(folder).unwrap();
    }

    fn listed(root: &Path) -> Vec<(State, String, String, String)> {
        let found = found(&Layout::new(root)).unwrap().into_iter();
        let row = |found: Found| {
            let path = found
                .path
                .strip_prefix(root.to_str().unwrap())
                .unwrap()
                .to_owned();
            (
                found.state(),
                found.volume_id.clone(),
                format!("{} {}", found.name, found.pod_uid),
                path,
            )
        };
        found.map(row).collect()
    }

    /// Upstream's TestPluginConstructVolumeSpec and TestPluginConstructVolumeSpecWithInline.
    #[test]
    fn what_stands_on_the_disk_is_listed_with_upstream_s_names() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let pods = root.join("pods/u/volumes/kubernetes.io~csi");
        put(&pods.join("pv-1"), &VolumeData::published(&SUBJECT, false));
        let inline = Subject {
            name: "scratch",
            handle: "csi-abc",
            ..SUBJECT
        };
        put(&pods.join("scratch"), &VolumeData::published(&inline, true));
        let layout = Layout::new(root);
        let staging = layout.global_mount("d.example.com", "vol-1");
        put(staging.parent().unwrap(), &VolumeData::staged(&SUBJECT));
        put(
            &layout.plugin().join("pv/old"),
            &VolumeData::staged(&SUBJECT),
        );
        let persistent = "kubernetes.io/csi/d.example.com^vol-1".to_owned();
        let base = "/pods/u/volumes/kubernetes.io~csi";
        assert_eq!(
            listed(root),
            [
                (
                    State::LeftOver,
                    persistent.clone(),
                    "pv-1 u".to_owned(),
                    format!("{base}/pv-1/mount")
                ),
                (
                    State::LeftOver,
                    "kubernetes.io/csi/u-scratch".to_owned(),
                    "scratch u".to_owned(),
                    format!("{base}/scratch/mount")
                ),
                (
                    State::Staged,
                    persistent.clone(),
                    " ".to_owned(),
                    staging
                        .strip_prefix(root)
                        .map(|path| format!("/{}", path.display()))
                        .unwrap()
                ),
                (
                    State::Staged,
                    persistent,
                    " ".to_owned(),
                    "/plugins/kubernetes.io/csi/pv/old/globalmount".to_owned()
                ),
            ]
        );
    }

    /// Upstream's TestPluginConstructBlockVolumeSpec.
    #[test]
    fn raw_volumes_are_listed_by_every_trace_that_they_leave() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let layout = Layout::new(root);
        put(&layout.block("pv-1").data, &VolumeData::block(&SUBJECT));
        fs::create_dir_all(layout.block("pv-1").publish.join("u1")).unwrap();
        fs::create_dir_all(layout.block("pv-2").staging).unwrap();
        for (pod, name) in [("u2", "pv-1"), ("u2", "pv-3")] {
            let link = layout.device_link(pod, name);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink("/dev/null", link).unwrap();
        }
        let rows: Vec<_> = listed(root)
            .into_iter()
            .map(|(state, id, who, _)| (state, id, who))
            .collect();
        let id = "kubernetes.io/csi/d.example.com^vol-1";
        let row = |state, id: &str, who: &str| (state, id.to_owned(), who.to_owned());
        assert_eq!(
            rows,
            [
                row(State::Mapped, id, "pv-1 u1"),
                row(State::Mapped, id, "pv-1 u2"),
                row(State::StagedBlock, id, "pv-1 "),
                row(State::LeftOver, "", "pv-2 "),
                row(State::LeftOver, "", "pv-3 u2"),
            ]
        );
    }

    #[test]
    fn what_is_damaged_is_listed_with_what_is_known_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let layout = Layout::new(root);
        let volume = root.join("pods/u/volumes/kubernetes.io~csi/pv-1");
        let staged = layout.global_mount("d.example.com", "vol-1");
        for folder in [volume.as_path(), staged.parent().unwrap()] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join(DATA_FILE), "{").unwrap();
        }
        fs::create_dir_all(layout.plugin().join("d.example.com/own")).unwrap();
        let found = found(&layout).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(
            (found[0].state(), found[0].name.as_str()),
            (State::LeftOver, "pv-1")
        );
        assert_eq!(
            (found[1].state(), found[1].driver.as_str()),
            (State::LeftOver, "d.example.com")
        );
        assert!(found.iter().all(|found| found.volume_id.is_empty()));
        assert!(volume.join(DATA_FILE).exists());
    }

    #[test]
    fn a_node_without_volumes_has_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(listed(dir.path()), []);
        assert_eq!(listed(&dir.path().join("missing")), []);
    }
}
