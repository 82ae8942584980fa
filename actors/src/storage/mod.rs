//! The typed client of the storage plugins: `oxlet.storage.v1` behind, `logic::volumes` in front.
//!
//! The only module (with [`convert`]) that sees the contract's types. Every call has a deadline, which the plugin
//! is told, and may be repeated: one that a crash of the plugin interrupts is made again unseen, within its time.

mod convert;
#[cfg(test)]
pub(crate) mod testing;

use std::path::{Path, PathBuf};
use std::time::Duration;

use kernel::plugin::{CallError, Line, MESSAGE_LIMIT};
use logic::types::PodUid;
use logic::volumes::{
    Access, Backend, Figures, Found, Kind, Mode, Relabel, Subpath, Volume, VolumeId,
};
use proto::storage as wire;
use proto::storage::storage_client::StorageClient;
use thiserror::Error;
use tonic::transport::Channel;
use tonic::{Code, Response, Status, Streaming};

/// The plugin is told its time; its answer may take so much longer on the way.
const ON_THE_WAY: Duration = Duration::from_secs(2);
/// What a plugin adds to an answer that it gave up a thread for.
const ABANDONED: &str = "oxlet-abandoned";

/// The storage plugins of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum Plugin {
    Local,
    Csi,
}

impl Plugin {
    pub const ALL: [Plugin; 2] = [Plugin::Local, Plugin::Csi];

    /// Who serves a kind.
    pub fn of(kind: Kind) -> Self {
        match kind {
            Kind::Csi => Self::Csi,
            Kind::EmptyDir
            | Kind::HostPath
            | Kind::ConfigMap
            | Kind::Secret
            | Kind::Projected
            | Kind::DownwardApi
            | Kind::Local
            | Kind::Nfs
            | Kind::Image => Self::Local,
        }
    }

    /// The name under which it is declared and hosted.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "storage-local",
            Self::Csi => "storage-csi",
        }
    }
}

/// Why a storage plugin did not do as asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StorageError {
    /// It answered no.
    #[error("{message}")]
    Refused { class: Class, message: String },
    /// It gave up a thread that does not come back: its process is worn.
    #[error("{message}")]
    Stuck { generation: u64, message: String },
    /// Nobody answered in time; it may or may not have been done.
    #[error("{plugin} did not answer: {why}")]
    Unanswered { plugin: String, why: String },
}

/// What kind of no it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// To repeat it is of no use until the pod or its objects change.
    Invalid,
    /// Something is not there, or not as expected: it may come.
    Missing,
    /// Not done in time by whoever is behind the plugin.
    Late,
    Unimplemented,
    Failed,
}

impl StorageError {
    /// Whether the same call may succeed later, without anybody changing the pod.
    pub fn transient(&self) -> bool {
        match self {
            Self::Refused { class, .. } => match class {
                Class::Missing | Class::Late | Class::Failed => true,
                Class::Invalid | Class::Unimplemented => false,
            },
            Self::Stuck { .. } | Self::Unanswered { .. } => true,
        }
    }

    fn new(error: CallError, generation: u64) -> Self {
        match error {
            CallError::Refused(status) if status.metadata().contains_key(ABANDONED) => {
                Self::Stuck {
                    generation,
                    message: status.message().to_owned(),
                }
            }
            CallError::Refused(status) => Self::Refused {
                class: class(status.code()),
                message: status.message().to_owned(),
            },
            CallError::Interrupted { plugin } => Self::Unanswered {
                plugin,
                why: "it went away during the call".to_owned(),
            },
            CallError::Deadline { plugin, after } => Self::Unanswered {
                plugin,
                why: format!("nothing was heard for {after:?}"),
            },
            CallError::Unavailable { plugin, why } => Self::Unanswered { plugin, why },
        }
    }
}

