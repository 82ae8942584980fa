//! The test case of one law: a client, volumes with unique names, and the cleanup.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use proto::storage::storage_client::StorageClient;
use proto::storage::volume::Source;
use proto::storage::{
    CapabilitiesRequest, Found, KindCapability, ListRequest, MapBlockRequest, MapBlockResponse,
    Mode, MountRequest, MountResponse, ReleaseSubpathsRequest, RemovePodRequest, StageRequest,
    UnmapBlockRequest, UnmountRequest, UnstageRequest,
};
use sdk::MESSAGE_LIMIT;
use tonic::transport::Channel;
use tonic::{Response, Status};

use super::super::{CheckResult, CheckStop, holds};
use super::table::layers;
use super::{Names, Sample, Target};

pub(super) struct StorageCase {
    pub(super) target: Target,
    pub(super) storage: StorageClient<Channel>,
    /// Unlike that of any other check, here or in another process.
    pub(super) name: String,
    made: Vec<Asked>,
}

/// A volume that was asked for, whether it came about or not.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) names: Names,
    pub(super) request: MountRequest,
    pub(super) mode: Mode,
    /// Whether the volume is staged before Mount.
    pub(super) staged: bool,
}

/// A volume that is mounted.
#[derive(Clone, Debug)]
pub(super) struct Mounted {
    pub(super) asked: Asked,
    /// The path that Mount answered.
    pub(super) path: PathBuf,
    /// The number of mounts at its target before.
    pub(super) before: usize,
}

impl Asked {
    pub(super) fn id(&self) -> String {
        self.volume().id
    }

    pub(super) fn kind(&self) -> String {
        self.volume().kind
    }

    pub(super) fn name(&self) -> String {
        self.volume().name
    }

    pub(super) fn volume(&self) -> proto::storage::Volume {
        self.request.volume.clone().unwrap_or_default()
    }

    /// The node's own path is what the pod gets: the target means nothing.
    pub(super) fn of_the_node(&self) -> bool {
        matches!(self.volume().source, Some(Source::HostPath(_)))
    }

    pub(super) fn target(&self) -> &Path {
        Path::new(&self.request.target)
    }

    pub(super) fn stage(&self) -> StageRequest {
        let request = &self.request;
        StageRequest {
            volume: request.volume.clone(),
            access: request.access,
            mount_options: request.mount_options.clone(),
            ownership: request.ownership,
            selinux_label: request.selinux_label.clone(),
            within_ms: 0,
            mode: self.mode.into(),
            device: String::new(),
        }
    }

    pub(super) fn unstage(&self) -> UnstageRequest {
        UnstageRequest {
            volume_id: self.id(),
            kind: self.kind(),
            path: String::new(),
            within_ms: 0,
            mode: self.mode.into(),
            volume: self.request.volume.clone(),
        }
    }

    pub(super) fn unmount(&self) -> UnmountRequest {
        UnmountRequest {
            volume_id: self.id(),
            kind: self.kind(),
            name: self.name(),
            pod_uid: self.names.pod.clone(),
            target: self.request.target.clone(),
            within_ms: 0,
        }
    }

    pub(super) fn map(&self) -> MapBlockRequest {
        let request = self.request.clone();
        MapBlockRequest {
            volume: request.volume,
            pod: request.pod,
            target: request.target,
            access: request.access,
            within_ms: 0,
        }
    }

    pub(super) fn unmap(&self) -> UnmapBlockRequest {
        UnmapBlockRequest {
            volume_id: self.id(),
            kind: self.kind(),
            name: self.name(),
            pod_uid: self.names.pod.clone(),
            target: self.request.target.clone(),
            within_ms: 0,
        }
    }
}

impl StorageCase {
    pub(super) fn new(target: Target) -> Self {
        Self {
            storage: StorageClient::new(target.channel.clone())
                .max_decoding_message_size(MESSAGE_LIMIT),
            name: format!("law-{:016x}", RandomState::new().hash_one(0)),
            target,
            made: Vec::new(),
        }
    }

    pub(super) async fn kinds(&mut self) -> Result<BTreeMap<String, KindCapability>, CheckStop> {
        let answer = self.storage.capabilities(CapabilitiesRequest {}).await?;
        let kinds = answer.into_inner().kinds.into_iter();
        Ok(kinds.map(|kind| (kind.kind.clone(), kind)).collect())
    }

    /// Returns the plugin's capabilities for volumes of this kind.
    pub(super) async fn ability(&mut self, asked: &Asked) -> Result<KindCapability, CheckStop> {
        let kind = asked.kind();
        let found = self.kinds().await?.remove(&kind);
        found.ok_or_else(|| CheckStop::Broken(format!("Capabilities does not name kind {kind:?}")))
    }

