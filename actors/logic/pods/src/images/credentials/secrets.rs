//! The secrets that a pod pulls its images with.
//!
//! Mirrors upstream's getPullSecretsForPod (kubelet_pods.go) and pkg/credentialprovider/secrets (v1.36).

use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use logic_api::objects::Objects;
use logic_api::pod::PodView;
use thiserror::Error;

use super::docker::{self, DockerConfigError, DockerConfigFormat};
use super::keyring::Keyring;
use super::{CredentialSource, SecretId};

/// The reason of the event about missing secrets.
pub const MISSING: &str = "FailedToRetrieveImagePullSecret";

/// The pod's `imagePullSecrets` that are known, and the names of the missing ones.
#[derive(Clone, Debug, Default)]
pub struct PullSecrets {
    pub secrets: Vec<Arc<Secret>>,
    /// Names of secrets that do not exist: the pull goes on without them, as upstream.
    pub missing: Vec<String>,
}

impl PullSecrets {
    /// Looks them up. An entry without a name is ignored: the API lets it through.
    pub fn of(pod: &Pod, objects: &dyn Objects) -> Self {
        let named = pod
            .spec()
            .and_then(|spec| spec.image_pull_secrets.as_deref())
            .unwrap_or_default();
        let mut found = Self::default();
        for name in named.iter().map(|reference| &reference.name) {
            match objects.secret(pod.namespace(), name) {
                _ if name.is_empty() => {}
                Some(secret) => found.secrets.push(secret),
                None => found.missing.push(name.clone()),
            }
        }
        found
    }

    /// The message of the event; none if nothing is missing.
    pub fn complaint(&self) -> Option<String> {
        let missing = self.missing.join(", ");
        (!missing.is_empty()).then(|| {
            format!(
                "Unable to retrieve some image pull secrets ({missing}); attempting to pull the image may not succeed."
            )
        })
    }

    /// The credentials in them. A secret of another type has none; one that does not read spoils the pull.
    pub fn keyring(&self) -> Result<Keyring, SecretError> {
        let mut keyring = Keyring::default();
        for secret in &self.secrets {
            let Some((format, ByteString(data))) = content(secret) else {
                continue;
            };
            let id = SecretId {
                uid: secret.metadata.uid.clone().unwrap_or_default(),
                namespace: secret.metadata.namespace.clone().unwrap_or_default(),
                name: secret.metadata.name.clone().unwrap_or_default(),
            };
            match docker::parse(format, data) {
                Ok(config) => keyring.add(&CredentialSource::Secret(id), &config),
                Err(source) => {
                    let name = id.name;
                    return Err(SecretError { name, source });
                }
            }
        }
        Ok(keyring)
    }
}

/// A pull secret does not read.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("image pull secret {name:?}: {source}")]
pub struct SecretError {
    pub name: String,
    // Printed, not chained: this text is shown to the pod's owner alone.
    source: DockerConfigError,
}

fn content(secret: &Secret) -> Option<(DockerConfigFormat, &ByteString)> {
    let (format, key) = match secret.type_.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => {
            (DockerConfigFormat::ConfigJson, ".dockerconfigjson")
        }
        Some("kubernetes.io/dockercfg") => (DockerConfigFormat::Dockercfg, ".dockercfg"),
        Some(_) | None => return None,
    };
    let data = secret.data.as_ref()?.get(key)?;
    (!data.0.is_empty()).then_some((format, data))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::LocalObjectReference;
    use logic_api::objects::StaticObjects;
    use logic_api::testing::*;

    use super::*;

    fn secret(name: &str, type_: &str, key: &str, data: &str) -> Arc<Secret> {
        let mut secret = Secret {
            type_: Some(type_.to_owned()),
            ..Secret::default()
        };
        secret.metadata.name = Some(name.to_owned());
        secret.metadata.namespace = Some("default".to_owned());
        secret.metadata.uid = Some(format!("uid-{name}"));
        secret.data = Some([(key.to_owned(), ByteString(data.into()))].into());
        Arc::new(secret)
    }

    const CONFIG: &str =
        r#"{"auths": {"test.registry.io": {"username": "user", "password": "password"}}}"#;

    /// Upstream's Test_MakeDockerKeyring.
    #[test]
    fn secrets_of_the_two_docker_types_give_credentials_in_their_order() {
        let image = "test.registry.io/foo/bar";
        let users = |secrets: Vec<Arc<Secret>>| {
            let secrets = PullSecrets {
                secrets,
                missing: Vec::new(),
            };
            let found = secrets.keyring().unwrap().lookup(image);
            let users = found
                .into_iter()
                .map(|found| (found.auth.username, found.source));
            users.collect::<Vec<_>>()
        };
        let from = |name: &str| {
            CredentialSource::Secret(SecretId {
                uid: format!("uid-{name}"),
                namespace: "default".into(),
                name: name.into(),
            })
        };
        let json = "kubernetes.io/dockerconfigjson";
        let old = "kubernetes.io/dockercfg";
        let entry = r#"{"test.registry.io": {"username": "old", "password": "password"}}"#;
        assert_eq!(
            users(vec![
                secret("a", json, ".dockerconfigjson", CONFIG),
                secret("b", old, ".dockercfg", entry),
            ]),
            [("user".to_owned(), from("a")), ("old".into(), from("b"))]
        );
        let without = [
            secret("a", "Opaque", ".dockerconfigjson", CONFIG),
            secret("a", json, ".dockercfg", CONFIG),
            secret("a", json, ".dockerconfigjson", ""),
        ];
        for secret in without {
            assert!(users(vec![secret]).is_empty());
        }
    }

    #[test]
    fn a_secret_that_does_not_read_is_named() {
        let broken = secret(
            "broken",
            "kubernetes.io/dockerconfigjson",
            ".dockerconfigjson",
            "{",
        );
        let secrets = PullSecrets {
            secrets: vec![broken],
            missing: Vec::new(),
        };
        assert!(
            secrets
                .keyring()
                .unwrap_err()
                .to_string()
                .starts_with("image pull secret \"broken\": it is not a docker configuration")
        );
    }

    #[test]
    fn secrets_that_are_not_at_hand_are_told_and_nameless_ones_passed_over() {
        let named = |name: &str| LocalObjectReference { name: name.into() };
        let pod = pod("p").app("c").spec_with(|spec| {
            spec.image_pull_secrets =
                Some(vec![named("gone"), named(""), named("a"), named("lost")]);
        });
        let mut objects = StaticObjects::default();
        let a = secret(
            "a",
            "kubernetes.io/dockerconfigjson",
            ".dockerconfigjson",
            CONFIG,
        );
        let key = (pod.namespace().to_owned(), "a".to_owned());
        objects.secrets.insert(key, a);
        let found = PullSecrets::of(&pod, &objects);
        assert_eq!(found.secrets.len(), 1);
        assert_eq!(
            found.complaint().as_deref(),
            Some(
                "Unable to retrieve some image pull secrets (gone, lost); attempting to pull the image may not succeed."
            )
        );
        assert_eq!(PullSecrets::default().complaint(), None);
    }
}