fn class(code: Code) -> Class {
    match code {
        Code::InvalidArgument | Code::OutOfRange => Class::Invalid,
        Code::NotFound | Code::FailedPrecondition => Class::Missing,
        // A driver that went away in the middle of a call may have done half of it.
        Code::DeadlineExceeded | Code::Cancelled | Code::Unavailable => Class::Late,
        Code::Unimplemented => Class::Unimplemented,
        Code::Ok
        | Code::Unknown
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => Class::Failed,
    }
}

/// The pod that a volume is mounted for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRef {
    pub uid: PodUid,
    pub namespace: String,
    pub name: String,
    pub service_account: String,
}

/// A volume that a pod is to find at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountWish {
    pub volume: Volume,
    pub pod: PodRef,
    pub target: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountAnswer {
    pub path: PathBuf,
    pub relabel: Relabel,
    /// What a person should know although it worked.
    pub warnings: Vec<String>,
}

/// A volume of a pod that is to be taken away; known by its place alone, for it may have been found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub plugin: Plugin,
    pub id: VolumeId,
    /// As upstream calls its plugin.
    pub kind: String,
    pub folder: String,
    pub uid: PodUid,
    pub target: PathBuf,
}

/// A volume that is staged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    pub plugin: Plugin,
    pub id: VolumeId,
    pub kind: String,
    /// Empty for what this agent staged.
    pub path: PathBuf,
    pub mode: Mode,
    pub volume: Option<Volume>,
}

/// A volume that is to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    pub plugin: Plugin,
    pub id: VolumeId,
    pub kind: String,
    pub folder: String,
    pub path: PathBuf,
    pub driver: String,
    pub volume_handle: String,
}

/// A volume that is to grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    pub volume: Volume,
    /// None where it is mounted nowhere.
    pub path: Option<PathBuf>,
    /// Bytes.
    pub size: u64,
}

/// A path within a volume that a container is to find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubpathWish {
    pub plugin: Plugin,
    pub id: VolumeId,
    pub kind: String,
    pub uid: PodUid,
    /// The volume's path.
    pub root: PathBuf,
    pub container: String,
    pub subpath: Subpath,
    pub target: PathBuf,
}

/// What a plugin says of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    pub staged: bool,
    pub block: bool,
    pub expand: bool,
    pub updates: bool,
}

/// What becomes of the drivers behind a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendNews {
    There(Backend),
    Gone(String),
    Refused {
        endpoint: String,
        name: String,
        why: String,
    },
    /// Everything that is there now has been told.
    Synced,
}

/// The news of one plugin's drivers, until the stream ends.
#[derive(Debug)]
pub struct News(Streaming<wire::Event>);

impl News {
    /// None at the end, whyever it came.
    pub async fn next(&mut self) -> Option<BackendNews> {
        loop {
            let event = self.0.message().await.ok()??;
            if let Some(news) = convert::news(event) {
                return Some(news);
            }
        }
    }
}

/// The storage plugins, as the keeper of volumes asks them.
#[derive(Clone, Debug)]
pub struct Storage {
    local: Line,
    csi: Line,
}

fn client(channel: Channel) -> StorageClient<Channel> {
    StorageClient::new(channel)
        .max_decoding_message_size(MESSAGE_LIMIT)
        .max_encoding_message_size(MESSAGE_LIMIT)
}

fn millis(within: Duration) -> u32 {
    u32::try_from(within.as_millis()).unwrap_or(u32::MAX)
}

impl Storage {
    pub fn new(local: Line, csi: Line) -> Self {
        Self { local, csi }
    }

    pub fn line(&self, plugin: Plugin) -> &Line {
        match plugin {
            Plugin::Local => &self.local,
            Plugin::Csi => &self.csi,
        }
    }

