//! What is kept: pods as far as they are needed to run them, and the objects that they refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, PodStatus, Secret, Service,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kernel::checkpoint::LIMIT;
use logic::objects::{
    BoundPod, Object, ServiceAccountToken, StaticObjects, StaticToken, Wanted, needed, references,
    slim,
};
use logic::pod::PodView;
use logic::types::PodUid;
use serde::{Deserialize, Serialize};

/// Everything, as it is written.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Content {
    #[serde(with = "arcs")]
    pub(super) pods: Vec<Arc<Pod>>,
    /// The pods for which everything had been asked for.
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
    tokens: Vec<Token>,
}

#[derive(Serialize, Deserialize)]
struct Token {
    namespace: String,
    service_account: String,
    audiences: Vec<String>,
    pod: Option<(String, String)>,
    token: String,
    expires: Timestamp,
    issued: Option<Timestamp>,
}

/// What there is to choose from.
pub(super) struct Stock {
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) supplied: BTreeSet<PodUid>,
    /// Newer than those that the pods came with.
    pub(super) statuses: BTreeMap<PodUid, Arc<PodStatus>>,
    pub(super) objects: Arc<StaticObjects>,
    pub(super) node_name: String,
}

impl Content {
    /// Chooses what the pods need.
    pub(super) fn of(stock: &Stock) -> Content {
        let mut content = Content::default();
        let mut wanted = BTreeSet::new();
        for pod in &stock.pods {
            let references = references(pod);
            wanted.extend(needed(pod, &references, &stock.objects, &stock.node_name));
            let uid = pod.uid();
            content.pods.push(kept(pod, stock.statuses.get(&uid)));
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

    fn take_token(&mut self, wanted: &Wanted, objects: &StaticObjects) {
        let Wanted::Token(wanted) = wanted else {
            return;
        };
        let account = (wanted.namespace.clone(), wanted.service_account.clone());
        let known = objects.tokens.get(&account);
        let bound = (wanted.pod_name.clone(), wanted.pod_uid.clone());
        for token in known.into_iter().flatten() {
            let pod = token.bound_to.clone().map(|pod| (pod.name, pod.uid));
            if pod.as_ref() != Some(&bound) || token.audiences != wanted.audiences {
                continue;
            }
            self.tokens.push(Token {
                namespace: account.0.clone(),
                service_account: account.1.clone(),
                audiences: token.audiences.clone(),
                pod,
                token: token.token.token.clone(),
                expires: token.token.expires,
                issued: token.token.issued,
            });
        }
    }

    /// The objects, as they lie on a shelf.
    pub(super) fn objects(&self) -> StaticObjects {
        let mut objects = StaticObjects::default();
        let all = of(&self.config_maps, Object::ConfigMap)
            .chain(of(&self.secrets, Object::Secret))
            .chain(of(&self.services, Object::Service))
            .chain(of(&self.claims, Object::Claim))
            .chain(of(&self.persistent_volumes, Object::PersistentVolume))
            .chain(of(&self.volume_attachments, Object::VolumeAttachment))
            .chain(of(&self.runtime_classes, Object::RuntimeClass))
            .chain(of(&self.csi_drivers, Object::CsiDriver))
            .chain(of(&self.trust_bundles, Object::TrustBundle));
        for object in all {
            objects.put(object);
        }
        for token in &self.tokens {
            let account = (token.namespace.clone(), token.service_account.clone());
            let bound_to = token.pod.clone().map(|(name, uid)| BoundPod { name, uid });
            objects
                .tokens
                .entry(account)
                .or_default()
                .push(StaticToken {
                    audiences: token.audiences.clone(),
                    bound_to,
                    token: ServiceAccountToken {
                        token: token.token.clone(),
                        expires: token.expires,
                        issued: token.issued,
                    },
                });
        }
        objects
    }

    /// As bytes, packed.
    pub(super) fn pack(&self) -> io::Result<Vec<u8>> {
        let mut packer = ZlibEncoder::new(Vec::new(), Compression::fast());
        serde_json::to_writer(&mut packer, self)?;
        packer.flush()?;
        packer.finish()
    }

    pub(super) fn unpack(bytes: &[u8]) -> io::Result<Content> {
        // Nobody else can have sealed it; all the same it may not fill the memory.
        let most = 8 * LIMIT as u64;
        let mut text = Vec::new();
        ZlibDecoder::new(bytes).take(most).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

fn of<'a, T>(all: &'a [Arc<T>], kind: fn(Arc<T>) -> Object) -> impl Iterator<Item = Object> + 'a {
    all.iter().cloned().map(kind)
}

/// Its definition, and its status as it is known best. The version changes with every status, and is of no use later.
fn kept(pod: &Arc<Pod>, status: Option<&Arc<PodStatus>>) -> Arc<Pod> {
    let mut kept = Pod {
        metadata: pod.metadata.clone(),
        spec: pod.spec.clone(),
        status: match status {
            Some(status) => Some(PodStatus::clone(status)),
            None => pod.status.clone(),
        },
    };
    slim(&mut kept.metadata);
    kept.metadata.resource_version = None;
    Arc::new(kept)
}

/// Shared objects, written as the objects.
mod arcs {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        all: &[Arc<T>],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(all.iter().map(AsRef::as_ref))
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Arc<T>>, D::Error> {
        let all = Vec::<T>::deserialize(deserializer)?;
        Ok(all.into_iter().map(Arc::new).collect())
    }
}
