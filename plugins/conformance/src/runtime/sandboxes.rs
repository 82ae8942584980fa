//! Laws of pod sandboxes.

use futures_util::FutureExt;
use proto::cri::{
    PodSandboxFilter, PodSandboxState, PodSandboxStateValue, PodSandboxStatusRequest,
    RemovePodSandboxRequest, RunPodSandboxRequest, StopPodSandboxRequest,
};
use tonic::Code;

use super::super::{CheckResult, holds, refused, same};
use super::RuntimeCheck;
use super::case::{RuntimeCase, SLEEP, string_map};

pub(super) const LAWS: &[(&str, RuntimeCheck)] = &[
    (
        "sandbox that runs is listed as ready, with its metadata",
        |case| listed(case).boxed(),
    ),
    ("sandbox keeps labels and annotations unchanged", |case| {
        labelled(case).boxed()
    }),
    (
        "sandboxes are filtered by id, by label and by state",
        |case| filtered(case).boxed(),
    ),
    (
        "second sandbox of the same name and attempt is refused",
        |case| duplicate(case).boxed(),
    ),
    (
        "next attempt of a stopped sandbox may run beside it",
        |case| next_attempt(case).boxed(),
    ),
    (
        "sandbox that is stopped is not ready, and may be stopped again",
        |case| stopped(case).boxed(),
    ),
    (
        "sandbox that is stopped takes its containers with it",
        |case| stopped_with_containers(case).boxed(),
    ),
    (
        "sandbox that is removed is gone, and may be removed again",
        |case| removed(case).boxed(),
    ),
    ("status of an unknown sandbox is NotFound", |case| {
        unknown(case).boxed()
    }),
];

fn ready(state: PodSandboxState) -> PodSandboxFilter {
    PodSandboxFilter {
        state: Some(PodSandboxStateValue {
            state: state.into(),
        }),
        ..Default::default()
    }
}

async fn listed(case: &mut RuntimeCase) -> CheckResult {
    let sandbox = case.run_sandbox().await?;
    let all = case.list_sandboxes(PodSandboxFilter::default()).await?;
    let found = all.into_iter().find(|found| found.id == sandbox.id);
    let listed = found.map(|found| (found.state(), found.metadata));
    same(
        "listed sandbox",
        listed,
        Some((
            PodSandboxState::SandboxReady,
            sandbox.config.metadata.clone(),
        )),
    )?;
    let status = case.sandbox_status(&sandbox.id).await?;
    same("state", status.state(), PodSandboxState::SandboxReady)?;
    holds(status.created_at > 0, || {
        format!("created_at is {}, expected nanoseconds", status.created_at)
    })?;
    same("metadata", status.metadata, sandbox.config.metadata)
}

async fn labelled(case: &mut RuntimeCase) -> CheckResult {
    let sandbox = case.run_sandbox().await?;
    let status = case.sandbox_status(&sandbox.id).await?;
    same(
        "labels in the status",
        &status.labels,
        &sandbox.config.labels,
    )?;
    same(
        "annotations in the status",
        &status.annotations,
        &sandbox.config.annotations,
    )?;
    let listed = case
        .list_sandboxes(PodSandboxFilter {
            id: sandbox.id.clone(),
            ..Default::default()
        })
        .await?;
    same("number listed", listed.len(), 1)?;
    same(
        "labels in the list",
        &listed[0].labels,
        &sandbox.config.labels,
    )?;
    same(
        "annotations in the list",
        &listed[0].annotations,
        &sandbox.config.annotations,
    )
}

async fn filtered(case: &mut RuntimeCase) -> CheckResult {
    let mut second = case.sandbox_config();
    let name = format!("{}-b", case.name);
    second.labels = string_map(&[("law", &case.name), ("second", "yes")]);
    if let Some(metadata) = second.metadata.as_mut() {
        (metadata.uid, metadata.name) = (format!("uid-{name}"), name);
    }
    let first = case.run_sandbox().await?.id;
    let second = case.run_sandbox_with(second).await?.id;
    case.runtime
        .stop_pod_sandbox(StopPodSandboxRequest {
            pod_sandbox_id: second.clone(),
        })
        .await?;

    let ours = string_map(&[("law", &case.name)]);
    let by_id = PodSandboxFilter {
        id: first.clone(),
        ..Default::default()
    };
    let by_label = PodSandboxFilter {
        label_selector: string_map(&[("second", "yes"), ("law", &case.name)]),
        ..Default::default()
    };
    let by_state = PodSandboxFilter {
        label_selector: ours.clone(),
        ..ready(PodSandboxState::SandboxNotready)
    };
    let by_both = PodSandboxFilter {
        id: second.clone(),
        ..ready(PodSandboxState::SandboxReady)
    };
    let by_name = PodSandboxFilter {
        label_selector: ours,
        ..Default::default()
    };
    let mut both = vec![first.clone(), second.clone()];
    both.sort();
    for (filter, expected) in [
        (by_id, vec![first]),
        (by_label, vec![second.clone()]),
        (by_state, vec![second]),
        (by_both, vec![]),
        (by_name, both),
    ] {
        let what = format!("list by {filter:?}");
        let mut ids: Vec<_> = case
            .list_sandboxes(filter)
            .await?
            .into_iter()
            .map(|found| found.id)
            .collect();
        ids.sort();
        same(&what, ids, expected)?;
    }
    Ok(())
}

