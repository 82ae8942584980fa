//! Records in CRI's words. Pure.

use std::collections::HashMap;

use kernel_filters::{RTMAX, RTMIN, signal_name};
use proto::cri::{self, ImageSpec, Signal};

use crate::node::NodeState;
use crate::record::{ContainerPhase, ContainerRecord, SandboxRecord};

pub(crate) fn sandbox_status(record: &SandboxRecord) -> cri::PodSandboxStatus {
    let config = record.config.0.clone();
    let options = config
        .linux
        .and_then(|linux| linux.security_context)
        .and_then(|context| context.namespace_options);
    let mut addresses = record.addresses.iter().cloned();
    let network = cri::PodSandboxNetworkStatus {
        ip: addresses.next().unwrap_or_default(),
        additional_ips: addresses.map(|ip| cri::PodIp { ip }).collect(),
    };
    cri::PodSandboxStatus {
        id: record.id.clone(),
        metadata: config.metadata,
        state: record.state().unwrap_or_default().into(),
        created_at: record.created,
        network: Some(network),
        linux: Some(cri::LinuxPodSandboxStatus {
            namespaces: Some(cri::Namespace { options }),
        }),
        labels: config.labels,
        annotations: config.annotations,
        runtime_handler: record.handler.clone(),
    }
}

pub(crate) fn sandbox_item(record: &SandboxRecord) -> cri::PodSandbox {
    let config = record.config.0.clone();
    cri::PodSandbox {
        id: record.id.clone(),
        metadata: config.metadata,
        state: record.state().unwrap_or_default().into(),
        created_at: record.created,
        labels: config.labels,
        annotations: config.annotations,
        runtime_handler: record.handler.clone(),
    }
}

/// Returns the statuses of a pod's containers, oldest first.
pub(crate) fn pod_statuses(state: &NodeState, sandbox: &str) -> Vec<cri::ContainerStatus> {
    let records = state.records_of(sandbox).into_iter();
    let told = records.filter(|record| record.state().is_some());
    told.map(|record| container_status(&record)).collect()
}

pub(crate) fn container_status(record: &ContainerRecord) -> cri::ContainerStatus {
    let config = record.config.0.clone();
    let user = &record.user;
    let groups = user.groups.iter().copied().map(i64::from);
    let user = cri::LinuxContainerUser {
        uid: user.uid.into(),
        gid: user.gid.into(),
        supplemental_groups: groups.collect(),
    };
    let resources = config.linux.and_then(|linux| linux.resources);
    let mut status = cri::ContainerStatus {
        id: record.id.clone(),
        metadata: config.metadata,
        state: record.state().unwrap_or_default().into(),
        created_at: record.created,
        started_at: record.started,
        image: config.image,
        image_ref: record.image_ref.clone(),
        image_id: record.image.clone(),
        labels: config.labels,
        annotations: config.annotations,
        mounts: config.mounts,
        log_path: record.log.clone(),
        resources: resources.map(|linux| cri::ContainerResources {
            linux: Some(linux),
            windows: None,
        }),
        user: Some(cri::ContainerUser { linux: Some(user) }),
        stop_signal: signal(record.stop_signal).into(),
        ..cri::ContainerStatus::default()
    };
    if let ContainerPhase::Exited(exit) = &record.phase {
        (status.finished_at, status.exit_code) = (exit.finished, exit.code);
        status.reason.clone_from(&exit.reason);
        status.message.clone_from(&exit.message);
    }
    status
}

pub(crate) fn container_item(record: &ContainerRecord) -> cri::Container {
    let config = record.config.0.clone();
    cri::Container {
        id: record.id.clone(),
        pod_sandbox_id: record.sandbox.clone(),
        metadata: config.metadata,
        image: config.image,
        image_ref: record.image_ref.clone(),
        state: record.state().unwrap_or_default().into(),
        created_at: record.created,
        labels: config.labels,
        annotations: config.annotations,
        image_id: record.image.clone(),
    }
}

/// How CRI's names of signals begin, before the name without `SIG`.
const CRI_PREFIX: &str = "SIGNAL_SIG";

/// Returns CRI's name of a signal.
fn signal(number: i32) -> Signal {
    if (RTMIN..=RTMAX).contains(&number) {
        let from_first = i32::from(Signal::Sigrtmin) + number - RTMIN;
        return Signal::try_from(from_first).unwrap_or_default();
    }
    signal_name(number)
        .and_then(|name| Signal::from_str_name(&format!("{CRI_PREFIX}{name}")))
        .unwrap_or_default()
}

/// Returns the number of a signal that CRI names; none where it leaves the choice to the runtime.
pub(crate) fn signal_number(asked: Signal) -> Option<i32> {
    let place = i32::from(asked);
    let realtime = i32::from(Signal::Sigrtmin)..=i32::from(Signal::Sigrtmax);
    if realtime.contains(&place) {
        return Some(place - i32::from(Signal::Sigrtmin) + RTMIN);
    }
    let twins = [
        (Signal::Sigcld, Signal::Sigchld),
        (Signal::Sigpoll, Signal::Sigio),
        (Signal::Sigiot, Signal::Sigabrt),
    ];
    let twin = twins.iter().find(|(twin, _)| *twin == asked);
    let asked = twin.map_or(asked, |(_, own)| *own);
    kernel_filters::signal_number(asked.as_str_name().strip_prefix(CRI_PREFIX)?)
}

/// Returns the verbose part of a status.
pub(crate) fn info(value: &serde_json::Value) -> HashMap<String, String> {
    HashMap::from([("info".to_owned(), value.to_string())])
}

/// Returns CRI's form of an image.
pub(crate) fn image(image: &images::Image) -> cri::Image {
    let user = image.user.split(':').next().unwrap_or_default();
    let uid = user.parse().ok();
    cri::Image {
        id: image.id.to_string(),
        repo_tags: image.tags.clone(),
        repo_digests: image.digests.clone(),
        size: image.bytes,
        uid: uid.map(|value| cri::Int64Value { value }),
        username: match uid {
            None => user.to_owned(),
            Some(_) => String::new(),
        },
        spec: Some(ImageSpec {
            image: image.id.to_string(),
            ..ImageSpec::default()
        }),
        pinned: image.pinned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_the_same_by_cris_name_and_by_number() {
        for number in (1..=31).chain(34..=64) {
            assert_eq!(signal_number(signal(number)), Some(number));
        }
        for (named, number) in [
            (Signal::Sigterm, 15),
            (Signal::Sigcld, 17),
            (Signal::Sigrtminplus3, 37),
        ] {
            assert_eq!(signal_number(named), Some(number), "{named:?}");
        }
        assert_eq!(signal(0), Signal::RuntimeDefault);
        assert_eq!(signal_number(Signal::RuntimeDefault), None);
        assert_eq!(signal_number(Signal::Sigrtmaxminus1), Some(63));
    }
}
