//! One object of any kind that pods refer to, and how many make up [`StaticObjects`].

use std::sync::Arc;

use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret, Service, ServicePort, ServiceSpec,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::static_objects::{ObjectKey, StaticObjects, key};
use crate::objects::ObjectRequest;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object of the API, of the kinds that pods refer to.
#[derive(Clone, PartialEq)]
pub enum ApiObject {
    ConfigMap(Arc<ConfigMap>),
    Secret(Arc<Secret>),
    Service(Arc<Service>),
    Claim(Arc<PersistentVolumeClaim>),
    PersistentVolume(Arc<PersistentVolume>),
    VolumeAttachment(Arc<VolumeAttachment>),
    RuntimeClass(Arc<RuntimeClass>),
    CsiDriver(Arc<CSIDriver>),
    TrustBundle(Arc<ClusterTrustBundle>),
}

// Some are secret.
impl std::fmt::Debug for ApiObject {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (namespace, name) = self.key();
        write!(out, "Object({namespace}/{name})")
    }
}

impl ApiObject {
    /// Namespace, which some have none of, and name.
    pub fn key(&self) -> ObjectKey {
        let meta = self.metadata();
        key(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }

    fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::ConfigMap(object) => &object.metadata,
            Self::Secret(object) => &object.metadata,
            Self::Service(object) => &object.metadata,
            Self::Claim(object) => &object.metadata,
            Self::PersistentVolume(object) => &object.metadata,
            Self::VolumeAttachment(object) => &object.metadata,
            Self::RuntimeClass(object) => &object.metadata,
            Self::CsiDriver(object) => &object.metadata,
            Self::TrustBundle(object) => &object.metadata,
        }
    }

    /// Whether the object's `immutable` field is set.
    pub fn is_immutable(&self) -> bool {
        match self {
            Self::ConfigMap(object) => object.immutable == Some(true),
            Self::Secret(object) => object.immutable == Some(true),
            Self::Service(_)
            | Self::Claim(_)
            | Self::PersistentVolume(_)
            | Self::VolumeAttachment(_)
            | Self::RuntimeClass(_)
            | Self::CsiDriver(_)
            | Self::TrustBundle(_) => false,
        }
    }
}

impl StaticObjects {
    /// Puts it in, over another of its name.
    pub fn put(&mut self, object: ApiObject) {
        let place = object.key();
        let name = place.1.clone();
        match object {
            ApiObject::ConfigMap(object) => drop(self.config_maps.insert(place, object)),
            ApiObject::Secret(object) => drop(self.secrets.insert(place, object)),
            ApiObject::Service(object) => drop(self.services.insert(place, object)),
            ApiObject::Claim(object) => drop(self.claims.insert(place, object)),
            ApiObject::PersistentVolume(object) => {
                drop(self.persistent_volumes.insert(name, object));
            }
            ApiObject::VolumeAttachment(object) => {
                drop(self.volume_attachments.insert(name, object));
            }
            ApiObject::RuntimeClass(object) => drop(self.runtime_classes.insert(name, object)),
            ApiObject::CsiDriver(object) => drop(self.csi_drivers.insert(name, object)),
            ApiObject::TrustBundle(object) => drop(self.trust_bundles.insert(name, object)),
        }
    }

    /// The objects that answer a request, as far as they are known; tokens come from `token`, certificates from
    /// `issuances`.
    pub fn at_hand(&self, wanted: &ObjectRequest) -> Vec<ApiObject> {
        let one = |found: Option<ApiObject>| found.into_iter().collect();
        match wanted {
            ObjectRequest::ConfigMap(key) => {
                one(self.config_maps.get(key).cloned().map(ApiObject::ConfigMap))
            }
            ObjectRequest::Secret(key) => {
                one(self.secrets.get(key).cloned().map(ApiObject::Secret))
            }
            ObjectRequest::Claim(key) => one(self.claims.get(key).cloned().map(ApiObject::Claim)),
            ObjectRequest::Service(key) => {
                one(self.services.get(key).cloned().map(ApiObject::Service))
            }
            ObjectRequest::PersistentVolume(name) => {
                let found = self.persistent_volumes.get(name).cloned();
                one(found.map(ApiObject::PersistentVolume))
            }
            ObjectRequest::VolumeAttachment(name) => {
                let found = self.volume_attachments.get(name).cloned();
                one(found.map(ApiObject::VolumeAttachment))
            }
            ObjectRequest::RuntimeClass(name) => {
                let found = self.runtime_classes.get(name).cloned();
                one(found.map(ApiObject::RuntimeClass))
            }
            ObjectRequest::Services(namespace) => {
                let own = self.services.iter().filter(|(key, _)| key.0 == *namespace);
                own.map(|(_, found)| ApiObject::Service(found.clone()))
                    .collect()
            }
            ObjectRequest::CsiDrivers => {
                let all = self.csi_drivers.values().cloned();
                all.map(ApiObject::CsiDriver).collect()
            }
            ObjectRequest::TrustBundles => {
                let all = self.trust_bundles.values().cloned();
                all.map(ApiObject::TrustBundle).collect()
            }
            ObjectRequest::Token(_) | ObjectRequest::Certificate(_) => Vec::new(),
        }
    }
}

/// Drops the metadata that no pod needs: it is often most of an object.
pub fn slim(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
        if annotations.is_empty() {
            metadata.annotations = None;
        }
    }
}

/// Drops the fields of a service that containers' variables do not need.
pub fn slim_service(service: Service) -> Service {
    let spec = service.spec.unwrap_or_default();
    let port = |port: ServicePort| ServicePort {
        name: port.name,
        port: port.port,
        protocol: port.protocol,
        ..ServicePort::default()
    };
    Service {
        metadata: ObjectMeta {
            name: service.metadata.name,
            namespace: service.metadata.namespace,
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            cluster_ip: spec.cluster_ip,
            ports: spec
                .ports
                .map(|ports| ports.into_iter().map(port).collect()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
