//! What is sent of a status, and what is not.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, PodCondition, PodIP, PodResourceClaimStatus, PodStatus,
    ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use logic_api::pod::CONFIG_MIRROR;
use logic_api::testing::{PodBuilder, at, pod};
use serde_json::{Value, json};

use super::Containers::{Ended, MayRun};
use super::*;
use crate::status::finish::closed;

const FEATURE: &str = "example.com/feature";
const DISRUPTION: &str = "DisruptionTarget";

fn is(kind: &str, status: &str, reason: &str) -> PodCondition {
    PodCondition {
        type_: kind.into(),
        status: status.into(),
        reason: (!reason.is_empty()).then(|| reason.into()),
        ..PodCondition::default()
    }
}

/// Upstream's getPodStatus.
fn running() -> PodStatus {
    PodStatus {
        phase: Some("Running".into()),
        conditions: Some(vec![
            is("Ready", "True", ""),
            is("PodScheduled", "True", ""),
        ]),
        message: Some("Message".into()),
        ..PodStatus::default()
    }
}

trait StatusBuilder: Sized {
    fn with(self, condition: PodCondition) -> Self;
    fn phase(self, phase: &str) -> Self;
    fn because(self, reason: &str, message: &str) -> Self;
}

impl StatusBuilder for PodStatus {
    fn with(mut self, new: PodCondition) -> Self {
        let list = self.conditions.get_or_insert_default();
        list.retain(|c| c.type_ != new.type_);
        list.push(new);
        self
    }

    fn phase(mut self, phase: &str) -> Self {
        self.phase = Some(phase.into());
        self
    }

    fn because(mut self, reason: &str, message: &str) -> Self {
        (self.reason, self.message) = (Some(reason.into()), Some(message.into()));
        self
    }
}

fn shown(status: PodStatus) -> Pod {
    Pod {
        status: Some(status),
        ..pod("web").app("main")
    }
}

fn merged(old: PodStatus, new: &PodStatus, containers: Containers) -> PodStatus {
    merge(at(50), &shown(old), new, containers)
}

fn words(status: &PodStatus) -> (BTreeMap<&str, (&str, &str)>, [&str; 3]) {
    let conditions = status.conditions.iter().flatten();
    let reason = |c: &'_ PodCondition| c.reason.clone().unwrap_or_default().leak() as &str;
    let conditions = conditions.map(|c| (c.type_.as_str(), (c.status.as_str(), reason(c))));
    let texts = [&status.phase, &status.reason, &status.message];
    (
        conditions.collect(),
        texts.map(|text| text.as_deref().unwrap_or_default()),
    )
}