    async fn call<Q: Clone, T>(
        &self,
        plugin: Plugin,
        within: Duration,
        request: Q,
        method: impl AsyncFn(StorageClient<Channel>, Q) -> Result<Response<T>, Status>,
    ) -> Result<T, StorageError> {
        let line = self.line(plugin);
        let generation = line.state().generation;
        // Boxed: a call's future is large, and would stand in every future around it, twice.
        let answer = line
            .idempotent(within + ON_THE_WAY, |channel| {
                Box::pin(method(client(channel), request.clone()))
            })
            .await;
        answer.map_err(|error| StorageError::new(error, generation))
    }

    /// By kind, what the plugin can do with it.
    pub async fn abilities(
        &self,
        plugin: Plugin,
        within: Duration,
    ) -> Result<Vec<(String, Abilities)>, StorageError> {
        let request = wire::CapabilitiesRequest {};
        let answer = self
            .call(plugin, within, request, async |mut client, request| {
                client.capabilities(request).await
            })
            .await?;
        Ok(answer.kinds.into_iter().map(convert::abilities).collect())
    }

    pub async fn stage(&self, volume: &Volume, within: Duration) -> Result<PathBuf, StorageError> {
        let request = convert::stage(volume, millis(within));
        let plugin = Plugin::of(volume.kind);
        let answer = self
            .call(plugin, within, request, async |mut client, request| {
                client.stage(request).await
            })
            .await?;
        Ok(answer.path.into())
    }

    pub async fn unstage(&self, staged: &Staged, within: Duration) -> Result<(), StorageError> {
        let request = convert::unstage(staged, millis(within));
        self.call(
            staged.plugin,
            within,
            request,
            async |mut client, request| client.unstage(request).await,
        )
        .await?;
        Ok(())
    }

    pub async fn mount(
        &self,
        wish: &MountWish,
        within: Duration,
    ) -> Result<MountAnswer, StorageError> {
        let request = convert::mount(wish, millis(within));
        let plugin = Plugin::of(wish.volume.kind);
        let answer = self
            .call(plugin, within, request, async |mut client, request| {
                client.mount(request).await
            })
            .await?;
        Ok(convert::mounted(answer, wish))
    }

    pub async fn unmount(&self, place: &Place, within: Duration) -> Result<(), StorageError> {
        let request = convert::unmount(place, millis(within));
        self.call(
            place.plugin,
            within,
            request,
            async |mut client, request| client.unmount(request).await,
        )
        .await?;
        Ok(())
    }

    /// Answers with the device.
    pub async fn map_block(
        &self,
        wish: &MountWish,
        within: Duration,
    ) -> Result<PathBuf, StorageError> {
        let request = convert::map_block(wish, millis(within));
        let plugin = Plugin::of(wish.volume.kind);
        let answer = self
            .call(plugin, within, request, async |mut client, request| {
                client.map_block(request).await
            })
            .await?;
        Ok(answer.device.into())
    }

    pub async fn unmap_block(&self, place: &Place, within: Duration) -> Result<(), StorageError> {
        let request = convert::unmap_block(place, millis(within));
        self.call(
            place.plugin,
            within,
            request,
            async |mut client, request| client.unmap_block(request).await,
        )
        .await?;
        Ok(())
    }

    pub async fn list(&self, plugin: Plugin, within: Duration) -> Result<Vec<Found>, StorageError> {
        let request = wire::ListRequest {
            within_ms: millis(within),
        };
        let answer = self
            .call(plugin, within, request, async |mut client, request| {
                client.list(request).await
            })
            .await?;
        Ok(answer
            .found
            .into_iter()
            .filter_map(convert::found)
            .collect())
    }

    pub async fn stats(
        &self,
        measured: &Measured,
        within: Duration,
    ) -> Result<Figures, StorageError> {
        let request = convert::stats(measured, millis(within));
        let answer = self
            .call(
                measured.plugin,
                within,
                request,
                async |mut client, request| client.stats(request).await,
            )
            .await?;
        Ok(convert::figures(answer))
    }

