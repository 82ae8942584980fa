//! Registry credentials: where they come from, and which image each is for.
//!
//! Mirrors upstream's pkg/credentialprovider (v1.36). Read `matching` (which registry a credential is for), `keyring`
//! (the order in which they are tried), `docker` and `secrets` (the formats), `provider` (credential provider
//! programs).

pub mod docker;
pub mod keyring;
pub mod matching;
pub mod provider;
pub mod secrets;

use std::fmt;

use logic_api::pod::hash::{go_json_string, hex};
use sha2::{Digest, Sha256};

/// A name and a password. Its debug text shows neither.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AuthConfig {
    pub username: String,
    /// A secret: never logged.
    pub password: String,
    pub email: String,
}

impl fmt::Debug for AuthConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Auth(..)")
    }
}

impl AuthConfig {
    /// Upstream's hash, which stands in its records: two credentials of one hash are the same one.
    pub fn hash(&self) -> String {
        let fields = [
            ("username", &self.username),
            ("password", &self.password),
            ("email", &self.email),
        ];
        let mut json = String::from("{");
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            if json.len() > 1 {
                json.push(',');
            }
            go_json_string(name, &mut json);
            json.push(':');
            go_json_string(value, &mut json);
        }
        json.push('}');
        hex(&Sha256::digest(json.as_bytes()))
    }
}

/// A credential and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub auth: AuthConfig,
    /// For the records of who may use the image.
    pub source: CredentialSource,
}

/// Where a credential comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// A file or a provider of the node: every pod may use it.
    Node,
    /// A secret that the pod names.
    Secret(SecretId),
}

/// The secret that a credential is from.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretId {
    pub uid: String,
    pub namespace: String,
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_upstreams_of_the_fields_that_are_set() {
        let auth = AuthConfig {
            username: "user".into(),
            password: "pass".into(),
            ..AuthConfig::default()
        };
        // sha256 of {"username":"user","password":"pass"}
        let expected = hex(&Sha256::digest(br#"{"username":"user","password":"pass"}"#));
        assert_eq!(auth.hash(), expected);
        assert_eq!(expected.len(), 64);
        assert_eq!(
            AuthConfig::default().hash(),
            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
            "of an empty object"
        );
    }

    #[test]
    fn a_password_never_shows_in_debug_text() {
        let auth = AuthConfig {
            username: "user".into(),
            password: "hunter2".into(),
            email: String::new(),
        };
        let credential = Credential {
            auth,
            source: CredentialSource::Node,
        };
        assert!(!format!("{credential:?}").contains("hunter2"));
    }
}