type Row = (&'static str, Containers, PodStatus, PodStatus, PodStatus);

fn check(rows: impl IntoIterator<Item = Row>) {
    for (name, containers, old, new, expected) in rows {
        let merged = merged(old, &new, containers);
        assert_eq!(words(&merged), words(&expected), "{name}");
    }
}

/// What upstream shows of a pod that failed.
fn ended() -> PodStatus {
    let failed = running().phase("Failed");
    let unready = failed.with(is("Ready", "False", "PodFailed"));
    unready.with(is("ContainersReady", "False", "PodFailed"))
}

/// Upstream's TestMergePodStatus, its rows on disruption.
#[test]
fn a_disruption_is_told_with_the_end_that_it_caused() {
    let by_kubelet = || is(DISRUPTION, "True", "TerminationByKubelet");
    let by_api = || is(DISRUPTION, "True", "EvictedByEvictionAPI");
    check([
        (
            "a disruption is told when the pod fails",
            Ended,
            running(),
            running().phase("Failed").with(by_kubelet()),
            ended().with(by_kubelet()),
        ),
        (
            "and not while something may run",
            MayRun,
            running(),
            running().phase("Failed").with(by_kubelet()),
            running(),
        ),
        (
            "a disruption stays",
            Ended,
            running().with(by_kubelet()),
            running(),
            running().with(by_kubelet()),
        ),
        (
            "ours replaces that of others",
            Ended,
            running().with(by_api()),
            running().phase("Failed").with(by_kubelet()),
            ended().with(by_kubelet()),
        ),
        (
            "but not while the pod runs on",
            Ended,
            running().with(by_api()),
            running().with(by_kubelet()),
            running().with(by_api()),
        ),
        (
            "nor while something may run",
            MayRun,
            running().with(by_api()),
            running().phase("Failed").with(by_kubelet()),
            running().with(by_api()),
        ),
    ]);
}

/// Upstream's TestMergePodStatus, the other rows.
#[test]
fn conditions_of_others_stay_and_a_pod_ends_when_its_containers_have() {
    let feature = |status| is(FEATURE, status, "");
    let unready = || running().with(is("Ready", "False", ""));
    let evicted = || running().phase("Failed").because("Evicted", "Was Evicted");
    check([
        ("no change", Ended, running(), running(), running()),
        ("readiness changes", Ended, running(), unready(), unready()),
        (
            "a condition of others stays",
            Ended,
            running().with(feature("True")),
            running(),
            running().with(feature("True")),
        ),
        (
            "also when readiness changes",
            Ended,
            running().with(feature("True")),
            unready(),
            unready().with(feature("True")),
        ),
        (
            "and what we believe of it does not count",
            Ended,
            running().with(feature("True")),
            running().with(feature("False")),
            running().with(feature("True")),
        ),
        (
            "a pod fails",
            Ended,
            running().because("Unknown", "Message"),
            evicted(),
            ended().because("Evicted", "Was Evicted"),
        ),
        (
            "but not while something may run",
            MayRun,
            running().because("Unknown", "Message"),
            evicted(),
            running().because("Unknown", "Message"),
        ),
    ]);
}

#[test]
fn an_ended_pod_never_runs_again() {
    let ended = running().phase("Succeeded").because("Done", "all of it");
    let merged = merged(ended, &running(), MayRun);
    assert_eq!(words(&merged).1, ["Succeeded", "Done", "all of it"]);
    let ready = condition(Some(&merged), "Ready").unwrap();
    assert_eq!(
        (ready.status.as_str(), ready.reason.as_deref()),
        ("False", Some("PodCompleted"))
    );
    assert_eq!(ready.last_transition_time, Some(Time(at(50))));
}

/// Upstream's TestNewStatusPreservesPodStartTime and TestChangedStatusKeepsStartTime.
#[test]
fn neither_the_start_nor_the_generation_goes_back() {
    let old = PodStatus {
        start_time: Some(Time(at(0))),
        observed_generation: Some(3),
        ..running()
    };
    let new = PodStatus {
        start_time: Some(Time(at(9))),
        observed_generation: Some(2),
        ..running()
    };
    let merged = merged(old.clone(), &new, MayRun);
    assert_eq!(merged.start_time, old.start_time);
    assert_eq!(merged.observed_generation, Some(3));
}

/// Upstream's TestUnchangedStatusPreservesLastTransitionTime and TestChangedStatusUpdatesLastTransitionTime.
#[test]
fn a_condition_is_as_old_as_the_api_knows_unless_it_changed_since() {
    let since = |second, status: &str| {
        let mut condition = is("Ready", status, "");
        condition.last_transition_time = Some(Time(at(second)));
        running().with(condition)
    };
    let time_of = |old, new| {
        let merged = merged(old, &new, MayRun);
        condition(Some(&merged), "Ready")
            .unwrap()
            .last_transition_time
            .clone()
    };
    // Forgotten over a restart.
    assert_eq!(
        time_of(since(10, "True"), since(5, "True")),
        Some(Time(at(10)))
    );
    assert_eq!(time_of(since(10, "True"), running()), Some(Time(at(10))));
    // It was otherwise in between.
    assert_eq!(
        time_of(since(10, "True"), since(15, "True")),
        Some(Time(at(15)))
    );
    assert_eq!(
        time_of(since(10, "False"), since(12, "True")),
        Some(Time(at(12)))
    );
}

#[test]
fn claims_are_the_business_of_others() {
    let claims = |name: &str| {
        let claim = PodResourceClaimStatus {
            name: name.into(),
            ..PodResourceClaimStatus::default()
        };
        PodStatus {
            resource_claim_statuses: Some(vec![claim]),
            ..running()
        }
    };
    let merged = merged(claims("theirs"), &claims("ours"), MayRun);
    assert_eq!(
        merged.resource_claim_statuses,
        claims("theirs").resource_claim_statuses
    );
    assert!(equal(&claims("theirs"), &running()));
}

fn status_of(name: &str, state: ContainerState) -> ContainerStatus {
    ContainerStatus {
        name: name.into(),
        state: Some(state),
        ..ContainerStatus::default()
    }
}

fn up() -> ContainerState {
    ContainerState {
        running: Some(ContainerStateRunning::default()),
        ..ContainerState::default()
    }
}

fn down() -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated::default()),
        ..ContainerState::default()
    }
}

