//! What the volume manager reports to the API server, and what it reads from the node's object.
//!
//! Upstream: `VolumesInUse` and `MarkVolumesAsReportedInUse` of the volume manager, `InstallCSIDriver` of
//! nodeinfomanager, the claims' statuses of node_expander.go (1.36).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Volume};
use kernel::watch;
use kernel::{Context, Recipient};
use logic_api::pod::PodView;
use logic_node::node_status::registration::CONTROLLER_ATTACHES;
use logic_node::node_status::{self, NodeFact, VolumesInUse};
use logic_volumes::reconciler::{FailureEffect, OperationResult, StateOfWorld, VolumeOperation};
use logic_volumes::resolve::expansion::{
    ClaimStatusUpdate, EarlierFailure, NodeResize, PvcGrowth, ResizeEnd, ResizeOutcome, claim_of,
};
use logic_volumes::{RegisteredDriver, VolumeId};

use super::{Msg, VolumeCompletion, VolumeManager};

/// The actors that report to the API server.
#[derive(Debug, Clone)]
pub struct ApiPeers {
    pub node: Recipient<NodeFact>,
    pub csi_node: Recipient<BTreeMap<String, RegisteredDriver>>,
    pub claims: Recipient<PvcGrowth>,
    /// The node's object; none before it is known.
    pub object: watch::Receiver<Option<Arc<Node>>>,
}

/// The volumes in use, which a controller must not detach, how far they were reported, and the claims that grow.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    /// The volumes reported last, even if there was no room for the report.
    last_report: Option<VolumesInUse>,
    /// The volumes that the API server was told; none before its first confirmation.
    confirmed: Option<BTreeSet<VolumeId>>,
    /// A report that found no room.
    unsent: UnsentReport,
    /// The attached volumes of the node's object; none if no controller attaches, or there is no object.
    attached: Option<BTreeSet<VolumeId>>,
    /// Claims whose volumes are being expanded.
    growing: BTreeMap<VolumeId, ExpandingClaim>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum UnsentReport {
    #[default]
    Nothing,
    InUse,
}

impl Reporter {
    pub(super) fn attached(&self) -> Option<&BTreeSet<VolumeId>> {
        self.attached.as_ref()
    }

    pub(super) fn in_use(&self) -> &BTreeSet<VolumeId> {
        static NONE: BTreeSet<VolumeId> = BTreeSet::new();
        match &self.last_report {
            Some(VolumesInUse::AtLeast(ids) | VolumesInUse::Exactly(ids)) => ids,
            None => &NONE,
        }
    }

    /// Reports the volumes in use. Without an API server no controller detaches, and they count as reported at once.
    pub(super) fn report_in_use(&mut self, cluster: Option<&ApiPeers>, world: &mut StateOfWorld) {
        let wanted = world.in_use();
        let Some(cluster) = cluster else {
            if wanted != *self.in_use() {
                self.last_report = Some(VolumesInUse::Exactly(wanted.clone()));
                world.report(wanted);
            }
            return;
        };
        let known = self.confirmed.iter().flatten();
        let held = known.filter(|id| world.may_be_present(id)).cloned();
        let in_use: BTreeSet<VolumeId> = wanted.into_iter().chain(held).collect();
        let whole = world.is_reconstructed() && self.confirmed.is_some();
        let in_use = match whole {
            true => VolumesInUse::Exactly(in_use),
            false => VolumesInUse::AtLeast(in_use),
        };
        let new = self.last_report.as_ref() != Some(&in_use);
        if new || self.unsent == UnsentReport::InUse {
            let fact = NodeFact::VolumesInUse(in_use.clone());
            self.last_report = Some(in_use);
            self.unsent = match cluster.node.tell(fact) {
                Ok(()) => UnsentReport::Nothing,
                Err(_) => UnsentReport::InUse,
            };
        }
    }

    pub(super) fn reported(&mut self, volumes: BTreeSet<VolumeId>, world: &mut StateOfWorld) {
        world.report(volumes.clone());
        self.confirmed = Some(volumes);
    }

    /// Reads the attached volumes of the node's object; returns whether they changed.
    fn update_attached(&mut self, cluster: &ApiPeers) -> bool {
        let now = cluster.object.borrow().as_deref().and_then(attached);
        let before = std::mem::replace(&mut self.attached, now);
        before != self.attached
    }

    /// Records the claim of a volume that is to be expanded.
    pub(super) fn note_growth(
        &mut self,
        id: &VolumeId,
        pod: &Pod,
        entry: &Volume,
        grow: NodeResize,
    ) {
        if grow.claim == ClaimStatusUpdate::UpToDate {
            return;
        }
        if let Some(claim) = claim_of(pod, entry) {
            let before = self.growing.get(id);
            let growing = ExpandingClaim {
                namespace: pod.namespace().to_owned(),
                claim,
                grow,
                failed: before.map(|before| before.failed).unwrap_or_default(),
            };
            self.growing.insert(id.clone(), growing);
        }
    }

    pub(super) fn resize_begins(&self, cluster: Option<&ApiPeers>, task: &VolumeOperation) {
        if let VolumeOperation::Expand { volume, .. } = task
            && let Some(growing) = self.growing.get(&volume.id)
            && let Some(outcome) = growing.grow.begun()
        {
            growing.report(cluster, outcome);
        }
    }

