//! Counts the runtime's calls by upstream's names: pkg/kubelet/kuberuntime/instrumented_services.go (1.36).

use std::time::{Duration, Instant, SystemTime};

use metrics::runtime::{CallResult, called};

/// Counts a call of the runtime that began at `began`.
pub(super) fn count<T, E>(call: &str, began: Instant, answer: &Result<T, E>) {
    let took = kernel::now().saturating_duration_since(began);
    called(operation(call), took, end(answer));
}

/// Counts a sandbox's creation, by its runtime handler.
pub(super) fn count_sandbox<T, E>(handler: &str, began: Instant, answer: &Result<T, E>) {
    let took = kernel::now().saturating_duration_since(began);
    metrics::runtime::made_sandbox(handler, took, end(answer));
}

/// Counts the delay of an event; `happened` is the runtime's time in nanoseconds since the epoch.
pub(super) fn count_event(happened: i64) {
    let now = kernel::wall().duration_since(SystemTime::UNIX_EPOCH);
    let happened = Duration::from_nanos(u64::try_from(happened).unwrap_or(0));
    let took = now.unwrap_or_default().saturating_sub(happened);
    if !happened.is_zero() {
        metrics::runtime::pleg::EVENT_LATENCY.observe(took.as_secs_f64());
    }
}

fn end<T, E>(answer: &Result<T, E>) -> CallResult {
    match answer {
        Ok(_) => CallResult::Well,
        Err(_) => CallResult::InError,
    }
}

fn operation(call: &str) -> &str {
    match call {
        "Version" => "version",
        "Status" => "status",
        "RuntimeConfig" => "runtime_config",
        "RunPodSandbox" => "run_podsandbox",
        "StopPodSandbox" => "stop_podsandbox",
        "RemovePodSandbox" => "remove_podsandbox",
        "PodSandboxStatus" => "podsandbox_status",
        "ListPodSandbox" => "list_podsandbox",
        "UpdatePodSandboxResources" => "update_podsandbox_resources",
        "PodSandboxStats" => "podsandbox_stats",
        "ListPodSandboxStats" => "list_podsandbox_stats",
        "ListMetricDescriptors" => "list_metric_descriptors",
        "ListPodSandboxMetrics" => "list_podsandbox_metrics",
        "CreateContainer" => "create_container",
        "StartContainer" => "start_container",
        "StopContainer" => "stop_container",
        "RemoveContainer" => "remove_container",
        "ListContainers" => "list_containers",
        "ListContainerStats" => "list_container_stats",
        "ContainerStatus" => "container_status",
        "UpdateContainerResources" => "update_container",
        "ReopenContainerLog" => "reopen_container_log",
        "CheckpointContainer" => "checkpoint_container",
        "GetContainerEvents" => "get_container_events",
        "ExecSync" => "exec_sync",
        "Exec" => "exec",
        "Attach" => "attach",
        "PortForward" => "port_forward",
        "ImageStatus" => "image_status",
        "ListImages" => "list_images",
        "PullImage" => "pull_image",
        "RemoveImage" => "remove_image",
        "ImageFsInfo" => "image_fs_info",
        "UpdateRuntimeConfig" => "update_runtime_config",
        // A call that upstream does not make keeps its own name.
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::operation;

    #[test]
    fn every_call_that_is_made_has_upstreams_name() {
        let sources = [
            include_str!("mod.rs"),
            include_str!("container_metrics.rs"),
            include_str!("fetch.rs"),
            include_str!("live.rs"),
            include_str!("measured.rs"),
        ];
        let mut calls = 0;
        for word in sources.iter().flat_map(|source| source.split('"')) {
            let is_call = word.len() > 5
                && word.starts_with(|letter: char| letter.is_ascii_uppercase())
                && word.chars().all(|letter| letter.is_ascii_alphabetic());
            if is_call {
                assert_ne!(operation(word), word, "{word} has no name");
                calls += 1;
            }
        }
        assert!(calls > 20, "{calls}");
    }
}
