//! The content of the checkpoint: pods as far as they are needed to run them, and the objects that they refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::sync::Arc;

use api_client::ByValue;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec, PodStatus, Secret, Service,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kernel::checkpoint::LIMIT;
use logic_api::objects::{
    ApiObject, BoundPod, ObjectRequest, ServiceAccountToken, StaticObjects, StaticToken, slim,
};
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use logic_pods::api::needed::needed;
use logic_pods::api::references::references;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::certificates::CheckpointedCertificate;

/// The whole content, as it is written.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CheckpointContent {
    pods: Vec<CheckpointedPod>,
    /// The pods for which every object had been requested.
    pub(super) supplied: BTreeSet<PodUid>,
    #[serde(with = "arcs")]
    config_maps: Vec<Arc<ConfigMap>>,
    #[serde(with = "arcs")]
    secrets: Vec<Arc<Secret>>,
    #[serde(with = "arcs")]
    services: Vec<Arc<Service>>,
    #[serde(with = "arcs")]
    claims: Vec<Arc<PersistentVolumeClaim>>,
    #[serde(with = "arcs")]
    persistent_volumes: Vec<Arc<PersistentVolume>>,
    #[serde(with = "arcs")]
    volume_attachments: Vec<Arc<VolumeAttachment>>,
    #[serde(with = "arcs")]
    runtime_classes: Vec<Arc<RuntimeClass>>,
    #[serde(with = "arcs")]
    csi_drivers: Vec<Arc<CSIDriver>>,
    #[serde(with = "arcs")]
    trust_bundles: Vec<Arc<ClusterTrustBundle>>,
    tokens: Vec<CheckpointedToken>,
    certificates: Vec<CheckpointedCertificate>,
}

#[derive(Serialize, Deserialize)]
struct CheckpointedToken {
    namespace: String,
    service_account: String,
    audiences: Vec<String>,
    pod: Option<(String, String)>,
    /// Absent in checkpoints of before it was kept.
    #[serde(default)]
    asked: Option<i64>,
    token: String,
    expires: Timestamp,
    issued: Option<Timestamp>,
}

/// The pods, statuses and objects to choose from.
pub(super) struct CheckpointInput {
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) supplied: BTreeSet<PodUid>,
    /// Newer than those that the pods came with.
    pub(super) statuses: BTreeMap<PodUid, Arc<PodStatus>>,
    pub(super) objects: Arc<StaticObjects>,
    pub(super) node_name: String,
}

impl CheckpointContent {
    /// Chooses what the pods need.
    pub(super) fn of(stock: &CheckpointInput) -> CheckpointContent {
        let mut content = CheckpointContent::default();
        let mut wanted = BTreeSet::new();
        for pod in &stock.pods {
            let references = references(pod);
            wanted.extend(needed(pod, &references, &stock.objects, &stock.node_name));
            let uid = pod.uid();
            content.pods.push(CheckpointedPod {
                pod: pod.clone(),
                status: stock.statuses.get(&uid).cloned(),
            });
            if stock.supplied.contains(&uid) {
                content.supplied.insert(uid);
            }
        }
        let mut objects = StaticObjects::default();
        for wanted in &wanted {
            for object in stock.objects.at_hand(wanted) {
                objects.put(object);
            }
            content.take_token(wanted, &stock.objects);
            if let ObjectRequest::Certificate(own) = wanted {
                let found = CheckpointedCertificate::of(own, &stock.objects);
                content.certificates.extend(found);
            }
        }
        content.take(objects);
        content
    }

    fn take(&mut self, objects: StaticObjects) {
        self.config_maps = objects.config_maps.into_values().collect();
        self.secrets = objects.secrets.into_values().collect();
        self.services = objects.services.into_values().collect();
        self.claims = objects.claims.into_values().collect();
        self.persistent_volumes = objects.persistent_volumes.into_values().collect();
        self.volume_attachments = objects.volume_attachments.into_values().collect();
        self.runtime_classes = objects.runtime_classes.into_values().collect();
        self.csi_drivers = objects.csi_drivers.into_values().collect();
        self.trust_bundles = objects.trust_bundles.into_values().collect();
    }