fn waiting() -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting::default()),
        ..ContainerState::default()
    }
}

#[test]
fn a_container_of_any_kind_that_runs_keeps_the_pod_from_ending() {
    let one = |state| Some(vec![status_of("main", state)]);
    let rows = [
        (PodStatus::default(), Ended),
        (
            PodStatus {
                container_statuses: one(up()),
                ..PodStatus::default()
            },
            MayRun,
        ),
        (
            PodStatus {
                container_statuses: one(down()),
                ..PodStatus::default()
            },
            Ended,
        ),
        (
            PodStatus {
                container_statuses: one(waiting()),
                ..PodStatus::default()
            },
            Ended,
        ),
        (
            PodStatus {
                init_container_statuses: one(up()),
                ..PodStatus::default()
            },
            MayRun,
        ),
        (
            PodStatus {
                ephemeral_container_statuses: one(up()),
                ..PodStatus::default()
            },
            MayRun,
        ),
    ];
    for (status, expected) in rows {
        assert_eq!(Containers::of(&status), expected, "{status:?}");
    }
}

/// Upstream's TestStatusEquality.
#[test]
fn statuses_are_equal_when_what_the_agent_says_is() {
    let same = [
        (running(), running().with(is(FEATURE, "True", ""))),
        (
            running().with(is(FEATURE, "False", "")),
            running().with(is(FEATURE, "True", "")),
        ),
        (
            PodStatus {
                reason: Some(String::new()),
                ..running()
            },
            running(),
        ),
        (
            PodStatus {
                container_statuses: Some(Vec::new()),
                ..running()
            },
            running(),
        ),
        (with_cpu("1"), with_cpu("1000m")),
    ];
    for (old, new) in same {
        assert!(equal(&old, &new) && equal(&new, &old), "{old:?} {new:?}");
    }
    let differ = [
        running().phase("Pending"),
        running().with(is("Ready", "False", "")),
        running().with(is("Ready", "True", "Why")),
        running().with(is("ContainersReady", "True", "")),
        running().with(is(DISRUPTION, "True", "")),
        PodStatus {
            observed_generation: Some(2),
            ..running()
        },
        with_cpu("1"),
    ];
    for new in differ {
        assert!(
            !equal(&running(), &new) && !equal(&new, &running()),
            "{new:?}"
        );
    }
    assert!(!equal(&with_cpu("1"), &with_cpu("1001m")));
}

fn with_cpu(amount: &str) -> PodStatus {
    let requests = [("cpu".to_owned(), Quantity(amount.to_owned()))];
    let resources = ResourceRequirements {
        requests: Some(requests.into()),
        ..ResourceRequirements::default()
    };
    let main = ContainerStatus {
        resources: Some(resources),
        ..status_of("main", up())
    };
    PodStatus {
        container_statuses: Some(vec![main]),
        ..running()
    }
}

fn patched(old: &PodStatus, new: &PodStatus) -> Value {
    let patch = patch("web-uid", old, new).expect("they differ");
    assert_eq!(patch["metadata"], json!({ "uid": "web-uid" }));
    patch["status"].clone()
}

/// Upstream's TestPatchPodStatus.
#[test]
fn a_patch_says_what_is_new_and_what_is_there_no_more() {
    assert_eq!(patch("web-uid", &running(), &running()), None);
    let failed = PodStatus {
        message: None,
        ..running().phase("Failed")
    };
    let said = patched(&running(), &failed);
    assert_eq!(said, json!({ "phase": "Failed", "message": null }));
    assert_eq!(
        patched(&failed, &running()),
        json!({ "phase": "Running", "message": "Message" })
    );
}

