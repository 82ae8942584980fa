//! Whether a volume is expanded on this node, and the status of its claim.
//!
//! Upstream: `expandVolumeDuringMount` and `nodeExpandVolume` of pkg/volume/util/operationexecutor, node_expander.go,
//! pkg/volume/util/resize_util.go (1.36).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    self as core, PersistentVolumeClaim, PersistentVolumeClaimCondition,
    PersistentVolumeClaimStatus, Pod,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use logic_api::decode::strategic_patch::{difference, prune};
use logic_api::quantity::bytes;
use serde_json::{Value, json};

use super::lookup::ObjectLookup;
use super::persistent::PersistentSpec;
use super::{ResolveContext, claim};
use crate::VolumeAccess;

const STORAGE: &str = "storage";
const PENDING: &str = "NodeResizePending";
const IN_PROGRESS: &str = "NodeResizeInProgress";
const INFEASIBLE: &str = "NodeResizeInfeasible";
const ERROR: &str = "NodeResizeError";
/// Set by a controller whose driver expands nothing on nodes.
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";
/// The claim's conditions about its expansion.
const CONDITIONS: [&str; 4] = [
    "FileSystemResizePending",
    "Resizing",
    "ControllerResizeError",
    ERROR,
];

/// Whether the volume is expanded on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expansion {
    Resize(NodeResize),
    /// The pod may only read it, and it stays as it is: [`super::event_reasons::read_only_not_expanded`].
    ReadOnly,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeResize {
    /// The size in bytes.
    pub size: u64,
    /// The size as the claim's quantity is written.
    pub quantity: String,
    pub claim: ClaimStatusUpdate,
    pub request: ClaimRequest,
}

/// Whether the claim's status is to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStatusUpdate {
    /// It is updated by [`status_after`] each step.
    Needed,
    /// It gets the size in the end and nothing else: its controller is too old to recover from failures.
    SizeOnly,
    /// It has the size already: another node has expanded the volume too.
    UpToDate,
}

/// Whether the claim still asks for the size that the volume is expanded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimRequest {
    Same,
    /// It was changed since: the controller may try that size once the node has given up this one.
    Changed,
}

/// What a driver says in the end of an expansion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeEnd {
    Grown,
    Failed(String),
    /// `INVALID_ARGUMENT`, `NOT_FOUND`, `OUT_OF_RANGE`.
    Refused(String),
}

/// Whether an expansion of the volume has failed on this node before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlierFailure {
    #[default]
    No,
    Yes,
}

/// The result of an expansion on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeOutcome {
    Begun,
    Grown,
    /// The driver failed for good this time; it may be tried again.
    Failed(String),
    /// The node gives up this size, and the controller reconciles the claim.
    Infeasible(String),
}

impl NodeResize {
    /// What the claim is told when an expansion begins; none where it is told nothing.
    pub fn begun(&self) -> Option<ResizeOutcome> {
        (self.claim == ClaimStatusUpdate::Needed).then_some(ResizeOutcome::Begun)
    }

    /// What the claim is told when an expansion has ended; none where it is told nothing.
    ///
    /// A driver's `UNAVAILABLE` or `DEADLINE_EXCEEDED` is told like any other failure. Upstream means to tell them apart,
    /// but its expander wraps the error, in which `IsOperationFinishedError` does not look for the one that it knows.
    pub fn ended(&self, end: ResizeEnd, earlier: EarlierFailure) -> Option<ResizeOutcome> {
        let outcome = match (end, self.request, earlier) {
            (ResizeEnd::Grown, _, _) => ResizeOutcome::Grown,
            (ResizeEnd::Refused(why), _, _) => ResizeOutcome::Infeasible(why),
            (ResizeEnd::Failed(why), ClaimRequest::Changed, EarlierFailure::Yes) => {
                ResizeOutcome::Infeasible(why)
            }
            (ResizeEnd::Failed(why), _, _) => ResizeOutcome::Failed(why),
        };
        match self.claim {
            ClaimStatusUpdate::Needed => Some(outcome),
            ClaimStatusUpdate::SizeOnly => {
                Some(outcome).filter(|outcome| *outcome == ResizeOutcome::Grown)
            }
            ClaimStatusUpdate::UpToDate => None,
        }
    }
}

