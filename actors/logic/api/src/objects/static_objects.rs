//! Objects that stay as they are until they are replaced as a whole.
//!
//! A token is a `TokenRequest` with its status, as `kubectl create token NAME -o yaml` shows it; its name is the
//! service account's. It answers requests for exactly its audiences, one without audiences those that name none.
//! A pod's certificate from manifests is a `PodCertificateRequest` with its status, and the key, which the API never
//! sees, the entry `tls.key` of the Secret of the same name.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::certificates::v1beta1::{
    ClusterTrustBundle, PodCertificateRequest, PodCertificateRequestStatus,
};
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret, Service,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass, VolumeAttachment};

use super::{
    CertificateCredentials, Issuance, Objects, PodCertificate, PodCertificateSpec,
    ServiceAccountToken, TokenSpec,
};

/// An object's namespace and name.
pub(super) type ObjectKey = (String, String);

/// Objects that do not change.
#[derive(Clone, Default)]
pub struct StaticObjects {
    pub config_maps: BTreeMap<ObjectKey, Arc<ConfigMap>>,
    pub secrets: BTreeMap<ObjectKey, Arc<Secret>>,
    pub services: BTreeMap<ObjectKey, Arc<Service>>,
    pub runtime_classes: BTreeMap<String, Arc<RuntimeClass>>,
    pub claims: BTreeMap<ObjectKey, Arc<PersistentVolumeClaim>>,
    pub persistent_volumes: BTreeMap<String, Arc<PersistentVolume>>,
    pub storage_classes: BTreeMap<String, Arc<StorageClass>>,
    pub csi_drivers: BTreeMap<String, Arc<CSIDriver>>,
    pub volume_attachments: BTreeMap<String, Arc<VolumeAttachment>>,
    pub trust_bundles: BTreeMap<String, Arc<ClusterTrustBundle>>,
    /// Requests from manifests, with their status.
    pub pod_certificates: BTreeMap<ObjectKey, Arc<PodCertificateRequest>>,
    /// Asked of the API, by what they are for.
    pub issuances: BTreeMap<PodCertificateSpec, Arc<Issuance>>,
    /// By whom they are for.
    pub tokens: BTreeMap<TokenKey, Vec<StaticToken>>,
    /// Why something is no object, by kind, namespace and name.
    pub refused: BTreeMap<(String, String, String), String>,
    /// Why there is no token, by what it is for: pods share an account, but not the answers about its tokens.
    pub refused_tokens: BTreeMap<TokenSpec, String>,
}

/// Which pods tokens are for. A pod finds its own among those of an account with a thousand pods without looking at the
/// others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenKey {
    namespace: String,
    service_account: String,
    /// The name of the pod that they are bound to; `None` if every pod of the account may use them.
    pod: Option<String>,
}

// Some are secret.
impl fmt::Debug for StaticObjects {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "StaticObjects({})", self.len())
    }
}

/// A token of a service account: issued by the API, or from a manifest, which is a `TokenRequest` with its status filled
/// in, whose name is the account's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticToken {
    /// The token's audiences, sorted.
    pub audiences: Vec<String>,
    /// The only pod that may use it; none if every pod of the account may.
    pub bound_to: Option<BoundPod>,
    /// The life in seconds that the API was asked for; none for a token of a manifest, which serves any.
    pub asked: Option<i64>,
    pub token: ServiceAccountToken,
}

/// The pod that a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundPod {
    pub name: String,
    /// Empty for whichever has the name.
    pub uid: String,
}

impl StaticToken {
    fn answers(&self, wanted: &TokenSpec) -> bool {
        let is_for = |pod: &BoundPod| {
            pod.name == wanted.pod_name && (pod.uid.is_empty() || pod.uid == wanted.pod_uid)
        };
        self.audiences == wanted.audiences
            && self.bound_to.as_ref().is_none_or(is_for)
            && self
                .asked
                .is_none_or(|asked| asked == wanted.expiration_seconds)
    }
}

