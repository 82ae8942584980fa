//! What workers want of the keeper of volumes, and what it answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kernel::{Context, Reply, TimerId};
use logic::pod::PodView;
use logic::types::PodUid;
use logic::volumes::resolve::expansion::{Expansion, expansion};
use logic::volumes::resolve::{self, Ground, words};
use logic::volumes::world::{Cause, Wish};
use logic::volumes::{Mounted, Resolved, Unresolved};

use super::{Msg, NotMounted, NotReleased, Volumes, timestamp};

/// A pod whose volumes are wanted.
#[derive(Debug)]
pub(super) struct Wanting {
    pub(super) pod: Arc<Pod>,
    waiter: Option<Waiter>,
    /// When it is resolved again.
    again: Option<TimerId>,
}

#[derive(Debug)]
struct Waiter {
    reply: Reply<Result<Mounted, NotMounted>>,
    turn: u64,
}

/// Who waits for a pod's volumes to be gone.
#[derive(Debug)]
pub(super) struct Releaser {
    reply: Reply<Result<(), NotReleased>>,
    turn: u64,
}

impl Volumes {
    pub(super) fn wanted(
        &mut self,
        pod: Arc<Pod>,
        within: Duration,
        reply: Reply<Result<Mounted, NotMounted>>,
        ctx: &mut Context<Msg>,
    ) {
        let uid = pod.uid();
        let turn = self.next_turn();
        let waiter = Some(Waiter { reply, turn });
        let earlier = self.pods.get_mut(&uid);
        let again = earlier.and_then(|earlier| {
            if let Some(waiter) = earlier.waiter.take() {
                waiter.reply.send(Err(NotMounted::Superseded));
            }
            earlier.again.take()
        });
        let wanting = Wanting { pod, waiter, again };
        self.pods.insert(uid.clone(), wanting);
        ctx.after(
            within,
            Msg::Late {
                uid: uid.clone(),
                turn,
            },
        );
        self.resolve(&uid, Cause::Asked, ctx);
    }

    pub(super) fn released(
        &mut self,
        uid: PodUid,
        within: Duration,
        reply: Reply<Result<(), NotReleased>>,
        ctx: &mut Context<Msg>,
    ) {
        self.forget(&uid, ctx);
        let turn = self.next_turn();
        let releaser = Releaser { reply, turn };
        self.releasing
            .entry(uid.clone())
            .or_default()
            .push(releaser);
        self.world.release(&uid);
        ctx.after(within, Msg::Late { uid, turn });
    }

    fn forget(&mut self, uid: &PodUid, ctx: &mut Context<Msg>) {
        let Some(wanting) = self.pods.remove(uid) else {
            return;
        };
        if let Some(waiter) = wanting.waiter {
            waiter.reply.send(Err(NotMounted::Released));
        }
        if let Some(timer) = wanting.again {
            ctx.cancel(timer);
        }
    }

    fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    pub(super) fn late(&mut self, uid: &PodUid, turn: u64) {
        let text = self.world.not_mounted(uid, words::TIMED_OUT);
        let waiter = self.pods.get_mut(uid).and_then(|wanting| {
            let late = |waiter: &mut Waiter| waiter.turn == turn;
            wanting.waiter.take_if(late)
        });
        if let Some(waiter) = waiter {
            waiter.reply.send(Err(NotMounted::Late(text)));
        }
        let held = self.world.held(uid);
        let Some(releasers) = self.releasing.get_mut(uid) else {
            return;
        };
        for late in releasers.extract_if(.., |releaser| releaser.turn == turn) {
            let text = words::not_unmounted(&held);
            late.reply.send(Err(NotReleased(text)));
        }
        if releasers.is_empty() {
            self.releasing.remove(uid);
        }
    }

    /// Answers whoever waits for a pod, if there is an answer.
    pub(super) fn answer(&mut self, uid: &PodUid) {
        if let Some(mounted) = self.world.mounted(uid) {
            let wanting = self.pods.get_mut(uid);
            if let Some(waiter) = wanting.and_then(|wanting| wanting.waiter.take()) {
                waiter.reply.send(Ok(mounted));
            }
        }
        if self.world.is_released(uid) {
            for releaser in self.releasing.remove(uid).into_iter().flatten() {
                releaser.reply.send(Ok(()));
            }
        }
    }