/// The outcome of expanding a claim's volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PvcGrowth {
    pub namespace: String,
    pub claim: String,
    pub grow: NodeResize,
    pub outcome: ResizeOutcome,
}

/// None where a volume is as large as it should be, or is not expanded on nodes. `grown` is the size in bytes that
/// this node has expanded the volume to already.
pub fn expansion(
    pod: &Pod,
    volume: &core::Volume,
    context: &ResolveContext<'_>,
    grown: Option<u64>,
) -> Option<Expansion> {
    let mut lookup = ObjectLookup::new(pod, &volume.name, context);
    let claimed = claim::claimed(&mut lookup, volume).ok()??;
    if !can_grow(&claimed.volume, context) {
        return None;
    }
    let wanted = claimed.volume.size();
    let status = claimed.claim.status.as_ref()?;
    // Without a size in the claim there is no expansion: a manifest may leave it out.
    let has = size(status.capacity.as_ref()?.get(STORAGE))?;
    if wanted <= has && grown.is_none_or(|grown| wanted <= grown) {
        return None;
    }
    if claimed.volume.access == VolumeAccess::ReadOnly {
        return Some(Expansion::ReadOnly);
    }
    let grow = match resizing(status) {
        ControllerResize::Unsupported => {
            let request = request(&claimed.claim, wanted);
            Some(grow(&claimed.volume, wanted, has, request))
        }
        ControllerResize::Status(word) => recovering(&claimed.claim, status, word),
    };
    grow.filter(|grow| grown.is_none_or(|grown| grow.size > grown))
        .map(Expansion::Resize)
}

/// The claim that a volume names, in the pod's namespace.
pub fn claim_of(pod: &Pod, volume: &core::Volume) -> Option<String> {
    claim::claim_name(pod, volume).map(|(name, _)| name)
}

/// Whether it is a local volume, or one of a driver that expands volumes on nodes.
fn can_grow(volume: &PersistentSpec, context: &ResolveContext<'_>) -> bool {
    let Some(spec) = volume.spec() else {
        return false;
    };
    let backend = |name: &String| context.backends.get(name);
    let csi = spec.csi.as_ref().and_then(|csi| backend(&csi.driver));
    spec.local.is_some() || csi.is_some_and(|driver| driver.abilities.contains("EXPAND_VOLUME"))
}

fn size(amount: Option<&Quantity>) -> Option<u64> {
    bytes(amount).and_then(|size| u64::try_from(size).ok())
}

/// The controller's progress in the claim's status.
enum ControllerResize<'a> {
    /// Nothing: it is too old to recover.
    Unsupported,
    /// Empty when it is done.
    Status(&'a str),
}

fn resizing(status: &PersistentVolumeClaimStatus) -> ControllerResize<'_> {
    let word = status
        .allocated_resource_statuses
        .as_ref()
        .and_then(|words| words.get(STORAGE));
    match (word, &status.allocated_resources) {
        (None, None) => ControllerResize::Unsupported,
        (word, _) => ControllerResize::Status(word.map_or("", String::as_str)),
    }
}

/// A claim of a manifest may leave out how much it asks for.
fn request(claim: &PersistentVolumeClaim, wanted: u64) -> ClaimRequest {
    let resources = claim.spec.as_ref().and_then(|s| s.resources.as_ref());
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    match size(requests.and_then(|requests| requests.get(STORAGE))) {
        Some(asked) if asked != wanted => ClaimRequest::Changed,
        Some(_) | None => ClaimRequest::Same,
    }
}

fn grow(volume: &PersistentSpec, wanted: u64, has: u64, request: ClaimRequest) -> NodeResize {
    let capacity = volume.spec().and_then(|spec| spec.capacity.as_ref());
    let quantity = capacity.and_then(|list| list.get(STORAGE));
    NodeResize {
        size: wanted,
        quantity: quantity.map(|q| q.0.clone()).unwrap_or_default(),
        claim: match has >= wanted {
            true => ClaimStatusUpdate::UpToDate,
            false => ClaimStatusUpdate::SizeOnly,
        },
        request,
    }
}

