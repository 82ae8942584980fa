//! Objects of the API that pods refer to, as far as they are available.
//!
//! A decision asks [`Objects`], however it is filled: from a directory of manifests, the API server, or both
//! ([`StaticObjects`]). `logic_pods::api::references` lists what a pod refers to, `logic_pods::api::needed` what it needs in the
//! end.

mod change;
mod credentials;
mod issuance;
mod object;
mod parse;
pub mod pem;
mod refetch;
mod static_objects;
mod wanted;

use std::fmt;
use std::sync::Arc;

pub use change::ObjectsChange;
pub use credentials::{
    CertificateCredentials, PodCertificate, PodCertificateSpec, ServiceAccountToken, TokenSpec,
};
pub use issuance::{
    CertificateAge, CertificateEvent, GATE_IS_OFF, Issuance, IssuancePolicy, IssuanceRefusal,
    IssuanceStep, IssuanceVerdict, PendingCertificateRequest,
};
use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret, Service,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass, VolumeAttachment};
pub use object::{ApiObject, slim, slim_service};
pub use parse::{MAX_FILE_BYTES, MAX_OBJECT_BYTES, ObjectError, ParsedObjects, parse};
pub use refetch::{
    ChangeDetection, FetchOutcome, RefetchSchedule, new_token_wait, outcome, token_wait,
};
pub use static_objects::{BoundPod, StaticObjects, StaticToken, TokenKey};
pub use wanted::ObjectRequest;

/// Looks up objects. None means that there is no such object.
pub trait Objects: fmt::Debug + Send + Sync {
    fn config_map(&self, namespace: &str, name: &str) -> Option<Arc<ConfigMap>>;
    fn secret(&self, namespace: &str, name: &str) -> Option<Arc<Secret>>;
    fn runtime_class(&self, name: &str) -> Option<Arc<RuntimeClass>>;
    /// Every service of every namespace, in the order of namespace and name.
    fn services(&self) -> Vec<Arc<Service>>;

    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>>;
    fn persistent_volume(&self, name: &str) -> Option<Arc<PersistentVolume>>;
    fn storage_class(&self, name: &str) -> Option<Arc<StorageClass>>;
    fn csi_driver(&self, name: &str) -> Option<Arc<CSIDriver>>;
    /// By the attachment's own name, which upstream derives from volume, driver and node.
    fn volume_attachment(&self, name: &str) -> Option<Arc<VolumeAttachment>>;
    /// Every bundle, in the order of their names.
    fn trust_bundles(&self) -> Vec<Arc<ClusterTrustBundle>>;
    /// The token of a pod's service account that lasts longest, if there is one at all. The implementation fetches a
    /// new one in time and reports the change then; the caller checks whether it has expired.
    fn token(&self, wanted: &TokenSpec) -> Option<ServiceAccountToken>;

    /// A pod's own certificate, in the same way.
    fn pod_certificate(&self, wanted: &PodCertificateSpec) -> PodCertificate {
        PodCertificate::missing(wanted)
    }

    /// Why an object of this name was refused, as text for the pods that wait for it. The namespace is empty for
    /// cluster-scoped kinds.
    fn refused(&self, kind: &str, namespace: &str, name: &str) -> Option<String> {
        let _ = (kind, namespace, name);
        None
    }

    /// Why the API server gives no such token.
    fn refused_token(&self, wanted: &TokenSpec) -> Option<String> {
        let _ = wanted;
        None
    }
}
