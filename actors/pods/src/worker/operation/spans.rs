//! The spans of a worker's operations, under upstream's names.
//!
//! Upstream: `SyncPod`, `SyncTerminatingPod` and `SyncTerminatedPod` of pkg/kubelet/kubelet.go (1.36).

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use telemetry::{Attribute, Span, SpanKind};

use crate::worker::PodWorkerState;
use crate::worker::context::SyncResult;

/// Begins the span of a plan, or of the removal of a pod that has terminated.
pub(super) fn of_plan(pod: &Pod, stage: PodWorkerState) -> Span {
    let name = match stage {
        PodWorkerState::Syncing => "syncPod",
        PodWorkerState::Terminating => "syncTerminatingPod",
        PodWorkerState::Terminated => "syncTerminatedPod",
    };
    Span::begin(name, SpanKind::Internal, || {
        let (namespace, name) = (pod.namespace(), pod.name());
        vec![
            Attribute::text("k8s.pod.uid", pod.uid().as_str()),
            Attribute::text("k8s.pod", format!("{namespace}/{name}")),
            Attribute::text("k8s.pod.name", name),
            Attribute::text("k8s.namespace.name", namespace),
        ]
    })
}

/// Tells the span of a plan what went wrong first.
pub(super) fn end(span: &Span, result: &SyncResult) {
    let mut waiting = result
        .problems
        .iter()
        .filter_map(|(_, problem)| problem.waiting.as_ref());
    match (result.problems.is_empty(), waiting.next()) {
        (true, _) => {}
        (false, Some(waiting)) => {
            span.fail(&format_args!("{}: {}", waiting.reason, waiting.message));
        }
        (false, None) => span.fail(&"a step failed and is tried again"),
    }
}
