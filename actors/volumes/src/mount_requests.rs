//! Workers' requests for volumes, and their answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kernel::{Context, Reply, TimerId};
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use logic_volumes::MountedVolumes;
use logic_volumes::reconciler::ResolveTrigger;
use logic_volumes::resolve::event_reasons;

use super::resolving::ResolveState;
use super::{Msg, NotMounted, NotReleased, VolumeManager, VolumeTimer, metrics};

/// A pod's request for its volumes.
#[derive(Debug)]
pub(super) struct PodMountRequest {
    pub(super) pod: Arc<Pod>,
    waiter: Option<MountWaiter>,
    pub(super) resolving: ResolveState,
    /// No container of it starts any more.
    pub(super) is_ending: bool,
}

#[derive(Debug)]
struct MountWaiter {
    reply: Reply<Result<MountedVolumes, NotMounted>>,
    turn: u64,
    timer: TimerId,
}

/// The workers that wait until their pods' volumes are gone, and the last request's number.
#[derive(Debug, Default)]
pub(super) struct ReleaseRequests {
    waiting: BTreeMap<PodUid, ReleaseWaiter>,
    /// The pods whose volumes are being unmounted, for their events.
    pods: BTreeMap<PodUid, Arc<Pod>>,
    /// Tells the timer of a request from that of an earlier one for the same pod.
    turn: u64,
}

/// A worker that waits until its pod's volumes are gone.
#[derive(Debug)]
struct ReleaseWaiter {
    reply: Reply<Result<(), NotReleased>>,
    turn: u64,
    timer: TimerId,
}

impl ReleaseRequests {
    pub(super) fn pod(&self, uid: &PodUid) -> Option<&Arc<Pod>> {
        self.pods.get(uid)
    }
}

impl VolumeManager {
    pub(super) fn request_mount(
        &mut self,
        pod: Arc<Pod>,
        within: Duration,
        reply: Reply<Result<MountedVolumes, NotMounted>>,
        ctx: &mut Context<Msg>,
    ) {
        let uid = pod.uid();
        let (turn, timer) = self.start_timeout(&uid, within, ctx);
        self.releases.pods.remove(&uid);
        let earlier = self.pods.remove(&uid);
        let mut resolving = ResolveState::default();
        if let Some(earlier) = earlier {
            answer_waiter(earlier.waiter, Err(NotMounted::Superseded), ctx);
            resolving = earlier.resolving;
        }
        let waiter = Some(MountWaiter { reply, turn, timer });
        let wanting = PodMountRequest {
            pod,
            waiter,
            resolving,
            is_ending: false,
        };
        self.pods.insert(uid.clone(), wanting);
        self.resolve_all(&[uid], ResolveTrigger::Requested, ctx);
    }

    /// As upstream, whose populator passes over pods that can start no containers.
    pub(super) fn pod_ends(&mut self, uid: &PodUid) {
        if let Some(wanting) = self.pods.get_mut(uid) {
            wanting.is_ending = true;
        }
    }

    pub(super) fn request_release(
        &mut self,
        uid: PodUid,
        within: Duration,
        reply: Reply<Result<(), NotReleased>>,
        ctx: &mut Context<Msg>,
    ) {
        if let Some(pod) = self.forget(&uid, ctx) {
            self.releases.pods.insert(uid.clone(), pod);
        }
        self.world.release(&uid);
        let (turn, timer) = self.start_timeout(&uid, within, ctx);
        let releaser = ReleaseWaiter { reply, turn, timer };
        if let Some(earlier) = self.releases.waiting.insert(uid.clone(), releaser) {
            ctx.cancel(earlier.timer);
            let text = event_reasons::not_unmounted(&self.world.mounted_volumes(&uid));
            earlier.reply.send(Err(NotReleased(text)));
        }
    }

    fn start_timeout(
        &mut self,
        uid: &PodUid,
        within: Duration,
        ctx: &mut Context<Msg>,
    ) -> (u64, TimerId) {
        self.releases.turn += 1;
        let (turn, uid) = (self.releases.turn, uid.clone());
        (
            turn,
            ctx.after(within, Msg::Due(VolumeTimer::TimedOut { uid, turn })),
        )
    }

    /// Ends a pod's request; returns the pod if there was one.
    fn forget(&mut self, uid: &PodUid, ctx: &mut Context<Msg>) -> Option<Arc<Pod>> {
        self.resolving.forget(uid);
        let wanting = self.pods.remove(uid)?;
        answer_waiter(wanting.waiter, Err(NotMounted::Released), ctx);
        wanting.resolving.end(ctx);
        Some(wanting.pod)
    }

    /// Drops the requests of pods that the pod manager does not know.
    pub(super) fn set_known_pods(&mut self, known: BTreeSet<PodUid>, ctx: &mut Context<Msg>) {
        let gone = self.pods.keys().filter(|uid| !known.contains(*uid));
        let gone: Vec<PodUid> = gone.cloned().collect();
        for uid in &gone {
            self.forget(uid, ctx);
        }
        self.releases.pods.retain(|uid, _| known.contains(uid));
        metrics::sweep();
        self.world.pods(known);
    }

    pub(super) fn on_timeout(&mut self, uid: &PodUid, turn: u64) {
        let waiter = self.pods.get_mut(uid).and_then(|wanting| {
            let late = |waiter: &mut MountWaiter| waiter.turn == turn;
            wanting.waiter.take_if(late)
        });
        if let Some(waiter) = waiter {
            let causes = self.world.causes(uid);
            let cause = match causes.as_str() {
                "" => event_reasons::TIMED_OUT,
                causes => causes,
            };
            let text = self.world.not_mounted(uid, cause);
            let full = self
                .pods
                .get(uid)
                .is_some_and(|pod| pod.resolving.is_full());
            waiter.reply.send(Err(match full {
                true => NotMounted::NoRoom(text),
                false => NotMounted::Late(text),
            }));
        }
        let is_late = |releaser: &ReleaseWaiter| releaser.turn == turn;
        if self.releases.waiting.get(uid).is_some_and(is_late)
            && let Some(releaser) = self.releases.waiting.remove(uid)
        {
            let text = event_reasons::not_unmounted(&self.world.mounted_volumes(uid));
            releaser.reply.send(Err(NotReleased(text)));
        }
    }

    /// Answers the requests about a pod that are done.
    pub(super) fn answer(&mut self, uid: &PodUid, ctx: &mut Context<Msg>) {
        if let Some(wanting) = self.pods.get_mut(uid)
            && wanting.waiter.is_some()
            && let Some(mounted) = self.world.mounted(uid)
        {
            answer_waiter(wanting.waiter.take(), Ok(mounted), ctx);
        }
        if !self.world.is_released(uid) {
            return;
        }
        self.releases.pods.remove(uid);
        if let Some(releaser) = self.releases.waiting.remove(uid) {
            ctx.cancel(releaser.timer);
            releaser.reply.send(Ok(()));
        }
    }
}

fn answer_waiter(
    waiter: Option<MountWaiter>,
    answer: Result<MountedVolumes, NotMounted>,
    ctx: &mut Context<Msg>,
) {
    if let Some(waiter) = waiter {
        ctx.cancel(waiter.timer);
        waiter.reply.send(answer);
    }
}
