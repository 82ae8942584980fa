//! Pods end in steps: the next one begins when the last one is over, or its time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kernel::Context;
use logic::pod::PodView;
use logic::shutdown::failure;
use logic::types::PodUid;

use super::{Msg, Shutdown};
use crate::{directory, volumes};

/// Between looks at what still runs, while the node goes down.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// The keepers answer from memory.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// After the last step: for statuses to reach the API server.
pub(super) const DELIVERY: Duration = Duration::from_secs(2);

/// What is on the node now.
#[derive(Debug)]
pub struct Seen {
    active: Vec<Arc<Pod>>,
    mounted: Vec<PodUid>,
}

/// A step under way.
#[derive(Debug)]
pub(super) struct Going {
    until: Instant,
    pods: Vec<PodUid>,
}

impl Shutdown {
    pub(super) fn look(&mut self, ctx: &mut Context<Msg>) {
        if !self.going_down {
            return;
        }
        let (directory, volumes) = (self.peers.directory.clone(), self.peers.volumes.clone());
        ctx.run(async move {
            let active = directory.ask(ANSWER_WITHIN, |reply| directory::Msg::Active { reply });
            let mounted = volumes.ask(ANSWER_WITHIN, |reply| volumes::Msg::Stats { reply });
            let (active, mounted) = futures_util::future::join(active, mounted).await;
            let mounted = mounted.unwrap_or_default().into_keys().collect();
            let seen = active.ok().map(|active| Seen { active, mounted });
            Msg::Seen(Box::new(seen))
        });
    }

    pub(super) fn seen(&mut self, seen: Option<Seen>, ctx: &mut Context<Msg>) {
        if !self.going_down {
            return;
        }
        if let Some(seen) = seen {
            if self.steps.is_none() {
                self.plan(&seen);
            }
            self.forget_what_ended(&seen);
        }
        let now = ctx.now();
        if self.going.as_ref().is_some_and(|going| now >= going.until) {
            tracing::warn!("some pods have not ended in time; the node goes down all the same");
            self.going = None;
        }
        if self.going.is_none() && !self.begin_next(now) && self.steps.is_some() {
            tracing::info!("every pod has had its time: the machine may go down");
            ctx.after(DELIVERY, Msg::Release);
            return;
        }
        ctx.after(LOOK, Msg::Look);
    }

    fn plan(&mut self, seen: &Seen) {
        let mut steps = self
            .policy
            .order
            .steps(seen.active.iter().map(|pod| &**pod));
        // The next one is taken from the end.
        steps.reverse();
        self.steps = Some(steps);
    }

    fn forget_what_ended(&mut self, seen: &Seen) {
        let Some(going) = &mut self.going else {
            return;
        };
        let active: Vec<PodUid> = seen.active.iter().map(|pod| pod.uid()).collect();
        going
            .pods
            .retain(|uid| active.contains(uid) || seen.mounted.contains(uid));
        if going.pods.is_empty() {
            self.going = None;
        }
    }

    /// Returns whether there was a step to begin.
    fn begin_next(&mut self, now: Instant) -> bool {
        let Some(step) = self.steps.as_mut().and_then(Vec::pop) else {
            return false;
        };
        for (uid, grace) in &step.pods {
            let fail = directory::Msg::Fail {
                uid: uid.clone(),
                failure: Box::new(failure()),
                grace: *grace,
            };
            if self.peers.directory.tell(fail).is_err() {
                tracing::warn!(%uid, "a pod is not told to end: the directory's mailbox is full");
            }
        }
        self.going = Some(Going {
            until: now + step.within,
            pods: step.pods.into_iter().map(|(uid, _)| uid).collect(),
        });
        true
    }
}
