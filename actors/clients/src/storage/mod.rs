//! The typed client of the storage plugins: `oxlet.storage.v1` behind, `logic_volumes` in front.
//!
//! The only module that sees the contract's types; [`convert`] has one function each direction. Every call has a
//! deadline, which the plugin is told, and may be repeated: one that a crash of the plugin interrupts is retried
//! transparently, until its deadline.

mod convert;
mod drivers;
mod error;
mod subpath;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod types;

use std::path::PathBuf;
use std::time::Duration;

use logic_api::pod::volume_stats::VolumeMetrics;
use logic_volumes::{ReconstructedVolume, Volume, VolumeKind};
use plugin_host::{MESSAGE_LIMIT, PluginClient};
use proto::storage as wire;
use proto::storage::storage_client::StorageClient;
use tonic::transport::Channel;
use tonic::{Response, Status};

pub use self::drivers::{DriverEvent, DriverEvents};
pub use self::error::{RefusalClass, StorageError};
pub use self::subpath::{SubpathSpec, VolumeFile};
pub use self::types::{
    ExpandSpec, MeasureTarget, MountPod, MountResult, MountSpec, StagedVolume, StorageCapabilities,
    UnmountTarget,
};

/// How much later than the plugin's own deadline the client's is.
const RESPONSE_MARGIN: Duration = Duration::from_secs(2);

/// The kinds of storage plugins of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum StoragePlugin {
    Local,
    Csi,
}

impl StoragePlugin {
    pub const ALL: [StoragePlugin; 2] = [StoragePlugin::Local, StoragePlugin::Csi];

    /// The plugin that serves a kind of volume.
    pub fn of(kind: VolumeKind) -> Self {
        match kind {
            VolumeKind::Csi => Self::Csi,
            VolumeKind::EmptyDir
            | VolumeKind::HostPath
            | VolumeKind::ConfigMap
            | VolumeKind::Secret
            | VolumeKind::Projected
            | VolumeKind::DownwardApi
            | VolumeKind::Local
            | VolumeKind::Nfs
            | VolumeKind::Image => Self::Local,
        }
    }

    /// The name under which the plugin is declared and hosted.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "storage-local",
            Self::Csi => "storage-csi",
        }
    }
}

/// The client of the storage plugins.
#[derive(Clone, Debug)]
pub struct Storage {
    local: PluginClient,
    csi: PluginClient,
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
    pub fn new(local: PluginClient, csi: PluginClient) -> Self {
        Self { local, csi }
    }

    pub fn line(&self, plugin: StoragePlugin) -> &PluginClient {
        match plugin {
            StoragePlugin::Local => &self.local,
            StoragePlugin::Csi => &self.csi,
        }
    }

    async fn call<Q: Clone, T>(
        &self,
        plugin: StoragePlugin,
        within: Duration,
        request: Q,
        method: impl AsyncFn(StorageClient<Channel>, Q) -> Result<Response<T>, Status>,
    ) -> Result<T, StorageError> {
        let line = self.line(plugin);
        let generation = line.state().generation;
        // Boxed: a call's future is large, and would be part of every future around it, twice.
        let answer = line
            .idempotent(within + RESPONSE_MARGIN, |channel| {
                Box::pin(method(client(channel), request.clone()))
            })
            .await;
        answer.map_err(|error| StorageError::new(error, generation))
    }

    /// The capabilities of the plugin, by kind of volume.
    pub async fn abilities(
        &self,
        plugin: StoragePlugin,
        within: Duration,
    ) -> Result<Vec<(String, StorageCapabilities)>, StorageError> {
        let request = wire::CapabilitiesRequest {};
        let answer = self
            .call(plugin, within, request, async |mut client, request| {
                client.capabilities(request).await
            })
            .await?;
        Ok(answer.kinds.into_iter().map(convert::abilities).collect())
    }

    /// Stages a volume for all its pods on this node; returns the staging path.
    ///
    /// # Errors
    /// [`StorageError::Refused`] with its class, [`StorageError::Stuck`] where the process must be replaced,
    /// [`StorageError::Unanswered`] where it may have been done.
    pub async fn stage(&self, volume: &Volume, within: Duration) -> Result<PathBuf, StorageError> {
        let request = convert::stage(volume, millis(within));
        let plugin = StoragePlugin::of(volume.kind);
        let answer = self
            .call(plugin, within, request, async |mut client, request| {
                client.stage(request).await
            })
            .await?;
        Ok(answer.path.into())
    }

