//! The resources that the double serves.

/// One resource: where it stands in paths, what its objects are called.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) short: &'static [&'static str],
    pub(crate) subresources: &'static [&'static str],
    /// The storage_key of the store: resources of several groups may be views of one.
    pub(crate) storage_key: &'static str,
    pub(crate) handling: Handling,
}

/// How a create is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handling {
    /// Kept in the store.
    Kept,
    /// Answered and forgotten: reviews.
    Answered,
    /// Read from the kubelets: metrics.
    Measured,
}

impl Resource {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    pub(crate) fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// Returns the name in messages: `pods`, `leases.coordination.k8s.io`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_string()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Whether its objects have a generation: those with a spec that a controller or a node carries out.
    pub(crate) fn has_generation(&self) -> bool {
        matches!(
            self.storage_key,
            "pods" | "daemonsets" | "deployments" | "replicasets" | "statefulsets" | "jobs"
        )
    }

    /// Whether it has a status subresource: main writes do not change the status, and writes of it change nothing else.
    pub(crate) fn has_status(&self) -> bool {
        self.subresources.contains(&"status")
    }
}

pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    ALL.iter().find(|resource| {
        resource.group == group && resource.version == version && resource.plural == plural
    })
}

/// Returns the resource of a storage_key that is well known to the double itself.
pub(crate) fn core(plural: &str) -> &'static Resource {
    find("", "v1", plural).expect("the core resources stand in the table")
}

const fn kept(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
) -> Resource {
    Resource {
        group,
        version,
        plural,
        kind,
        namespaced: false,
        short: &[],
        subresources: &[],
        storage_key: plural,
        handling: Handling::Kept,
    }
}

const fn space(resource: Resource) -> Resource {
    Resource {
        namespaced: true,
        ..resource
    }
}

const fn sub(resource: Resource, subresources: &'static [&'static str]) -> Resource {
    Resource {
        subresources,
        ..resource
    }
}

const fn short(resource: Resource, short: &'static [&'static str]) -> Resource {
    Resource { short, ..resource }
}

const fn asked(group: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource {
        handling: Handling::Answered,
        ..kept(group, "v1", plural, kind)
    }
}

const fn measured(plural: &'static str, kind: &'static str) -> Resource {
    Resource {
        handling: Handling::Measured,
        storage_key: "",
        ..kept("metrics.k8s.io", "v1beta1", plural, kind)
    }
}

const STATUS: &[&str] = &["status"];
const POD: &[&str] = &[
    "status",
    "binding",
    "eviction",
    "ephemeralcontainers",
    "resize",
    "log",
    "exec",
    "attach",
    "portforward",
    "proxy",
];

pub(crate) static ALL: &[Resource] = &[
    short(
        sub(
            kept("", "v1", "namespaces", "Namespace"),
            &["status", "finalize"],
        ),
        &["ns"],
    ),
    short(
        sub(kept("", "v1", "nodes", "Node"), &["status", "proxy"]),
        &["no"],
    ),
    short(space(sub(kept("", "v1", "pods", "Pod"), POD)), &["po"]),
    short(space(kept("", "v1", "configmaps", "ConfigMap")), &["cm"]),
    space(kept("", "v1", "secrets", "Secret")),
    short(
        space(sub(kept("", "v1", "services", "Service"), STATUS)),
        &["svc"],
    ),
    short(space(kept("", "v1", "endpoints", "Endpoints")), &["ep"]),
    short(space(kept("", "v1", "events", "Event")), &["ev"]),
    short(
        space(sub(
            kept("", "v1", "serviceaccounts", "ServiceAccount"),
            &["token"],
        )),
        &["sa"],
    ),
    short(
        sub(
            kept("", "v1", "persistentvolumes", "PersistentVolume"),
            STATUS,
        ),
        &["pv"],
    ),
    short(
        space(sub(
            kept("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
            STATUS,
        )),
        &["pvc"],
    ),
    short(
        space(sub(
            kept("", "v1", "replicationcontrollers", "ReplicationController"),
            STATUS,
        )),
        &["rc"],
    ),
    short(
        space(sub(
            kept("", "v1", "resourcequotas", "ResourceQuota"),
            STATUS,
        )),
        &["quota"],
    ),
    short(
        space(kept("", "v1", "limitranges", "LimitRange")),
        &["limits"],
    ),
    short(
        space(sub(kept("apps", "v1", "daemonsets", "DaemonSet"), STATUS)),
        &["ds"],
    ),
    short(
        space(sub(kept("apps", "v1", "deployments", "Deployment"), STATUS)),
        &["deploy"],
    ),
    short(
        space(sub(kept("apps", "v1", "replicasets", "ReplicaSet"), STATUS)),
        &["rs"],
    ),
    short(
        space(sub(
            kept("apps", "v1", "statefulsets", "StatefulSet"),
            STATUS,
        )),
        &["sts"],
    ),
    space(sub(kept("batch", "v1", "jobs", "Job"), STATUS)),
    short(
        space(sub(
            kept(
                "policy",
                "v1",
                "poddisruptionbudgets",
                "PodDisruptionBudget",
            ),
            STATUS,
        )),
        &["pdb"],
    ),
    kept("storage.k8s.io", "v1", "csinodes", "CSINode"),
    kept("storage.k8s.io", "v1", "csidrivers", "CSIDriver"),
    short(
        kept("storage.k8s.io", "v1", "storageclasses", "StorageClass"),
        &["sc"],
    ),
    sub(
        kept(
            "storage.k8s.io",
            "v1",
            "volumeattachments",
            "VolumeAttachment",
        ),
        STATUS,
    ),
    kept("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass"),
    space(kept("coordination.k8s.io", "v1", "leases", "Lease")),
    short(
        kept(
            "scheduling.k8s.io",
            "v1",
            "priorityclasses",
            "PriorityClass",
        ),
        &["pc"],
    ),
    short(
        space(kept("events.k8s.io", "v1", "events", "Event")),
        &["ev"],
    ),
    short(
        sub(
            kept(
                "certificates.k8s.io",
                "v1",
                "certificatesigningrequests",
                "CertificateSigningRequest",
            ),
            &["status", "approval"],
        ),
        &["csr"],
    ),
    kept(
        "certificates.k8s.io",
        "v1beta1",
        "clustertrustbundles",
        "ClusterTrustBundle",
    ),
    space(sub(
        kept(
            "certificates.k8s.io",
            "v1beta1",
            "podcertificaterequests",
            "PodCertificateRequest",
        ),
        STATUS,
    )),
    space(sub(
        kept("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"),
        STATUS,
    )),
    kept("resource.k8s.io", "v1", "resourceslices", "ResourceSlice"),
    kept("resource.k8s.io", "v1", "deviceclasses", "DeviceClass"),
    asked("authentication.k8s.io", "tokenreviews", "TokenReview"),
    asked(
        "authorization.k8s.io",
        "subjectaccessreviews",
        "SubjectAccessReview",
    ),
    asked(
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
    ),
    measured("nodes", "NodeMetrics"),
    space(measured("pods", "PodMetrics")),
];
