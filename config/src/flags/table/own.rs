//! The kubelet's flags that are no field of its configuration file, our own flags, and those that
//! are accepted only so that a kubelet's command line works unchanged.

use super::{Flag, Sets, Status, flag};
use crate::flags::value::Kind;

const fn own(name: &'static str, kind: Kind, help: &'static str) -> Flag {
    flag(name, kind, Sets::Own, Status::Stable, help)
}

const fn old(name: &'static str, kind: Kind, help: &'static str) -> Flag {
    flag(name, kind, Sets::Own, Status::Deprecated, help)
}

/// A flag of cAdvisor's, which the kubelet once took by mistake.
const fn cadvisor(name: &'static str, kind: Kind) -> Flag {
    flag(
        name,
        kind,
        Sets::Nothing,
        Status::Deprecated,
        "without effect: a flag of cAdvisor's",
    )
}

const fn removed(name: &'static str, kind: Kind, last: &'static str) -> Flag {
    flag(
        name,
        kind,
        Sets::Nothing,
        Status::Removed(last),
        "without effect: removed upstream",
    )
}

const fn ours(name: &'static str, kind: Kind, help: &'static str) -> Flag {
    flag(name, kind, Sets::Own, Status::Ours, help)
}

const fn answer(name: &'static str, kind: Kind, help: &'static str) -> Flag {
    flag(name, kind, Sets::Answer, Status::Stable, help)
}

#[rustfmt::skip]
pub(super) const OWN: [Flag; 48] = [
    answer("help", Kind::Bool, "print this text").short('h'),
    answer("version", Kind::Version, "print the version; raw prints it in full; vX.Y.Z changes what is reported"),

    own("config", Kind::Text, "KubeletConfiguration file"),
    own("config-dir", Kind::Text, "folder of *.conf drop-ins, merged over that file in lexical order"),
    own("kubeconfig", Kind::Text, "how to reach the API server; without it the agent is alone"),
    own("bootstrap-kubeconfig", Kind::Text, "how to get the first client certificate"),
    own("cert-dir", Kind::Text, "folder of certificates"),
    own("root-dir", Kind::Text, "folder of pods, volumes and checkpoints"),
    own("hostname-override", Kind::Text, "name of the node, instead of the host's"),
    own("node-ip", Kind::Text, "address of the node, or one of each family"),
    own("node-labels", Kind::Labels, "key=value labels to register the node with"),
    own("cloud-provider", Kind::Text, "external or empty"),
    own("runtime-cgroups", Kind::Text, "cgroup of the container runtime"),
    own("image-credential-provider-config", Kind::Text, "file or folder that declares credential providers"),
    own("image-credential-provider-bin-dir", Kind::Text, "folder of credential providers"),
    own("lock-file", Kind::Text, "file to hold a lock on"),
    own("exit-on-lock-contention", Kind::Bool, "end when another process wants that lock"),
    own("housekeeping-interval", Kind::Duration, "time between two looks at container usage"),

    old("minimum-container-ttl-duration", Kind::Duration, "youngest dead container to remove"),
    old("maximum-dead-containers-per-container", Kind::Int32, "dead instances kept of a container"),
    old("maximum-dead-containers", Kind::Int32, "dead containers kept in all; negative is no limit"),
    old("register-schedulable", Kind::Bool, "register the node as schedulable"),
    old("experimental-mounter-path", Kind::Text, "program that mounts, instead of mount"),
    old("experimental-allocatable-ignore-eviction", Kind::Bool, "leave eviction thresholds out of allocatable"),

    ours("plugins", Kind::Text, "file that declares plugins; without it the runtime endpoint decides"),
    ours("admin-socket", Kind::Text, "socket that oxctl speaks to"),
    ours("object-manifests", Kind::Text, "folder, watched, of the objects that pods may refer to: ConfigMaps, Secrets, Services, claims, volumes, CSIDrivers ..."),

    removed("cloud-config", Kind::Text, "1.32"),
    removed("pod-infra-container-image", Kind::Text, "1.34"),
    removed("keep-terminated-pod-volumes", Kind::Bool, "1.32"),

    cadvisor("application-metrics-count-limit", Kind::Int64),
    cadvisor("boot-id-file", Kind::Text),
    cadvisor("container-hints", Kind::Text),
    cadvisor("containerd", Kind::Text),
    cadvisor("containerd-namespace", Kind::Text),
    cadvisor("enable-load-reader", Kind::Bool),
    cadvisor("event-storage-age-limit", Kind::Text),
    cadvisor("event-storage-event-limit", Kind::Text),
    cadvisor("global-housekeeping-interval", Kind::Duration),
    cadvisor("log-cadvisor-usage", Kind::Bool),
    cadvisor("machine-id-file", Kind::Text),
    cadvisor("storage-driver-user", Kind::Text),
    cadvisor("storage-driver-password", Kind::Text),
    cadvisor("storage-driver-host", Kind::Text),
    cadvisor("storage-driver-db", Kind::Text),
    cadvisor("storage-driver-table", Kind::Text),
    cadvisor("storage-driver-secure", Kind::Bool),
    cadvisor("storage-driver-buffer-duration", Kind::Duration),
];
