//! The typed client of the storage plugins: `oxlet.storage.v1` behind, `logic::volumes` in front.
//!
//! The only module that sees the contract's types; [`convert`] has one function each direction. Every call has a
//! deadline, which the plugin is told, and may be repeated: one that a crash of the plugin interrupts is made again
//! unseen, within its time.

mod asked;
mod convert;
mod drivers;
mod error;
#[cfg(test)]
pub(crate) mod testing;
mod within;

use std::path::PathBuf;
use std::time::Duration;

use kernel::plugin::{Line, MESSAGE_LIMIT};
use logic::volume_stats::Figures;
use logic::volumes::{Found, Kind, Volume};
use proto::storage as wire;
use proto::storage::storage_client::StorageClient;
use tonic::transport::Channel;
use tonic::{Response, Status};

pub use self::asked::{Abilities, Growth, Measured, MountAnswer, MountWish, Place, PodRef, Staged};
pub use self::drivers::{BackendNews, News};
pub use self::error::{Class, StorageError};
pub use self::within::{SubpathWish, VolumeFile};

/// The plugin is told its time; its answer may take so much longer on the way.
const ON_THE_WAY: Duration = Duration::from_secs(2);

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
}