/// To what the controller has allocated, and only when it is the node's turn.
fn recovering(
    claim: &PersistentVolumeClaim,
    status: &PersistentVolumeClaimStatus,
    word: &str,
) -> Option<NodeResize> {
    let allocated = status.allocated_resources.as_ref()?.get(STORAGE)?;
    let wanted = size(Some(allocated))?;
    let has = size(status.capacity.as_ref().and_then(|list| list.get(STORAGE)))?;
    let modes = claim.spec.as_ref().and_then(|s| s.access_modes.as_deref());
    let mut modes = modes.unwrap_or_default().iter();
    let is_shared = modes.any(|mode| mode == "ReadWriteMany");
    let is_done = has >= wanted && word.is_empty();
    let turn = match is_done {
        true => is_shared && !is_node_expansion_needless(claim),
        false => [PENDING, IN_PROGRESS].contains(&word),
    };
    turn.then(|| NodeResize {
        size: wanted,
        quantity: allocated.0.clone(),
        claim: if is_done {
            ClaimStatusUpdate::UpToDate
        } else {
            ClaimStatusUpdate::Needed
        },
        request: request(claim, wanted),
    })
}

fn is_node_expansion_needless(claim: &PersistentVolumeClaim) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(NOT_REQUIRED))
}

/// The strategic merge patch of the claim's status after a step, for this resource version of it alone. None where
/// nothing changes.
pub fn patch(
    claim: &PersistentVolumeClaim,
    grow: &NodeResize,
    outcome: &ResizeOutcome,
    now: Timestamp,
) -> Option<Value> {
    let before = claim.status.clone().unwrap_or_default();
    let after = status_after(&before, grow, outcome, now);
    let parts = |status: &PersistentVolumeClaimStatus| {
        let mut parts = json!({"status": status});
        prune(&mut parts);
        parts.as_object().cloned().unwrap_or_default()
    };
    let mut patch = difference(&parts(&before), &parts(&after), "");
    if patch.is_empty() {
        return None;
    }
    let version = &claim.metadata.resource_version;
    patch.insert("metadata".to_owned(), json!({"resourceVersion": version}));
    Some(Value::Object(patch))
}

/// The claim's status after a step.
pub fn status_after(
    status: &PersistentVolumeClaimStatus,
    grow: &NodeResize,
    outcome: &ResizeOutcome,
    now: Timestamp,
) -> PersistentVolumeClaimStatus {
    let mut status = status.clone();
    match outcome {
        ResizeOutcome::Begun => resource_status(&mut status, Some(IN_PROGRESS)),
        ResizeOutcome::Grown => {
            let size = Quantity(grow.quantity.clone());
            let capacity = status.capacity.get_or_insert_default();
            capacity.insert(STORAGE.to_owned(), size);
            resource_status(&mut status, None);
            let conditions = status.conditions.get_or_insert_default();
            conditions.retain(|condition| !CONDITIONS.contains(&condition.type_.as_str()));
        }
        ResizeOutcome::Failed(why) => add_error(&mut status, why, now),
        ResizeOutcome::Infeasible(why) => {
            resource_status(&mut status, Some(INFEASIBLE));
            add_error(&mut status, why, now);
        }
    }
    status
}

fn resource_status(status: &mut PersistentVolumeClaimStatus, word: Option<&str>) {
    let words = status.allocated_resource_statuses.get_or_insert_default();
    match word {
        Some(word) => drop(words.insert(STORAGE.to_owned(), word.to_owned())),
        None => drop(words.remove(STORAGE)),
    }
    if words.is_empty() {
        status.allocated_resource_statuses = None;
    }
}

/// A condition that is true already stays as it is, as upstream.
fn add_error(status: &mut PersistentVolumeClaimStatus, why: &str, now: Timestamp) {
    let conditions = status.conditions.get_or_insert_default();
    let error = PersistentVolumeClaimCondition {
        type_: ERROR.to_owned(),
        status: "True".to_owned(),
        message: Some(format!("failed to expand pvc with {why}")),
        last_transition_time: Some(Time(now)),
        ..PersistentVolumeClaimCondition::default()
    };
    let held = conditions.iter_mut().find(|held| held.type_ == ERROR);
    match held {
        Some(held) if held.status == error.status => {}
        Some(held) => *held = error,
        None => conditions.push(error),
    }
}

#[cfg(test)]
mod tests;
