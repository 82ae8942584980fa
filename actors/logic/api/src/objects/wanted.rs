//! One object of the API that a pod needs, by kind and name.

use super::static_objects::ObjectKey;
use super::{PodCertificateSpec, TokenSpec};

/// One thing to fetch or to follow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectRequest {
    ConfigMap(ObjectKey),
    Secret(ObjectKey),
    Claim(ObjectKey),
    PersistentVolume(String),
    VolumeAttachment(String),
    RuntimeClass(String),
    /// One service, by namespace and name.
    Service(ObjectKey),
    /// Those of a namespace.
    Services(String),
    CsiDrivers,
    TrustBundles,
    Token(TokenSpec),
    /// Much larger than the others.
    Certificate(Box<PodCertificateSpec>),
}

impl ObjectRequest {
    /// Kind, namespace and name, as [`Objects::refused`] takes them; none for requests that are never refused that
    /// way. All trust bundles share the empty name.
    pub fn place(&self) -> Option<(String, String, String)> {
        let (kind, namespace, name) = match self {
            Self::ConfigMap((namespace, name)) => ("ConfigMap", namespace.as_str(), name),
            Self::Secret((namespace, name)) => ("Secret", namespace.as_str(), name),
            Self::Claim((namespace, name)) => ("PersistentVolumeClaim", namespace.as_str(), name),
            Self::Service((namespace, name)) => ("Service", namespace.as_str(), name),
            Self::PersistentVolume(name) => ("PersistentVolume", "", name),
            Self::VolumeAttachment(name) => ("VolumeAttachment", "", name),
            Self::RuntimeClass(name) => ("RuntimeClass", "", name),
            Self::Certificate(wanted) => (
                "PodCertificateRequest",
                wanted.namespace.as_str(),
                &wanted.pod_name,
            ),
            Self::TrustBundles => {
                return Some((
                    "ClusterTrustBundle".to_owned(),
                    String::new(),
                    String::new(),
                ));
            }
            Self::Services(_) | Self::CsiDrivers | Self::Token(_) => return None,
        };
        Some((kind.to_owned(), namespace.to_owned(), name.clone()))
    }
}

impl std::fmt::Display for ObjectRequest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self, self.place()) {
            (Self::Token(wanted), _) => {
                let TokenSpec {
                    namespace,
                    service_account,
                    pod_name,
                    ..
                } = wanted;
                write!(
                    out,
                    "TokenRequest {namespace}/{service_account} for pod {pod_name}"
                )
            }
            (Self::Certificate(wanted), Some((kind, namespace, _))) => {
                let PodCertificateSpec {
                    pod_name, volume, ..
                } = &**wanted;
                write!(out, "{kind} of {namespace}/{pod_name} for volume {volume}")
            }
            (Self::TrustBundles, _) => out.write_str("ClusterTrustBundles"),
            (_, Some((kind, namespace, name))) if namespace.is_empty() => {
                write!(out, "{kind} {name}")
            }
            (_, Some((kind, namespace, name))) => write!(out, "{kind} {namespace}/{name}"),
            (Self::Services(namespace), None) => write!(out, "Services of {namespace}"),
            (_, None) => out.write_str("CSIDrivers"),
        }
    }
}
