//! A look at the images of containers before they are started.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use clients::runtime::RuntimeImage;
use futures_util::future::{Either, join_all, select};
use logic_api::pod::PodView;
use logic_pods::pod_actions::PodAction;

use crate::images::ImageRequest;
use crate::worker::context::PlanExecutor;

/// By their names, images that the runtime had a moment ago.
pub(super) type PresentImages = BTreeMap<String, RuntimeImage>;

impl PlanExecutor {
    /// Looks for the images of the containers that are started, while what they share is prepared. What is not found so is
    /// the image manager's matter.
    pub(super) async fn present_images(&self, batch: &[PodAction]) -> PresentImages {
        let started = batch.iter().filter_map(PodAction::started);
        let containers = started.filter_map(|name| self.pod.container(name));
        let wanted: BTreeSet<String> = containers
            .map(|(_, container)| ImageRequest::new(&self.pod, &container))
            .filter_map(|request| request.inspected())
            .collect();
        let annotations = self.pod.metadata.annotations.clone().unwrap_or_default();
        let looks = wanted.into_iter().map(async |name| {
            let found = self.peers.runtime.image(&name, &annotations).await;
            found.ok().flatten().map(|image| (name, image))
        });
        match select(pin!(join_all(looks)), pin!(self.wait_for_end())).await {
            Either::Left((found, _)) => found.into_iter().flatten().collect(),
            Either::Right(((), _)) => PresentImages::new(),
        }
    }
}
