//! Records of pulls: what is being pulled, what was pulled, and whose credentials it was pulled with.
//!
//! They are upstream's files, so that a node can be handed over: `image_manager/pulling` and
//! `image_manager/pulled` in the root directory, each file named by a hash of its subject. Mirrors
//! pkg/kubelet/images/pullmanager (v1.36): fs_pullrecords.go and pulledRecordMergeNewCreds.

use std::collections::BTreeMap;

use jiff::Timestamp;
use logic_api::pod::hash::hex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::images::credentials::{Credential, CredentialSource};

const GROUP: &str = "kubelet.config.k8s.io/";
/// The version that is written; `v1alpha1` of 1.34 and older is read as well.
const VERSION: &str = "v1beta1";
const OLDER: &str = "v1alpha1";
const INTENT: &str = "ImagePullIntent";
const PULLED: &str = "ImagePulledRecord";

/// The name of the file about an image (for an intent) or about what the runtime calls it (for a pull).
pub fn file_name(subject: &str) -> String {
    format!("sha256-{}", hex(&Sha256::digest(subject.as_bytes())))
}

/// Whether a file of the directory is a record, and a complete one.
pub fn is_file_name(name: &str) -> bool {
    name.starts_with("sha256-") && !name.ends_with(".tmp")
}

/// The credentials that an image was pulled with: upstream's `ImagePullCredentials`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct PullCredentials {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_empty")]
    pub kubernetes_secrets: Vec<PullSecret>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_empty")]
    pub kubernetes_service_accounts: Vec<PullServiceAccount>,
    /// Nothing was needed, or what was used is the node's: every pod may use the image.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub node_pods_accessible: bool,
}

/// A secret that an image was pulled with. The order is that of upstream's lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct PullSecret {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// Of the credential in it; empty where it is not known, and then equal to no other.
    pub credential_hash: String,
}

/// A service account that an image was pulled for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct PullServiceAccount {
    pub uid: String,
    pub namespace: String,
    pub name: String,
}

impl PullCredentials {
    /// The record of a pull that succeeded with this credential, or without any.
    pub fn of(used: Option<&Credential>) -> Self {
        match used.and_then(PullSecret::of) {
            Some(secret) => Self {
                kubernetes_secrets: vec![secret],
                ..Self::default()
            },
            None => Self {
                node_pods_accessible: true,
                ..Self::default()
            },
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl PullSecret {
    /// None for what is the node's own.
    pub fn of(credential: &Credential) -> Option<Self> {
        match &credential.source {
            CredentialSource::Node => None,
            CredentialSource::Secret(id) => Some(Self {
                uid: id.uid.clone(),
                namespace: id.namespace.clone(),
                name: id.name.clone(),
                credential_hash: credential.auth.hash(),
            }),
        }
    }

    pub fn is_same_secret(&self, other: &Self) -> bool {
        self.place() == other.place()
    }

    fn place(&self) -> [&str; 3] {
        [&self.namespace, &self.name, &self.uid]
    }
}

/// The record of a pulled image, upstream's `ImagePulledRecord`: the file's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PulledRecord {
    kind: String,
    api_version: String,
    /// As upstream writes it; none in a record that has none.
    #[serde(with = "whole_seconds", default)]
    pub last_updated_time: Option<Timestamp>,
    /// The image's reference in the runtime.
    #[serde(default)]
    pub image_ref: String,
    /// By the image's name as a pod wrote it, without tag and digest.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "or_empty"
    )]
    pub credential_mapping: BTreeMap<String, PullCredentials>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PullIntentRecord {
    kind: String,
    api_version: String,
    #[serde(default)]
    image: String,
}

/// Whether a file is as this version writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFormat {
    Current,
    /// To be written anew.
    Older,
}

/// A file is no record.
#[derive(Debug, Error)]
pub enum PullRecordError {
    #[error("it does not read as {expected}")]
    Syntax {
        expected: &'static str,
        source: serde_json::Error,
    },
    #[error("it is of kind {kind:?} in {api_version:?}, expected {expected}")]
    Kind {
        expected: &'static str,
        kind: String,
        api_version: String,
    },
}

