//! The kubelet's flags that are no field of its configuration file, our own flags, and those that
//! are accepted only so that a kubelet's command line works unchanged.

use super::{Flag, FlagStatus, Sets, flag};
use crate::flags::value::FlagType;

const fn own(name: &'static str, kind: FlagType, help: &'static str) -> Flag {
    flag(name, kind, Sets::Own, FlagStatus::Stable, help)
}

const fn old(name: &'static str, kind: FlagType, help: &'static str) -> Flag {
    flag(name, kind, Sets::Own, FlagStatus::Deprecated, help)
}

/// A flag of cAdvisor's, which the kubelet once took by mistake.
const fn cadvisor(name: &'static str, kind: FlagType) -> Flag {
    flag(
        name,
        kind,
        Sets::Nothing,
        FlagStatus::Deprecated,
        "without effect: a flag of cAdvisor's",
    )
}

const fn removed(name: &'static str, kind: FlagType, last: &'static str) -> Flag {
    flag(
        name,
        kind,
        Sets::Nothing,
        FlagStatus::Removed(last),
        "without effect: removed upstream",
    )
}

const fn ours(name: &'static str, kind: FlagType, help: &'static str) -> Flag {
    flag(name, kind, Sets::Own, FlagStatus::Ours, help)
}

const fn answer(name: &'static str, kind: FlagType, help: &'static str) -> Flag {
    flag(name, kind, Sets::Answer, FlagStatus::Stable, help)
}

#[rustfmt::skip]
pub(super) const OWN: [Flag; 52] = [
    answer("help", FlagType::Bool, "print this text").short('h'),
    answer("version", FlagType::Version, "print the version; raw prints it in full; vX.Y.Z changes what is reported"),

    own("config", FlagType::Text, "KubeletConfiguration file"),
    own("config-dir", FlagType::Text, "folder of *.conf drop-ins, merged over that file in lexical order"),
    own("kubeconfig", FlagType::Text, "how to reach the API server; without it the agent is alone"),
    own("bootstrap-kubeconfig", FlagType::Text, "how to get the first client certificate"),
    own("cert-dir", FlagType::Text, "folder of certificates"),
    own("root-dir", FlagType::Text, "folder of pods, volumes and checkpoints"),
    own("hostname-override", FlagType::Text, "name of the node, instead of the host's"),
    own("node-ip", FlagType::Text, "address of the node, or one of each family"),
    own("node-labels", FlagType::Labels, "key=value labels to register the node with"),
    own("cloud-provider", FlagType::Text, "external or empty"),
    own("runtime-cgroups", FlagType::Text, "cgroup of the container runtime"),
    own("image-credential-provider-config", FlagType::Text, "file or folder that declares credential providers"),
    own("image-credential-provider-bin-dir", FlagType::Text, "folder of credential providers"),
    own("lock-file", FlagType::Text, "file to hold a lock on"),
    own("exit-on-lock-contention", FlagType::Bool, "end when another process wants that lock"),
    own("housekeeping-interval", FlagType::Duration, "time between two looks at container usage"),

    old("minimum-container-ttl-duration", FlagType::Duration, "youngest dead container to remove"),
    old("maximum-dead-containers-per-container", FlagType::Int32, "dead instances kept of a container"),
    old("maximum-dead-containers", FlagType::Int32, "dead containers kept in all; negative is no limit"),
    old("register-schedulable", FlagType::Bool, "register the node as schedulable"),
    old("experimental-mounter-path", FlagType::Text, "program that mounts NFS exports, instead of mount"),
    old("experimental-allocatable-ignore-eviction", FlagType::Bool, "leave eviction thresholds out of allocatable"),

    ours("alone", FlagType::Bool, "be a node of the manifests in /etc/oxlet/manifests (or --pod-manifest-path): no API server, no configuration file; the machine decides the rest"),
    ours("strict-decoding", FlagType::Bool, "refuse manifests and configuration with unknown or repeated fields"),
    ours("plugins", FlagType::Text, "file that declares plugins; without it the runtime endpoint decides"),
    ours("admin-socket", FlagType::Text, "socket that oxctl speaks to"),
    ours("console", FlagType::Bool, "serve the node's page at /console/ of the HTTPS API too, to whom may use nodes/proxy"),
    ours("container-gc-period", FlagType::Duration, "how long the logs of a pod that is gone are kept, and the ended containers of a static one"),
    ours("object-manifests", FlagType::Text, "folder, watched, of the objects that pods may refer to: ConfigMaps, Secrets, Services, claims, volumes, CSIDrivers ..."),

    removed("cloud-config", FlagType::Text, "1.32"),
    removed("pod-infra-container-image", FlagType::Text, "1.34"),
    removed("keep-terminated-pod-volumes", FlagType::Bool, "1.32"),

    cadvisor("application-metrics-count-limit", FlagType::Int64),
    cadvisor("boot-id-file", FlagType::Text),
    cadvisor("container-hints", FlagType::Text),
    cadvisor("containerd", FlagType::Text),
    cadvisor("containerd-namespace", FlagType::Text),
    cadvisor("enable-load-reader", FlagType::Bool),
    cadvisor("event-storage-age-limit", FlagType::Text),
    cadvisor("event-storage-event-limit", FlagType::Text),
    cadvisor("global-housekeeping-interval", FlagType::Duration),
    cadvisor("log-cadvisor-usage", FlagType::Bool),
    cadvisor("machine-id-file", FlagType::Text),
    cadvisor("storage-driver-user", FlagType::Text),
    cadvisor("storage-driver-password", FlagType::Text),
    cadvisor("storage-driver-host", FlagType::Text),
    cadvisor("storage-driver-db", FlagType::Text),
    cadvisor("storage-driver-table", FlagType::Text),
    cadvisor("storage-driver-secure", FlagType::Bool),
    cadvisor("storage-driver-buffer-duration", FlagType::Duration),
];
