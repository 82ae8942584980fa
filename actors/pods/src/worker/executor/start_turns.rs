//! The order in which the containers of a batch start.
//!
//! Upstream: pkg/kubelet/kuberuntime/kuberuntime_manager.go (SyncPod, 1.36) starts one container after the other, each
//! with its postStart hook. Here only the hooks order the starts.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kernel::watch;
use logic_api::pod::PodView;
use logic_pods::pod_actions::PodAction;

/// A batch of containers that are being started, and which of them are done.
#[derive(Debug)]
pub(super) struct StartTurns {
    /// In their order, each with whether it has a postStart hook.
    containers: Vec<(String, bool)>,
    /// Those whose start has ended, well or not.
    ended: watch::Sender<BTreeSet<String>>,
}

impl StartTurns {
    pub(super) fn of(pod: &Pod, batch: &[PodAction]) -> StartTurns {
        let started = batch.iter().filter_map(PodAction::started);
        let (ended, _) = watch::channel(BTreeSet::new());
        StartTurns {
            containers: started
                .map(|name| (name.to_owned(), has_post_start(pod, name)))
                .collect(),
            ended,
        }
    }

    /// Resolves when the starts of all earlier containers with a postStart hook have ended.
    pub(super) async fn wait(&self, name: &str) {
        let earlier = self
            .containers
            .iter()
            .take_while(|(other, _)| other != name);
        let hooked: Vec<&String> = earlier
            .filter(|(_, hook)| *hook)
            .map(|(name, _)| name)
            .collect();
        let mut ended = self.ended.subscribe();
        let all = ended.wait_for(|ended| hooked.iter().all(|name| ended.contains(*name)));
        // An error would say that the sender is gone, and it is a field of this.
        drop(all.await);
    }

    /// Notes that a container's start has ended.
    pub(super) fn end(&self, name: &str) {
        self.ended.send_modify(|ended| {
            ended.insert(name.to_owned());
        });
    }
}

pub(in crate::worker) fn has_post_start(pod: &Pod, name: &str) -> bool {
    let lifecycle = pod.container(name).and_then(|(_, c)| c.lifecycle.clone());
    lifecycle.is_some_and(|lifecycle| lifecycle.post_start.is_some())
}
