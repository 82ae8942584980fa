//! What a driver is sent about a volume (upstream's csi_client.go and csi_mounter.go, 1.36), put together from what
//! the agent asks.

use std::collections::BTreeMap;
use std::path::Path;

use proto::csi;
use proto::storage::{self, Access, Pod, Secrets, TokensIn};
use serde::Serialize;

const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// One call of NodePublishVolume, but for the volume's capability.
#[derive(Clone, Copy, Debug)]
pub(super) struct Publish<'a> {
    pub(super) volume: &'a storage::Csi,
    pub(super) pod: &'a Pod,
    pub(super) access: Access,
    pub(super) target: &'a Path,
    /// Where it was staged, if the driver is to know.
    pub(super) staging: Option<&'a Path>,
}

impl Publish<'_> {
    pub(super) fn message(
        &self,
        capability: csi::VolumeCapability,
    ) -> csi::NodePublishVolumeRequest {
        let mut context = self.volume.volume_context.clone();
        if self.volume.pod_info {
            context.extend(self.pod_info());
        }
        let mut secrets = values(self.volume.publish_secrets.as_ref());
        if let Some(tokens) = tokens(&self.volume.tokens) {
            let place = match self.volume.tokens_in() {
                TokensIn::Context => &mut context,
                TokensIn::Secrets => &mut secrets,
            };
            place.insert(TOKENS.to_owned(), tokens);
        }
        csi::NodePublishVolumeRequest {
            volume_id: self.volume.volume_handle.clone(),
            publish_context: self.volume.publish_context.clone(),
            staging_target_path: self.staging.map(text).unwrap_or_default(),
            target_path: text(self.target),
            volume_capability: Some(capability),
            readonly: self.access == Access::ReadOnly,
            secrets,
            volume_context: context,
        }
    }

    fn pod_info(&self) -> [(String, String); 5] {
        let entry =
            |key: &str, value: &str| (format!("csi.storage.k8s.io/{key}"), value.to_owned());
        let ephemeral = if self.volume.ephemeral {
            "true"
        } else {
            "false"
        };
        [
            entry("pod.name", &self.pod.name),
            entry("pod.namespace", &self.pod.namespace),
            entry("pod.uid", &self.pod.uid),
            entry("serviceAccount.name", &self.pod.service_account),
            entry("ephemeral", ephemeral),
        ]
    }
}

/// Makes the request of NodeStageVolume.
pub(super) fn stage(
    volume: &storage::Csi,
    staging: &Path,
    capability: csi::VolumeCapability,
) -> csi::NodeStageVolumeRequest {
    csi::NodeStageVolumeRequest {
        volume_id: volume.volume_handle.clone(),
        publish_context: volume.publish_context.clone(),
        staging_target_path: text(staging),
        volume_capability: Some(capability),
        secrets: values(volume.stage_secrets.as_ref()),
        volume_context: volume.volume_context.clone(),
    }
}

/// The values of secrets, for a driver only.
pub(super) fn values(secrets: Option<&Secrets>) -> BTreeMap<String, String> {
    secrets
        .map(|secrets| secrets.values.clone())
        .unwrap_or_default()
}

/// A path as a driver gets it. Ours come from texts and stay texts.
pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// As a TokenRequest's status reads.
#[derive(Serialize)]
struct Token<'a> {
    token: &'a str,
    #[serde(rename = "expirationTimestamp")]
    expires: &'a str,
}

fn tokens(tokens: &[storage::Token]) -> Option<String> {
    if tokens.is_empty() {
        return None;
    }
    let by_audience: BTreeMap<&str, Token<'_>> = tokens
        .iter()
        .map(|given| {
            let token = Token {
                token: &given.token,
                expires: &given.expires,
            };
            (given.audience.as_str(), token)
        })
        .collect();
    Some(serde_json::to_string(&by_audience).expect("text keys and text values are JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> storage::Csi {
        storage::Csi {
            driver: "d.example.com".to_owned(),
            volume_handle: "vol-1".to_owned(),
            volume_context: [("a".to_owned(), "b".to_owned())].into(),
            ..storage::Csi::default()
        }
    }

    fn message(volume: &storage::Csi) -> csi::NodePublishVolumeRequest {
        let pod = Pod {
            uid: "uid-1".to_owned(),
            namespace: "ns".to_owned(),
            name: "web".to_owned(),
            service_account: "sa".to_owned(),
        };
        let publish = Publish {
            volume,
            pod: &pod,
            access: Access::ReadOnly,
            target: Path::new("/t"),
            staging: None,
        };
        publish.message(csi::VolumeCapability::default())
    }

    /// Upstream's TestMounterSetUp and TestMounterSetUpWithInline: podInfoOnMount.
    #[test]
    fn a_driver_hears_of_the_pod_only_if_it_asked() {
        let plain = message(&volume());
        assert_eq!(
            plain.volume_context,
            BTreeMap::from([("a".to_owned(), "b".to_owned())])
        );
        assert!(plain.readonly && plain.staging_target_path.is_empty());
        for (ephemeral, word) in [(false, "false"), (true, "true")] {
            let with = message(&storage::Csi {
                pod_info: true,
                ephemeral,
                ..volume()
            });
            let expected = [
                ("a", "b"),
                ("csi.storage.k8s.io/pod.name", "web"),
                ("csi.storage.k8s.io/pod.namespace", "ns"),
                ("csi.storage.k8s.io/pod.uid", "uid-1"),
                ("csi.storage.k8s.io/serviceAccount.name", "sa"),
                ("csi.storage.k8s.io/ephemeral", word),
            ];
            let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
            assert_eq!(with.volume_context, BTreeMap::from(expected));
        }
    }

    /// Upstream's TestPodServiceAccountTokenAttrs.
    #[test]
    fn tokens_are_where_the_driver_wants_them() {
        let token = |audience: &str, token: &str| storage::Token {
            audience: audience.to_owned(),
            token: token.to_owned(),
            expires: "2026-01-01T00:00:00Z".to_owned(),
        };
        let json = r#"{"":{"token":"t2","expirationTimestamp":"2026-01-01T00:00:00Z"},"gcp":{"token":"t1","expirationTimestamp":"2026-01-01T00:00:00Z"}}"#;
        let in_context = storage::Csi {
            tokens: vec![token("gcp", "t1"), token("", "t2")],
            ..volume()
        };
        let seen = message(&in_context);
        assert_eq!(seen.volume_context[TOKENS], json);
        assert!(seen.secrets.is_empty());
        let in_secrets = storage::Csi {
            tokens_in: TokensIn::Secrets.into(),
            ..in_context
        };
        let seen = message(&in_secrets);
        assert_eq!(seen.secrets[TOKENS], json);
        assert!(!seen.volume_context.contains_key(TOKENS));
        assert!(!message(&volume()).volume_context.contains_key(TOKENS));
    }
}