impl StaticObjects {
    /// How many there are.
    pub fn len(&self) -> usize {
        let tokens: usize = self.tokens.values().map(Vec::len).sum();
        self.config_maps.len()
            + self.secrets.len()
            + self.services.len()
            + self.runtime_classes.len()
            + self.claims.len()
            + self.persistent_volumes.len()
            + self.storage_classes.len()
            + self.csi_drivers.len()
            + self.volume_attachments.len()
            + self.trust_bundles.len()
            + self.pod_certificates.len()
            + self.issuances.len()
            + tokens
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a token of a service account, unless it is known.
    pub fn put_token(&mut self, namespace: String, service_account: String, token: StaticToken) {
        let key = TokenKey {
            namespace,
            service_account,
            pod: token.bound_to.as_ref().map(|pod| pod.name.clone()),
        };
        let own = self.tokens.entry(key).or_default();
        if !own.contains(&token) {
            own.push(token);
        }
    }

    /// The tokens of a service account that a pod of that name may use.
    pub fn tokens_for(&self, wanted: &TokenSpec) -> impl Iterator<Item = &StaticToken> {
        [Some(wanted.pod_name.clone()), None]
            .into_iter()
            .filter_map(|pod| {
                self.tokens.get(&TokenKey {
                    namespace: wanted.namespace.clone(),
                    service_account: wanted.service_account.clone(),
                    pod,
                })
            })
            .flatten()
    }

    /// Takes over objects that are not known yet; returns the names of those that were.
    pub fn merge(&mut self, other: Self) -> Vec<String> {
        let Self {
            config_maps,
            secrets,
            services,
            runtime_classes,
            claims,
            persistent_volumes,
            storage_classes,
            csi_drivers,
            volume_attachments,
            trust_bundles,
            pod_certificates,
            issuances,
            tokens,
            refused,
            refused_tokens,
        } = other;
        let volumes = persistent_volumes;
        let known = [
            take_over("ConfigMap", &mut self.config_maps, config_maps),
            take_over("Secret", &mut self.secrets, secrets),
            take_over("Service", &mut self.services, services),
            take_over("RuntimeClass", &mut self.runtime_classes, runtime_classes),
            take_over("PersistentVolumeClaim", &mut self.claims, claims),
            take_over("PersistentVolume", &mut self.persistent_volumes, volumes),
            take_over("StorageClass", &mut self.storage_classes, storage_classes),
            take_over("CSIDriver", &mut self.csi_drivers, csi_drivers),
            take_over(
                "VolumeAttachment",
                &mut self.volume_attachments,
                volume_attachments,
            ),
            take_over("ClusterTrustBundle", &mut self.trust_bundles, trust_bundles),
            take_over(
                "PodCertificateRequest",
                &mut self.pod_certificates,
                pod_certificates,
            ),
        ];
        for (wanted, issuance) in issuances {
            self.issuances.entry(wanted).or_insert(issuance);
        }
        for (key, tokens) in tokens {
            for token in tokens {
                self.put_token(key.namespace.clone(), key.service_account.clone(), token);
            }
        }
        for (object, why) in refused {
            self.refused.entry(object).or_insert(why);
        }
        for (wanted, why) in refused_tokens {
            self.refused_tokens.entry(wanted).or_insert(why);
        }
        known.concat()
    }

    /// What became of one request.
    fn outcome(&self, key: &ObjectKey, request: &PodCertificateRequest) -> PodCertificate {
        let status = request.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref());
        for condition in conditions.unwrap_or_default() {
            let (reason, message) = (condition.reason.clone(), condition.message.clone());
            match condition.type_.as_str() {
                "Denied" => return PodCertificate::Denied { reason, message },
                "Failed" => return PodCertificate::Failed { reason, message },
                "Issued" => return self.issued(key, status),
                _ => {}
            }
        }
        let (namespace, name) = key;
        let missing = format!("PodCertificateRequest {namespace}/{name} is not answered");
        PodCertificate::NotYet { missing }
    }

    fn issued(
        &self,
        key: &ObjectKey,
        status: Option<&PodCertificateRequestStatus>,
    ) -> PodCertificate {
        let (namespace, name) = key;
        let secret = self.secrets.get(key);
        let entry = secret.and_then(|secret| secret.data.as_ref()?.get("tls.key"));
        let Some(entry) = entry else {
            let missing = format!(
                "secret {namespace}/{name} with the entry tls.key, the key of the PodCertificateRequest of that name"
            );
            return PodCertificate::NotYet { missing };
        };
        let times = status.and_then(|status| {
            let (renew, end) = (
                status.begin_refresh_at.as_ref()?,
                status.not_after.as_ref()?,
            );
            Some((renew.0, end.0, status.certificate_chain.as_ref()?))
        });
        let Some((renew_at, expires, chain)) = times else {
            let missing = format!("PodCertificateRequest {namespace}/{name} has no certificate");
            return PodCertificate::NotYet { missing };
        };
        PodCertificate::Issued(CertificateCredentials {
            key_pem: entry.0.clone(),
            chain_pem: chain.clone().into_bytes(),
            renew_at,
            expires,
        })
    }
}

