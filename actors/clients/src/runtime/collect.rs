//! What garbage collection asks of the runtime: its images, who uses them, and their removal.

use logic_api::types::ContainerId;
use logic_resources::image_gc::{ImageFacts, ImageUse, ImageUseHandler, sandbox_image_of};
use proto::cri;

use super::{RuntimeClient, RuntimeError, done, images, runtime};

/// A container and the image that it was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerImage {
    pub container: ContainerId,
    pub uses: ImageUse,
}

impl RuntimeClient {
    /// Every image, as garbage collection sees it. One without an id is left out, as it could not be removed.
    ///
    /// # Errors
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn collectable_images(&self) -> Result<Vec<ImageFacts>, RuntimeError> {
        let request = cri::ListImagesRequest::default();
        let method = async |channel, request| images(channel).list_images(request).await;
        let answer = self
            .idempotent("ListImages", self.within, request, method)
            .await?;
        let listed = answer.images.into_iter();
        Ok(listed
            .filter(|image| !image.id.is_empty())
            .map(image_facts)
            .collect())
    }

    /// The image of every container, of this node's pods and of others.
    ///
    /// # Errors
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn container_images(&self) -> Result<Vec<ContainerImage>, RuntimeError> {
        let request = cri::ListContainersRequest::default();
        let method = async |channel, request| runtime(channel).list_containers(request).await;
        let answer = self
            .idempotent("ListContainers", self.within, request, method)
            .await?;
        Ok(answer.containers.into_iter().flat_map(image_uses).collect())
    }

    /// The images that a container mounts as volumes; none of a container that is gone.
    ///
    /// # Errors
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn mounted_images(&self, id: &ContainerId) -> Result<Vec<String>, RuntimeError> {
        let request = cri::ContainerStatusRequest {
            container_id: id.as_str().to_owned(),
            verbose: false,
        };
        let method = async |channel, request| runtime(channel).container_status(request).await;
        let answer = self
            .idempotent("ContainerStatus", self.within, request, method)
            .await;
        let status = match answer {
            Ok(answer) => answer.status.unwrap_or_default(),
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mounted = status.mounts.into_iter().filter_map(|mount| mount.image);
        Ok(mounted.map(|image| image.image).collect())
    }

    /// The image of the runtime's sandboxes, where it tells: containerd does among the details of its status, and marks it
    /// as pinned only from 1.7.3 on.
    pub async fn sandbox_image(&self) -> Option<String> {
        let request = cri::StatusRequest { verbose: true };
        let method = async |channel, request| runtime(channel).status(request).await;
        let answer = self
            .idempotent("Status", self.within, request, method)
            .await;
        let details = answer.ok()?.info;
        sandbox_image_of(details.get("config")?)
    }

    /// Removes an image; one that is gone is no error. `handler` is the runtime handler that it was pulled for.
    ///
    /// # Errors
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn remove_image(&self, id: &str, handler: &str) -> Result<(), RuntimeError> {
        let request = cri::RemoveImageRequest {
            image: Some(cri::ImageSpec {
                image: id.to_owned(),
                runtime_handler: handler.to_owned(),
                ..Default::default()
            }),
        };
        let method = async |channel, request| images(channel).remove_image(request).await;
        done(
            self.idempotent("RemoveImage", self.within, request, method)
                .await,
        )
    }
}

fn image_facts(image: cri::Image) -> ImageFacts {
    ImageFacts {
        id: image.id,
        handler: image.spec.unwrap_or_default().runtime_handler,
        names: [image.repo_digests, image.repo_tags].concat(),
        bytes: image.size,
        pinned: image.pinned,
    }
}

/// Older runtimes fill the reference alone, which is an id or a digest.
fn image_uses(container: cri::Container) -> Vec<ContainerImage> {
    let handler = container.image.unwrap_or_default().runtime_handler;
    let id = ContainerId::from(container.id);
    let references = [container.image_id, container.image_ref].into_iter();
    let named = references.filter(|reference| !reference.is_empty());
    named
        .map(|image| ContainerImage {
            container: id.clone(),
            uses: ImageUse {
                image,
                handler: ImageUseHandler::Only(handler.clone()),
            },
        })
        .collect()
}