    /// A new volume of a new pod; it is taken away again when the check is over.
    pub(super) async fn ask(&mut self, sample: &Sample) -> Result<Asked, CheckStop> {
        let number = self.made.len();
        let names = Names {
            root: self.target.root.clone(),
            pod: format!("{}-{number}", self.name),
            volume: format!("v-{}-{number}", self.name),
        };
        let mut asked = Asked {
            request: (sample.make)(&names),
            names,
            mode: sample.mode,
            staged: false,
        };
        let ephemeral = match asked.volume().source {
            Some(Source::Csi(csi)) => csi.ephemeral,
            Some(_) | None => false,
        };
        asked.staged = !ephemeral && self.ability(&asked).await?.staged;
        self.made.push(asked.clone());
        Ok(asked)
    }

    /// Stages a volume where its kind needs that.
    pub(super) async fn prepare(&mut self, asked: &Asked) -> CheckResult {
        if asked.staged {
            self.storage.stage(asked.stage()).await?;
        }
        Ok(())
    }

    /// Mounts a new volume.
    pub(super) async fn mounted(&mut self, sample: &Sample) -> Result<Mounted, CheckStop> {
        let asked = self.ask(sample).await?;
        let before = layers(asked.target())?;
        self.prepare(&asked).await?;
        let path = self.mount(&asked).await?.path;
        holds(path.starts_with('/'), || {
            format!("Mount answered path {path:?}, expected an absolute one")
        })?;
        let path = PathBuf::from(path);
        Ok(Mounted {
            asked,
            path,
            before,
        })
    }

    pub(super) async fn mount(&mut self, asked: &Asked) -> Result<MountResponse, Status> {
        let answer = self.storage.mount(asked.request.clone()).await;
        answer.map(Response::into_inner)
    }

    pub(super) async fn unmount(&mut self, asked: &Asked) -> Result<(), Status> {
        self.storage.unmount(asked.unmount()).await.map(drop)
    }

    /// A new raw block volume, mapped.
    pub(super) async fn mapped(
        &mut self,
        sample: &Sample,
    ) -> Result<(Asked, MapBlockResponse), CheckStop> {
        let asked = self.ask(sample).await?;
        self.prepare(&asked).await?;
        let answer = self.storage.map_block(asked.map()).await?;
        Ok((asked, answer.into_inner()))
    }

    /// Returns the listed volumes of this check's pods.
    pub(super) async fn listed(&mut self, asked: &Asked) -> Result<Vec<Found>, CheckStop> {
        let answer = self.storage.list(ListRequest { within_ms: 0 }).await?;
        let ours = |found: &Found| {
            found.pod_uid == asked.names.pod
                || found.name == asked.name()
                || found.volume_id == asked.id()
        };
        let found = answer.into_inner().found.into_iter();
        Ok(found.filter(ours).collect())
    }

    /// Unmounts all that this check mounted. A failure shows in this law, or in the next one.
    pub(super) async fn clean_up(&mut self) {
        for asked in std::mem::take(&mut self.made).into_iter().rev() {
            let pod = &asked.names.folder();
            let release = ReleaseSubpathsRequest {
                pod_uid: asked.names.pod.clone(),
                folder: text(&pod.join("volume-subpaths")),
                ..ReleaseSubpathsRequest::default()
            };
            drop(self.storage.release_subpaths(release).await);
            match asked.mode {
                Mode::FileSystem => drop(self.unmount(&asked).await),
                Mode::Block => drop(self.storage.unmap_block(asked.unmap()).await),
            }
            if asked.staged {
                drop(self.storage.unstage(asked.unstage()).await);
            }
            let folder = text(pod);
            let remove = RemovePodRequest {
                folder,
                within_ms: 0,
            };
            drop(self.storage.remove_pod(remove).await);
        }
    }
}

/// Checks a law for each sample that is used so; it is skipped when none could be checked.
pub(super) async fn each(
    case: &mut StorageCase,
    mode: Mode,
    law: for<'a> fn(&'a mut StorageCase, &'a Sample) -> BoxFuture<'a, CheckResult>,
) -> CheckResult {
    let mut outcome = Err(CheckStop::Skipped("there is no sample for it"));
    for sample in case.target.samples.clone() {
        if sample.mode != mode {
            continue;
        }
        match law(case, &sample).await {
            Ok(()) => outcome = Ok(()),
            Err(CheckStop::Broken(why)) => {
                return Err(CheckStop::Broken(format!("{}: {why}", sample.words)));
            }
            Err(CheckStop::Skipped(why)) => {
                outcome = outcome.map_err(|_| CheckStop::Skipped(why));
            }
        }
    }
    outcome
}

pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Tells whether there is anything at a path; a link is something.
pub(super) fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