async fn duplicate(case: &mut RuntimeCase) -> CheckResult {
    let sandbox = case.run_sandbox().await?;
    let again = RunPodSandboxRequest {
        config: Some(sandbox.config.clone()),
        ..Default::default()
    };
    refused(
        "the second sandbox",
        case.runtime.run_pod_sandbox(again).await,
    )?;
    same(
        "state of the first",
        case.sandbox_status(&sandbox.id).await?.state(),
        PodSandboxState::SandboxReady,
    )
}

async fn next_attempt(case: &mut RuntimeCase) -> CheckResult {
    let first = case.run_sandbox().await?;
    case.runtime
        .stop_pod_sandbox(StopPodSandboxRequest {
            pod_sandbox_id: first.id.clone(),
        })
        .await?;
    let mut config = first.config;
    if let Some(metadata) = config.metadata.as_mut() {
        metadata.attempt = 1;
    }
    let second = case.run_sandbox_with(config).await?;
    same(
        "state of the first",
        case.sandbox_status(&first.id).await?.state(),
        PodSandboxState::SandboxNotready,
    )?;
    let status = case.sandbox_status(&second.id).await?;
    same(
        "state of the second",
        status.state(),
        PodSandboxState::SandboxReady,
    )?;
    same(
        "attempt of the second",
        status.metadata.map(|metadata| metadata.attempt),
        Some(1),
    )
}

async fn stopped(case: &mut RuntimeCase) -> CheckResult {
    let sandbox = case.run_sandbox().await?;
    for _ in 0..2 {
        case.runtime
            .stop_pod_sandbox(StopPodSandboxRequest {
                pod_sandbox_id: sandbox.id.clone(),
            })
            .await?;
        same(
            "state",
            case.sandbox_status(&sandbox.id).await?.state(),
            PodSandboxState::SandboxNotready,
        )?;
    }
    Ok(())
}

async fn stopped_with_containers(case: &mut RuntimeCase) -> CheckResult {
    let (sandbox, container) = case.run_container(SLEEP).await?;
    case.runtime
        .stop_pod_sandbox(StopPodSandboxRequest {
            pod_sandbox_id: sandbox.id,
        })
        .await?;
    case.reach(&container, proto::cri::ContainerState::ContainerExited)
        .await?;
    Ok(())
}

async fn removed(case: &mut RuntimeCase) -> CheckResult {
    let (sandbox, _) = case.run_container(SLEEP).await?;
    case.runtime
        .stop_pod_sandbox(StopPodSandboxRequest {
            pod_sandbox_id: sandbox.id.clone(),
        })
        .await?;
    for _ in 0..2 {
        case.runtime
            .remove_pod_sandbox(RemovePodSandboxRequest {
                pod_sandbox_id: sandbox.id.clone(),
            })
            .await?;
    }
    let left = case
        .list_sandboxes(PodSandboxFilter {
            id: sandbox.id.clone(),
            ..Default::default()
        })
        .await?;
    same("number listed", left.len(), 0)?;
    let of_it = proto::cri::ContainerFilter {
        pod_sandbox_id: sandbox.id.clone(),
        ..Default::default()
    };
    same(
        "number of its containers listed",
        case.list_containers(of_it).await?.len(),
        0,
    )?;
    // What is gone is stopped, too.
    case.runtime
        .stop_pod_sandbox(StopPodSandboxRequest {
            pod_sandbox_id: sandbox.id,
        })
        .await?;
    Ok(())
}

async fn unknown(case: &mut RuntimeCase) -> CheckResult {
    let request = PodSandboxStatusRequest {
        pod_sandbox_id: case.name.clone(),
        verbose: false,
    };
    let status = refused(
        "status of an unknown sandbox",
        case.runtime.pod_sandbox_status(request).await,
    )?;
    same("code", status.code(), Code::NotFound)
}
