//! Each kind, and what is asked of it beyond its type.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest};
use k8s_openapi::api::certificates::v1beta1::{ClusterTrustBundle, PodCertificateRequest};
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret, Service,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass, VolumeAttachment};
use serde_json::Value;

use super::super::credentials::ServiceAccountToken;
use super::super::pem;
use super::super::static_objects::{BoundPod, StaticObjects, StaticToken};
use super::{DocumentNumber, MAX_OBJECT_BYTES, ObjectError, name, own_name, secretly, typed};

/// The kinds that a document may have.
pub(super) const EXPECTED: &str = "v1 ConfigMap, v1 Secret, v1 Service, v1 PersistentVolumeClaim, v1 PersistentVolume, \
                                   node.k8s.io/v1 RuntimeClass, storage.k8s.io/v1 StorageClass, CSIDriver or \
                                   VolumeAttachment, certificates.k8s.io/v1beta1 ClusterTrustBundle or \
                                   PodCertificateRequest, authentication.k8s.io/v1 TokenRequest or v1 List";
const STORAGE: &str = "storage.k8s.io/v1";
const CERTIFICATES: &str = "certificates.k8s.io/v1beta1";
const CERTIFICATES_ALPHA: &str = "certificates.k8s.io/v1alpha1";

type ObjectResult = Result<StaticObjects, ObjectError>;

pub(super) fn read(
    at: DocumentNumber,
    version: &str,
    kind: &str,
    document: &Value,
) -> ObjectResult {
    match (version, kind) {
        ("v1", "ConfigMap") => config_map(at, document),
        ("v1", "Secret") => secret(at, document),
        ("v1", "Service") => service(at, document),
        ("v1", "PersistentVolumeClaim") => claim(at, document),
        ("v1", "PersistentVolume") => persistent_volume(at, document),
        ("node.k8s.io/v1", "RuntimeClass") => runtime_class(at, document),
        (STORAGE, "StorageClass") => storage_class(at, document),
        (STORAGE, "CSIDriver") => csi_driver(at, document),
        (STORAGE, "VolumeAttachment") => volume_attachment(at, document),
        (CERTIFICATES | CERTIFICATES_ALPHA, "ClusterTrustBundle") => trust_bundle(at, document),
        (CERTIFICATES, "PodCertificateRequest") => pod_certificate(at, document),
        ("authentication.k8s.io/v1", "TokenRequest") => token(at, document),
        (version, kind) => Err(at.kind(format!("{version} {kind}"))),
    }
}

pub(super) fn is_known(kind: &str) -> bool {
    EXPECTED.split([' ', ',']).any(|word| word == kind)
}

pub(super) fn is_namespaced(kind: &str) -> bool {
    ![
        "PersistentVolume",
        "RuntimeClass",
        "StorageClass",
        "CSIDriver",
        "VolumeAttachment",
        "ClusterTrustBundle",
    ]
    .contains(&kind)
}

fn config_map(at: DocumentNumber, document: &Value) -> ObjectResult {
    let mut map: ConfigMap = typed(at, document)?;
    let text = map
        .data
        .iter()
        .flatten()
        .map(|(key, value)| (key, value.len()));
    let binary = map
        .binary_data
        .iter()
        .flatten()
        .map(|(key, value)| (key, value.0.len()));
    check_data(at, text.chain(binary))?;
    let key = name(at, &mut map)?;
    Ok(StaticObjects {
        config_maps: one(key, map),
        ..StaticObjects::default()
    })
}

/// `stringData` overwrites `data`, as the API server has it.
fn secret(at: DocumentNumber, document: &Value) -> ObjectResult {
    let mut secret: Secret = secretly(at, document)?;
    let text = secret.string_data.take().unwrap_or_default();
    let data = secret.data.get_or_insert_default();
    data.extend(
        text.into_iter()
            .map(|(key, value)| (key, ByteString(value.into_bytes()))),
    );
    check_data(at, data.iter().map(|(key, value)| (key, value.0.len())))?;
    let key = name(at, &mut secret)?;
    Ok(StaticObjects {
        secrets: one(key, secret),
        ..StaticObjects::default()
    })
}