/// The content of an intent: the record that this image is being pulled.
pub fn encode_intent(image: &str) -> Vec<u8> {
    encoded(&PullIntentRecord {
        kind: INTENT.to_owned(),
        api_version: format!("{GROUP}{VERSION}"),
        image: image.to_owned(),
    })
}

/// The image that is being pulled.
pub fn decode_intent(text: &[u8]) -> Result<(String, RecordFormat), PullRecordError> {
    let intent: PullIntentRecord = decoded(text, INTENT)?;
    let form = form(&intent.kind, &intent.api_version, INTENT)?;
    Ok((intent.image, form))
}

/// The file about an image that was pulled.
pub fn encode_pulled(record: &PulledRecord) -> Vec<u8> {
    encoded(record)
}

/// Reads the record of a pulled image.
pub fn decode_pulled(text: &[u8]) -> Result<(PulledRecord, RecordFormat), PullRecordError> {
    let mut record: PulledRecord = decoded(text, PULLED)?;
    let form = form(&record.kind, &record.api_version, PULLED)?;
    record.api_version = format!("{GROUP}{VERSION}");
    Ok((record, form))
}

fn encoded(record: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(record).expect("a record is plain data");
    text.push(b'\n');
    text
}

fn decoded<T: DeserializeOwned>(text: &[u8], expected: &'static str) -> Result<T, PullRecordError> {
    serde_json::from_slice(text).map_err(|source| PullRecordError::Syntax { expected, source })
}

fn form(
    kind: &str,
    api_version: &str,
    expected: &'static str,
) -> Result<RecordFormat, PullRecordError> {
    match (kind == expected, api_version.strip_prefix(GROUP)) {
        (true, Some(VERSION)) => Ok(RecordFormat::Current),
        (true, Some(OLDER)) => Ok(RecordFormat::Older),
        _ => Err(PullRecordError::Kind {
            expected,
            kind: kind.to_owned(),
            api_version: api_version.to_owned(),
        }),
    }
}

impl PulledRecord {
    /// The first record of an image. Without credentials it says: pulled, with unknown credentials.
    pub fn new(image_ref: &str, now: Timestamp) -> Self {
        Self {
            kind: PULLED.to_owned(),
            api_version: format!("{GROUP}{VERSION}"),
            last_updated_time: Some(now),
            image_ref: image_ref.to_owned(),
            credential_mapping: BTreeMap::new(),
        }
    }

    /// Adds that the image was pulled under this name with these credentials; returns whether that changed the record.
    ///
    /// An image that every pod may use stays so. The hash of a known secret is updated.
    pub fn merge(&mut self, name: &str, new: &PullCredentials, now: Timestamp) -> bool {
        if new.is_empty() {
            return false;
        }
        let changed = match self.credential_mapping.get_mut(name) {
            None => {
                let new = new.clone();
                self.credential_mapping.insert(name.to_owned(), new);
                true
            }
            Some(known) if known.node_pods_accessible => false,
            Some(known) if new.node_pods_accessible => {
                *known = new.clone();
                true
            }
            Some(known) => known.add(new),
        };
        if changed {
            self.last_updated_time = Some(now);
        }
        changed
    }
}

impl PullCredentials {
    fn add(&mut self, new: &Self) -> bool {
        let mut changed = false;
        for secret in &new.kubernetes_secrets {
            let known = self
                .kubernetes_secrets
                .iter_mut()
                .find(|known| known.is_same_secret(secret));
            match known {
                Some(known) if known == secret => continue,
                Some(known) => known.clone_from(secret),
                None => self.kubernetes_secrets.push(secret.clone()),
            }
            changed = true;
        }
        for account in &new.kubernetes_service_accounts {
            if !self.kubernetes_service_accounts.contains(account) {
                self.kubernetes_service_accounts.push(account.clone());
                changed = true;
            }
        }
        self.kubernetes_secrets
            .sort_by(|a, b| a.place().cmp(&b.place()));
        self.kubernetes_service_accounts
            .sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
        changed
    }
}

/// Go writes an absent list or map as null.
fn or_empty<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

mod whole_seconds {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Timestamp};

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Timestamp>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let text = time.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        text.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Option::deserialize(from)
    }
}

#[cfg(test)]
mod tests;
