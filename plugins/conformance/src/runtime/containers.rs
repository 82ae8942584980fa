//! Laws of containers as records: made, listed, refused, removed.

use futures_util::FutureExt;
use proto::cri::{
    ContainerFilter, ContainerState, ContainerStateValue, ContainerStatusRequest, ImageSpec,
    RemoveContainerRequest, StartContainerRequest,
};
use tonic::Code;

use super::super::{CheckResult, gone, holds, refused, same};
use super::RuntimeCheck;
use super::case::{EXIT_SEVEN, RuntimeCase, SLEEP, Sandbox, creation, string_map};

pub(super) const LAWS: &[(&str, RuntimeCheck)] = &[
    (
        "container is Created when made and Running when started",
        |case| made(case).boxed(),
    ),
    (
        "container keeps metadata, labels and annotations unchanged",
        |case| labelled(case).boxed(),
    ),
    (
        "containers are filtered by id, by sandbox, by label and by state",
        |case| filtered(case).boxed(),
    ),
    (
        "container that has exited stays listed until it is removed",
        |case| stays_listed(case).boxed(),
    ),
    (
        "second container of the same name and attempt is refused, or is the first",
        |case| duplicate(case).boxed(),
    ),
    (
        "next attempt of an exited container may run beside it",
        |case| next_attempt(case).boxed(),
    ),
    (
        "container in an unknown sandbox, or of an absent image, is refused",
        |case| impossible(case).boxed(),
    ),
    ("container that runs cannot be started again", |case| {
        started_twice(case).boxed()
    }),
    ("container that is stopped may be stopped again", |case| {
        stopped_twice(case).boxed()
    }),
    (
        "container that is removed is gone, and may be removed again",
        |case| removed(case).boxed(),
    ),
    ("container that runs may be removed", |case| {
        removed_running(case).boxed()
    }),
    ("status of an unknown container is NotFound", |case| {
        unknown(case).boxed()
    }),
];

async fn made(case: &mut RuntimeCase) -> CheckResult {
    let sandbox = case.run_sandbox().await?;
    let id = case.create(&sandbox, SLEEP).await?;
    let status = case.container_status(&id).await?;
    same(
        "state when made",
        status.state(),
        ContainerState::ContainerCreated,
    )?;
    holds(status.created_at > 0, || {
        format!("created_at is {}, expected nanoseconds", status.created_at)
    })?;
    same("started_at when made", status.started_at, 0)?;
    case.start(&id).await?;
    let status = case.container_status(&id).await?;
    same(
        "state when started",
        status.state(),
        ContainerState::ContainerRunning,
    )?;
    let (created, started) = (status.created_at, status.started_at);
    holds(started >= created, || {
        format!("started_at {started} is before created_at {created}")
    })
}

async fn labelled(case: &mut RuntimeCase) -> CheckResult {
    let sandbox = case.run_sandbox().await?;
    let config = case.container_config("main", SLEEP);
    let id = case.create_with(&sandbox, config.clone()).await?;
    let status = case.container_status(&id).await?;
    same("metadata in the status", &status.metadata, &config.metadata)?;
    same("labels in the status", &status.labels, &config.labels)?;
    same(
        "annotations in the status",
        &status.annotations,
        &config.annotations,
    )?;
    let log = format!("{}/{}", sandbox.config.log_directory, config.log_path);
    same("log_path in the status", status.log_path, log)?;
    holds(!status.image_ref.is_empty(), || {
        "image_ref is empty".to_owned()
    })?;

    let listed = case
        .list_containers(ContainerFilter {
            id,
            ..Default::default()
        })
        .await?;
    same("number listed", listed.len(), 1)?;
    same(
        "metadata in the list",
        &listed[0].metadata,
        &config.metadata,
    )?;
    same("labels in the list", &listed[0].labels, &config.labels)?;
    same(
        "annotations in the list",
        &listed[0].annotations,
        &config.annotations,
    )?;
    same(
        "pod_sandbox_id in the list",
        &listed[0].pod_sandbox_id,
        &sandbox.id,
    )?;
    same(
        "image in the list",
        listed[0].image.as_ref().map(|image| image.image.as_str()),
        Some(&case.target.image),
    )
}

async fn filtered(case: &mut RuntimeCase) -> CheckResult {
    let sandbox = case.run_sandbox().await?;
    let running = case.create(&sandbox, SLEEP).await?;
    case.start(&running).await?;
    let second = case.container_config("second", SLEEP);
    let created = case.create_with(&sandbox, second).await?;
    let mut both = vec![running.clone(), created.clone()];
    both.sort();

    let [by_id, by_sandbox, by_label, by_id_and_state] = filters(case, &sandbox.id, &running);
    let in_state = |state: ContainerState| ContainerFilter {
        state: Some(ContainerStateValue {
            state: state.into(),
        }),
        ..by_sandbox.clone()
    };
    for (filter, expected) in [
        (by_id, vec![running.clone()]),
        (in_state(ContainerState::ContainerRunning), vec![running]),
        (
            in_state(ContainerState::ContainerCreated),
            vec![created.clone()],
        ),
        (by_sandbox.clone(), both),
        (by_label, vec![created]),
        (by_id_and_state, vec![]),
    ] {
        let what = format!("list by {filter:?}");
        let mut ids: Vec<_> = case
            .list_containers(filter)
            .await?
            .into_iter()
            .map(|found| found.id)
            .collect();
        ids.sort();
        same(&what, ids, expected)?;
    }
    Ok(())
}