    /// Takes a staged volume away; one that is gone is no error.
    ///
    /// # Errors
    /// [`StorageError::Refused`] with its class, [`StorageError::Stuck`] where the process must be replaced,
    /// [`StorageError::Unanswered`] where it may have been done.
    pub async fn unstage(
        &self,
        staged: &StagedVolume,
        within: Duration,
    ) -> Result<(), StorageError> {
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

    /// Mounts a volume for a pod, or updates its files.
    ///
    /// # Errors
    /// [`StorageError::Refused`] with its class, [`StorageError::Stuck`] where the process must be replaced,
    /// [`StorageError::Unanswered`] where it may have been done.
    pub async fn mount(
        &self,
        wish: &MountSpec,
        within: Duration,
    ) -> Result<MountResult, StorageError> {
        let request = convert::mount(wish, millis(within));
        let plugin = StoragePlugin::of(wish.volume.kind);
        let answer = self
            .call(plugin, within, request, async |mut client, request| {
                client.mount(request).await
            })
            .await?;
        Ok(convert::mounted(answer, wish))
    }

    /// Unmounts a pod's volume; one that is gone is no error.
    ///
    /// # Errors
    /// [`StorageError::Refused`] with its class, [`StorageError::Stuck`] where the process must be replaced,
    /// [`StorageError::Unanswered`] where it may have been done.
    pub async fn unmount(
        &self,
        place: &UnmountTarget,
        within: Duration,
    ) -> Result<(), StorageError> {
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

    /// Maps a raw block volume; returns the device's path.
    ///
    /// # Errors
    /// [`StorageError::Refused`] with its class, [`StorageError::Stuck`] where the process must be replaced,
    /// [`StorageError::Unanswered`] where it may have been done.
    pub async fn map_block(
        &self,
        wish: &MountSpec,
        within: Duration,
    ) -> Result<PathBuf, StorageError> {
        let request = convert::map_block(wish, millis(within));
        let plugin = StoragePlugin::of(wish.volume.kind);
        let answer = self
            .call(plugin, within, request, async |mut client, request| {
                client.map_block(request).await
            })
            .await?;
        Ok(answer.device.into())
    }

    /// Unmaps a pod's raw block volume; one that is gone is no error.
    ///
    /// # Errors
    /// [`StorageError::Refused`] with its class, [`StorageError::Stuck`] where the process must be replaced,
    /// [`StorageError::Unanswered`] where it may have been done.
    pub async fn unmap_block(
        &self,
        place: &UnmountTarget,
        within: Duration,
    ) -> Result<(), StorageError> {
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

    /// The volumes that the plugin finds on the node, mounted and staged.
    ///
    /// # Errors
    /// [`StorageError::Refused`] with its class, [`StorageError::Stuck`] where the process must be replaced,
    /// [`StorageError::Unanswered`] where it may have been done.
    pub async fn list(
        &self,
        plugin: StoragePlugin,
        within: Duration,
    ) -> Result<Vec<ReconstructedVolume>, StorageError> {
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

    /// How full a volume is, in bytes and inodes.
    ///
    /// # Errors
    /// [`StorageError::Refused`] with its class, [`StorageError::Stuck`] where the process must be replaced,
    /// [`StorageError::Unanswered`] where it may have been done.
    pub async fn stats(
        &self,
        measured: &MeasureTarget,
        within: Duration,
    ) -> Result<VolumeMetrics, StorageError> {
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

    /// How full these volumes of one plugin are, each as [`Storage::stats`] has it or why it is not measured.
    ///
    /// # Errors
    /// [`StorageError`] of the answer as a whole, as from [`Storage::stats`]; also where it is not as long as the question.
    pub async fn batch_stats(
        &self,
        plugin: StoragePlugin,
        measured: &[MeasureTarget],
        within: Duration,
    ) -> Result<Vec<Result<VolumeMetrics, String>>, StorageError> {
        let request = convert::batch_stats(measured, millis(within));
        let asked = measured.len();
        let answer = self
            .call(plugin, within, request, async |mut client, request| {
                let answer = client.batch_stats(request).await?;
                match answer.get_ref().results.len() {
                    told if told == asked => Ok(answer),
                    told => Err(Status::internal(format!(
                        "BatchStats has {told} results, expected {asked}"
                    ))),
                }
            })
            .await?;
        Ok(answer.results.into_iter().map(convert::result).collect())
    }

    /// Expands a volume on the node; returns its new size in bytes, none where the backend does not report it.
    ///
    /// # Errors
    /// [`StorageError::Refused`] with its class, [`StorageError::Stuck`] where the process must be replaced,
    /// [`StorageError::Unanswered`] where it may have been done.
    pub async fn expand(
        &self,
        growth: &ExpandSpec,
        within: Duration,
    ) -> Result<Option<u64>, StorageError> {
        let request = convert::expand(growth, millis(within));
        let plugin = StoragePlugin::of(growth.volume.kind);
        let answer = self
            .call(plugin, within, request, async |mut client, request| {
                client.expand(request).await
            })
            .await?;
        Ok(Some(answer.size).filter(|size| *size > 0))
    }
}
