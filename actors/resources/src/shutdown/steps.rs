//! Pods end in steps: the next one begins when the last one's pods have ended, or its time is over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kernel::Context;
use logic_api::types::PodUid;
use logic_node::shutdown::failure;
use pods::pod_manager;

use super::{Msg, ShutdownManager};

/// Between polls of the pods that still run, during a shutdown.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The managers answer from memory.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// After the last step: time for statuses to reach the API server.
pub(super) const DELIVERY_PERIOD: Duration = Duration::from_secs(2);

/// The pods on the node now.
#[derive(Debug)]
pub struct NodePods {
    active: Vec<Arc<Pod>>,
    unfinished: BTreeSet<PodUid>,
}

/// The step that is running.
#[derive(Debug)]
pub(super) struct ShutdownProgress {
    until: Instant,
    pods: Vec<PodUid>,
}

impl ShutdownManager {
    pub(super) fn observe(&mut self, ctx: &mut Context<Msg>) {
        if !self.going_down {
            return;
        }
        let pod_manager = self.peers.pod_manager.clone();
        ctx.run(async move {
            let active = pod_manager.ask(ANSWER_TIMEOUT, pod_manager::Msg::active);
            let unfinished = pod_manager.ask(ANSWER_TIMEOUT, pod_manager::Msg::unfinished);
            let observed = match futures_util::future::join(active, unfinished).await {
                (Ok(active), Ok(unfinished)) => Some(NodePods { active, unfinished }),
                (Err(_), _) | (_, Err(_)) => None,
            };
            Msg::Observed(Box::new(observed))
        });
    }

    pub(super) fn observed(&mut self, observed: Option<NodePods>, ctx: &mut Context<Msg>) {
        if !self.going_down {
            return;
        }
        if let Some(observed) = observed {
            if self.steps.is_none() {
                self.plan(&observed);
            }
            self.forget_what_ended(&observed);
        }
        let now = ctx.now();
        if self.step.as_ref().is_some_and(|step| now >= step.until) {
            tracing::warn!("some pods have not ended in time; the node goes down all the same");
            self.step = None;
        }
        if self.step.is_none() && !self.begin_next(now) && self.steps.is_some() {
            tracing::info!("every pod has had its time: the machine may go down");
            ctx.after(DELIVERY_PERIOD, Msg::Release);
            return;
        }
        ctx.after(POLL_INTERVAL, Msg::Observe);
    }

    fn plan(&mut self, observed: &NodePods) {
        let mut steps = self
            .policy
            .order
            .steps(observed.active.iter().map(|pod| &**pod));
        // Steps are popped from the end.
        steps.reverse();
        self.steps = Some(steps);
    }

    fn forget_what_ended(&mut self, observed: &NodePods) {
        let Some(step) = &mut self.step else {
            return;
        };
        step.pods.retain(|uid| observed.unfinished.contains(uid));
        if step.pods.is_empty() {
            self.step = None;
        }
    }

    /// Begins the next step; returns false if there is none.
    fn begin_next(&mut self, now: Instant) -> bool {
        let Some(step) = self.steps.as_mut().and_then(Vec::pop) else {
            return false;
        };
        for (uid, grace) in &step.pods {
            let fail = pod_manager::Msg::Fail {
                uid: uid.clone(),
                failure: Box::new(failure()),
                grace: *grace,
            };
            if self.peers.pod_manager.tell(fail).is_err() {
                tracing::warn!(%uid, "a pod is not told to end: the pod manager's mailbox is full");
            }
        }
        self.step = Some(ShutdownProgress {
            until: now + step.within,
            pods: step.pods.into_iter().map(|(uid, _)| uid).collect(),
        });
        true
    }
}