fn service(at: DocumentNumber, document: &Value) -> ObjectResult {
    let mut service: Service = typed(at, document)?;
    let key = name(at, &mut service)?;
    Ok(StaticObjects {
        services: one(key, service),
        ..StaticObjects::default()
    })
}

fn runtime_class(at: DocumentNumber, document: &Value) -> ObjectResult {
    let class: RuntimeClass = typed(at, document)?;
    let name = own_name(at, &class)?;
    if class.handler.is_empty() {
        return Err(at.field("handler", "expected a handler"));
    }
    Ok(StaticObjects {
        runtime_classes: one(name, class),
        ..StaticObjects::default()
    })
}

fn claim(at: DocumentNumber, document: &Value) -> ObjectResult {
    let mut claim: PersistentVolumeClaim = typed(at, document)?;
    let key = name(at, &mut claim)?;
    if claim.spec.is_none() {
        return Err(at.field("spec", "expected what is claimed"));
    }
    Ok(StaticObjects {
        claims: one(key, claim),
        ..StaticObjects::default()
    })
}

fn persistent_volume(at: DocumentNumber, document: &Value) -> ObjectResult {
    let volume: PersistentVolume = typed(at, document)?;
    let name = own_name(at, &volume)?;
    if volume.spec.is_none() {
        return Err(at.field("spec", "expected a volume"));
    }
    Ok(StaticObjects {
        persistent_volumes: one(name, volume),
        ..StaticObjects::default()
    })
}

fn storage_class(at: DocumentNumber, document: &Value) -> ObjectResult {
    let class: StorageClass = typed(at, document)?;
    let name = own_name(at, &class)?;
    if class.provisioner.is_empty() {
        return Err(at.field("provisioner", "expected a provisioner"));
    }
    Ok(StaticObjects {
        storage_classes: one(name, class),
        ..StaticObjects::default()
    })
}

fn csi_driver(at: DocumentNumber, document: &Value) -> ObjectResult {
    let driver: CSIDriver = typed(at, document)?;
    let name = own_name(at, &driver)?;
    Ok(StaticObjects {
        csi_drivers: one(name, driver),
        ..StaticObjects::default()
    })
}

fn volume_attachment(at: DocumentNumber, document: &Value) -> ObjectResult {
    let attachment: VolumeAttachment = typed(at, document)?;
    let name = own_name(at, &attachment)?;
    let spec = &attachment.spec;
    let needed = [
        ("spec.attacher", &spec.attacher),
        ("spec.nodeName", &spec.node_name),
    ];
    for (field, value) in needed {
        if value.is_empty() {
            return Err(at.field(field, "expected a name"));
        }
    }
    Ok(StaticObjects {
        volume_attachments: one(name, attachment),
        ..StaticObjects::default()
    })
}

/// The alpha and the beta version have the same fields.
fn trust_bundle(at: DocumentNumber, document: &Value) -> ObjectResult {
    let mut document = document.clone();
    document["apiVersion"] = Value::from(CERTIFICATES);
    let bundle: ClusterTrustBundle = typed(at, &document)?;
    let name = own_name(at, &bundle)?;
    check_certificates(at, "spec.trustBundle", &bundle.spec.trust_bundle)?;
    Ok(StaticObjects {
        trust_bundles: one(name, bundle),
        ..StaticObjects::default()
    })
}

fn pod_certificate(at: DocumentNumber, document: &Value) -> ObjectResult {
    let mut request: PodCertificateRequest = typed(at, document)?;
    let key = name(at, &mut request)?;
    let needed = [
        ("spec.signerName", &request.spec.signer_name),
        ("spec.podName", &request.spec.pod_name),
    ];
    for (field, value) in needed {
        if value.is_empty() {
            return Err(at.field(field, "expected a name"));
        }
    }
    let status = request.status.clone().unwrap_or_default();
    if status
        .conditions
        .iter()
        .flatten()
        .any(|c| c.type_ == "Issued")
    {
        let chain = status.certificate_chain.unwrap_or_default();
        check_certificates(at, "status.certificateChain", &chain)?;
        let times = [
            ("status.beginRefreshAt", status.begin_refresh_at),
            ("status.notAfter", status.not_after),
        ];
        for (field, time) in times {
            time.ok_or_else(|| at.field(field, "expected a time"))?;
        }
    }
    Ok(StaticObjects {
        pod_certificates: one(key, request),
        ..StaticObjects::default()
    })
}

