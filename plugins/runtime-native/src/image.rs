//! What the node does with the image store: the root of a container, the image that it is made of, and pulls.

use std::path::PathBuf;

use images::{Image, StoreError};
use proto::cri::AuthConfig;

use crate::error::CallError;
use crate::node::Node;
use crate::spec::ImageSettings;

/// What a container is made of.
#[derive(Clone, Debug)]
pub(crate) struct ContainerImage {
    pub(crate) id: String,
    /// A digest reference, where the image has one; else its id.
    pub(crate) reference: String,
    pub(crate) user: String,
    pub(crate) stop_signal: String,
    pub(crate) settings: ImageSettings,
    image: Image,
}

impl Node {
    /// Looks an image up by name or id; none if it is not there.
    pub(crate) fn find_image(&self, name: &str) -> Result<Option<Image>, CallError> {
        match self.parts.images.image(name) {
            Ok(image) => Ok(Some(image)),
            Err(StoreError::NoSuchImage(_)) => Ok(None),
            #[allow(unreachable_patterns, reason = "x")]
            Err(error) => Err(unusable(name, &error)),
        }
    }

    /// Returns what a container of this image is made of.
    pub(crate) async fn container_image(&self, name: &str) -> Result<ContainerImage, CallError> {
        let found = self.find_image(name)?;
        let image = found.ok_or_else(|| CallError::NoImage(name.to_owned()))?;
        let config = self.parts.images.config(&image).await;
        let defaults = config.map_err(|error| unusable(name, &error))?.defaults;
        let id = image.id.to_string();
        Ok(ContainerImage {
            reference: image.digests.first().unwrap_or(&id).clone(),
            id,
            user: defaults.user,
            stop_signal: defaults.stop_signal,
            settings: ImageSettings {
                entrypoint: defaults.entrypoint,
                command: defaults.cmd,
                env: defaults.env,
                working_dir: defaults.working_dir,
            },
            image,
        })
    }

    /// Mounts the root of a container, whose image is leased before; returns its path.
    pub(crate) async fn mount_root(
        &self,
        container: &str,
        image: &ContainerImage,
    ) -> Result<PathBuf, CallError> {
        let store = &self.parts.images;
        let leased = store.lease(container, &image.image.id).await;
        leased.map_err(|error| unusable(&image.id, &error))?;
        let folder = self.parts.layout.container(container);
        let mounted = store.mount_rootfs(&image.image, &folder).await;
        mounted.map_err(|error| unusable(&image.id, &error))
    }

    /// Unmounts the root of a container and gives its lease back; both may be gone already.
    pub(crate) async fn release_image(&self, container: &str) -> Result<(), CallError> {
        let store = &self.parts.images;
        let folder = self.parts.layout.container(container);
        let unmounted = store.unmount_rootfs(&folder).await;
        unmounted.map_err(|error| unusable(container, &error))?;
        let released = store.unlease(container).await;
        released.map_err(|error| unusable(container, &error))
    }

    pub(crate) async fn pull_image(
        &self,
        name: &str,
        _auth: Option<AuthConfig>,
    ) -> Result<String, CallError> {
        Err(CallError::NoImage(name.to_owned()))
    }

    pub(crate) async fn remove_image(&self, name: &str) -> Result<(), CallError> {
        match self.parts.images.remove(name).await {
            Ok(()) | Err(StoreError::NoSuchImage(_)) => Ok(()),
            #[allow(unreachable_patterns, reason = "x")]
            Err(error) => Err(unusable(name, &error)),
        }
    }
}

fn unusable(image: &str, error: &dyn std::error::Error) -> CallError {
    CallError::Image {
        image: image.to_owned(),
        why: sdk::error_chain(error),
    }
}