    /// Answers with the size that it has now; none where the backend does not say.
    pub async fn expand(
        &self,
        growth: &Growth,
        within: Duration,
    ) -> Result<Option<u64>, StorageError> {
        let request = convert::expand(growth, millis(within));
        let plugin = Plugin::of(growth.volume.kind);
        let answer = self
            .call(plugin, within, request, async |mut client, request| {
                client.expand(request).await
            })
            .await?;
        Ok(Some(answer.size).filter(|size| *size > 0))
    }

    pub async fn bind_subpath(
        &self,
        wish: &SubpathWish,
        within: Duration,
    ) -> Result<PathBuf, StorageError> {
        let request = convert::bind(wish, millis(within));
        let answer = self
            .call(wish.plugin, within, request, async |mut client, request| {
                client.bind_subpath(request).await
            })
            .await?;
        Ok(answer.path.into())
    }

    /// `container`: none means those of all containers. What a kind bound, any plugin can release.
    pub async fn release_subpaths(
        &self,
        uid: &PodUid,
        container: Option<&str>,
        folder: &Path,
        within: Duration,
    ) -> Result<(), StorageError> {
        let request = wire::ReleaseSubpathsRequest {
            pod_uid: uid.to_string(),
            container: container.unwrap_or_default().to_owned(),
            folder: convert::text(folder),
            within_ms: millis(within),
        };
        self.call(
            Plugin::Local,
            within,
            request,
            async |mut client, request| client.release_subpaths(request).await,
        )
        .await?;
        Ok(())
    }

    /// Reads a small file of a mounted volume.
    pub async fn read_file(
        &self,
        plugin: Plugin,
        file: &VolumeFile<'_>,
        within: Duration,
    ) -> Result<Vec<u8>, StorageError> {
        let request = wire::ReadFileRequest {
            volume_id: file.id.0.clone(),
            kind: file.kind.to_owned(),
            root: convert::text(file.root),
            path: file.path.to_owned(),
            max_bytes: file.max_bytes,
            within_ms: millis(within),
        };
        let answer = self
            .call(plugin, within, request, async |mut client, request| {
                client.read_file(request).await
            })
            .await?;
        Ok(answer.data)
    }

    /// Removes what is left of a pod's folder; answers with what was kept, and why.
    pub async fn remove_pod(
        &self,
        folder: &Path,
        within: Duration,
    ) -> Result<Vec<String>, StorageError> {
        let request = wire::RemovePodRequest {
            folder: convert::text(folder),
            within_ms: millis(within),
        };
        let answer = self
            .call(
                Plugin::Local,
                within,
                request,
                async |mut client, request| client.remove_pod(request).await,
            )
            .await?;
        Ok(answer.kept)
    }

    /// Has a driver asked anew how many volumes it takes on this node; what is different comes as news.
    pub async fn inquire(&self, driver: &str, within: Duration) -> Result<(), StorageError> {
        let request = wire::InquireRequest {
            name: driver.to_owned(),
            within_ms: millis(within),
        };
        self.call(Plugin::Csi, within, request, async |mut client, request| {
            client.inquire(request).await
        })
        .await?;
        Ok(())
    }

    /// Listens to what becomes of the drivers behind a plugin.
    pub async fn watch(&self, plugin: Plugin, within: Duration) -> Result<News, StorageError> {
        let request = wire::WatchRequest {};
        let stream = self
            .call(plugin, within, request, async |mut client, request| {
                client.watch(request).await
            })
            .await?;
        Ok(News(stream))
    }
}

/// A file within a mounted volume.
#[derive(Clone, Copy, Debug)]
pub struct VolumeFile<'a> {
    pub id: &'a VolumeId,
    pub kind: &'a str,
    /// The volume's path.
    pub root: &'a Path,
    pub path: &'a str,
    pub max_bytes: u32,
}

/// The same word in the contract.
fn access(access: Access) -> wire::Access {
    match access {
        Access::ReadWrite => wire::Access::ReadWrite,
        Access::ReadOnly => wire::Access::ReadOnly,
    }
}