    pub(super) fn resize_ended(
        &mut self,
        cluster: Option<&ApiPeers>,
        task: &VolumeOperation,
        ending: &OperationResult,
    ) {
        let VolumeOperation::Expand { volume, .. } = task else {
            return;
        };
        let end = match ending {
            OperationResult::Done | OperationResult::Mounted { .. } => ResizeEnd::Grown,
            OperationResult::Failed {
                message,
                trace: FailureEffect::Refusal,
            } => ResizeEnd::Refused(message.clone()),
            OperationResult::Failed { message, .. } | OperationResult::Stuck { message, .. } => {
                ResizeEnd::Failed(message.clone())
            }
        };
        let is_done = end == ResizeEnd::Grown;
        if let Some(growing) = self.growing.get_mut(&volume.id) {
            if let Some(outcome) = growing.grow.ended(end, growing.failed) {
                growing.report(cluster, outcome);
            }
            growing.failed = EarlierFailure::Yes;
        }
        if is_done {
            self.growing.remove(&volume.id);
        }
    }
}

/// The volumes that a controller attached to this node; none if no controller attaches.
fn attached(node: &Node) -> Option<BTreeSet<VolumeId>> {
    let annotations = node.metadata.annotations.as_ref()?;
    if annotations.get(CONTROLLER_ATTACHES).map(String::as_str) != Some("true") {
        return None;
    }
    let listed = node
        .status
        .as_ref()
        .and_then(|status| status.volumes_attached.as_ref());
    let ids = listed.into_iter().flatten();
    Some(ids.map(|volume| VolumeId(volume.name.clone())).collect())
}

/// A claim whose volume is being expanded.
#[derive(Debug)]
struct ExpandingClaim {
    namespace: String,
    claim: String,
    grow: NodeResize,
    failed: EarlierFailure,
}

impl ExpandingClaim {
    fn report(&self, cluster: Option<&ApiPeers>, outcome: ResizeOutcome) {
        let Some(cluster) = cluster else {
            return;
        };
        let growth = PvcGrowth {
            namespace: self.namespace.clone(),
            claim: self.claim.clone(),
            grow: self.grow.clone(),
            outcome,
        };
        if let Err(full) = cluster.claims.tell(growth) {
            tracing::warn!("a claim does not follow its volume's size: {full}");
        }
    }
}

impl VolumeManager {
    pub(super) fn resync(&mut self) {
        self.reporter.last_report = None;
        self.report_drivers();
        self.report_stuck();
    }

    pub(super) fn report_drivers(&self) {
        let Some(cluster) = &self.peers.cluster else {
            return;
        };
        let (there, labels) = (
            self.drivers.admitted().clone(),
            self.drivers.labels().clone(),
        );
        let drivers = node_status::RegisteredDrivers {
            there: there.clone(),
            labels,
        };
        let fact = NodeFact::Drivers(Box::new(drivers));
        if let Err(full) = cluster.node.tell(fact) {
            tracing::warn!("the node's object does not name its drivers yet: {full}");
        }
        if let Err(full) = cluster.csi_node.tell(there) {
            tracing::warn!("the CSINode does not name its drivers yet: {full}");
        }
    }

    /// Reports stuck volumes for a condition of the node.
    pub(super) fn report_stuck(&self) {
        let Some(cluster) = &self.peers.cluster else {
            return;
        };
        let fact = NodeFact::Stuck(self.stuck());
        if let Err(full) = cluster.node.tell(fact) {
            tracing::warn!("the node's object does not say what hangs: {full}");
        }
    }

    fn await_node(&self, ctx: &mut Context<Msg>) {
        let Some(cluster) = &self.peers.cluster else {
            return;
        };
        // The caller has read the current object.
        let mut object = cluster.object.clone();
        object.mark_unchanged();
        ctx.run(async move {
            if object.changed().await.is_err() {
                // The node's object has no publisher any more.
                std::future::pending::<()>().await;
            }
            VolumeCompletion::NodeChanged.into()
        });
    }

    pub(super) fn node_changed(&mut self, ctx: &mut Context<Msg>) {
        let Some(cluster) = &self.peers.cluster else {
            return;
        };
        self.await_node(ctx);
        let differs = self.drivers.look_at(self.labels());
        let attached = self.reporter.update_attached(cluster);
        if differs {
            self.drivers_changed(ctx);
        } else if attached {
            self.resolve_all_pods(ctx);
        }
    }

    /// The node's labels: those of its object, or else those that it would register with.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        let object = self.peers.cluster.as_ref().and_then(|cluster| {
            let object = cluster.object.borrow();
            object.as_ref()?.metadata.labels.clone()
        });
        object.unwrap_or_else(|| self.peers.rules.facts.labels.clone())
    }

    pub(super) fn report_in_use(&mut self) {
        let cluster = self.peers.cluster.as_ref();
        self.reporter.report_in_use(cluster, &mut self.world);
    }

    /// Without an API server there is no claim to report to.
    pub(super) fn note_growth(
        &mut self,
        id: &VolumeId,
        pod: &Pod,
        entry: &Volume,
        grow: NodeResize,
    ) {
        if self.peers.cluster.is_some() {
            self.reporter.note_growth(id, pod, entry, grow);
        }
    }
}
