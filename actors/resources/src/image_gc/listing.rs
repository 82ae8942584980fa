//! Which images there are, and what uses them.

use std::collections::{BTreeMap, BTreeSet};

use clients::runtime::{ContainerImage, RuntimeClient, RuntimeError};
use futures_util::stream::{self, StreamExt};
use logic_api::types::ContainerId;
use logic_resources::image_gc::{ImageFacts, ImageUse, ImageUseHandler};

/// Containers that are asked for their mounts side by side; each is asked once in its life.
const ASKED_AT_ONCE: usize = 8;

type Mounts = BTreeMap<ContainerId, Vec<String>>;

/// The runtime's images and their users.
#[derive(Debug)]
pub struct Listing {
    pub(super) images: Vec<ImageFacts>,
    pub(super) uses: Vec<ImageUse>,
    /// By container, those that are there.
    pub(super) mounts: Mounts,
}

/// Nothing is known of images now; what was known of mounts stays.
#[derive(Debug)]
pub struct ListingError {
    pub(super) mounts: Mounts,
    pub(super) source: RuntimeError,
}

/// Asks the runtime. `known` are the mounts of containers that were asked before.
///
/// A container that does not answer keeps no other from being known: it counts as one without volumes of images until it
/// answers.
pub(super) async fn list(runtime: &RuntimeClient, known: Mounts) -> Result<Listing, ListingError> {
    let listed = match runtime.collectable_images().await {
        Ok(images) => runtime
            .container_images()
            .await
            .map(|containers| (images, containers)),
        Err(error) => Err(error),
    };
    let (images, containers) = match listed {
        Ok(listed) => listed,
        Err(source) => {
            return Err(ListingError {
                mounts: known,
                source,
            });
        }
    };
    let mounts = mounts(runtime, &containers, known).await;
    let of_any = |image: String| ImageUse {
        image,
        handler: ImageUseHandler::Any,
    };
    let sandbox = runtime.sandbox_image().await;
    let mounted = mounts.values().flatten().cloned();
    let uses = containers.into_iter().map(|container| container.uses);
    let uses = uses.chain(mounted.chain(sandbox).map(of_any)).collect();
    Ok(Listing {
        images,
        uses,
        mounts,
    })
}

async fn mounts(
    runtime: &RuntimeClient,
    containers: &[ContainerImage],
    mut known: Mounts,
) -> Mounts {
    let mut current = Mounts::new();
    let mut unknown = BTreeSet::new();
    for one in containers {
        match known.remove(&one.container) {
            Some(mounted) => drop(current.insert(one.container.clone(), mounted)),
            None if current.contains_key(&one.container) => {}
            None => drop(unknown.insert(one.container.clone())),
        }
    }
    let asked = stream::iter(unknown).map(async |container| {
        let mounted = runtime.mounted_images(&container).await;
        (container, mounted)
    });
    let mut answers = asked.buffered(ASKED_AT_ONCE);
    while let Some((container, mounted)) = answers.next().await {
        match mounted {
            Ok(mounted) => drop(current.insert(container, mounted)),
            Err(error) => {
                tracing::warn!(%container, "its volumes of images are not known: {}", error.describe());
            }
        }
    }
    current
}