#[test]
fn conditions_are_merged_by_type_in_our_order() {
    let old = PodStatus::default()
        .with(is("PodScheduled", "True", ""))
        .with(is("Ready", "False", "ContainersNotReady"))
        .with(is("PodResizePending", "True", "Deferred"));
    let new = PodStatus::default()
        .with(is("Initialized", "True", ""))
        .with(is("Ready", "True", ""))
        .with(is("PodScheduled", "True", ""));
    let expected = json!({
        "conditions": [
            { "status": "True", "type": "Initialized" },
            { "reason": null, "status": "True", "type": "Ready" },
            { "$patch": "delete", "type": "PodResizePending" },
        ],
        "$setElementOrder/conditions": [{ "type": "Initialized" }, { "type": "Ready" }, { "type": "PodScheduled" }],
    });
    assert_eq!(patched(&old, &new), expected);
    let first = patched(
        &PodStatus::default(),
        &PodStatus::default().with(is("Ready", "True", "")),
    );
    assert_eq!(
        first,
        json!({ "conditions": [{ "status": "True", "type": "Ready" }] })
    );
    let moved =
        PodStatus::default()
            .with(is("Ready", "True", ""))
            .with(is("Initialized", "True", ""));
    let back = PodStatus::default()
        .with(is("Initialized", "True", ""))
        .with(is("Ready", "True", ""));
    let order = json!([{ "type": "Initialized" }, { "type": "Ready" }]);
    assert_eq!(
        patched(&moved, &back),
        json!({ "$setElementOrder/conditions": order })
    );
}

#[test]
fn addresses_are_merged_and_container_statuses_replaced() {
    let with = |ips: &[&str], state| PodStatus {
        pod_ips: Some(ips.iter().map(|ip| PodIP { ip: (*ip).into() }).collect()),
        host_ips: Some(vec![HostIP {
            ip: "192.0.2.1".into(),
        }]),
        container_statuses: Some(vec![status_of("a", up()), status_of("b", state)]),
        ..PodStatus::default()
    };
    let (old, new) = (
        with(&["10.0.0.1"], up()),
        with(&["10.0.0.2", "fd00::2"], down()),
    );
    let said = patched(&old, &new);
    let ips = json!([{ "ip": "10.0.0.2" }, { "ip": "fd00::2" }, { "$patch": "delete", "ip": "10.0.0.1" }]);
    assert_eq!(said["podIPs"], ips);
    let order = json!([{ "ip": "10.0.0.2" }, { "ip": "fd00::2" }]);
    assert_eq!(said["$setElementOrder/podIPs"], order);
    assert_eq!(said["containerStatuses"].as_array().unwrap().len(), 2);
    assert_eq!(said.as_object().unwrap().len(), 3, "{said}");
}

#[test]
fn amounts_of_the_pod_are_merged_one_by_one() {
    let amounts = |list: &[(&str, &str)]| PodStatus {
        allocated_resources: Some(
            list.iter()
                .map(|(name, amount)| ((*name).into(), Quantity((*amount).into())))
                .collect(),
        ),
        ..PodStatus::default()
    };
    let old = amounts(&[("cpu", "0.5"), ("memory", "1Gi"), ("other", "1")]);
    let new = amounts(&[("cpu", "500m"), ("memory", "2Gi")]);
    assert_eq!(
        patched(&old, &new),
        json!({ "allocatedResources": { "memory": "2Gi", "other": null } })
    );
    assert_eq!(
        patch(
            "",
            &old,
            &amounts(&[("cpu", "500m"), ("memory", "1024Mi"), ("other", "1")])
        ),
        None
    );
}