/// The best last: what is issued and lasts longest, then what was decided, then the rest.
fn better(one: &PodCertificate, other: &PodCertificate) -> Ordering {
    let rank = |outcome: &PodCertificate| match outcome {
        PodCertificate::Issued(held) => (2, Some(held.expires)),
        PodCertificate::Denied { .. } | PodCertificate::Failed { .. } => (1, None),
        PodCertificate::NotYet { .. } => (0, None),
    };
    rank(one).cmp(&rank(other))
}

/// An object's name in messages.
trait ObjectName {
    fn text(&self) -> String;
}

impl ObjectName for ObjectKey {
    fn text(&self) -> String {
        format!("{}/{}", self.0, self.1)
    }
}

impl ObjectName for String {
    fn text(&self) -> String {
        self.clone()
    }
}

fn take_over<K: Ord + ObjectName, V>(
    kind: &str,
    own: &mut BTreeMap<K, V>,
    other: BTreeMap<K, V>,
) -> Vec<String> {
    let mut known = Vec::new();
    for (key, value) in other {
        match own.entry(key) {
            Entry::Occupied(held) => known.push(format!("{kind} {}", held.key().text())),
            Entry::Vacant(free) => drop(free.insert(value)),
        }
    }
    known
}

impl Objects for StaticObjects {
    fn config_map(&self, namespace: &str, name: &str) -> Option<Arc<ConfigMap>> {
        self.config_maps.get(&key(namespace, name)).cloned()
    }

    fn secret(&self, namespace: &str, name: &str) -> Option<Arc<Secret>> {
        self.secrets.get(&key(namespace, name)).cloned()
    }

    fn runtime_class(&self, name: &str) -> Option<Arc<RuntimeClass>> {
        self.runtime_classes.get(name).cloned()
    }

    fn services(&self) -> Vec<Arc<Service>> {
        self.services.values().cloned().collect()
    }

    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        self.claims.get(&key(namespace, name)).cloned()
    }

    fn persistent_volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.persistent_volumes.get(name).cloned()
    }

    fn storage_class(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.storage_classes.get(name).cloned()
    }

    fn csi_driver(&self, name: &str) -> Option<Arc<CSIDriver>> {
        self.csi_drivers.get(name).cloned()
    }

    fn volume_attachment(&self, name: &str) -> Option<Arc<VolumeAttachment>> {
        self.volume_attachments.get(name).cloned()
    }

    fn trust_bundles(&self) -> Vec<Arc<ClusterTrustBundle>> {
        self.trust_bundles.values().cloned().collect()
    }

    fn token(&self, wanted: &TokenSpec) -> Option<ServiceAccountToken> {
        self.tokens_for(wanted)
            .filter(|token| token.answers(wanted))
            .map(|found| &found.token)
            .max_by_key(|token| token.expires)
            .cloned()
    }

    fn pod_certificate(&self, wanted: &PodCertificateSpec) -> PodCertificate {
        let is_for = |(key, request): &(&ObjectKey, &Arc<PodCertificateRequest>)| {
            let spec = &request.spec;
            key.0 == wanted.namespace
                && spec.pod_name == wanted.pod_name
                && spec.signer_name == wanted.signer_name
                && (spec.pod_uid.is_empty() || spec.pod_uid == wanted.pod_uid)
        };
        let own = self.pod_certificates.iter().filter(is_for);
        let own = own.map(|(key, request)| self.outcome(key, request));
        let asked = self.issuances.get(wanted);
        own.chain(asked.map(|issuance| issuance.outcome(wanted)))
            .max_by(better)
            .unwrap_or_else(|| PodCertificate::missing(wanted))
    }

    fn refused(&self, kind: &str, namespace: &str, name: &str) -> Option<String> {
        let object = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        self.refused.get(&object).cloned()
    }

    fn refused_token(&self, wanted: &TokenSpec) -> Option<String> {
        self.refused_tokens.get(wanted).cloned()
    }
}

pub(super) fn key(namespace: &str, name: &str) -> ObjectKey {
    (namespace.to_owned(), name.to_owned())
}