/// By the running container's id, by the sandbox, by the second container's label, and by an id whose state is another.
fn filters(case: &RuntimeCase, sandbox: &str, running: &str) -> [ContainerFilter; 4] {
    let by_id = ContainerFilter {
        id: running.to_owned(),
        ..Default::default()
    };
    let by_sandbox = ContainerFilter {
        pod_sandbox_id: sandbox.to_owned(),
        ..Default::default()
    };
    let by_label = ContainerFilter {
        label_selector: string_map(&[
            ("law", &case.name),
            ("io.kubernetes.container.name", "second"),
        ]),
        ..Default::default()
    };
    let by_id_and_state = ContainerFilter {
        state: Some(ContainerStateValue {
            state: ContainerState::ContainerCreated.into(),
        }),
        ..by_id.clone()
    };
    [by_id, by_sandbox, by_label, by_id_and_state]
}

async fn stays_listed(case: &mut RuntimeCase) -> CheckResult {
    let (sandbox, id) = case.run_container(EXIT_SEVEN).await?;
    case.reach(&id, ContainerState::ContainerExited).await?;
    let listed = case
        .list_containers(ContainerFilter {
            pod_sandbox_id: sandbox.id,
            ..Default::default()
        })
        .await?;
    let listed: Vec<_> = listed
        .into_iter()
        .map(|found| (found.state(), found.id))
        .collect();
    same("list", listed, vec![(ContainerState::ContainerExited, id)])
}

async fn duplicate(case: &mut RuntimeCase) -> CheckResult {
    let sandbox = case.run_sandbox().await?;
    let first = case.create(&sandbox, SLEEP).await?;
    let again = creation(&sandbox, case.container_config("main", SLEEP));
    if let Ok(answer) = case.runtime.create_container(again).await {
        same("id of the second", answer.into_inner().container_id, first)?;
    }
    let filter = ContainerFilter {
        pod_sandbox_id: sandbox.id,
        ..Default::default()
    };
    same(
        "number of containers",
        case.list_containers(filter).await?.len(),
        1,
    )
}

async fn next_attempt(case: &mut RuntimeCase) -> CheckResult {
    let (sandbox, first) = case.run_container(EXIT_SEVEN).await?;
    case.reach(&first, ContainerState::ContainerExited).await?;
    let mut config = case.container_config("main", SLEEP);
    if let Some(metadata) = config.metadata.as_mut() {
        metadata.attempt = 1;
    }
    let second = case.create_with(&sandbox, config).await?;
    case.start(&second).await?;
    same(
        "state",
        case.container_status(&second).await?.state(),
        ContainerState::ContainerRunning,
    )
}

async fn impossible(case: &mut RuntimeCase) -> CheckResult {
    let sandbox = case.run_sandbox().await?;
    let nowhere = Sandbox {
        id: case.name.clone(),
        config: sandbox.config.clone(),
    };
    let config = case.container_config("main", SLEEP);
    refused(
        "a container in an unknown sandbox",
        case.runtime
            .create_container(creation(&nowhere, config))
            .await,
    )?;
    let mut config = case.container_config("main", SLEEP);
    config.image = Some(ImageSpec {
        image: format!("localhost/{}:absent", case.name),
        ..Default::default()
    });
    refused(
        "a container of an absent image",
        case.runtime
            .create_container(creation(&sandbox, config))
            .await,
    )?;
    let filter = ContainerFilter {
        pod_sandbox_id: sandbox.id,
        ..Default::default()
    };
    same(
        "number of containers",
        case.list_containers(filter).await?.len(),
        0,
    )
}

async fn started_twice(case: &mut RuntimeCase) -> CheckResult {
    let (_, id) = case.run_container(SLEEP).await?;
    let again = StartContainerRequest {
        container_id: id.clone(),
    };
    refused(
        "the second start",
        case.runtime.start_container(again).await,
    )?;
    same(
        "state",
        case.container_status(&id).await?.state(),
        ContainerState::ContainerRunning,
    )
}

async fn stopped_twice(case: &mut RuntimeCase) -> CheckResult {
    let (_, id) = case.run_container(SLEEP).await?;
    for _ in 0..2 {
        case.stop(&id, 0).await?;
        same(
            "state",
            case.container_status(&id).await?.state(),
            ContainerState::ContainerExited,
        )?;
    }
    Ok(())
}

async fn remove(case: &mut RuntimeCase, id: &str) -> CheckResult {
    case.runtime
        .remove_container(RemoveContainerRequest {
            container_id: id.to_owned(),
        })
        .await?;
    Ok(())
}

async fn removed(case: &mut RuntimeCase) -> CheckResult {
    let (_, id) = case.run_container(EXIT_SEVEN).await?;
    case.reach(&id, ContainerState::ContainerExited).await?;
    remove(case, &id).await?;
    remove(case, &id).await?;
    let left = case
        .list_containers(ContainerFilter {
            id: id.clone(),
            ..Default::default()
        })
        .await?;
    same("number listed", left.len(), 0)?;
    gone(case.stop(&id, 0).await)
}

async fn removed_running(case: &mut RuntimeCase) -> CheckResult {
    let (_, id) = case.run_container(SLEEP).await?;
    remove(case, &id).await?;
    let left = case
        .list_containers(ContainerFilter {
            id,
            ..Default::default()
        })
        .await?;
    same("number listed", left.len(), 0)
}

async fn unknown(case: &mut RuntimeCase) -> CheckResult {
    let request = ContainerStatusRequest {
        container_id: case.name.clone(),
        verbose: false,
    };
    let status = refused(
        "status of an unknown container",
        case.runtime.container_status(request).await,
    )?;
    same("code", status.code(), Code::NotFound)
}