/// What the API server returns of what it was sent: empty states are there, zero is not.
#[test]
fn what_the_api_adds_or_leaves_out_makes_no_patch() {
    let ours = json!({
        "containerStatuses": [{
            "name": "main", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "started": false,
            "state": { "terminated": { "exitCode": 0, "signal": 0, "message": "" } },
            "volumeMounts": [{ "name": "v", "mountPath": "/v", "readOnly": false }],
        }],
        "conditions": [{ "type": "Ready", "status": "True", "observedGeneration": 0 }],
        "resources": {},
    });
    let theirs = json!({
        "containerStatuses": [{
            "name": "main", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "started": false,
            "state": { "terminated": { "exitCode": 0, "startedAt": null, "finishedAt": null } }, "lastState": {},
            "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
        }],
        "conditions": [{ "type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null }],
    });
    let read = |value| serde_json::from_value::<PodStatus>(value).unwrap();
    assert_eq!(patch("", &read(theirs.clone()), &read(ours.clone())), None);
    assert_eq!(patch("", &read(ours), &read(theirs)), None);
}

#[test]
fn readiness_and_phases_are_told_before_anything_else() {
    let shown = running();
    let rows = [
        (running().phase("Failed"), PatchUrgency::Readiness),
        (
            running().with(is("Ready", "False", "")),
            PatchUrgency::Readiness,
        ),
        (
            running().with(is("ContainersReady", "True", "")),
            PatchUrgency::Readiness,
        ),
        (
            running().with(is("Initialized", "True", "")),
            PatchUrgency::Cosmetics,
        ),
        (running().because("Why", "text"), PatchUrgency::Cosmetics),
    ];
    let of = |status: Option<&PodStatus>| Pod {
        status: status.cloned(),
        ..Pod::default()
    };
    for (ours, expected) in rows {
        assert_eq!(urgency(&of(Some(&shown)), &ours), expected, "{ours:?}");
    }
    assert_eq!(urgency(&of(None), &shown), PatchUrgency::Readiness);
    let fresh = PodStatus::default().phase("Pending");
    let unready = PodStatus::default()
        .phase("Pending")
        .with(is("Ready", "False", ""));
    assert_eq!(
        urgency(&of(Some(&fresh)), &unready),
        PatchUrgency::Cosmetics
    );
    assert!(
        PatchUrgency::Readiness < PatchUrgency::Ending
            && PatchUrgency::Ending < PatchUrgency::Cosmetics
    );
}

#[test]
fn of_a_pod_that_is_being_deleted_and_has_ended_the_last_status_is_waited_for() {
    let states = |states: &[&str]| {
        let all = states.iter().map(|state| {
            json!({
                "name": state, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": { *state: if *state == "terminated" { json!({ "exitCode": 0 }) } else { json!({}) } },
            })
        });
        all.collect::<Vec<_>>()
    };
    let (kept, deleted) = (None, Some("2026-01-01T00:00:00Z"));
    let rows = [
        (deleted, "Running", &["terminated"][..], &[][..], true),
        (
            deleted,
            "Running",
            &["terminated", "waiting"],
            &["terminated"],
            true,
        ),
        (deleted, "Running", &["terminated", "running"], &[], false),
        (deleted, "Running", &["terminated"], &["running"], false),
        (deleted, "Pending", &["waiting"], &[], false),
        (deleted, "Failed", &["terminated"], &[], false),
        (kept, "Running", &["terminated"], &[], false),
    ];
    for (deletion, phase, apps, inits, waits) in rows {
        let shown = json!({ "metadata": { "deletionTimestamp": deletion }, "status": { "phase": "Running" } });
        let shown: Pod = serde_json::from_value(shown).unwrap();
        let ours = json!({
            "phase": phase, "containerStatuses": states(apps), "initContainerStatuses": states(inits),
            "conditions": [{ "type": "Ready", "status": "True" }],
        });
        let ours = serde_json::from_value(ours).unwrap();
        let closing = urgency(&shown, &ours) == PatchUrgency::Closing;
        assert_eq!(closing, waits, "{deletion:?} {phase} {apps:?} {inits:?}");
    }
}

/// Upstream's TestCanBeDeleted, as far as it does not ask the worker.
#[test]
fn only_an_ended_pod_whose_deletion_was_asked_for_is_deleted() {
    let deleted = |mut pod: Pod| {
        pod.metadata.deletion_timestamp = Some(Time(at(0)));
        pod
    };
    let mirror = |mut pod: Pod| {
        pod.metadata.annotations = Some([(CONFIG_MIRROR.to_owned(), "hash".to_owned())].into());
        pod
    };
    let rows = [
        (shown(running().phase("Failed")), false),
        (deleted(shown(running())), false),
        (deleted(shown(running().phase("Pending"))), false),
        (deleted(shown(running().phase("Failed"))), true),
        (deleted(shown(running().phase("Succeeded"))), true),
        (mirror(deleted(shown(running().phase("Failed")))), false),
    ];
    for (pod, expected) in rows {
        assert_eq!(may_be_deleted(&pod), expected, "{pod:?}");
    }
}

/// Upstream's TestTerminatePod and TestTerminatePod_DefaultUnknownStatus, for a pod whose status is the API's.
#[test]
fn a_pod_that_nobody_works_on_has_ended_in_what_the_api_shows() {
    let status = PodStatus {
        container_statuses: Some(vec![status_of("done", down()), status_of("main", up())]),
        ..running()
    };
    let pod = shown(status.clone());
    let ended = closed(&pod, &status);
    assert_eq!(ended.phase.as_deref(), Some("Failed"));
    let states = ended.container_statuses.iter().flatten();
    let codes = states.filter_map(|c| {
        c.state
            .as_ref()?
            .terminated
            .as_ref()
            .map(|end| end.exit_code)
    });
    assert_eq!(codes.collect::<Vec<_>>(), [0, 137]);
    assert_eq!(
        closed(&pod, &status.phase("Succeeded")).phase.as_deref(),
        Some("Succeeded")
    );
}
