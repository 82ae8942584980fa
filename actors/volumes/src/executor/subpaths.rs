//! Work within mounted volumes: subpaths for containers, and files with environment variables.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clients::storage::{Storage, StorageError, StoragePlugin, SubpathSpec, VolumeFile};
use kernel::{Context, Reply};
use logic_api::text::env_file::{self, EnvFile, EnvFilePath, EnvFiles};
use logic_api::types::PodUid;
use logic_volumes::reconciler::MeasurableVolume;
use logic_volumes::{Subpath, paths};

use crate::executor::StuckProcess;
use crate::{Msg, Retry, SubpathBindError, VolumeCompletion, VolumeManager};

/// For opening and binding a path: longer than any working disk takes.
const SUBPATH_TIMEOUT: Duration = Duration::from_secs(30);

impl VolumeManager {
    pub(crate) fn bind(
        &mut self,
        uid: PodUid,
        container: String,
        subpaths: Vec<Subpath>,
        reply: Reply<Result<BTreeMap<u32, PathBuf>, SubpathBindError>>,
        ctx: &mut Context<Msg>,
    ) {
        let specs: Option<Vec<SubpathSpec>> = subpaths
            .into_iter()
            .map(|subpath| {
                let volume = self.world.volume(&uid, &subpath.volume)?;
                Some(self.subpath_spec(&uid, &container, subpath, &volume))
            })
            .collect();
        let Some(wishes) = specs.filter(|_| self.world.enter(&uid)) else {
            return reply.send(Err(SubpathBindError {
                message: "the pod's volumes are not mounted".to_owned(),
                transient: Retry::Soon,
            }));
        };
        let storage = self.peers.storage.clone();
        ctx.run(async move {
            let mut stuck = Vec::new();
            reply.send(bound(&storage, wishes, &container, &mut stuck).await);
            VolumeCompletion::AccessEnded { uid, stuck }.into()
        });
    }

    pub(crate) fn on_access_ended(
        &mut self,
        uid: &PodUid,
        worn: Vec<StuckProcess>,
        ctx: &mut Context<Msg>,
    ) {
        self.world.leave(uid);
        worn.into_iter().for_each(|worn| self.replace(worn, ctx));
    }

    fn subpath_spec(
        &self,
        uid: &PodUid,
        container: &str,
        subpath: Subpath,
        volume: &MeasurableVolume,
    ) -> SubpathSpec {
        let root = &self.peers.rules.node.root_dir;
        let folder = &volume.place.folder;
        SubpathSpec {
            plugin: StoragePlugin::of(volume.place.kind),
            id: volume.volume.id.clone(),
            kind: volume.place.kind.as_str().to_owned(),
            uid: uid.clone(),
            root: volume.path.clone(),
            container: container.to_owned(),
            target: paths::subpath(root, uid, folder, container, subpath.index),
            subpath,
        }
    }

    pub(crate) fn read(
        &mut self,
        uid: PodUid,
        files: Vec<EnvFilePath>,
        reply: Reply<EnvFiles>,
        ctx: &mut Context<Msg>,
    ) {
        let found = files.into_iter().filter_map(|place| {
            let volume = self.world.volume(&uid, &place.0)?;
            Some((place, volume))
        });
        let found: Vec<(EnvFilePath, MeasurableVolume)> = found.collect();
        if found.is_empty() || !self.world.enter(&uid) {
            return reply.send(EnvFiles::default());
        }
        let storage = self.peers.storage.clone();
        ctx.run(async move {
            let (mut files, mut worn) = (EnvFiles::default(), Vec::new());
            let mut left = env_file::MAX_FILES_BYTES;
            for (place, volume) in found {
                let max = env_file::MAX_BYTES.min(left);
                let file = read(&storage, &place.1, &volume, max, &mut worn).await;
                left -= file.text.as_ref().map_or(0, String::len).min(left);
                files.files.insert(place, file);
            }
            reply.send(files);
            VolumeCompletion::AccessEnded { uid, stuck: worn }.into()
        });
    }
}

/// As upstream, the pod's owner gets no cause: it may name the node's own files.
async fn bound(
    storage: &Storage,
    wishes: Vec<SubpathSpec>,
    container: &str,
    worn: &mut Vec<StuckProcess>,
) -> Result<BTreeMap<u32, PathBuf>, SubpathBindError> {
    let mut paths = BTreeMap::new();
    for wish in wishes {
        let volume = wish.subpath.volume.clone();
        let bound = storage.bind_subpath(&wish, SUBPATH_TIMEOUT).await;
        let path = bound.map_err(|error| {
            tracing::warn!(pod = %wish.uid, container, volume, "no sub-path: {error}");
            worn.extend(StuckProcess::of(wish.plugin, Some(&wish.id), &error));
            bind_error(&volume, container, &error)
        })?;
        paths.insert(wish.subpath.index, path);
    }
    Ok(paths)
}

fn bind_error(volume: &str, container: &str, error: &StorageError) -> SubpathBindError {
    let transient = match error {
        StorageError::Unanswered { .. } => Retry::Soon,
        StorageError::Refused { .. } | StorageError::Stuck { .. } => Retry::Later,
    };
    SubpathBindError {
        message: format!(
            "failed to prepare subPath for volumeMount {volume:?} of container {container:?}"
        ),
        transient,
    }
}

async fn read(
    storage: &Storage,
    path: &str,
    volume: &MeasurableVolume,
    max_bytes: usize,
    worn: &mut Vec<StuckProcess>,
) -> EnvFile {
    let file = VolumeFile {
        id: &volume.volume.id,
        kind: volume.place.kind.as_str(),
        root: &volume.path,
        path,
        max_bytes: u32::try_from(max_bytes).unwrap_or(u32::MAX),
    };
    let plugin = StoragePlugin::of(volume.place.kind);
    let data = storage.read_file(plugin, &file, SUBPATH_TIMEOUT).await;
    let text = data.map(String::from_utf8);
    if let Err(error) = &text {
        tracing::warn!(path, "a file of variables is not read: {error}");
        worn.extend(StuckProcess::of(plugin, Some(&volume.volume.id), error));
    }
    EnvFile {
        host_path: volume.path.join(path),
        text: text.ok().and_then(Result::ok),
    }
}
