//! Sandboxes: their life, their names, their addresses.

use std::collections::BTreeSet;

use proto::cri::*;
use tonic::Code;

use crate::rig::{configured, map, rig, run, sandbox_config};

#[tokio::test(start_paused = true)]
async fn a_sandbox_is_ready_until_it_is_stopped_and_there_until_it_is_removed() {
    let mut rig = rig().await;
    let id = rig.sandbox("a").await;
    assert_eq!(id.len(), 64);
    let status = rig.sandbox_status(&id).await.unwrap();
    assert_eq!(status.state(), PodSandboxState::SandboxReady);
    assert_eq!(status.labels, map(&[("pod", "a")]));
    assert_eq!(status.network.unwrap().ip, "10.88.0.2");

    let container = rig.running(&id, "c", "sleep 100").await;
    for _ in 0..2 {
        rig.runtime
            .stop_pod_sandbox(StopPodSandboxRequest {
                pod_sandbox_id: id.clone(),
            })
            .await
            .unwrap();
        assert_eq!(
            rig.sandbox_status(&id).await.unwrap().state(),
            PodSandboxState::SandboxNotready
        );
        assert_eq!(rig.status(&container).await.exit_code, 137);
    }
    for _ in 0..2 {
        rig.runtime
            .remove_pod_sandbox(RemovePodSandboxRequest {
                pod_sandbox_id: id.clone(),
            })
            .await
            .unwrap();
        assert_eq!(
            rig.sandbox_status(&id).await.unwrap_err().code(),
            Code::NotFound
        );
        assert_eq!(
            rig.try_status(&container).await.unwrap_err().code(),
            Code::NotFound
        );
    }
    rig.runtime
        .stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: id })
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_name_belongs_to_one_sandbox_until_it_is_removed() {
    let mut rig = rig().await;
    let first = run(&mut rig.runtime, sandbox_config("a")).await.unwrap();
    let refused = run(&mut rig.runtime, sandbox_config("a"))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert!(refused.message().contains(&first), "{refused}");

    let mut again = sandbox_config("a");
    again.metadata.as_mut().unwrap().attempt = 1;
    run(&mut rig.runtime, again).await.unwrap();
    rig.runtime
        .remove_pod_sandbox(RemovePodSandboxRequest {
            pod_sandbox_id: first,
        })
        .await
        .unwrap();
    run(&mut rig.runtime, sandbox_config("a")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pods_have_addresses_of_their_own_unless_they_use_the_hosts_or_are_to_have_none() {
    let mut rig = configured(r#"{"ip_range": "10.1.0.0/29"}"#).await;
    let mut seen = BTreeSet::new();
    let mut ids = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        let id = rig.sandbox(name).await;
        seen.insert(rig.sandbox_status(&id).await.unwrap().network.unwrap().ip);
        ids.push(id);
    }
    assert_eq!(seen.len(), 5);
    let full = run(&mut rig.runtime, sandbox_config("f"))
        .await
        .unwrap_err();
    assert_eq!(full.code(), Code::ResourceExhausted);
    rig.runtime
        .remove_pod_sandbox(RemovePodSandboxRequest {
            pod_sandbox_id: ids[2].clone(),
        })
        .await
        .unwrap();
    let id = rig.sandbox("f").await;
    assert!(seen.contains(&rig.sandbox_status(&id).await.unwrap().network.unwrap().ip));

    let mut host = sandbox_config("host");
    let options = NamespaceOption {
        network: NamespaceMode::Node.into(),
        ..NamespaceOption::default()
    };
    host.linux = Some(LinuxPodSandboxConfig {
        security_context: Some(LinuxSandboxSecurityContext {
            namespace_options: Some(options),
            ..Default::default()
        }),
        ..Default::default()
    });
    let mut without = sandbox_config("without");
    without.annotations = map(&[("fake.oxlet.dev/sandbox-addressless", "true")]);
    for config in [host, without] {
        let id = run(&mut rig.runtime, config).await.unwrap();
        assert_eq!(
            rig.sandbox_status(&id).await.unwrap().network.unwrap().ip,
            ""
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_holds_what_its_filter_names() {
    let mut rig = rig().await;
    let (a, b) = (rig.sandbox("a").await, rig.sandbox("b").await);
    rig.runtime
        .stop_pod_sandbox(StopPodSandboxRequest {
            pod_sandbox_id: b.clone(),
        })
        .await
        .unwrap();
    let not_ready = PodSandboxStateValue {
        state: PodSandboxState::SandboxNotready.into(),
    };
    let filters = [
        (PodSandboxFilter::default(), vec![&a, &b]),
        (
            PodSandboxFilter {
                id: a.clone(),
                ..Default::default()
            },
            vec![&a],
        ),
        (
            PodSandboxFilter {
                id: a[..12].into(),
                ..Default::default()
            },
            vec![&a],
        ),
        (
            PodSandboxFilter {
                id: "f".repeat(64),
                ..Default::default()
            },
            vec![],
        ),
        (
            PodSandboxFilter {
                state: Some(not_ready),
                ..Default::default()
            },
            vec![&b],
        ),
        (
            PodSandboxFilter {
                label_selector: map(&[("pod", "b")]),
                ..Default::default()
            },
            vec![&b],
        ),
        (
            PodSandboxFilter {
                label_selector: map(&[("pod", "b"), ("x", "")]),
                ..Default::default()
            },
            vec![],
        ),
    ];
    for (filter, expected) in filters {
        let request = ListPodSandboxRequest {
            filter: Some(filter.clone()),
        };
        let items = rig
            .runtime
            .list_pod_sandbox(request)
            .await
            .unwrap()
            .into_inner()
            .items;
        assert_eq!(
            items.iter().map(|item| &item.id).collect::<Vec<_>>(),
            expected,
            "{filter:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_or_wrong_is_named() {
    let mut rig = rig().await;
    let empty = rig
        .runtime
        .run_pod_sandbox(RunPodSandboxRequest::default())
        .await
        .unwrap_err();
    assert_eq!(
        (empty.code(), empty.message()),
        (Code::InvalidArgument, "config is missing")
    );
    let mut nameless = sandbox_config("a");
    nameless.metadata.as_mut().unwrap().uid.clear();
    let nameless = run(&mut rig.runtime, nameless).await.unwrap_err();
    assert_eq!(nameless.message(), "config.metadata.uid is missing");
    let request = RunPodSandboxRequest {
        config: Some(sandbox_config("a")),
        runtime_handler: "other".into(),
    };
    let handler = rig.runtime.run_pod_sandbox(request).await.unwrap_err();
    assert_eq!(
        (handler.code(), handler.message()),
        (
            Code::InvalidArgument,
            "no runtime handler \"other\" is configured"
        )
    );
    let mut annotated = sandbox_config("a");
    annotated.annotations = map(&[("fake.oxlet.dev/sandbox-delay", "soon")]);
    let annotated = run(&mut rig.runtime, annotated).await.unwrap_err();
    assert!(
        annotated
            .message()
            .starts_with("annotation fake.oxlet.dev/sandbox-delay is \"soon\""),
        "{annotated}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pods_resources_are_kept_and_its_stats_add_up() {
    let mut rig = rig().await;
    let id = rig.sandbox("a").await;
    let resources = LinuxContainerResources {
        cpu_shares: 7,
        ..Default::default()
    };
    let request = UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: id.clone(),
        overhead: None,
        resources: Some(resources),
    };
    rig.runtime
        .update_pod_sandbox_resources(request)
        .await
        .unwrap();
    rig.running(&id, "c", "server").await;
    rig.running(&id, "d", "server").await;
    crate::rig::pass(10).await;
    let request = PodSandboxStatsRequest {
        pod_sandbox_id: id.clone(),
    };
    let stats = rig
        .runtime
        .pod_sandbox_stats(request)
        .await
        .unwrap()
        .into_inner()
        .stats
        .unwrap()
        .linux
        .unwrap();
    let sum: u64 = stats
        .containers
        .iter()
        .map(|one| {
            one.memory
                .as_ref()
                .unwrap()
                .working_set_bytes
                .unwrap()
                .value
        })
        .sum();
    assert_eq!(
        (
            stats.containers.len(),
            stats.memory.unwrap().working_set_bytes.unwrap().value
        ),
        (2, sum)
    );
    assert!(stats.cpu.unwrap().usage_core_nano_seconds.unwrap().value > 0);
    let list = rig
        .runtime
        .list_pod_sandbox_stats(ListPodSandboxStatsRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(list.stats.len(), 1);
}
