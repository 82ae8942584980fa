//! Work within mounted volumes: subpaths and files; and the removal of a pod's folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use logic_api::types::PodUid;
use logic_volumes::{Subpath, VolumeId};
use proto::storage as wire;

use super::{Storage, StorageError, StoragePlugin, convert, millis};

/// A subpath of a volume to bind for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubpathSpec {
    pub plugin: StoragePlugin,
    pub id: VolumeId,
    pub kind: String,
    pub uid: PodUid,
    /// The path at which the volume is mounted.
    pub root: PathBuf,
    pub container: String,
    pub subpath: Subpath,
    /// Where the path is bound.
    pub target: PathBuf,
}

/// A file within a mounted volume.
#[derive(Clone, Copy, Debug)]
pub struct VolumeFile<'a> {
    pub id: &'a VolumeId,
    pub kind: &'a str,
    /// The path at which the volume is mounted.
    pub root: &'a Path,
    /// Below the volume's root.
    pub path: &'a str,
    /// A larger file is refused.
    pub max_bytes: u32,
}

impl Storage {
    /// Binds a path within a mounted volume for a container; returns where it is bound.
    ///
    /// # Errors
    /// [`StorageError::Refused`] with its class, [`StorageError::Stuck`] where the process must be replaced,
    /// [`StorageError::Unanswered`] where it may have been done.
    pub async fn bind_subpath(
        &self,
        wish: &SubpathSpec,
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

    /// Releases a container's subpaths, or those of all the pod's containers if none is given. Any plugin can release
    /// what another one bound.
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
            StoragePlugin::Local,
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
        plugin: StoragePlugin,
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

    /// Removes what is left of a pod's folder; returns the paths that were kept, with reasons.
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
                StoragePlugin::Local,
                within,
                request,
                async |mut client, request| client.remove_pod(request).await,
            )
            .await?;
        Ok(answer.kept)
    }
}