    fn take_token(&mut self, wanted: &ObjectRequest, objects: &StaticObjects) {
        let ObjectRequest::Token(wanted) = wanted else {
            return;
        };
        let bound = (wanted.pod_name.clone(), wanted.pod_uid.clone());
        for token in objects.tokens_for(wanted) {
            let pod = token.bound_to.clone().map(|pod| (pod.name, pod.uid));
            let other_life = token
                .asked
                .is_some_and(|asked| asked != wanted.expiration_seconds);
            if pod.as_ref() != Some(&bound) || token.audiences != wanted.audiences || other_life {
                continue;
            }
            self.tokens.push(CheckpointedToken {
                namespace: wanted.namespace.clone(),
                service_account: wanted.service_account.clone(),
                audiences: token.audiences.clone(),
                pod,
                asked: token.asked,
                token: token.token.token.clone(),
                expires: token.token.expires,
                issued: token.token.issued,
            });
        }
    }

    /// The pods, each with its newest status.
    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        self.pods.iter().map(|kept| kept.pod.clone()).collect()
    }

    /// The objects, as the object store holds them.
    pub(super) fn objects(&self) -> StaticObjects {
        let mut objects = StaticObjects::default();
        let all = of(&self.config_maps, ApiObject::ConfigMap)
            .chain(of(&self.secrets, ApiObject::Secret))
            .chain(of(&self.services, ApiObject::Service))
            .chain(of(&self.claims, ApiObject::Claim))
            .chain(of(&self.persistent_volumes, ApiObject::PersistentVolume))
            .chain(of(&self.volume_attachments, ApiObject::VolumeAttachment))
            .chain(of(&self.runtime_classes, ApiObject::RuntimeClass))
            .chain(of(&self.csi_drivers, ApiObject::CsiDriver))
            .chain(of(&self.trust_bundles, ApiObject::TrustBundle));
        for object in all {
            objects.put(object);
        }
        for certificate in &self.certificates {
            certificate.put(&mut objects);
        }
        for token in &self.tokens {
            let known = StaticToken {
                audiences: token.audiences.clone(),
                bound_to: token.pod.clone().map(|(name, uid)| BoundPod { name, uid }),
                asked: token.asked,
                token: ServiceAccountToken {
                    token: token.token.clone(),
                    expires: token.expires,
                    issued: token.issued,
                },
            };
            let account = token.service_account.clone();
            objects.put_token(token.namespace.clone(), account, known);
        }
        objects
    }

    /// Returns the content serialized and compressed.
    pub(super) fn pack(&self) -> io::Result<Vec<u8>> {
        let mut packer = ZlibEncoder::new(Vec::new(), Compression::fast());
        serde_json::to_writer(&mut packer, self)?;
        packer.flush()?;
        packer.finish()
    }

    pub(super) fn unpack(bytes: &[u8]) -> io::Result<CheckpointContent> {
        // Only this node can have sealed it; all the same its size is bounded, for it must not fill the memory.
        let most = 8 * LIMIT as u64;
        let mut text = Vec::new();
        ZlibDecoder::new(bytes).take(most).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

fn of<'a, T>(
    all: &'a [Arc<T>],
    kind: fn(Arc<T>) -> ApiObject,
) -> impl Iterator<Item = ApiObject> + 'a {
    all.iter().cloned().map(kind)
}

/// A pod's definition, and its newest known status. It is written without a copy of it, and without its version,
/// which changes with every status and is of no use later.
struct CheckpointedPod {
    pod: Arc<Pod>,
    /// Newer than the pod's own; none if no newer one is known.
    status: Option<Arc<PodStatus>>,
}

impl Serialize for CheckpointedPod {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            metadata: ObjectMeta,
            spec: &'a Option<PodSpec>,
            status: Option<&'a PodStatus>,
        }
        let mut metadata = self.pod.metadata.clone();
        slim(&mut metadata);
        metadata.resource_version = None;
        let written = Written {
            metadata,
            spec: &self.pod.spec,
            status: self.status.as_deref().or(self.pod.status.as_ref()),
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CheckpointedPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ByValue(pod) = ByValue::deserialize(deserializer)?;
        Ok(CheckpointedPod {
            pod: Arc::new(pod),
            status: None,
        })
    }
}

/// Shared objects, written as the objects.
mod arcs {
    use std::sync::Arc;

    use api_client::ByValue;
    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        all: &[Arc<T>],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(all.iter().map(AsRef::as_ref))
    }

    pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Arc<T>>, D::Error> {
        let all = Vec::<ByValue<T>>::deserialize(deserializer)?;
        Ok(all.into_iter().map(|one| Arc::new(one.0)).collect())
    }
}