    pub(super) fn objects_changed(&mut self, ctx: &mut Context<Msg>) {
        self.await_objects(ctx);
        self.resolve_all(ctx);
    }

    pub(super) fn await_objects(&self, ctx: &mut Context<Msg>) {
        let mut changes = self.peers.objects.changes();
        ctx.run(async move {
            changes.next().await;
            Msg::ObjectsChanged
        });
    }

    pub(super) fn resolve_all(&mut self, ctx: &mut Context<Msg>) {
        let uids: Vec<PodUid> = self.pods.keys().cloned().collect();
        for uid in uids {
            self.resolve(&uid, Cause::Again, ctx);
        }
    }

    pub(super) fn again(&mut self, uid: &PodUid, ctx: &mut Context<Msg>) {
        if let Some(wanting) = self.pods.get_mut(uid) {
            wanting.again = None;
            self.world.refresh(uid);
            self.resolve(uid, Cause::Again, ctx);
        }
    }

    /// Says to the world what a pod wants, as its objects have it now.
    pub(super) fn resolve(&mut self, uid: &PodUid, cause: Cause, ctx: &mut Context<Msg>) {
        let Some(pod) = self.pods.get(uid).map(|wanting| wanting.pod.clone()) else {
            return;
        };
        let taken = self.world.taken();
        let objects = self.peers.objects.snapshot();
        let labels = BTreeMap::new();
        let ground = Ground {
            objects: &*objects,
            node: &self.peers.rules.node,
            labels: &labels,
            backends: &self.backends,
            selinux: self.policy.selinux,
            now: timestamp(ctx),
            taken: &taken,
        };
        let resolved = resolve::all(&pod, &ground);
        let refresh = resolved
            .values()
            .filter_map(|resolved| resolved.as_ref().ok()?.refresh_at)
            .min();
        let wishes = resolved.into_iter().map(|(name, resolved)| {
            let wish = resolved.map(|resolved| self.wish(&pod, &name, resolved, &ground));
            (name, wish)
        });
        let wishes: BTreeMap<String, Result<Wish, Unresolved>> = wishes.collect();
        self.world.wish(uid, wishes, cause);
        self.again_later(uid, refresh, ctx);
    }

    fn wish(&self, pod: &Pod, name: &str, resolved: Resolved, ground: &Ground<'_>) -> Wish {
        let grown = self.world.grown_to(&resolved.volume.id);
        let volumes = pod.spec().and_then(|spec| spec.volumes.as_deref());
        let mut volumes = volumes.unwrap_or_default().iter();
        let entry = volumes.find(|volume| volume.name == name);
        let grow = entry.and_then(|entry| match expansion(pod, entry, ground, grown)? {
            Expansion::Grow(grow) => Some(grow.size),
            Expansion::ReadOnly => None,
        });
        Wish {
            volume: resolved.volume,
            grow,
        }
    }

    /// At the latest after the period, spread by the pod's UID so that not all come at once.
    fn again_later(
        &mut self,
        uid: &PodUid,
        refresh: Option<jiff::Timestamp>,
        ctx: &mut Context<Msg>,
    ) {
        let spread = uid.as_str().bytes().fold(0_u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        let period = self.policy.resync;
        let half = u64::try_from(period.as_millis()).unwrap_or(u64::MAX) / 2;
        let mut wait = period + Duration::from_millis(spread % half.max(1));
        if let Some(refresh) = refresh {
            let left = refresh.duration_since(timestamp(ctx));
            wait = wait.min(Duration::try_from(left).unwrap_or_default().max(SOONEST));
        }
        let Some(wanting) = self.pods.get_mut(uid) else {
            return;
        };
        if let Some(timer) = wanting.again.take() {
            ctx.cancel(timer);
        }
        let uid = uid.clone();
        wanting.again = Some(ctx.after(wait, Msg::Again { uid }));
    }
}

/// A token that is old already is not asked for more often than this.
const SOONEST: Duration = Duration::from_secs(10);
