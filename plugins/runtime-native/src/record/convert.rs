//! Records in CRI's words. Pure.

use std::collections::HashMap;

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

/// Signals by their names of CRI, and Linux's numbers of them.
const SIGNALS: [(Signal, &str, i32); 31] = [
    (Signal::Sighup, "HUP", 1),
    (Signal::Sigint, "INT", 2),
    (Signal::Sigquit, "QUIT", 3),
    (Signal::Sigill, "ILL", 4),
    (Signal::Sigtrap, "TRAP", 5),
    (Signal::Sigabrt, "ABRT", 6),
    (Signal::Sigbus, "BUS", 7),
    (Signal::Sigfpe, "FPE", 8),
    (Signal::Sigkill, "KILL", 9),
    (Signal::Sigusr1, "USR1", 10),
    (Signal::Sigsegv, "SEGV", 11),
    (Signal::Sigusr2, "USR2", 12),
    (Signal::Sigpipe, "PIPE", 13),
    (Signal::Sigalrm, "ALRM", 14),
    (Signal::Sigterm, "TERM", 15),
    (Signal::Sigstkflt, "STKFLT", 16),
    (Signal::Sigchld, "CHLD", 17),
    (Signal::Sigcont, "CONT", 18),
    (Signal::Sigstop, "STOP", 19),
    (Signal::Sigtstp, "TSTP", 20),
    (Signal::Sigttin, "TTIN", 21),
    (Signal::Sigttou, "TTOU", 22),
    (Signal::Sigurg, "URG", 23),
    (Signal::Sigxcpu, "XCPU", 24),
    (Signal::Sigxfsz, "XFSZ", 25),
    (Signal::Sigvtalrm, "VTALRM", 26),
    (Signal::Sigprof, "PROF", 27),
    (Signal::Sigwinch, "WINCH", 28),
    (Signal::Sigio, "IO", 29),
    (Signal::Sigpwr, "PWR", 30),
    (Signal::Sigsys, "SYS", 31),
];
/// The first and the last real-time signal, as C libraries count them.
const RTMIN: i32 = 34;
const RTMAX: i32 = 64;

/// Returns CRI's name of a signal.
fn signal(number: i32) -> Signal {
    if (RTMIN..=RTMAX).contains(&number) {
        let from_first = i32::from(Signal::Sigrtmin) + number - RTMIN;
        return Signal::try_from(from_first).unwrap_or_default();
    }
    let found = SIGNALS.iter().find(|(.., own)| *own == number);
    found.map_or(Signal::RuntimeDefault, |(signal, ..)| *signal)
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
    let found = SIGNALS.iter().find(|(signal, ..)| *signal == asked);
    found.map(|(.., number)| *number)
}

/// Returns the number of a signal as an image writes it: `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3`.
pub(crate) fn signal_named(name: &str) -> Option<i32> {
    if let Ok(number) = name.parse() {
        return (1..=RTMAX).contains(&number).then_some(number);
    }
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    for (base, from) in [("RTMIN", RTMIN), ("RTMAX", RTMAX)] {
        if let Some(offset) = short.strip_prefix(base) {
            let offset = match offset {
                "" => 0,
                offset => offset.parse::<i32>().ok()?,
            };
            let number = from.checked_add(offset);
            return number.filter(|number| (RTMIN..=RTMAX).contains(number));
        }
    }
    let found = SIGNALS.iter().find(|(_, own, _)| *own == short);
    found.map(|(.., number)| *number)
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
    fn signals_are_the_same_by_name_and_by_number() {
        for (named, number) in [
            ("SIGTERM", 15),
            ("term", 15),
            ("9", 9),
            ("SIGRTMIN+3", 37),
            ("RTMAX-1", 63),
        ] {
            assert_eq!(signal_named(named), Some(number), "{named}");
            assert_eq!(signal_number(signal(number)), Some(number), "{named}");
        }
        for wrong in ["", "0", "65", "SIGNAL", "RTMIN+99", "-3"] {
            assert_eq!(signal_named(wrong), None, "{wrong}");
        }
        assert_eq!(signal_number(Signal::RuntimeDefault), None);
        assert_eq!(signal_number(Signal::Sigrtmaxminus1), Some(63));
    }
}