fn token(at: DocumentNumber, document: &Value) -> ObjectResult {
    let mut request: TokenRequest = secretly(at, document)?;
    let account = name(at, &mut request)?;
    let spec = request.spec.unwrap_or_default();
    let status = request.status.unwrap_or_default();
    let token = status.token.filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| at.field("status.token", "expected a token"))?;
    check_bytes(at, "status.token", token.len())?;
    let expires = status
        .expiration_timestamp
        .ok_or_else(|| at.field("status.expirationTimestamp", "expected a time"))?
        .0;
    let mut audiences = spec.audiences.unwrap_or_default();
    audiences.sort();
    audiences.dedup();
    let life = spec.expiration_seconds.map(SignedDuration::from_secs);
    let issued = match request.metadata.creation_timestamp {
        Some(time) => Some(time.0),
        None => life.and_then(|life| expires.checked_sub(life).ok()),
    };
    let token = StaticToken {
        audiences,
        bound_to: spec.bound_object_ref.and_then(bound_pod),
        asked: None,
        token: ServiceAccountToken {
            token,
            expires,
            issued,
        },
    };
    let (namespace, name) = account;
    let mut objects = StaticObjects::default();
    objects.put_token(namespace, name, token);
    Ok(objects)
}

/// What is bound to a Secret or a Node is good for every pod.
fn bound_pod(bound: BoundObjectReference) -> Option<BoundPod> {
    (bound.kind.as_deref() == Some("Pod")).then(|| BoundPod {
        name: bound.name.unwrap_or_default(),
        uid: bound.uid.unwrap_or_default(),
    })
}

fn one<K: Ord, V>(key: K, object: V) -> BTreeMap<K, Arc<V>> {
    [(key, Arc::new(object))].into()
}

fn check_certificates(at: DocumentNumber, field: &str, text: &str) -> Result<(), ObjectError> {
    check_bytes(at, field, text.len())?;
    let blocks = pem::blocks(text);
    if blocks.is_empty() {
        return Err(at.field(field, "expected PEM with at least one certificate"));
    }
    match blocks.iter().find(|block| block.label != "CERTIFICATE") {
        Some(other) => {
            let problem = format!("found a PEM block {:?}, expected CERTIFICATE", other.label);
            Err(at.field(field, problem))
        }
        None if blocks.iter().any(|block| block.has_headers) => {
            Err(at.field(field, "found a PEM block with headers"))
        }
        None => Ok(()),
    }
}

fn check_bytes(at: DocumentNumber, field: &str, bytes: usize) -> Result<(), ObjectError> {
    match bytes > MAX_OBJECT_BYTES {
        true => Err(at.field(
            field,
            format!("found {bytes} bytes, expected at most {MAX_OBJECT_BYTES}"),
        )),
        false => Ok(()),
    }
}

fn check_data<'a>(
    at: DocumentNumber,
    data: impl Iterator<Item = (&'a String, usize)>,
) -> Result<(), ObjectError> {
    let mut total = 0_usize;
    for (key, bytes) in data {
        if !is_key(key) {
            let problem = "expected letters, digits, '-', '_' and '.', at most 253";
            return Err(at.field(&format!("data[{key}]"), problem));
        }
        total = total.saturating_add(bytes);
    }
    check_bytes(at, "data", total)
}

/// Upstream's `IsConfigMapKey`: a key may become a file's name.
fn is_key(key: &str) -> bool {
    /// Characters of a key: the API's bound, that of a DNS subdomain.
    const LONGEST: usize = 253;
    let fits = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
    !key.is_empty()
        && key.len() <= LONGEST
        && key.chars().all(fits)
        && key != "."
        && !key.starts_with("..")
}
